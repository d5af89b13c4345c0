/*
 * found.c
 *		What of the exact answers a search finds.
 */
#include "postgres.h"

#include <float.h>
#include <math.h>

#include "distance/sparse.h"
#include "io/io.h"
#include "recall/recall.h"

/* What searches that are compared with exact answers call back with. */
typedef struct Asking
{
	PipeannIndexView *view;
	const PipeannAsked *asked;
	float	   *exact;			/* an out-of-line vector */
} Asking;

static float
OutOfLineDistance(uint32 id, const PipeannSlot *slot, void *arg)
{
	Asking	   *asking = arg;

	if (!PipeannChainVector(asking->view, id, slot, asking->exact))
		return INFINITY;
	return PipeannWholeDistance(&asking->view->meta.layout, asking->asked->query,
								asking->exact, slot->aux);
}

static bool
IsOther(uint32 id, const PipeannSlot *slot, void *arg)
{
	return id != ((Asking *) arg)->asked->own;
}

/*
 * Parameters of searches in strict order with a list of this length, or of those that
 * return rows that come late, too.
 *
 * Most scans want ten rows: in strict order a search with a shorter list would soon
 * have to go on, and nearer rows that it then finds are lost.
 */
PipeannSearchParams
PipeannParamsOf(int list, bool strict)
{
	return (PipeannSearchParams)
	{
		.policy = PipeannPolicies[PIPEANN_DEFAULT_MODE],
		.ef = list,
		.min_list = strict ? PIPEANN_STRICT_PART * PIPEANN_EARLY_RESULTS : 0,
		.may_end_early = true,
		.by_codes = true,
		.max_pages = PG_INT32_MAX
	};
}

/* The next result of a search that goes on as it does in a scan, or NULL. */
static const PipeannResult *
Next(PipeannSearch *search, uint64 taken, bool strict)
{
	PipeannIterativeScan order = strict ? PIPEANN_ITERATIVE_STRICT : PIPEANN_ITERATIVE_RELAXED;

	while (taken >= PipeannSearchFrontier(search, order).results ||
		   PipeannSearchPeek(search) == NULL)
	{
		CHECK_FOR_INTERRUPTS();
		if (!PipeannSearchRun(search))
			break;
	}
	return PipeannSearchPop(search);
}

/*
 * Begin a search for a query. As if the node that it was made of were not in the index,
 * no edge of it is followed: its neighbours were chosen for it, and the query would find
 * them too easily.
 */
void
PipeannBeginAsked(PipeannIndexView *view, PipeannPageSource *source, PipeannSearch *search,
				  const PipeannSearchParams *params, const PipeannAsked *asked)
{
	Asking	   *asking = palloc(sizeof(Asking));
	PipeannSearchParams own = *params;

	asking->view = view;
	asking->asked = asked;
	asking->exact = PipeannArray(float, PipeannFloats(view->meta.layout.storage,
													  view->meta.layout.dim));
	own.out_of_line_distance = OutOfLineDistance;
	own.out_of_line_arg = asking;
	if (asked->own != PIPEANN_INVALID_ID)
	{
		own.left_out = &asked->own;
		own.matches = IsOther;
		own.matches_arg = asking;
	}
	PipeannSearchBegin(search, &view->meta.layout,
					   view->cache == NULL ? NULL : &view->codes, source,
					   asked->query, &own);
}

/* By so much two computations of a distance may differ, relative to it. */
#define ROUNDING (16 * FLT_EPSILON)

/* The distance of the k-th true neighbour, and what is equal. */
static float
Farthest(const PipeannAsked *asked, int k)
{
	float		key = asked->nearest[k - 1];

	return key + fabsf(key) * ROUNDING;
}

/*
 * How many of the true nearest neighbours a scan with these parameters finds. Equal
 * distances are equally good. (Of a rounded vector the least distance is compared with
 * one in the middle of what it may be: few others are as near as that, and they count
 * only where a neighbour was missed.) Rows may have come since the true neighbours were
 * looked for: no more are found than there were, which may have been none.
 */
int
PipeannFoundByScan(PipeannIndexView *view, const PipeannSearchParams *params,
				   const PipeannAsked *asked)
{
	PipeannCounters counters = {0};
	PipeannPageSource *source = PipeannViewSource(view, &counters);
	PipeannSearch *search = PipeannReuseSearch();
	bool		strict = params->min_list > 0;
	float		last = -INFINITY;
	const PipeannResult *result;
	int			n = 0;
	int			found = 0;

	PipeannBeginAsked(view, source, search, params, asked);
	if (view->cache == NULL)
		PipeannSearchExact(search, PipeannViewPages(view));
	else
		(void) PipeannSearchRun(search);
	while (n < asked->n && (result = view->cache == NULL ? PipeannSearchPop(search) :
							Next(search, n, strict)) != NULL)
	{
		/* in strict order what comes after a farther one is lost */
		if (strict && result->dist < last)
			continue;
		last = result->dist;
		found += last <= Farthest(asked, asked->n);
		n++;
	}
	PipeannSearchReleasePages(search);
	PipeannSourceClose(source);
	return found;
}

/* How many of the k true nearest neighbours are among all that a search has found by now. */
int
PipeannFoundBy(const PipeannSearch *search, const PipeannAsked *asked, int k)
{
	k = Min(k, asked->n);
	return k == 0 ? 0 : Min(PipeannSearchWithin(search, Farthest(asked, k)), k);
}
