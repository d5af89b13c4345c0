/*
 * curve.c
 *		The curve that an index keeps: how long a search's list has to be for a share of
 *		the true nearest neighbours, and which list a scan has by it.
 *
 * It is measured with queries for which the exact answers are known: vectors of the
 * index itself, each as if its node were not there, or those that a user gives. Searches
 * of copies of pages do the same each time, so that indexes of equal rows have equal
 * curves.
 */
#include "postgres.h"

#include <math.h>

#include "base/parallel.h"
#include "base/random.h"
#include "distance/distance.h"
#include "recall/recall.h"
#include "utils/memutils.h"

double		pipeann_target_recall;

/* Shares of the true neighbours that are missed, at which the curve is known. */
static const double missed_at[PIPEANN_CURVE_TARGETS] =
{0.2, 0.1, 0.05, 0.02, 0.01, 0.005, 0.001};

/*
 * Lists are longer by this factor from one to the next. The first one has as many entry
 * points as one in the middle. One query in so many is asked for many neighbours, and as
 * if it read.
 */
#define FIRST_LIST 10
#define LIST_STEP M_SQRT2
#define LISTS 15
#define ENTERED_WITH 80
#define PART 4

/* What all queries found, and were to find, of k neighbours, by the list. */
typedef struct Tally
{
	double		found[LISTS];
	double		wanted[LISTS];
} Tally;

/* What was found in memory and from disk; and in memory by queries that were asked both. */
#define BOTH PIPEANN_CURVE_PLACES
#define TALLIES (PIPEANN_CURVE_PLACES + 1)

typedef struct Tallies
{
	Tally		of[TALLIES][PIPEANN_CURVE_KS];
} Tallies;

typedef struct Measuring
{
	PipeannIndexView *view;
	PipeannPageSource *source;
	PipeannSearch *search;		/* of the present query */
	MemoryContext context;		/* of it */
	int			ks[PIPEANN_CURVE_KS];
	Tallies    *tallies;
} Measuring;

static int
ListAt(int i)
{
	return (int) rint(FIRST_LIST * pow(LIST_STEP, i));
}

/*
 * Ask a query, and make the list longer until all was found of the numbers of
 * neighbours that are asked for: longer lists do so, too.
 */
static void
AskOf(Measuring *m, const PipeannAsked *asked, bool read, int nks,
	  Tally *tallies)
{
	MemoryContext old = MemoryContextSwitchTo(m->context);
	bool		all = false;

	PipeannCopyBegin(m->source, read);
	m->search = PipeannBeginGrowing(m->view, m->source, asked, ENTERED_WITH);
	for (int i = 0; i < LISTS; i++)
	{
		if (!all)
			PipeannSearchLengthen(m->search, ListAt(i));
		all = true;
		for (int j = 0; j < nks; j++)
		{
			int			wanted = Min(m->ks[j], asked->n);
			int			found = PipeannFoundBy(m->search, asked, m->ks[j]);

			tallies[j].wanted[i] += wanted;
			tallies[j].found[i] += found;
			all &= found == wanted;
		}
	}
	PipeannSearchReleasePages(m->search);
	MemoryContextSwitchTo(old);
	MemoryContextReset(m->context);
}

/* Where a curve between two points has a value, by logarithms of both. */
static double
Between(double x, double x0, double y0, double x1, double y1)
{
	double		part = x1 == x0 ? 1 : (x - x0) / (x1 - x0);

	return exp(log(y0) + Min(Max(part, 0), 1) * (log(y1) - log(y0)));
}

/* Shares below this are too few queries' to be told apart. */
#define LEAST_MISSED 1e-4

/*
 * The share of k[j] neighbours that the list number i misses. From disk by as much more
 * than in memory as is missed more by those that were asked both.
 */
static double
MissedAt(const Tallies *t, PipeannCurvePlace place, int j, int i)
{
	const Tally *memory = &t->of[PIPEANN_CURVE_MEMORY][j];
	const Tally *disk = &t->of[PIPEANN_CURVE_DISK][j];
	const Tally *both = &t->of[BOTH][j];
	double		wanted = memory->wanted[i] + both->wanted[i];
	double		missed = wanted == 0 ? 1 :	/* not known */
		1 - (memory->found[i] + both->found[i]) / wanted;

	if (place == PIPEANN_CURVE_DISK && disk->wanted[i] > 0)
		missed += (both->found[i] - disk->found[i]) / disk->wanted[i];
	return Max(missed, LEAST_MISSED);
}

/* The list with which a share is missed; the longest if no list is long enough. */
static uint16
ListThatMisses(const Tallies *t, PipeannCurvePlace place, int j, double missed)
{
	double		before = 1;
	double		now = 1;
	int			i = 0;

	for (; i < LISTS; i++, before = now)
		if ((now = MissedAt(t, place, j, i)) <= missed)
			break;
	if (i == 0 || i == LISTS)
		return (uint16) ListAt(Min(i, LISTS - 1));
	return (uint16) ceil(Between(log(missed), log(before), ListAt(i - 1),
								 log(now), ListAt(i)));
}

/*
 * Ask n queries, whose exact answers are looked for first: for k neighbours, and a part of
 * them for many, and as if they read. From disk many are found as in memory: such a search
 * does not end early.
 */
static void
AskAll(PipeannIndexView *view, PipeannAsked *asked, int n, int k, Tallies *tallies)
{
	PipeannCounters counters = {0};
	Measuring	m = {.view = view,.ks = {k, Max(k, PIPEANN_CURVE_MANY)},.tallies = tallies};

	m.source = PipeannCopySource(view, &counters);
	m.context = AllocSetContextCreate(CurrentMemoryContext, "pipeann query",
									  ALLOCSET_DEFAULT_SIZES);
	for (int i = 0; i < n; i++)
		asked[i].k = m.ks[asked[i].number % PART == 0];
	PipeannAnswerExactly(view, asked, n);
	for (int i = 0; i < n; i++)
	{
		CHECK_FOR_INTERRUPTS();
		if (asked[i].number % PART == 0)
		{
			AskOf(&m, &asked[i], false, PIPEANN_CURVE_KS, tallies->of[BOTH]);
			AskOf(&m, &asked[i], true, 1, tallies->of[PIPEANN_CURVE_DISK]);
		}
		else
			AskOf(&m, &asked[i], false, 1, tallies->of[PIPEANN_CURVE_MEMORY]);
	}
	MemoryContextDelete(m.context);
}

static PipeannCurve
CurveOf(const PipeannMeta *meta, const Tallies *tallies, int k, int queries)
{
	PipeannCurve curve = {
		.nodes = (uint32) meta->nodes,.changes = (uint32) meta->changes,
		.queries = (uint16) queries,
		.k = {(uint16) k, (uint16) Max(k, PIPEANN_CURVE_MANY)}
	};

	for (int j = 0; j < PIPEANN_CURVE_KS; j++)
		for (int t = 0; t < PIPEANN_CURVE_TARGETS; t++)
		{
			uint16		memory = ListThatMisses(tallies, PIPEANN_CURVE_MEMORY, j,
												missed_at[t]);
			uint16		disk = ListThatMisses(tallies, PIPEANN_CURVE_DISK, j,
											  missed_at[t]);

			/* so few queries do not tell that a shorter one is enough */
			curve.list[PIPEANN_CURVE_MEMORY][j][t] = memory;
			curve.list[PIPEANN_CURVE_DISK][j][t] = Max(memory, disk);
		}
	return curve;
}

/* Measure the curve with n queries that a user gave, for k neighbours above all. */
PipeannCurve
PipeannCurveMeasure(PipeannIndexView *view, PipeannAsked *asked, int n, int k)
{
	Tallies    *tallies = palloc0(sizeof(Tallies));

	AskAll(view, asked, n, k, tallies);
	return CurveOf(&view->meta, tallies, k, n);
}

/* ---------- the index's own vectors as queries ---------- */

/*
 * Read a node's vector, of length 1 for cosine, with the memory of a page. False if it
 * has no rows, or an insert that did not end has left its page as it was.
 */
bool
PipeannReadNode(const PipeannIndexView *view, uint32 id, char *page, float *x)
{
	const PipeannLayout *l = &view->meta.layout;
	const PipeannSlot *slot;

	if (!PipeannGraphPageCopy(view, PipeannIdPage(l, id), page))
		return false;
	slot = PipeannSlotAt(l, page, PipeannIdSlot(l, id));
	if (!PipeannSlotIsNode(slot) || slot->ntids == 0)
		return false;
	PipeannVectorUnpack(PipeannSlotVector(l, slot), l->storage, l->dim, x);
	PipeannQueryOf(l, x, x);
	return true;
}

/*
 * Queries for a curve. To compare so many with all nodes takes a small part of what it
 * takes to build the graph, whatever the number of these.
 */
#define OWN_QUERIES 200

/*
 * Nodes are taken from all over the index, of each member of the team others. Returns
 * how many.
 */
static int
TakeOwn(const PipeannIndexView *view, const PipeannTeam *team,
		PipeannAsked *asked)
{
	const PipeannLayout *l = &view->meta.layout;
	uint32		ids = PipeannViewPages(view) * l->slots_per_page;
	char	   *page = palloc((Size) l->node_pages * PIPEANN_PAYLOAD);
	int			taken = 0;

	for (int i = team->member; i < OWN_QUERIES; i += team->members)
	{
		uint64		random = i;
		uint32		first = (uint32) ((uint64) ids * i / OWN_QUERIES);
		uint32		end = (uint32) ((uint64) ids * (i + 1) / OWN_QUERIES);
		uint32		id = first + PipeannRandomBelow(&random, end - first);

		asked[taken].query = PipeannArray(float, l->dim);
		asked[taken].number = i;
		while (id < end && !PipeannReadNode(view, id, page, asked[taken].query))
			id++;
		if (id < end)
			asked[taken++].own = id;
	}
	return taken;
}

/* Write a curve to the metapage. */
void
PipeannCurveKeep(Relation index, const PipeannCurve *curve)
{
	PipeannMetaUpdate update;

	PipeannMetaBegin(index, &update);
	update.meta->curve = *curve;
	PipeannMetaEnd(&update);
}

static void
Add(Tallies *sum, const Tallies *other)
{
	for (int place = 0; place < TALLIES; place++)
		for (int j = 0; j < PIPEANN_CURVE_KS; j++)
			for (int i = 0; i < LISTS; i++)
			{
				sum->of[place][j].found[i] += other->of[place][j].found[i];
				sum->of[place][j].wanted[i] += other->of[place][j].wanted[i];
			}
}

/*
 * Measure an index's curve with vectors of its own, and write it. It must have codes:
 * else a search finds all there is. All members of the team call, when the index can be
 * searched.
 */
void
PipeannCurveOfOwn(PipeannTeam *team, Relation index)
{
	Tallies    *tallies = PipeannTeamArray(team, Tallies, team->members);
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext,
												  "pipeann curve",
												  ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);
	PipeannAsked *asked = palloc0(mul_size(OWN_QUERIES, sizeof(PipeannAsked)));
	PipeannIndexView view;
	PipeannCurve curve;

	PipeannTeamMeet(team);
	PipeannOpenView(&view, index);
	if (PipeannTeamLeads(team))
		PipeannCacheLoadAll(view.cache);
	PipeannTeamMeet(team);
	PipeannRefreshView(&view);
	AskAll(&view, asked, TakeOwn(&view, team, asked), PIPEANN_EARLY_RESULTS,
		   &tallies[team->member]);
	PipeannTeamMeet(team);
	if (PipeannTeamLeads(team))
	{
		for (int i = 1; i < team->members; i++)
			Add(&tallies[0], &tallies[i]);
		curve = CurveOf(&view.meta, &tallies[0], PIPEANN_EARLY_RESULTS, 0);
		PipeannCurveKeep(index, &curve);
	}
	PipeannCacheRelease(view.cache);
	MemoryContextSwitchTo(old);
	MemoryContextDelete(context);
	PipeannTeamMeet(team);
	PipeannTeamFree(team, tallies);
}

/*
 * Whether an index may have a curve. Without codes a search finds all there is, and one of
 * sparse vectors goes through all codes, with no list.
 */
static bool
HasCurve(const PipeannMeta *meta)
{
	return (meta->flags & PIPEANN_META_HAS_CODES) != 0 &&
		!PipeannIsSparse(meta->layout.storage);
}

/*
 * The same of an index that was just built.
 */
void
PipeannCurveOfBuild(PipeannTeam *team, Relation index, const PipeannMeta *meta)
{
	if (!HasCurve(meta))
		return;
	PipeannCurveOfOwn(team, index);
	PipeannCacheForget(index);	/* nobody may ever search it */
}

/* ---------- the curve in use ---------- */

/* A curve of an index of which this part has changed since is not what it was. */
#define STALE 0.3

/* Whether there is none, or as much has changed: by inserts, each of which has a code. */
bool
PipeannCurveIsStale(const PipeannMeta *meta)
{
	const PipeannCurve *curve = &meta->curve;
	uint64		changes = (uint32) meta->changes - curve->changes;

	if (meta->nodes < curve->nodes)
		changes += curve->nodes - meta->nodes;
	return HasCurve(meta) &&
		(curve->nodes == 0 || changes > STALE * curve->nodes);
}

/* Of a curve that was measured: the list for k[j] neighbours, at least one node. */
static double
ListAtK(const PipeannCurve *curve, PipeannCurvePlace place, int j, double missed)
{
	const uint16 *list = curve->list[place][j];
	int			t = 1;

	while (t < PIPEANN_CURVE_TARGETS - 1 && missed_at[t] > missed)
		t++;
	return Between(log(missed), log(missed_at[t - 1]), Max(list[t - 1], 1),
				   log(missed_at[t]), Max(list[t], 1));
}

/* A list is longer by this power of an index's growth, until it is measured again. */
#define GROWTH_POWER 0.4

/*
 * The list with which a search for the k nearest finds this share of them; 0 if nobody
 * knows. Fewer than were measured are found sooner, by how much is told too badly by as
 * few neighbours: for these the list is not shorter.
 */
int
PipeannCurveList(const PipeannMeta *meta, double target, double k,
				 PipeannCurvePlace place)
{
	const PipeannCurve *curve = &meta->curve;
	double		missed = 1 - target;
	double		list;

	if (curve->nodes == 0 || curve->k[0] == 0)
		return 0;
	list = k <= curve->k[0] ? ListAtK(curve, place, 0, missed) :
		Between(log(k), log(curve->k[0]), ListAtK(curve, place, 0, missed),
				log(curve->k[1]), ListAtK(curve, place, 1, missed));
	/* beyond what was measured by as many as are wanted more */
	list *= Max(k / curve->k[1], 1);
	list *= pow(Max((double) meta->nodes / curve->nodes, 1), GROWTH_POWER);
	return (int) Min(ceil(list), PIPEANN_MOST_LIST);
}
