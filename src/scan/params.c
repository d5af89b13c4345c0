/*
 * params.c
 *		The settings of scans, and a search's parameters by them.
 */
#include "postgres.h"

#include "distance/distance.h"
#include "miscadmin.h"
#include "scan/rows.h"

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

/*
 * The query's vector as searches want it. Not comparable is one that has
 * no distances; then rows come in any order.
 *
 * A NULL has no distances, and zero has no cosines: then *comparable is false,
 * and rows come in any order.
 */
const float *
PipeannScanQuery(IndexScanDesc scan, const PipeannLayout *l,
				 bool *comparable)
{
	const float *x;
	float	   *normalized;

	*comparable = !(scan->orderByData->sk_flags & SK_ISNULL);
	if (!*comparable)
		return palloc0(mul_size(l->dim, sizeof(float)));
	x = PipeannDatumElements(scan->orderByData->sk_argument, l->dim);
	if (l->metric != PIPEANN_COSINE)
		return x;
	*comparable = PipeannNorm(x, l->dim) > 0;
	normalized = palloc(mul_size(l->dim, sizeof(float)));
	PipeannNormalize(x, l->dim, normalized);
	return normalized;
}

/* Pages that a search keeps at hand. */
uint32
PipeannScanMaxPages(const PipeannLayout *l)
{
	double		bytes = pipeann_scan_mem_multiplier * work_mem * 1024.0;

	return (uint32) Min(bytes / ((double) l->node_pages * BLCKSZ),
						(double) PG_INT32_MAX);
}
