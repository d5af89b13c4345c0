/*
 * settings.c
 *		Settings (GUCs).
 */
#include "postgres.h"

#include <limits.h>

#include "am/am.h"
#include "scan/rows.h"
#include "io/io.h"
#include "utils/guc.h"

int			pipeann_ef_search;
int			pipeann_iterative_scan;
int			pipeann_max_scan_tuples;
double		pipeann_scan_mem_multiplier;
int			pipeann_search_mode;
int			pipeann_pipeline_width;
int			pipeann_prefetch_rows;

static const struct config_enum_entry iterative_scan_values[] = {
	{"off", PIPEANN_ITERATIVE_OFF, false},
	{"relaxed_order", PIPEANN_ITERATIVE_RELAXED, false},
	{"strict_order", PIPEANN_ITERATIVE_STRICT, false},
	{NULL, 0, false}
};

static const struct config_enum_entry search_mode_values[] = {
	{"best_first", PIPEANN_BEST_FIRST, false},
	{"pipe", PIPEANN_PIPE, false},
	{"stale", PIPEANN_STALE, false},
	{"look_ahead", PIPEANN_LOOK_AHEAD, false},
	{NULL, 0, false}
};

static const struct config_enum_entry io_method_values[] = {
	{"auto", PIPEANN_IO_AUTO, false},
	{"io_uring", PIPEANN_IO_URING, false},
	{"pread", PIPEANN_IO_PREAD, false},
	{NULL, 0, false}
};

const char *
PipeannSearchModeName(int mode)
{
	const struct config_enum_entry *entry = search_mode_values;

	while (entry->name != NULL && entry->val != mode)
		entry++;
	return entry->name;
}

/*
 * Ideas of the search modes, to be switched off when they are measured.
 */
static const struct
{
	const char *name;
	const char *what;
	uint32		bit;
}			switches[] = {
	{"pipeann.enable_pipelining",
		"Lets pipe read ahead of what is explored; without it, it reads in rounds.",
	PIPEANN_PIPELINING},
	{"pipeann.enable_read_per_step",
		"Lets pipe issue one read for each node explored, rather than as many as there is room for.",
	PIPEANN_READ_PER_STEP},
	{"pipeann.enable_dynamic_width",
		"Lets pipe have more reads in flight while few of them are wasted.",
	PIPEANN_DYNAMIC_WIDTH},
	{"pipeann.enable_memory_first",
		"Lets look_ahead explore what is in memory before better candidates that must be read, at first.",
	PIPEANN_MEMORY_FIRST},
	{"pipeann.enable_convergence_burst",
		"Lets look_ahead read many candidates at once when it converges.",
	PIPEANN_CONVERGENCE_BURST},
	{"pipeann.enable_overflow_pool",
		"Lets look_ahead keep a longer pool, whose candidates in memory it explores while it waits.",
	PIPEANN_OVERFLOW_POOL},
	{"pipeann.enable_page_seeds",
		"Lets a search that reads begin with all nodes of the entry graph's pages.",
	PIPEANN_PAGE_SEEDS},
	{"pipeann.enable_page_mates",
		"Lets all nodes of a page that was read be candidates.",
	PIPEANN_PAGE_MATES},
	{"pipeann.enable_adaptive_stop",
		"Lets a search end when its ten nearest rows are unlikely to change, and go on longer while they are not.",
	PIPEANN_ADAPTIVE_STOP},
	{"pipeann.enable_node_hits",
		"Lets a search that reads nothing take the nodes that it explores from their pages, and leave their page-mates.",
	PIPEANN_NODE_HITS},
};

static bool switches_on[lengthof(switches)];

uint32
PipeannSwitches(void)
{
	uint32		on = 0;

	for (size_t i = 0; i < lengthof(switches); i++)
		if (switches_on[i])
			on |= switches[i].bit;
	return on;
}

static void
InitSwitches(void)
{
	for (size_t i = 0; i < lengthof(switches); i++)
		DefineCustomBoolVariable(switches[i].name, switches[i].what, NULL,
								 &switches_on[i],
								 (PIPEANN_DEFAULT_SWITCHES & switches[i].bit) != 0,
								 PGC_USERSET, GUC_EXPLAIN, NULL, NULL, NULL);
}

static void
InitSearchSettings(void)
{
	DefineCustomIntVariable("pipeann.ef_search",
							"Length of the candidate list of a search.",
							"More finds more of the true nearest neighbours and takes longer.",
							&pipeann_ef_search, PIPEANN_DEFAULT_EF_SEARCH, 1,
							10000, PGC_USERSET, GUC_EXPLAIN, NULL, NULL, NULL);
	DefineCustomEnumVariable("pipeann.iterative_scan",
							 "Whether a search goes on when more rows are asked for than it has found.",
							 "strict_order returns rows in exact order of distance; relaxed_order also returns those found too late for that.",
							 &pipeann_iterative_scan, PIPEANN_ITERATIVE_STRICT,
							 iterative_scan_values, PGC_USERSET, GUC_EXPLAIN,
							 NULL, NULL, NULL);
	DefineCustomIntVariable("pipeann.max_scan_tuples",
							"Rows after which a search does not go on any more.",
							NULL, &pipeann_max_scan_tuples, 20000, 1, INT_MAX,
							PGC_USERSET, GUC_EXPLAIN, NULL, NULL, NULL);
	DefineCustomRealVariable("pipeann.scan_mem_multiplier",
							 "Memory for the pages that a search keeps at hand, as a multiple of work_mem.",
							 "Past it pages are read again when needed; no rows are lost.",
							 &pipeann_scan_mem_multiplier, 1, 1, 1000,
							 PGC_USERSET, GUC_EXPLAIN, NULL, NULL, NULL);
	DefineCustomEnumVariable("pipeann.search_mode",
							 "How a search decides what to read when.",
							 "pipe reads ahead of what is explored (PipeANN); look_ahead explores what is in memory first (LAANN); stale overlaps each round with the next (FlashANNS); best_first reads in rounds (DiskANN).",
							 &pipeann_search_mode, PIPEANN_DEFAULT_MODE,
							 search_mode_values, PGC_USERSET, GUC_EXPLAIN,
							 NULL, NULL, NULL);
	DefineCustomIntVariable("pipeann.pipeline_width",
							"Most page reads of a search in flight at once.",
							"0 is each mode's own: up to 32 for pipe, 8 for best_first and stale, 5 and bursts of a quarter of ef_search for look_ahead.",
							&pipeann_pipeline_width, 0, 0,
							PIPEANN_MAX_IN_FLIGHT, PGC_USERSET, GUC_EXPLAIN,
							NULL, NULL, NULL);
}

static void
InitIoSettings(void)
{
	DefineCustomIntVariable("pipeann.prefetch_rows",
							"Rows whose table pages are asked for at once, when the second of them is wanted.",
							"0 leaves them to be read one by one, as effective_io_concurrency = 0 does.",
							&pipeann_prefetch_rows, 10, 0,
							PIPEANN_MAX_PREFETCH, PGC_USERSET, GUC_EXPLAIN,
							NULL, NULL, NULL);
	DefineCustomEnumVariable("pipeann.io_method",
							 "How index pages that are not in shared_buffers are read.",
							 "auto and io_uring fall back to pread where io_uring is not allowed.",
							 &pipeann_io_method, PIPEANN_IO_AUTO,
							 io_method_values, PGC_USERSET, GUC_EXPLAIN, NULL,
							 NULL, NULL);
	DefineCustomBoolVariable("pipeann.direct_io",
							 "Read past the operating system's page cache.",
							 "Falls back to buffered reads where the file system refuses it.",
							 &pipeann_direct_io, true, PGC_USERSET,
							 GUC_EXPLAIN, NULL, NULL, NULL);
}

void
PipeannSettingsInit(void)
{
	InitSearchSettings();
	InitSwitches();
	InitIoSettings();
}
