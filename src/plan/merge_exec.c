/*
 * merge_exec.c
 *		Running a merge of the nearest rows of partitions.
 *
 * At first the partitions are asked one after the other, each for several rows. The
 * distance bound is the farthest of the nearest rows, as many as the limit wants.
 * When the searches have been run it is where they expect that to be, and as soon
 * as there are so many rows it is known, and comes nearer with each nearer row:
 * partitions are asked for rows within it only. Then rows are handed up in order,
 * and none beyond the distance bound.
 *
 * Only rows count that the partitions' nodes have returned. So what makes rows fall
 * out (conditions, rows that are not visible) only makes the distance bound
 * farther.
 *
 * If all of them together have fewer rows than are wanted, each scan begins again,
 * alone, and the merge is an ordinary one. What it was asked for before is
 * forgotten: a search that goes on where it had given all that it had finds nearer
 * rows too late.
 */
#include "postgres.h"

#include <math.h>

#include "base/planted.h"
#include "executor/execPartition.h"
#include "miscadmin.h"
#include "plan/node.h"
#include "utils/float.h"
#include "utils/memutils.h"

/* A limit beyond which the merge is run as it was planned. */
#define MOST_WANTED 1000

/* A row of a partition that was not handed up yet. */
typedef struct MergeRow
{
	struct MergeRow *next;
	MinimalTuple tuple;
	double		distance;
	bool		isnull;			/* comes after all distances */
} MergeRow;

typedef enum MergeStatus
{
	MERGE_OPEN,					/* may have rows within the distance bound */
	MERGE_STOPPED,				/* has none; may have others */
	MERGE_DONE
} MergeStatus;

typedef struct MergeChild
{
	PlanState  *node;
	bool		heeds;			/* a scan that heeds the distance bound */
	float		entered;		/* how near its search begins */
	MergeStatus status;
	MergeRow   *first;			/* in order */
	MergeRow   *last;
} MergeChild;

typedef struct MergeState
{
	PipeannNode node;			/* its child is the merge as it was planned */
	AttrNumber	column;
	bool		as_planned;
	int			wanted;
	int			returned;
	int			nnearest;
	double	   *nearest;		/* [wanted], sorted */
	int			nchildren;
	MergeChild *children;
	PipeannDistanceBound bound;
} MergeState;

static MergeAppendState *
MergeOf(const MergeState *state)
{
	return castNode(MergeAppendState, state->node.child);
}

/* Scans that begin from now on are to heed this, or none. */
static void
TellScans(const MergeState *state, PipeannDistanceBound *bound)
{
	const MergeAppendState *merge = MergeOf(state);

	for (int i = 0; i < merge->ms_nplans; i++)
	{
		PipeannScanContext *context = PipeannContextOfScan(merge->mergeplans[i]);

		if (context != NULL)
			context->bound = bound;
	}
}

/*
 * Partitions may be ruled out by values that are known only now. Where all are when
 * the plan begins, there is nothing to be asked.
 */
static const Bitmapset *
ValidChildren(MergeAppendState *merge)
{
	if (merge->ms_nplans == 0)
		return NULL;
	if (merge->ms_valid_subplans == NULL && merge->ms_prune_state != NULL)
		merge->ms_valid_subplans =
#if PG_VERSION_NUM >= 180000
			ExecFindMatchingSubPlans(merge->ms_prune_state, false, NULL);
#else
			ExecFindMatchingSubPlans(merge->ms_prune_state, false);
#endif
	return merge->ms_valid_subplans;
}

static void
FindChildren(MergeState *state)
{
	MergeAppendState *merge = MergeOf(state);
	const Bitmapset *valid = ValidChildren(merge);
	int			i = -1;

	state->nchildren = 0;
	state->children = MemoryContextAllocZero(state->node.memory,
											 mul_size(sizeof(MergeChild),
													  Max(merge->ms_nplans, 1)));
	while ((i = bms_next_member(valid, i)) >= 0)
	{
		MergeChild *child = &state->children[state->nchildren++];

		child->node = merge->mergeplans[i];
		child->heeds = PipeannContextOfScan(child->node) != NULL;
	}
}

/* The distance bound is where the last of the rows is that are wanted. */
static void
NoteDistance(MergeState *state, double distance)
{
	int			at = state->nnearest;

	if (at == state->wanted)
	{
		if (!float8_lt(distance, state->nearest[at - 1]))
			return;
		at--;
	}
	else
		state->nnearest++;
	for (; at > 0 && float8_lt(distance, state->nearest[at - 1]); at--)
		state->nearest[at] = state->nearest[at - 1];
	state->nearest[at] = distance;
	if (state->nnearest == state->wanted &&
		float8_lt(state->nearest[state->wanted - 1], state->bound.distance))
		state->bound.distance = state->nearest[state->wanted - 1];
}

static bool
IsWithin(const MergeState *state, const MergeRow *row)
{
	return !row->isnull && float8_le(row->distance, state->bound.distance);
}

static bool
IsBefore(const MergeRow *a, const MergeRow *b)
{
	if (a->isnull || b->isnull)
		return b->isnull && !a->isnull;
	if (PIPEANN_PLANTED("merge-order"))
		return float8_lt(b->distance, a->distance);
	return float8_lt(a->distance, b->distance);
}

/*
 * Nearly all rows come last. At the distance bound a node of the executor's hands
 * up what it held back, as it takes that for the end; nearer rows may follow.
 */
static void
PutInOrder(MergeChild *child, MergeRow *row)
{
	MergeRow  **place = &child->first;

	if (child->first != NULL && !IsBefore(row, child->last))
		place = &child->last->next;
	while (*place != NULL && !IsBefore(row, *place))
		place = &(*place)->next;
	row->next = *place;
	*place = row;
	if (row->next == NULL)
		child->last = row;
}

static MergeRow *
KeepRow(MergeState *state, MergeChild *child, TupleTableSlot *slot)
{
	MemoryContext former = MemoryContextSwitchTo(state->node.memory);
	MergeRow   *row = palloc(sizeof(MergeRow));

	row->distance = DatumGetFloat8(slot_getattr(slot, state->column,
												&row->isnull));
	row->tuple = ExecCopySlotMinimalTuple(slot);
	MemoryContextSwitchTo(former);
	PutInOrder(child, row);
	return row;
}

/*
 * Ask a child for a row. The executor's node takes a scan that returned nothing to
 * be at its end, as it may hold rows back until then.
 */
static TupleTableSlot *
Ask(const MergeChild *child)
{
	CHECK_FOR_INTERRUPTS();
	if (child->heeds && IsA(child->node, IndexScanState))
		((IndexScanState *) child->node)->iss_ReachedEnd = false;
	return ExecProcNode(child->node);
}

/* Keep a row of a child; returns whether it is within the distance bound. */
static bool
Take(MergeState *state, MergeChild *child, TupleTableSlot *slot)
{
	MergeRow   *row = KeepRow(state, child, slot);

	if (!row->isnull)
		NoteDistance(state, row->distance);
	return IsWithin(state, row);
}

/* Ask a child for a row; returns whether there is one within the distance bound. */
static bool
Pull(MergeState *state, MergeChild *child)
{
	TupleTableSlot *slot = Ask(child);

	if (!TupIsNull(slot))
		return Take(state, child, slot);
	child->status = child->heeds ? MERGE_STOPPED : MERGE_DONE;
	return false;
}

static int
CompareEntered(const void *a, const void *b)
{
	return float4_cmp_internal(((const MergeChild *) a)->entered,
							   ((const MergeChild *) b)->entered);
}

/*
 * Let all searches find where they begin before one is run. The nearest go first:
 * what they find is what others need not look for. A scan that heeds no distance
 * bound (scan/scan.c) does not say where it begins, and may return a row at once.
 */
static void
Enter(MergeState *state)
{
	state->bound.entering = true;
	for (int i = 0; i < state->nchildren; i++)
	{
		MergeChild *child = &state->children[i];
		TupleTableSlot *slot;

		if (!child->heeds)
			continue;
		state->bound.entered = get_float4_nan();
		slot = Ask(child);
		if (!TupIsNull(slot))
			(void) Take(state, child, slot);
		child->heeds = !isnan(state->bound.entered);
		child->entered = child->heeds ? state->bound.entered : 0;
	}
	state->bound.entering = false;
	qsort(state->children, state->nchildren, sizeof(MergeChild),
		  CompareEntered);
}

/* Rows that are nearer than what is there already, of one child after the other. */
static void
PullFirst(MergeState *state)
{
	for (int i = 0; i < state->nchildren; i++)
	{
		int			n = 0;

		while (n < state->wanted &&
			   state->children[i].status == MERGE_OPEN &&
			   Pull(state, &state->children[i]))
			n++;
	}
}

/* Ask those that have stopped again, now that the distance bound is another one. */
static void
Reopen(MergeState *state)
{
	for (int i = 0; i < state->nchildren; i++)
	{
		if (state->children[i].status == MERGE_STOPPED)
			state->children[i].status = MERGE_OPEN;
	}
}

/*
 * Rows within the distance bound that is expected may not be there, as they are
 * dead or do not match, or be farther than was thought.
 */
static void
PullNearest(MergeState *state)
{
	bool		known;

	PullFirst(state);
	if (!state->bound.expected)
		return;
	state->bound.expected = false;
	known = state->nnearest == state->wanted;
	if (known && float8_le(state->nearest[state->wanted - 1],
						   state->bound.distance))
		return;
	state->bound.distance = known ? state->nearest[state->wanted - 1] :
		get_float8_infinity();
	Reopen(state);
	PullFirst(state);
}

/*
 * Let each scan begin again, alone. Other children have rows in order already, and
 * nothing was handed up yet.
 */
static void
BeginAlone(MergeState *state)
{
	TellScans(state, NULL);
	for (int i = 0; i < state->nchildren; i++)
	{
		MergeChild *child = &state->children[i];
		MergeRow   *next;

		if (!child->heeds)
			continue;
		for (MergeRow *row = child->first; row != NULL; row = next)
		{
			next = row->next;
			heap_free_minimal_tuple(row->tuple);
			pfree(row);
		}
		child->first = child->last = NULL;
		child->heeds = false;
		child->status = MERGE_OPEN;
		ExecReScan(child->node);
	}
}

/*
 * Whether the rows wanted are there, and none that is nearer was missed: conditions
 * and rows that are not visible may have moved the bound beyond what the searches
 * have explored together, of one partition more than of others. A row without a
 * distance, or whose distance is no number, may come before what they have not found.
 */
static bool
IsFilled(const MergeState *state)
{
	return state->nnearest == state->wanted &&
		(PIPEANN_PLANTED("merge-far") ||
		 float8_le(state->nearest[state->wanted - 1], state->bound.trusted));
}

/* For the rows that are wanted of all children. */
static void
InitBound(MergeState *state)
{
	PipeannDistanceBound *bound = &state->bound;

	bound->entering = bound->expected = false;
	bound->distance = bound->trusted = get_float8_infinity();
	bound->wanted = state->wanted;
	bound->together.searches = state->nchildren;
	bound->together.first = bound->together.tabled = NULL;
	bound->together.most = 0;
	bound->together.ncodes = 0;
	bound->together.nnearest = 0;
	bound->together.nsubvectors = 0;
}

static void
Start(PipeannNode *node)
{
	MergeState *state = (MergeState *) node;
	int64		wanted = PipeannNodeWanted(node, MOST_WANTED);

	state->as_planned = wanted == PG_INT64_MAX;
	TellScans(state, state->as_planned ? NULL : &state->bound);
	PipeannNodeBeginChild(node);
	if (state->as_planned)
		return;
	state->returned = 0;
	state->wanted = (int) wanted;
	state->nnearest = 0;
	state->nearest = MemoryContextAlloc(state->node.memory,
										mul_size(sizeof(double),
												 state->wanted));
	FindChildren(state);
	InitBound(state);
	Enter(state);
	PullNearest(state);
	if (!IsFilled(state))
		BeginAlone(state);
}

/* The child whose next row comes first, or NULL. */
static MergeChild *
First(MergeState *state)
{
	MergeChild *first = NULL;

	for (int i = 0; i < state->nchildren; i++)
	{
		MergeChild *child = &state->children[i];

		if (child->first == NULL && child->status == MERGE_OPEN)
			(void) Pull(state, child);
		if (child->first != NULL &&
			(first == NULL || IsBefore(child->first, first->first)))
			first = child;
	}
	return first;
}

static TupleTableSlot *
NextRow(MergeState *state)
{
	MergeChild *child = state->returned < state->wanted ? First(state) : NULL;
	MergeRow   *row;

	if (child == NULL)
		return NULL;
	row = child->first;
	child->first = row->next;
	ExecStoreMinimalTuple(row->tuple, state->node.slot, true);
	pfree(row);
	state->returned++;
	return state->node.slot;
}

static void
BeginMerge(PipeannNode *node)
{
	const CustomScan *plan = (const CustomScan *) node->state.ss.ps.plan;

	((MergeState *) node)->column = linitial_int(plan->custom_private);
}

static TupleTableSlot *
ExecMerge(PipeannNode *node)
{
	MergeState *state = (MergeState *) node;
	PlanState  *merge = node->child;
	TupleTableSlot *slot;

	if (state->as_planned)
		return ExecProcNode(merge);
	if (merge->instrument != NULL)
		InstrStartNode(merge->instrument);
	slot = NextRow(state);
	if (merge->instrument != NULL)
		InstrStopNode(merge->instrument, slot == NULL ? 0 : 1);
	return slot;
}

const PipeannNodeMethods PipeannMergeMethods = {
	.scan = {
		.CustomName = "PipeannMerge",
		.CreateCustomScanState = PipeannNodeCreate
	},
	.size = sizeof(MergeState),
	.begin = BeginMerge,
	.start = Start,
	.next = ExecMerge
};
