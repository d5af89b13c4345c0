/*
 * check.c
 *		pipeann_check(): the structural invariants of src/README, page by page.
 */
#include "postgres.h"

#include "access/relation.h"
#include "am/am.h"
#include "fmgr.h"
#include "io/io.h"
#include "miscadmin.h"
#include "utils/rel.h"

PG_FUNCTION_INFO_V1(pipeann_check);

/* What a slot is, by id. */
#define IS_NODE 1
#define IS_EXT 2
#define REACHED 4

typedef struct CheckState
{
	PipeannIndexView view;
	uint32		pages;
	uint32		ids;
	uint8	   *kinds;			/* [ids] */
	uint32	   *stack;			/* of the reachability walk */
	uint32		depth;
	int64		nodes;
	int64		live;			/* of these */
} CheckState;

static void
Report(const CheckState *state, uint32 id, const char *what)
{
	const PipeannLayout *l = &state->view.meta.layout;

	ereport(ERROR,
			(errcode(ERRCODE_INDEX_CORRUPTED),
			 errmsg("index \"%s\" is corrupted: node %u at block %u %s",
					RelationGetRelationName(state->view.index), id,
					PipeannGraphBlock(state->view.map, l,
									  PipeannIdPage(l, id)), what),
			 errhint("Run REINDEX INDEX \"%s\".",
					 RelationGetRelationName(state->view.index))));
}

/*
 * Call check for each used slot.
 */
static void
ForEachSlot(CheckState *state,
			void (*check) (CheckState *state, uint32 id,
						   const PipeannSlot *slot))
{
	const PipeannLayout *l = &state->view.meta.layout;
	char	   *nodes = palloc((Size) l->node_pages * PIPEANN_PAYLOAD);

	for (uint32 page = 0; page < state->pages; page++)
	{
		CHECK_FOR_INTERRUPTS();
		if (!PipeannGraphPageCopy(&state->view, page, nodes))
			continue;
		for (uint32 i = 0; i < l->slots_per_page; i++)
		{
			const PipeannSlot *slot = PipeannSlotAt(l, nodes, i);

			if (slot->flags & PIPEANN_SLOT_USED)
				check(state, page * l->slots_per_page + i, slot);
		}
	}
	pfree(nodes);
}

static void
NoteKind(CheckState *state, uint32 id, const PipeannSlot *slot)
{
	state->kinds[id] = PipeannSlotIsNode(slot) ? IS_NODE : IS_EXT;
	if (PipeannSlotIsNode(slot))
		state->nodes++;
	if (PipeannSlotIsLive(slot))
		state->live++;
}

static void
CheckTids(CheckState *state, uint32 id, const ItemPointerData *tids, int n)
{
	for (int i = 0; i < n; i++)
		if (!ItemPointerIsValid(&tids[i]))
			Report(state, id, "has an invalid heap TID");
}

static void
CheckNeighbors(CheckState *state, uint32 id, const PipeannSlot *slot)
{
	if (slot->degree > state->view.meta.layout.max_degree)
		Report(state, id, "has too many neighbours");
	for (int i = 0; i < slot->degree; i++)
	{
		uint32		neighbor = slot->neighbors[i];

		if (neighbor >= state->ids || state->kinds[neighbor] != IS_NODE)
			Report(state, id, "has a neighbour that is not a node");
		if (neighbor == id)
			Report(state, id, "is its own neighbour");
		for (int j = 0; j < i; j++)
			if (slot->neighbors[j] == neighbor)
				Report(state, id, "has a neighbour twice");
	}
}

static void
CheckLink(CheckState *state, uint32 id, uint32 ext)
{
	if (ext != PIPEANN_INVALID_ID &&
		(ext >= state->ids || state->kinds[ext] != IS_EXT))
		Report(state, id, "refers to an invalid overflow slot");
}

static void
CheckSlot(CheckState *state, uint32 id, const PipeannSlot *slot)
{
	const PipeannLayout *l = &state->view.meta.layout;

	CheckLink(state, id, slot->ext_tids);
	if (PipeannSlotIsNode(slot) || slot->length > 0)
		CheckLink(state, id, slot->ext_vec);
	if (slot->flags & PIPEANN_SLOT_EXT)
	{
		if (slot->ntids > PipeannExtTids(l) ||
			slot->length > PipeannExtBytes(l))
			Report(state, id, "is an overflow slot with too much in it");
		CheckTids(state, id, (const ItemPointerData *) PipeannSlotBody(slot),
				  slot->ntids);
		return;
	}
	if (slot->ntids > l->inline_tids)
		Report(state, id, "has too many inline TIDs");
	CheckTids(state, id, PipeannSlotTids(l, slot), slot->ntids);
	CheckNeighbors(state, id, slot);
}

static void
Reach(CheckState *state, uint32 id)
{
	if (id >= state->ids || !(state->kinds[id] & IS_NODE) ||
		(state->kinds[id] & REACHED))
		return;
	state->kinds[id] |= REACHED;
	state->stack[state->depth++] = id;
}

/*
 * Live nodes that no walk from the entry graph reaches. Inserts in progress may
 * have written a node and not yet its edges, so this is told, not raised.
 */
static int64
CountUnreachable(CheckState *state)
{
	const PipeannIndexView *view = &state->view;
	const PipeannLayout *l = &view->meta.layout;
	PipeannSlot *slot = PipeannSlotAlloc(l);
	int64		reached = 0;

	state->stack = PipeannAlloc(mul_size(Max(state->ids, 1), sizeof(uint32)));
	for (uint32 i = 0; i < view->codes.entry_count; i++)
		Reach(state, view->codes.entry_ids[i]);
	while (state->depth > 0)
	{
		int			degree;

		CHECK_FOR_INTERRUPTS();
		PipeannSlotCopy(view, state->stack[--state->depth], slot);
		if (PipeannSlotIsLive(slot))
			reached++;
		degree = PipeannSlotDegree(l, slot);
		for (int i = 0; i < degree; i++)
			Reach(state, slot->neighbors[i]);
	}
	return state->live - reached;
}

static void
CheckCodePages(CheckState *state)
{
	const PipeannIndexView *view = &state->view;
	uint32		per_page = PipeannCodesPerPage(&view->meta.layout);
	BlockNumber blocks = RelationGetNumberOfBlocks(view->index);

	for (uint32 first = 0; first < state->ids; first += per_page)
	{
		BlockNumber blkno = PipeannPlainBlock(view->map, PipeannCodesKind(view->meta.generation),
											  first / per_page);

		CHECK_FOR_INTERRUPTS();
		if (blkno == InvalidBlockNumber || blkno >= blocks)
			continue;
		UnlockReleaseBuffer(PipeannReadBuffer(view->index, blkno,
											  PipeannCodesKind(view->meta.generation),
											  BUFFER_LOCK_SHARE, true, NULL));
	}
}

/*
 * The pages of codebook or entry graph, which memory may have from better
 * days. Those past its end are new.
 */
static void
CheckStreamPages(CheckState *state, PipeannKind kind)
{
	const PipeannIndexView *view = &state->view;
	BlockNumber blocks = RelationGetNumberOfBlocks(view->index);
	uint32		pages = view->map->count[kind] * PIPEANN_EXTENT_USABLE;

	for (uint32 page = 0; page < pages; page++)
	{
		BlockNumber blkno = PipeannPlainBlock(view->map, kind, page);

		CHECK_FOR_INTERRUPTS();
		if (blkno < blocks)
			UnlockReleaseBuffer(PipeannReadBuffer(view->index, blkno, kind,
												  BUFFER_LOCK_SHARE, true,
												  NULL));
	}
}

static void
CheckEntryGraph(CheckState *state)
{
	const PipeannCodes *codes = &state->view.codes;

	for (uint32 i = 0; i < codes->entry_count; i++)
	{
		if (codes->entry_ids[i] >= state->ids ||
			state->kinds[codes->entry_ids[i]] != IS_NODE)
			Report(state, codes->entry_ids[i],
				   "is in the entry graph but is not a node");
		for (int j = 0; j < codes->entry_nneighbors[i] &&
			 j < (int) codes->entry_degree; j++)
			if (codes->entry_neighbors[(Size) i * codes->entry_degree + j] >=
				codes->entry_count)
				Report(state, codes->entry_ids[i],
					   "has an invalid neighbour in the entry graph");
	}
}

/*
 * pipeann_check(regclass): errors with ERRCODE_INDEX_CORRUPTED at the first
 * violation; returns the number of nodes checked. Warns of nodes that cannot
 * be reached.
 */
Datum
pipeann_check(PG_FUNCTION_ARGS)
{
	Relation	index = PipeannOpenIndex(PG_GETARG_OID(0));
	CheckState	state;
	int64		unreachable;

	memset(&state, 0, sizeof(state));
	PipeannOpenView(&state.view, index);
	state.pages = PipeannSourceCountPages(index, &state.view.meta.layout,
										  state.view.map,
										  state.view.meta.graph_pages);
	state.ids = PipeannViewIds(&state.view);
	state.kinds = PipeannAllocZero(Max(state.ids, 1));
	ForEachSlot(&state, NoteKind);
	ForEachSlot(&state, CheckSlot);
	if (state.view.image != NULL)
	{
		CheckCodePages(&state);
		CheckStreamPages(&state, PIPEANN_CODEBOOK);
		CheckStreamPages(&state, PIPEANN_ENTRY);
		CheckEntryGraph(&state);
		unreachable = CountUnreachable(&state);
		if (unreachable > 0)
			ereport(WARNING,
					(errmsg("index \"%s\" has %lld nodes that no search can reach",
							RelationGetRelationName(index),
							(long long) unreachable)));
		PipeannImageRelease(state.view.image);
	}
	relation_close(index, AccessShareLock);
	PG_RETURN_INT64(state.nodes);
}
