/*
 * params.c
 *		The settings of scans, and a search's parameters by them.
 */
#include "postgres.h"

#include "scan/scan.h"

int			pipeann_ef_search;
int			pipeann_iterative_scan;
int			pipeann_max_scan_tuples;
double		pipeann_scan_mem_multiplier;
int			pipeann_search_mode;
int			pipeann_pipeline_width;
int			pipeann_prefetch_rows;
uint32		pipeann_disabled;

/*
 * In strict order only the nearer half of the explored nodes may be returned.
 * Most scans want ten rows: with a shorter list the search would soon have to
 * go on, when rows have been returned and nearer ones that it then finds are
 * lost.
 */
static int
MinList(void)
{
	return pipeann_iterative_scan == PIPEANN_ITERATIVE_STRICT ?
		PIPEANN_STRICT_PART * PIPEANN_EARLY_RESULTS : 0;
}

PipeannSearchParams
PipeannScanParams(void)
{
	PipeannSearchParams params = {0};

	params.policy = PipeannPolicies[pipeann_search_mode];
	params.ef = pipeann_ef_search;
	params.min_list = MinList();
	params.may_end_early = true;
	params.width = pipeann_pipeline_width;
	params.disabled = pipeann_disabled;
	return params;
}
