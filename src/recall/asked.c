/*
 * asked.c
 *		Queries of an index, and their exact answers.
 */
#include "postgres.h"

#include "base/random.h"
#include "distance/sparse.h"
#include "io/io.h"
#include "recall/recall.h"

/* Make a query for the neighbours of a vector. */
void
PipeannAskVector(const PipeannLayout *l, const float *x, PipeannAsked *asked)
{
	asked->query = PipeannArray(float, PipeannFloats(l->storage, l->dim));
	PipeannQueryOf(l, x, asked->query);
	asked->own = PIPEANN_INVALID_ID;
}

/*
 * Make a query for the neighbours of a random node of the i-th of n parts of
 * the index. False if that part has no node with rows.
 */
bool
PipeannAskOwn(const PipeannIndexView *view, int i, int n, uint64 random, PipeannAsked *asked)
{
	const PipeannLayout *l = &view->meta.layout;
	uint32		ids = PipeannViewPages(view) * l->slots_per_page;
	uint32		first = (uint32) ((uint64) ids * i / n);
	uint32		end = (uint32) ((uint64) ids * (i + 1) / n);
	char	   *page = palloc((Size) l->node_pages * PIPEANN_PAYLOAD);
	float	   *x = PipeannArray(float, PipeannFloats(l->storage, l->dim));
	uint32		begin = end > first ? PipeannRandomBelow(&random, end - first) : 0;
	bool		found = false;

	for (uint32 tries = 0; tries < end - first && !found; tries++)
	{
		uint32		id = first + (begin + tries) % (end - first);
		const PipeannSlot *slot = PipeannSlotAt(l, page, PipeannIdSlot(l, id));

		if (!PipeannGraphPageCopy(view, PipeannIdPage(l, id), page) ||
			!PipeannSlotIsNode(slot) || slot->ntids == 0)
			continue;
		PipeannVectorUnpack(PipeannSlotVector(l, slot), l->storage, l->dim, x);
		PipeannAskVector(l, x, asked);
		asked->own = id;
		found = true;
	}
	pfree(page);
	pfree(x);
	return found;
}

/* State of computing exact answers. */
typedef struct Exact
{
	PipeannIndexView *view;
	PipeannAsked *asked;
	int			n;
	PipeannStorage form;		/* storage in which vectors are compared */
	const void **queries;		/* [n] as the kernels need them */
	float	   *x;				/* vector of the node that is compared */
} Exact;

/* Copy a node's vector in the form in which it is compared. False if it is gone. */
static bool
CopyVector(const Exact *e, uint32 id, const PipeannSlot *slot)
{
	const PipeannLayout *l = &e->view->meta.layout;

	if (slot->flags & PIPEANN_SLOT_OUT_OF_LINE)
		return PipeannChainVector(e->view, id, slot, e->x);
	if (e->form == PIPEANN_BITS)
		memcpy(e->x, PipeannSlotVector(l, slot), PipeannVectorBytes(l->storage, l->dim));
	else
		PipeannVectorUnpack(PipeannSlotVector(l, slot), l->storage, l->dim, e->x);
	return true;
}

/* Compare the nodes of a page with all queries. */
static void
Compare(uint32 page, const char *nodes, void *arg)
{
	Exact	   *e = arg;
	const PipeannLayout *l = &e->view->meta.layout;
	const void *x = PipeannIsSparse(e->form) ? PipeannSparseBehind(e->x) : (void *) e->x;

	for (uint32 i = 0; i < l->slots_per_page; i++)
	{
		const PipeannSlot *slot = PipeannSlotAt(l, nodes, i);
		uint32		id = page * l->slots_per_page + i;

		if (!PipeannSlotIsLive(slot) || !CopyVector(e, id, slot))
			continue;
		for (int q = 0; q < e->n; q++)
		{
			PipeannAsked *asked = &e->asked[q];
			float		dist = PipeannExactDistance(l, e->queries[q], x, e->form, slot->aux);
			int			at = asked->n;

			if (asked->own == id ||
				(at == asked->k && !(dist < asked->nearest[at - 1])))
				continue;
			if (at == asked->k)
				at--;
			else
				asked->n++;
			for (; at > 0 && asked->nearest[at - 1] > dist; at--)
				asked->nearest[at] = asked->nearest[at - 1];
			asked->nearest[at] = dist;
		}
	}
}

/*
 * Find the true nearest neighbours of n queries, as many as each wants, in one
 * pass over all nodes.
 */
void
PipeannAnswerExactly(PipeannIndexView *view, PipeannAsked *asked, int n)
{
	const PipeannLayout *l = &view->meta.layout;
	PipeannCounters counters = {0};
	PipeannPageSource *source = PipeannViewSource(view, &counters);
	Exact		e = {.view = view,.asked = asked,.n = n,.form = PipeannWholeForm(l)};

	e.queries = PipeannArray(const void *, Max(n, 1));
	e.x = PipeannArray(float, PipeannFloats(l->storage, l->dim));
	for (int i = 0; i < n; i++)
	{
		e.queries[i] = PipeannQueryFor(e.form, asked[i].query, l->dim,
									   e.form != PIPEANN_BITS ? NULL :
									   PipeannArray(float, l->dim));
		asked[i].nearest = PipeannArray(float, asked[i].k);
		asked[i].n = 0;
	}
	if (n > 0)
		PipeannVisitPages(source, PipeannViewPages(view), Compare, &e);
	PipeannSourceClose(source);
}
