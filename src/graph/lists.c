/*
 * lists.c
 *		From candidates to neighbours.
 */
#include "base/base.h"

#include "graph/build.h"
#include "base/key.h"
#include "graph/prune.h"
#include "graph/reservoir.h"

/* Nodes pruned at once by one member. */
#define RUN 256

/* Work space of one member. */
typedef struct Space
{
	PipeannMeasure measure;
	PipeannKey *keys;			/* [places], as the others */
	uint32	   *cand;
	float	   *dist;
	int		   *next;
	int		   *kept;			/* [max_degree] */
} Space;

static pg_attribute_always_inline float
MeasureDistance(uint32 a, uint32 b, void *arg)
{
	return PipeannMeasurePair(arg, a, b);
}

static void
SpaceInit(Space *s, const PipeannVectors *v, int places, int max_degree)
{
	PipeannMeasureInit(&s->measure, v);
	s->keys = PipeannAlloc(mul_size(places, sizeof(PipeannKey)));
	s->cand = PipeannAlloc(mul_size(places, sizeof(uint32)));
	s->dist = PipeannAlloc(mul_size(places, sizeof(float)));
	s->next = PipeannAlloc(mul_size(places, sizeof(int)));
	s->kept = PipeannAlloc(mul_size(max_degree, sizeof(int)));
}

static void
SpaceFree(Space *s)
{
	pfree(s->keys);
	pfree(s->cand);
	pfree(s->dist);
	pfree(s->next);
	pfree(s->kept);
}

/* Sets cand[] and dist[] to the candidates of a node, the nearest first. */
static int
SortCandidates(Space *s, const PipeannReservoirs *r, uint32 node)
{
	int			n = PipeannReservoirGet(r, node, s->cand);

	PipeannMeasureMany(&s->measure, node, s->cand, n, s->dist);
	for (int i = 0; i < n; i++)
		s->keys[i] = PipeannKeyMake(s->dist[i], s->cand[i]);
	PipeannKeySort(s->keys, n);
	for (int i = 0; i < n; i++)
	{
		s->cand[i] = PipeannKeyId(s->keys[i]);
		s->dist[i] = PipeannKeyDistance(s->keys[i]);
	}
	return n;
}

/*
 * RobustPrune, and then the nearest of those that it dropped: they take the
 * same room on disk, and recall rises.
 */
static void
MakeList(Space *s, const PipeannReservoirs *r, float alpha, PipeannGraph *g,
		 uint32 node)
{
	PipeannPruned p = {
		.cand = s->cand,.dist = s->dist,.n = SortCandidates(s, r, node),
		.next = s->next,.kept = s->kept
	};
	PipeannPruneParams params = {.alpha = alpha,.max_degree = g->max_degree};
	uint32	   *list = PipeannNeighbors(g, node);

	PipeannPruneSorted(&p, &params, MeasureDistance, &s->measure);
	PipeannPruneFill(&p, g->max_degree);
	for (int i = 0; i < p.nkept; i++)
		list[i] = s->cand[p.kept[i]];
	g->degree[node] = p.nkept;
}

void
PipeannMakeLists(PipeannTeam *team, const PipeannVectors *v,
				 const PipeannReservoirs *r, float alpha, uint32 first,
				 uint32 end, PipeannGraph *g)
{
	Space		space;
	uint64		from;
	uint64		to;

	SpaceInit(&space, v, r->places, g->max_degree);
	PipeannTeamBegin(team, end - first, RUN);
	while (PipeannTeamNext(team, &from, &to))
		for (uint32 node = first + from; node < first + to; node++)
			MakeList(&space, r, alpha, g, node);
	PipeannTeamEnd(team);
	SpaceFree(&space);
}
