/*
 * chains.c
 *		Overflow slots: chains of TIDs and of out-of-line vectors.
 *
 * A chain is walked from its node. Slots without a node, which a crash between
 * writing and linking them leaves, are no error.
 */
#include "postgres.h"

#include "verify/verify.h"
#include "distance/distance.h"
#include "miscadmin.h"

/* Called for each overflow slot of a chain, in order. */
typedef void (*ChainVisit) (uint32 id, const PipeannSlot *ext, void *arg);

/*
 * Notices a cycle as Brent does: the slot at the last power of two steps is met
 * again.
 */
typedef struct CycleCheck
{
	uint32		mark;
	uint64		steps;
	uint64		power;
} CycleCheck;

static bool
MetAgain(CycleCheck *cycle, uint32 id)
{
	if (cycle->steps > 0 && id == cycle->mark)
		return true;
	if (++cycle->steps == cycle->power)
	{
		cycle->mark = id;
		cycle->power *= 2;
	}
	else if (cycle->steps == 1)
		cycle->mark = id;
	return false;
}

static bool
IsExt(const PipeannSlot *slot)
{
	const uint16 both = PIPEANN_SLOT_USED | PIPEANN_SLOT_EXT;

	return (slot->flags & both) == both;
}

static const char *
CheckExt(const PipeannLayout *l, const PipeannSlot *ext, bool vector)
{
	if (!IsExt(ext))
		return "refers to an overflow slot that is none";
	if (vector)
	{
		if (ext->length == 0 || ext->length > PipeannExtBytes(l) ||
			ext->ntids != 0)
			return "has an overflow slot with an invalid part of a vector or row";
		return NULL;
	}
	if (ext->length != 0 || ext->ntids > PipeannExtRows(l, ext).n)
		return "has an overflow slot with an invalid number of TIDs";
	return NULL;
}

/*
 * Walk a chain from slot id on: of rows, or if left > 0 of so many bytes of a
 * vector or row. wrong_length is what to say if it has more or less.
 */
static const char *
Walk(const PipeannCheck *check, uint32 id, Size left, const char *wrong_length,
	 ChainVisit visit, void *arg)
{
	const PipeannLayout *l = &check->view.meta.layout;
	PipeannSlot *ext = PipeannSlotAlloc(l);
	bool		parts = left > 0;
	CycleCheck	cycle = {PIPEANN_INVALID_ID, 0, 1};
	const char *problem = NULL;

	while (problem == NULL && id != PIPEANN_INVALID_ID)
	{
		CHECK_FOR_INTERRUPTS();
		if (!PipeannCheckReadSlot(check, id, ext))
			problem = "refers to an overflow slot that does not exist";
		else if (MetAgain(&cycle, id))
			problem = "has a cycle in its overflow chain";
		else
			problem = CheckExt(l, ext, parts);
		if (problem != NULL)
			break;
		if (parts && ext->length > left)
			problem = wrong_length;
		else
		{
			left -= parts ? ext->length : 0;
			visit(id, ext, arg);
			id = parts ? ext->ext_vec : ext->ext_tids;
		}
	}
	if (problem == NULL && left > 0)
		problem = wrong_length;
	pfree(ext);
	return problem;
}

/*
 * Walk a node's chain of TIDs, or of its out-of-line vector. Returns NULL, or
 * what is wrong with the chain.
 */
static const char *
WalkChain(const PipeannCheck *check, const PipeannSlot *node, bool vector,
		  ChainVisit visit, void *arg)
{
	return Walk(check, vector ? node->ext_vec : node->ext_tids,
				vector ? mul_size(check->view.meta.layout.dim,
								  sizeof(float)) : 0,
				"has an out-of-line vector of the wrong length", visit, arg);
}

#define ROW_LENGTH "has a row of the wrong length"

typedef struct RowWalk
{
	const PipeannLayout *layout;
	PipeannRowVisit visit;
	void	   *arg;
	bool		stopped;
} RowWalk;

static void
VisitRowsOf(uint32 id, const PipeannSlot *slot, void *arg)
{
	RowWalk    *walk = arg;
	PipeannRowList list = PipeannAnyRows(walk->layout, slot);
	const PipeannRow *row = list.rows;

	(void) id;
	for (uint32 i = 0; i < list.n && !walk->stopped;
		 i++, row = PipeannRowNext(walk->layout, row))
		walk->stopped = !walk->visit(row, walk->arg);
}

/* Visit the rows of a node, as far as its chain is sound. */
void
PipeannCheckVisitRows(const PipeannCheck *check, const PipeannSlot *node,
					  PipeannRowVisit visit, void *arg)
{
	RowWalk		walk = {&check->view.meta.layout, visit, arg, false};

	VisitRowsOf(PIPEANN_INVALID_ID, node, &walk);
	if (!walk.stopped && node->ext_tids != PIPEANN_INVALID_ID)
		(void) WalkChain(check, node, false, VisitRowsOf, &walk);
}

/* The parts of rows that are out of line. */
typedef struct RowParts
{
	const PipeannCheck *check;
	ChainVisit	visit;
	void	   *arg;
	const char *problem;
} RowParts;

static bool
WalkPartsOf(const PipeannRow *row, void *arg)
{
	RowParts   *parts = arg;
	const PipeannLayout *l = &parts->check->view.meta.layout;

	if (PipeannRowIsOutOfLine(l, row))
		parts->problem = Walk(parts->check, PipeannRowFirstPart(row),
							  Max(PipeannRowLength(l, row), 1), ROW_LENGTH,
							  parts->visit, parts->arg);
	return parts->problem == NULL;
}

/* Walk along the parts of all rows of a node; returns what is wrong. */
static const char *
WalkRowParts(const PipeannCheck *check, const PipeannSlot *node,
			 ChainVisit visit, void *arg)
{
	RowParts	parts = {check, visit, arg, NULL};

	if (check->view.meta.layout.row_bytes > 0)
		PipeannCheckVisitRows(check, node, WalkPartsOf, &parts);
	return parts.problem;
}

static void
Ignore(uint32 id, const PipeannSlot *ext, void *arg)
{
	(void) id;
	(void) ext;
	(void) arg;
}

static const char *
WalkAll(const PipeannCheck *check, const PipeannSlot *slot)
{
	bool		out_of_line = (slot->flags & PIPEANN_SLOT_OUT_OF_LINE) != 0;
	const char *problem;

	if (out_of_line && slot->ext_vec == PIPEANN_INVALID_ID)
		return "has an out-of-line vector without a chain";
	if (!out_of_line && slot->error == 0 && slot->ext_vec != PIPEANN_INVALID_ID)
		return "has the chain of an out-of-line vector, but none";
	if (slot->ext_tids != PIPEANN_INVALID_ID)
	{
		problem = WalkChain(check, slot, false, Ignore, NULL);
		if (problem != NULL)
			return problem;
	}
	if (out_of_line)
	{
		problem = WalkChain(check, slot, true, Ignore, NULL);
		if (problem != NULL)
			return problem;
	}
	return WalkRowParts(check, slot, Ignore, NULL);
}

/*
 * Check both chains of a node, again while they look wrong; errors if they
 * stay so.
 *
 * A slot of the chain may have been given to another chain since the node was
 * read, so an apparent error is looked at again.
 */
void
PipeannCheckChains(PipeannCheck *check, uint32 id, const PipeannSlot *slot)
{
	PipeannSlot *again;
	const char *problem;

	if (slot->ext_tids == PIPEANN_INVALID_ID &&
		check->view.meta.layout.row_bytes == 0 &&
		(slot->error != 0 || slot->ext_vec == PIPEANN_INVALID_ID) &&
		!(slot->flags & PIPEANN_SLOT_OUT_OF_LINE))
		return;
	check->chains = true;
	problem = WalkAll(check, slot);
	again = PipeannSlotAlloc(&check->view.meta.layout);
	for (int i = 0; problem != NULL && i < PIPEANN_CHECK_TRIES; i++)
	{
		PipeannCheckPause();
		PipeannCheckRefresh(check);
		if (!PipeannCheckReadSlot(check, id, again) ||
			!PipeannSlotIsNode(again))
			problem = NULL;
		else
			problem = WalkAll(check, again);
	}
	pfree(again);
	if (problem != NULL)
		PipeannCheckReport(check, id, problem);
}

static void
TakePart(uint32 id, const PipeannSlot *ext, void *arg)
{
	char	  **next = arg;

	(void) id;
	memcpy(*next, PipeannSlotBody(ext), ext->length);
	*next += ext->length;
}

/*
 * Read the vector of an out-of-line node; false if its chain is being changed.
 */
bool
PipeannCheckOutOfLineVector(const PipeannCheck *check, const PipeannSlot *node,
							float *x)
{
	char	   *next = (char *) x;

	return WalkChain(check, node, true, TakePart, &next) == NULL;
}

/*
 * The whole of a row that is out of line, or NULL if its chain is being changed.
 */
PipeannRow *
PipeannCheckReadRow(const PipeannCheck *check, const PipeannRow *row)
{
	uint32		length = PipeannRowLength(&check->view.meta.layout, row);
	PipeannRow *whole = palloc0(Max(length, sizeof(PipeannRow)));
	char	   *next = (char *) whole;

	if (Walk(check, PipeannRowFirstPart(row), Max(length, 1), ROW_LENGTH,
			 TakePart, &next) == NULL && (whole->info & PIPEANN_ROW_SIZE) == length)
		return whole;
	pfree(whole);
	return NULL;
}

/* State of the walk along one node's chain. */
typedef struct Owner
{
	PipeannCheck *check;
	uint32		id;
} Owner;

static void
Own(uint32 id, const PipeannSlot *ext, void *arg)
{
	Owner	   *owner = arg;
	PipeannCheck *check = owner->check;

	(void) ext;
	if (id >= check->size)
		return;
	if (check->seen[id] & PIPEANN_SEEN_OWNED)
	{
		check->shared = true;
		check->shared_by = owner->id;
	}
	check->seen[id] |= PIPEANN_SEEN_OWNED;
}

static void
OwnChains(PipeannCheck *check, uint32 id, const PipeannSlot *slot)
{
	Owner		owner = {check, id};

	if (!PipeannSlotIsNode(slot))
		return;
	if (slot->ext_tids != PIPEANN_INVALID_ID)
		(void) WalkChain(check, slot, false, Own, &owner);
	if (slot->flags & PIPEANN_SLOT_OUT_OF_LINE)
		(void) WalkChain(check, slot, true, Own, &owner);
	(void) WalkRowParts(check, slot, Own, &owner);
}

/*
 * Errors if an overflow slot is in two chains.
 *
 * A slot that went from one chain to another during a sweep was met in both.
 * That does not happen in every sweep.
 */
void
PipeannCheckOwners(PipeannCheck *check)
{
	if (!check->chains)
		return;
	for (int i = 0; i < PIPEANN_CHECK_TRIES; i++)
	{
		check->shared = false;
		for (uint32 id = 0; id < check->size; id++)
			check->seen[id] &= ~PIPEANN_SEEN_OWNED;
		PipeannCheckSweep(check, NULL, OwnChains);
		if (!check->shared)
			return;
		PipeannCheckPause();
	}
	PipeannCheckReport(check, check->shared_by,
					   "has an overflow slot that is another node's too");
}
