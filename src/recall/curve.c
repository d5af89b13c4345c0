/*
 * curve.c
 *		What of the exact answers searches find; and the curve that an index keeps: how long
 *		a search's list has to be for a share of them, and the list that a scan uses accordingly.
 *
 * It is measured with queries for which the exact answers are known: vectors of the
 * index itself, each as if its node were not there, or those that a user gives. Their
 * searches assume that all pages are in memory, so they are repeatable: indexes of
 * equal rows have equal curves. A search that reads finds no less with the same list.
 */
#include "postgres.h"

#include <float.h>
#include <math.h>

#include "distance/sparse.h"
#include "io/io.h"
#include "recall/recall.h"
#include "utils/memutils.h"

double		pipeann_target_recall;

/* ---------- what searches find of the exact answers ---------- */

/* Argument of the callbacks of searches that are compared with exact answers. */
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
 * Parameters of searches with a list of this length, in strict order, or in an
 * order that includes late rows. Most scans want ten rows: in strict order a
 * search with a shorter list would soon have to go on, and nearer rows that it
 * then finds are left out.
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

/* The next result of a search that goes on as in a scan, or NULL. */
static const PipeannResult *
Next(PipeannSearch *search, uint64 taken, bool strict)
{
	PipeannIterativeScan order = strict ? PIPEANN_ITERATIVE_STRICT : PIPEANN_ITERATIVE_RELAXED;
	PipeannFrontier frontier = PipeannSearchFrontier(search, order);
	const PipeannResult *next;

	while ((next = PipeannSearchPeek(search)) == NULL ||
		   (taken >= frontier.results && next->most > frontier.distance))
	{
		CHECK_FOR_INTERRUPTS();
		if (!PipeannSearchRun(search))
			break;
		frontier = PipeannSearchFrontier(search, order);
	}
	return PipeannSearchPop(search);
}

/*
 * Begin a search for a query. No edge of the node whose vector it is is
 * followed, as if the node were not in the index: its neighbours were chosen
 * for it, and would be found too easily.
 */
static void
BeginAsked(PipeannIndexView *view, PipeannPageSource *source, PipeannSearch *search,
		   const PipeannSearchParams *params, const PipeannAsked *asked)
{
	Asking	   *asking = palloc(sizeof(Asking));
	PipeannSearchParams own = *params;

	asking->view = view;
	asking->asked = asked;
	asking->exact = PipeannArray(float, PipeannFloats(view->meta.layout.storage,
													  view->meta.layout.dim));
	own.out_of_line_distance = OutOfLineDistance;
	own.arg = asking;
	if (asked->own != PIPEANN_INVALID_ID)
	{
		own.left_out = &asked->own;
		own.matches = IsOther;
	}
	PipeannSearchBegin(search, &view->meta.layout,
					   view->cache == NULL ? NULL : &view->codes, source,
					   asked->query, &own);
}

/* Two computations of a distance may differ by this much, relative to it. */
#define ROUNDING (16 * FLT_EPSILON)

/* The distance of the k-th true neighbour, with a margin for equal distances. */
static float
Farthest(const PipeannAsked *asked, int k)
{
	float		key = asked->nearest[k - 1];

	return key + fabsf(key) * ROUNDING;
}

/*
 * How many of the true nearest neighbours a scan with these parameters finds. Equal
 * distances are equally good. (For a rounded vector the least possible distance is compared
 * with one in the middle of its range: few others are as near as that, and they count only
 * where a neighbour was missed.) Rows may have been inserted since the true neighbours were
 * computed: at most as many count as there were then, which may have been none.
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

	BeginAsked(view, source, search, params, asked);
	if (view->cache == NULL)
		PipeannSearchExact(search, PipeannViewPages(view));
	else
		(void) PipeannSearchRun(search);
	while (n < asked->n && (result = view->cache == NULL ? PipeannSearchPop(search) :
							Next(search, n, strict)) != NULL)
	{
		/* in strict order a result after a farther one is left out */
		if (strict && result->dist < last)
			continue;
		last = result->dist;
		found += last <= Farthest(asked, asked->n);
		n++;
	}
	PipeannSourceClose(source);
	return found;
}

/* ---------- the curve ---------- */

/* The points of a curve: shares of the true neighbours that are missed. */
static const double missed_at[PIPEANN_CURVE_TARGETS] =
{0.2, 0.1, 0.05, 0.02, 0.01, 0.005, 0.001};

/*
 * Lists begin with FIRST_LIST; each is LIST_STEP times as long as the one before. All have
 * the entry points of one of ENTERED_WITH. One query in PART is asked for many neighbours.
 */
#define FIRST_LIST 10
#define LIST_STEP M_SQRT2
#define LISTS 15
#define ENTERED_WITH 80
#define PART 4

/* Smaller shares cannot be measured with this few queries. */
#define LEAST_MISSED 1e-4

/* How many of k neighbours queries found with each list, and how many there were. */
typedef struct Tally
{
	double		found[LISTS];
	double		wanted;
} Tally;

typedef struct Tallies
{
	Tally		of[PIPEANN_CURVE_KS];
} Tallies;

static int
ListAt(int i)
{
	return (int) rint(FIRST_LIST * pow(LIST_STEP, i));
}

/*
 * Run a query, and make the list longer until all neighbours are found, for
 * each of the nks numbers ks[]; still longer lists find all, too.
 */
static void
Ask(PipeannIndexView *view, const PipeannAsked *asked, const int *ks, int nks,
	Tally *tallies)
{
	PipeannCounters counters = {0};
	PipeannPageSource *source = PipeannViewSource(view, &counters);
	PipeannSearch *search = PipeannReuseSearch();
	PipeannSearchParams params = PipeannParamsOf(ENTERED_WITH, true);
	bool		all = false;

	source->keeps = true;
	BeginAsked(view, source, search, &params, asked);
	for (int j = 0; j < nks; j++)
		tallies[j].wanted += Min(ks[j], asked->n);
	for (int i = 0; i < LISTS; i++)
	{
		if (!all)
			PipeannSearchLengthen(search, ListAt(i));
		all = true;
		for (int j = 0; j < nks; j++)
		{
			int			k = Min(ks[j], asked->n);
			int			found = k == 0 ? 0 :
				Min(PipeannSearchWithin(search, Farthest(asked, k)), k);

			tallies[j].found[i] += found;
			all &= found == k;
		}
	}
	PipeannSourceClose(source);
}

/*
 * Run n queries, after finding their exact answers: for ks[0] neighbours, and one query
 * in PART for ks[1], too. numbers[] are the queries' numbers, which decide that.
 */
static void
AskAll(PipeannIndexView *view, PipeannAsked *asked, int n, const int *ks, const int *numbers,
	   Tallies *tallies)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "pipeann query",
												  ALLOCSET_DEFAULT_SIZES);

	for (int i = 0; i < n; i++)
		asked[i].k = ks[numbers[i] % PART == 0];
	PipeannAnswerExactly(view, asked, n);
	for (int i = 0; i < n; i++)
	{
		MemoryContext old = MemoryContextSwitchTo(context);

		CHECK_FOR_INTERRUPTS();
		Ask(view, &asked[i], ks, numbers[i] % PART == 0 ? PIPEANN_CURVE_KS : 1, tallies->of);
		MemoryContextSwitchTo(old);
		MemoryContextReset(context);
	}
	MemoryContextDelete(context);
}

/* Log-log interpolation between two points; x, x0 and x1 are logarithms already. */
static double
Between(double x, double x0, double y0, double x1, double y1)
{
	double		part = x1 == x0 ? 1 : (x - x0) / (x1 - x0);

	return exp(log(y0) + Min(Max(part, 0), 1) * (log(y1) - log(y0)));
}

/* The list with which a share is missed; the longest if no list is long enough. */
static uint16
ListThatMisses(const Tally *tally, double missed)
{
	double		before = 1;
	double		now = 1;
	int			i = 0;

	for (; i < LISTS; i++, before = now)
	{
		if (tally->wanted > 0)
			now = Max(1 - tally->found[i] / tally->wanted, LEAST_MISSED);
		if (now <= missed)
			break;
	}
	if (i == 0 || i == LISTS)
		return (uint16) ListAt(Min(i, LISTS - 1));
	return (uint16) ceil(Between(log(missed), log(before), ListAt(i - 1),
								 log(now), ListAt(i)));
}

/* Write the curve of an index to its metapage; `queries` are those that a user gave, or 0. */
static void
StoreCurve(const PipeannIndexView *view, const Tallies *tallies, const int *ks, int queries)
{
	PipeannCurve curve = {
		.nodes = (uint32) view->meta.nodes,.changes = (uint32) view->meta.changes,
		.queries = (uint16) queries,
	};
	PipeannMetaUpdate update;

	for (int j = 0; j < PIPEANN_CURVE_KS; j++)
	{
		curve.k[j] = (uint16) ks[j];
		for (int t = 0; t < PIPEANN_CURVE_TARGETS; t++)
			curve.list[j][t] = ListThatMisses(&tallies->of[j], missed_at[t]);
	}
	PipeannMetaBegin(view->index, &update);
	update.meta->curve = curve;
	PipeannMetaEnd(&update);
}

/* Measure the curve with n queries that a user gave, mainly for k neighbours. */
void
PipeannCurveCalibrate(PipeannIndexView *view, PipeannAsked *asked, int n, int k)
{
	int			ks[PIPEANN_CURVE_KS] = {k, Max(k, PIPEANN_CURVE_MANY)};
	int		   *numbers = palloc(mul_size(n, sizeof(int)));
	Tallies		tallies = {0};

	for (int i = 0; i < n; i++)
		numbers[i] = i;
	AskAll(view, asked, n, ks, numbers, &tallies);
	StoreCurve(view, &tallies, ks, n);
}

/*
 * Vectors of the index that are its curve's queries. Comparing these with all nodes takes a
 * small part of the time that building the graph takes, whatever the number of nodes.
 */
#define OWN_QUERIES 200

/*
 * Measure an index's curve with vectors of its own, and write it. All members of
 * the team call, when the index can be searched; each runs a part of the queries.
 */
void
PipeannCurveOfOwn(PipeannTeam *team, Relation index)
{
	static const int ks[PIPEANN_CURVE_KS] = {PIPEANN_EARLY_RESULTS, PIPEANN_CURVE_MANY};
	Tallies    *tallies = PipeannTeamArray(team, Tallies, team->members);
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext,
												  "pipeann curve",
												  ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);
	PipeannAsked *asked = palloc0(mul_size(OWN_QUERIES, sizeof(PipeannAsked)));
	int			numbers[OWN_QUERIES];
	int			n = 0;
	PipeannIndexView view;

	PipeannTeamMeet(team);
	PipeannOpenView(&view, index);
	if (PipeannTeamLeads(team))
		PipeannCacheLoadAll(index, view.cache, &view.meta);
	PipeannTeamMeet(team);
	PipeannRefreshView(&view);
	for (int i = team->member; i < OWN_QUERIES; i += team->members)
		if (PipeannAskOwn(&view, i, OWN_QUERIES, i, &asked[n]))
			numbers[n++] = i;
	AskAll(&view, asked, n, ks, numbers, &tallies[team->member]);
	PipeannTeamMeet(team);
	if (PipeannTeamLeads(team))
	{
		for (int i = 1; i < team->members; i++)
			for (int j = 0; j < PIPEANN_CURVE_KS; j++)
			{
				tallies[0].of[j].wanted += tallies[i].of[j].wanted;
				for (int list = 0; list < LISTS; list++)
					tallies[0].of[j].found[list] += tallies[i].of[j].found[list];
			}
		StoreCurve(&view, &tallies[0], ks, 0);
	}
	PipeannCacheRelease(view.cache);
	MemoryContextSwitchTo(old);
	MemoryContextDelete(context);
	PipeannTeamMeet(team);
	PipeannTeamFree(team, tallies);
}

/* A curve is stale when this part of its index has changed. */
#define STALE 0.3

/*
 * Whether an index should have a curve and has none, or a stale one; changes
 * are those of codes, one for each insert. It needs none without codes, as
 * searches are exact, or for sparse vectors, as they have no list.
 */
bool
PipeannCurveIsStale(const PipeannMeta *meta)
{
	const PipeannCurve *curve = &meta->curve;
	uint64		changes = (uint32) meta->changes - curve->changes;

	if (meta->nodes < curve->nodes)
		changes += curve->nodes - meta->nodes;
	return (meta->flags & PIPEANN_META_HAS_CODES) != 0 &&
		!PipeannIsSparse(meta->layout.storage) &&
		(curve->nodes == 0 || changes > STALE * curve->nodes);
}

/* The list for k[j] neighbours by a measured curve, at least one node long. */
static double
ListAtK(const PipeannCurve *curve, int j, double missed)
{
	const uint16 *list = curve->list[j];
	int			t = 1;

	while (t < PIPEANN_CURVE_TARGETS - 1 && missed_at[t] > missed)
		t++;
	return Between(log(missed), log(missed_at[t - 1]), Max(list[t - 1], 1),
				   log(missed_at[t]), Max(list[t], 1));
}

/* A list is longer by this power of an index's growth, until it is measured again. */
#define GROWTH_POWER 0.4

/*
 * The list with which a search for the k nearest finds this share of them; 0
 * if it is not known. Fewer neighbours than were measured need less, but it is
 * not known how much: for them the list is not shorter.
 */
int
PipeannCurveList(const PipeannMeta *meta, double target, double k)
{
	const PipeannCurve *curve = &meta->curve;
	double		missed = 1 - target;
	double		list;

	if (curve->nodes == 0 || curve->k[0] == 0)
		return 0;
	list = k <= curve->k[0] ? ListAtK(curve, 0, missed) :
		Between(log(k), log(curve->k[0]), ListAtK(curve, 0, missed),
				log(curve->k[1]), ListAtK(curve, 1, missed));
	/* beyond the largest k that was measured, in proportion to k */
	list *= Max(k / curve->k[1], 1);
	list *= pow(Max((double) meta->nodes / curve->nodes, 1), GROWTH_POWER);
	return (int) Min(ceil(list), PIPEANN_MOST_LIST);
}
