/*
 * settings.c
 *		Settings (GUCs).
 */
#include "postgres.h"

#include <limits.h>

#include "am/am.h"
#include "io/io.h"
#include "utils/guc.h"

int			pipeann_ef_search;
int			pipeann_iterative_scan;
int			pipeann_max_scan_tuples;
double		pipeann_scan_mem_multiplier;
int			pipeann_search_mode;
int			pipeann_pipeline_width;

static const struct config_enum_entry iterative_scan_values[] = {
	{"off", PIPEANN_ITERATIVE_OFF, false},
	{"relaxed_order", PIPEANN_ITERATIVE_RELAXED, false},
	{"strict_order", PIPEANN_ITERATIVE_STRICT, false},
	{NULL, 0, false}
};

static const struct config_enum_entry search_mode_values[] = {
	{"best_first", PIPEANN_BEST_FIRST, false},
	{"pipe", PIPEANN_PIPE, false},
	{NULL, 0, false}
};

static const struct config_enum_entry io_method_values[] = {
	{"auto", PIPEANN_IO_AUTO, false},
	{"io_uring", PIPEANN_IO_URING, false},
	{"pread", PIPEANN_IO_PREAD, false},
	{NULL, 0, false}
};

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
							 "pipe reads ahead of what is explored (PipeANN); best_first reads in rounds (DiskANN).",
							 &pipeann_search_mode, PIPEANN_PIPE,
							 search_mode_values, PGC_USERSET, GUC_EXPLAIN,
							 NULL, NULL, NULL);
	DefineCustomIntVariable("pipeann.pipeline_width",
							"Most page reads of a search in flight at once.",
							"0 is each mode's own: up to 32 for pipe, 8 for best_first.",
							&pipeann_pipeline_width, 0, 0,
							PIPEANN_MAX_IN_FLIGHT, PGC_USERSET, GUC_EXPLAIN,
							NULL, NULL, NULL);
}

static void
InitIoSettings(void)
{
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
	InitIoSettings();
}
