/*
 * settings.c
 *		The settings (GUCs) of scans and I/O.
 */
#include "postgres.h"

#include <limits.h>

#include "am/am.h"
#include "io/io.h"
#include "plan/plan.h"
#include "scan/scan.h"
#include "utils/guc.h"
#include "utils/varlena.h"

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

/* Settings that only comparisons need are hidden from users. */
#define HIDDEN (GUC_NO_SHOW_ALL | GUC_EXPLAIN)

/* Ideas of the search that can be switched off to measure their effect. */
static const struct
{
	const char *name;
	uint32		bit;
}			ideas[] = {
	{"read_per_step", PIPEANN_READ_PER_STEP},
	{"dynamic_width", PIPEANN_DYNAMIC_WIDTH},
	{"memory_first", PIPEANN_MEMORY_FIRST},
	{"convergence_burst", PIPEANN_CONVERGENCE_BURST},
	{"overflow_pool", PIPEANN_OVERFLOW_POOL},
	{"entry_pages", PIPEANN_ENTRY_PAGES},
	{"page_mates", PIPEANN_PAGE_MATES},
	{"early_termination", PIPEANN_EARLY_TERMINATION},
	{"node_hits", PIPEANN_NODE_HITS}
};

static char *disable;			/* the text of pipeann.disable */

static void *
SettingMemory(size_t size)
{
#if PG_VERSION_NUM >= 160000
	return guc_malloc(LOG, size);
#else
	return malloc(size);
#endif
}

/* The bit of the idea of this name, or 0. */
static uint32
IdeaBit(const char *name)
{
	for (size_t i = 0; i < lengthof(ideas); i++)
		if (strcmp(ideas[i].name, name) == 0)
			return ideas[i].bit;
	return 0;
}

/* Give an error a hint that lists the ideas. */
static void
HintAtIdeas(void)
{
	StringInfoData names;

	initStringInfo(&names);
	for (size_t i = 0; i < lengthof(ideas); i++)
		appendStringInfo(&names, "%s%s", i == 0 ? "" : ", ", ideas[i].name);
	GUC_check_errhint("Available values: %s.", names.data);
	pfree(names.data);
}

/* Sets *bits to the ideas in a list of names; false if one is unknown. */
static bool
ParseIdeas(List *names, uint32 *bits)
{
	ListCell   *cell;

	*bits = 0;
	foreach(cell, names)
	{
		uint32		bit = IdeaBit(lfirst(cell));

		if (bit == 0)
		{
			GUC_check_errdetail("There is no idea \"%s\".",
								(char *) lfirst(cell));
			HintAtIdeas();
			return false;
		}
		*bits |= bit;
	}
	return true;
}

static bool
CheckDisable(char **value, void **extra, GucSource source)
{
	char	   *text = pstrdup(*value);
	List	   *names = NIL;
	uint32		bits = 0;
	bool		good;

	(void) source;
	good = SplitIdentifierString(text, ',', &names);
	if (!good)
		GUC_check_errdetail("List syntax is invalid.");
	else
		good = ParseIdeas(names, &bits);
	list_free(names);
	pfree(text);
	if (!good)
		return false;
	*extra = SettingMemory(sizeof(bits));
	if (*extra == NULL)
		return false;
	memcpy(*extra, &bits, sizeof(bits));
	return true;
}

static void
AssignDisable(const char *value, void *extra)
{
	(void) value;
	memcpy(&pipeann_disabled, extra, sizeof(pipeann_disabled));
}

/* Settings for comparisons: a search's policy, and ideas switched off. */
static void
InitComparisonSettings(void)
{
	DefineCustomEnumVariable("pipeann.search_mode",
							 "How a search decides what to read when.",
							 "pipe reads ahead of what is explored (PipeANN); look_ahead explores what is in memory first (LAANN); stale overlaps each round with the next (FlashANNS); best_first reads in rounds (DiskANN).",
							 &pipeann_search_mode, PIPEANN_DEFAULT_MODE,
							 search_mode_values, PGC_USERSET, HIDDEN,
							 NULL, NULL, NULL);
	DefineCustomIntVariable("pipeann.pipeline_width",
							"Most page reads of a search in flight at once.",
							"0 is each mode's own: up to 32 for pipe, 8 for best_first and stale, 5 and bursts of a quarter of ef_search for look_ahead.",
							&pipeann_pipeline_width, 0, 0,
							PIPEANN_MAX_IN_FLIGHT, PGC_USERSET, HIDDEN,
							NULL, NULL, NULL);
	DefineCustomStringVariable("pipeann.disable",
							   "Ideas that a search does without.",
							   "A list of ideas behind the search modes, for comparisons without them.",
							   &disable, "", PGC_USERSET,
							   GUC_LIST_INPUT | HIDDEN,
							   CheckDisable, AssignDisable, NULL);
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
}

static void
InitIoSettings(void)
{
	DefineCustomIntVariable("pipeann.prefetch_rows",
							"Rows whose table pages are asked for at once, ahead of being read.",
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

static void
InitPlanSettings(void)
{
	DefineCustomBoolVariable("pipeann.rewrite_plans",
							 "Change queries for the nearest rows and their plans so that they cost less.",
							 "Distances that only order the rows are left out; those that are read take vectors from the index where it has them exactly; with the library pipeann_servers, servers of foreign partitions are asked at the same time, each for a limited number of rows.",
							 &pipeann_rewrite_plans, true, PGC_USERSET,
							 GUC_EXPLAIN, NULL, NULL, NULL);
	DefineCustomBoolVariable("pipeann.bitmap_scan",
							 "Search among the rows that other indexes find by conditions, where that costs less.",
							 NULL, &pipeann_bitmap_scan, true, PGC_USERSET,
							 GUC_EXPLAIN, NULL, NULL, NULL);
}

void
PipeannSettingsInit(void)
{
	InitSearchSettings();
	InitPlanSettings();
	InitComparisonSettings();
	InitIoSettings();
}
