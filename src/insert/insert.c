/*
 * insert.c
 *		Inserting a row.
 *
 * src/README, "insert/", gives the order of the steps and says why it is right.
 *
 * The inserts of one statement share the backend's memory, reads and cache. A
 * view is opened for each insert, which takes a thousandth of its time.
 */
#include "postgres.h"

#include <math.h>

#include "attributes/attributes.h"
#include "base/pause.h"
#include "build/build.h"
#include "distance/sparse.h"
#include "index/index.h"
#include "insert/insert.h"
#include "insert/link.h"
#include "io/io.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/memutils.h"
#include "utils/rel.h"

/*
 * One new node in this many looks at how the index has grown. If making codes fails, by
 * statement_timeout for example, the next inserts must not fail as well.
 */
#define KEEP_UP_EVERY 256

/* Memory for inserting a row, mostly for ROW_VECTORS vectors of neighbours; and its bounds. */
#define ROW_VECTORS 1024
#define LEAST_ROW_BYTES ((Size) 512 * 1024)
#define MOST_ROW_BYTES ((Size) 8 * 1024 * 1024)

/* What is behind seven tenths of ef_construction adds little to lists of this length. */
#define LONG_LIST 32

/* All nodes on the pages of this many of those that a search finds nearest are candidates. */
#define NEAR_PAGES 24

typedef struct InsertState
{
	PipeannIndexView *view;
	PipeannLayout near;			/* layout for the search of neighbours */
	const float *x;				/* the vector */
	const float *query;			/* x, normalised for cosine */
	double		norm;
	bool		out_of_line;	/* x does not fit the element storage */
	PipeannSlot *slot;			/* the new node's slot */
	const PipeannRow *row;
	const PipeannRow *whole;	/* the same row, whole and not out of line */
	PipeannAttributes *attributes;	/* NULL if there are no codes of them */
	uint8		code[PIPEANN_MAX_ATTRIBUTE_BYTES];	/* of the row */
	uint8	   *vector_code;	/* of x; NULL if it is not known */
	float		code_error;		/* its squared distance from x, nearly */
	uint32		equal;			/* a node with this vector, or INVALID_ID */
	uint64		nodes;			/* in the index, with a new node; else 0 */
} InsertState;

/* ---------- overflow slots ---------- */

/*
 * Try to add the row to overflow slot first of node id. Sets *number to the
 * slot's number in any case.
 */
static bool
AddToExt(PipeannIndexView *view, uint32 id, uint32 first,
		 const PipeannRow *row, uint32 *number)
{
	PipeannPageUpdate update;

	PipeannSlotBegin(view, first, &update);
	*number = update.slot->number;
	if (!PipeannSlotIsTidsOf(update.slot, id) ||
		(update.slot->flags & PIPEANN_SLOT_CLOSED) ||
		!PipeannSlotAddRow(&view->meta.layout, update.slot, row))
	{
		PipeannPageAbort(&update);
		return false;
	}
	PipeannPageEnd(&update);
	return true;
}

/*
 * Put a new overflow slot with the row in front of the node's others, of which
 * old_first has the given number. False if another insert has changed the chain
 * meanwhile or the node has died; then the new slot is emptied again.
 */
static bool
PushExt(PipeannIndexView *view, uint32 id, uint32 old_first,
		uint32 number, const PipeannRow *row)
{
	PipeannSlot *ext = PipeannSlotAlloc(&view->meta.layout);
	PipeannPageUpdate update;
	uint32		ext_id;
	bool		pushed;

	ext->flags = PIPEANN_SLOT_USED | PIPEANN_SLOT_EXT;
	ext->ext_tids = old_first;
	ext->owner = id;
	ext->number = number + 1;
	(void) PipeannSlotAddRow(&view->meta.layout, ext, row);
	ext_id = PipeannPlaceSlot(view, PIPEANN_INVALID_ID, ext);
	pfree(ext);
	PIPEANN_PAUSE("chain-slot-written");

	PipeannSlotBegin(view, id, &update);
	pushed = PipeannSlotIsLive(update.slot) && update.slot->ext_tids == old_first;
	if (pushed)
	{
		update.slot->ext_tids = ext_id;
		PipeannPageEnd(&update);
		return true;
	}
	PipeannPageAbort(&update);
	PipeannSlotBegin(view, ext_id, &update);
	update.slot->flags = 0;
	PipeannPageEnd(&update);
	return false;
}

/*
 * Add a row to node id, inline if there is room, else in an overflow slot.
 * False if the node has died meanwhile.
 */
static bool
JoinNode(PipeannIndexView *view, uint32 id, const PipeannRow *row)
{
	const PipeannLayout *l = &view->meta.layout;

	for (;;)
	{
		PipeannPageUpdate update;
		uint32		first;
		uint32		number = 0;

		CHECK_FOR_INTERRUPTS();
		/* notes a change of the node, wherever the row comes to stand */
		PipeannSlotBegin(view, id, &update);
		if (!PipeannSlotIsLive(update.slot))
		{
			PipeannPageAbort(&update);
			return false;
		}
		if (PipeannSlotAddRow(l, update.slot, row))
		{
			PipeannPageEnd(&update);
			return true;
		}
		first = update.slot->ext_tids;
		PipeannPageAbort(&update);
		PIPEANN_PAUSE("chain-first-read");
		if (first != PIPEANN_INVALID_ID &&
			AddToExt(view, id, first, row, &number))
			return true;
		if (PushExt(view, id, first, number, row))
			return true;
	}
}

/* What is out of line of a whole vector. */
static const float *
OutOfLine(const PipeannLayout *l, const float *x)
{
	return PipeannIsSparse(l->storage) ? PipeannSparseBehind(x) : x;
}

/*
 * Write data to overflow slots, for a vector or a row that does not fit a
 * node's slot; returns the first one.
 *
 * The last part is written first, so that each slot can name the next.
 */
static uint32
WriteParts(PipeannIndexView *view, const void *data, Size total)
{
	const PipeannLayout *l = &view->meta.layout;
	Size		part_size = PipeannPartBytes(l);
	uint32		parts = PipeannPartsOf(l, total);
	uint32		next = PIPEANN_INVALID_ID;

	while (parts-- > 0)
	{
		PipeannSlot *ext = PipeannSlotAlloc(l);

		ext->flags = PIPEANN_SLOT_USED | PIPEANN_SLOT_EXT;
		ext->length = Min(part_size, total - parts * part_size);
		ext->ext_vec = next;
		memcpy(PipeannSlotBody(ext), (const char *) data + parts * part_size,
			   ext->length);
		next = PipeannPlaceSlot(view, PIPEANN_INVALID_ID, ext);
		pfree(ext);
	}
	return next;
}

/*
 * A row in the form in which a slot holds it: the row itself, or what stands in
 * its place when this has written it to overflow slots.
 */
static const PipeannRow *
StoreRow(PipeannIndexView *view, const PipeannRow *row)
{
	PipeannRowOutOfLine *out_of_line;

	if (!PipeannRowIsLong(&view->meta.layout, row))
		return row;
	out_of_line = palloc(sizeof(PipeannRowOutOfLine));
	*out_of_line = PipeannRowSetOutOfLine(row, WriteParts(view, row,
														  row->info & PIPEANN_ROW_SIZE));
	return &out_of_line->row;
}

/* ---------- the search ---------- */

/*
 * The layout for searching neighbours of a vector of this norm: by inner product near nodes
 * are wanted, not those of the largest products, which are always the long vectors. An empty
 * set is as far as can be from every set by Jaccard distance, even from an equal one.
 */
static PipeannLayout
NearLayout(const PipeannLayout *l, double norm)
{
	PipeannLayout near = *l;

	if (l->metric == PIPEANN_IP)
		near.metric = PIPEANN_L2;
	else if (l->metric == PIPEANN_JACCARD && norm == 0)
		near.metric = PIPEANN_HAMMING;
	return near;
}

/* Fill the slot except for neighbours and overflow slots. */
static void
FillSlot(InsertState *state)
{
	const PipeannMeta *meta = &state->view->meta;
	const PipeannLayout *l = &meta->layout;
	PipeannSlot *slot = PipeannSlotAlloc(l);

	state->out_of_line = PipeannIsOutOfLine(meta, state->x, state->norm);
	if (state->out_of_line && !(meta->flags & PIPEANN_META_AUTO_STORAGE))
		ereport(ERROR,
				(errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
				 errmsg("vector does not fit the storage of index \"%s\"",
						RelationGetRelationName(state->view->index)),
				 errdetail("Storage int8 holds whole numbers from -128 to 127, uint8 from 0 to 255."),
				 errhint("Use storage = auto or float4.")));
	slot->flags = PIPEANN_SLOT_USED |
		(state->out_of_line ? PIPEANN_SLOT_OUT_OF_LINE : 0);
	slot->aux = l->metric == PIPEANN_COSINE ?
		PipeannAux(l->metric, state->norm, 0) : 0;
	(void) PipeannSlotAddRow(l, slot, state->row);
	PipeannVectorFromFloat(state->x, l->storage, l->dim,
						   PipeannSlotVector(l, slot));
	if (PipeannIsRounded(l) && !state->out_of_line)
	{
		PipeannRounding rounding;

		PipeannRound(state->x, state->norm, PipeannSlotVector(l, slot), l->storage,
					 l->dim, &rounding);
		PipeannSlotSetRounding(slot, &rounding);
	}
	if (state->out_of_line && PipeannIsSparse(l->storage))
		slot->length = PipeannSparseWords(PipeannSparseBehind(state->x));
	state->slot = slot;
}

/*
 * Whether a node is live and has exactly this vector. Out-of-line nodes, with
 * a rounded vector in the slot, are compared by their exact ones; of vectors
 * rounded to half precision the hashes are compared.
 */
static bool
SameVector(const InsertState *state, uint32 id, const PipeannSlot *slot)
{
	const PipeannLayout *l = &state->view->meta.layout;
	Size		size = PipeannVectorBytes(l->storage, l->dim);
	Size		bytes = PipeannOutOfLineBytes(l, state->slot);
	float	   *full;
	bool		same;

	if (!PipeannSlotIsLive(slot) ||
		((slot->flags & PIPEANN_SLOT_OUT_OF_LINE) != 0) != state->out_of_line ||
		memcmp(PipeannSlotVector(l, slot), PipeannSlotVector(l, state->slot),
			   size) != 0)
		return false;
	if (!state->out_of_line)
		return PipeannSlotError(l, slot) == 0 ||
			slot->hash == state->slot->hash;
	full = palloc(mul_size(PipeannFloats(l->storage, l->dim), sizeof(float)));
	same = PipeannOutOfLineBytes(l, slot) == bytes &&
		PipeannChainVector(state->view, id, slot, full) &&
		memcmp(OutOfLine(l, full), OutOfLine(l, state->x), bytes) == 0;
	pfree(full);
	return same;
}

static float
OutOfLineDistance(uint32 id, const PipeannSlot *slot, void *arg)
{
	InsertState *state = arg;
	const PipeannLayout *l = &state->near;
	float	   *full = palloc(mul_size(PipeannFloats(l->storage, l->dim),
									   sizeof(float)));
	float		dist;

	dist = !PipeannChainVector(state->view, id, slot, full) ? INFINITY :
		PipeannWholeDistance(l, state->query, full, slot->aux);
	pfree(full);
	return dist;
}

static bool
EndsAtEqual(uint32 id, const PipeannSlot *slot, void *arg)
{
	InsertState *state = arg;

	if (!SameVector(state, id, slot))
		return false;
	state->equal = id;
	return true;
}

/* Encode x by the table of a search that was run for it. */
static void
EncodeBySearch(InsertState *state, const PipeannSearch *search)
{
	const PipeannPq *pq = &state->view->codes.pq;
	PipeannMetric metric = state->near.metric;
	const float *table = PipeannSearchTable(search);

	if (state->view->cache == NULL || table == NULL || pq->bits ||
		(metric != PIPEANN_L2 && metric != PIPEANN_COSINE))
		return;
	state->vector_code = palloc(pq->nsubvectors);
	state->code_error = PipeannPqEncodeByTable(pq, state->query, table,
											   state->vector_code);
}

/* Of elements below and above these, squares in single precision are lost. */
#define LEAST_NORM 1e-18
#define MOST_NORM 1e18

/*
 * Candidates for neighbours; or NULL when a node with this very vector is met: the
 * search ends there, and state->equal is the node. With ends_at NULL there is no such
 * end. To vectors of a length whose squares are lost neither codes nor edges lead.
 */
static PipeannLinkSet *
FindCandidates(InsertState *state, PipeannMatches ends_at)
{
	PipeannIndexView *view = state->view;
	int			ef = PipeannEfConstruction(view);
	int			degree = view->meta.layout.max_degree;
	PipeannCounters counters = {0};
	PipeannPageSource *source = PipeannViewSource(view, &counters);
	PipeannSearchParams params = {
		.policy = PipeannPolicies[PIPEANN_DEFAULT_MODE],
		.ef = degree < LONG_LIST ? ef : Min(ef, Max(ef * 7 / 10, 2 * degree)),
		.near_pages = PipeannIsWide(&state->near) ? 0 : NEAR_PAGES,
		.max_pages = PG_INT32_MAX,
		.out_of_line_distance = OutOfLineDistance,
		.out_of_line_arg = state,
		.ends_at = ends_at,
		.ends_at_arg = state
	};
	bool		exact = view->cache == NULL ||
		(state->norm > 0 && state->norm < LEAST_NORM) || state->norm > MOST_NORM;
	PipeannSearch *search = PipeannReuseSearch();
	PipeannLinkSet *set = NULL;

	state->equal = PIPEANN_INVALID_ID;
	PipeannSearchBegin(search, &state->near, exact ? NULL : &view->codes, source,
					   state->query, &params);
	if (exact)
		PipeannSearchExact(search, PipeannViewPages(view));
	else
		(void) PipeannSearchRun(search);
	if (state->equal == PIPEANN_INVALID_ID)
		set = PipeannLinkCandidates(view, search, state->x, state->slot->aux);
	EncodeBySearch(state, search);
	PipeannSearchReleasePages(search);
	PipeannSourceClose(source);
	return set;
}

/* The code of x; code_error is known then. */
static const uint8 *
OwnCode(InsertState *state)
{
	const PipeannPq *pq = &state->view->codes.pq;

	if (state->vector_code == NULL)
	{
		state->vector_code = palloc(pq->nsubvectors);
		state->code_error = PipeannPqEncode(pq, state->query, state->vector_code);
	}
	return state->vector_code;
}

/* Write a node's code, if there are codes. Returns by how much it errs, else 0. */
static float
WriteCode(InsertState *state, uint32 id)
{
	PipeannNodeCode node = {
		.attributes = state->attributes,.view = state->view,.mix = true
	};

	if (state->view->cache == NULL)
		return 0;
	if (state->attributes != NULL)
		(void) PipeannNodeCodeMake(&node, id);
	(void) PipeannChangeCode(state->view, id, OwnCode(state), state->attributes == NULL ? NULL :
							 PipeannNodeCodePut, &node);
	return state->code_error;
}

/* One that was not written yet comes to cover everything. */
static void
MergeRow(uint32 id, uint8 *code, void *arg)
{
	InsertState *state = arg;

	PipeannAttributesMerge(state->attributes, state->code, code);
}

/*
 * A row has joined a node: have the node's code cover it.
 */
static void
CoverRow(InsertState *state, uint32 id)
{
	PipeannIndexView *view = state->view;
	const PipeannLayout *l = &view->meta.layout;

	if (state->attributes == NULL)
		return;
	PipeannAttributesEncode(state->attributes, id, state->whole, state->code);
	if (view->cache != NULL &&
		PipeannChangeCode(view, id, NULL, MergeRow, state))
	{
		uint32		page = id / PipeannCodesPerPage(l);

		PipeannNoteCodePages(view, &page, 1);
	}
}

static void
WriteNewNode(InsertState *state, PipeannLinkSet *set)
{
	PipeannIndexView *view = state->view;
	const PipeannLayout *l = &view->meta.layout;
	float		error;
	uint32		id;

	PipeannLinkPrune(view, set, PIPEANN_INVALID_ID, state->slot);
	if (state->out_of_line)
		state->slot->ext_vec =
			WriteParts(view, OutOfLine(l, state->x),
					   PipeannOutOfLineBytes(l, state->slot));
	PIPEANN_PAUSE("insert-out-of-line-written");
	id = PipeannPlaceSlot(view, set->roomy_page, state->slot);
	PIPEANN_PAUSE("insert-node-written");
	PipeannLinkNode(view, id, state->slot, set);
	error = WriteCode(state, id);
	PIPEANN_PAUSE("code-not-noted");
	state->nodes = PipeannNoteNode(view, id, error, true);
}

/*
 * Whether a node of the row's vector has a code of it, or as near as rounding may have
 * chosen: an insert that ended by an error or a crash has left what stood there.
 */
static bool
HasOwnCode(InsertState *state, uint32 id)
{
	const PipeannCodes *codes = &state->view->codes;
	const PipeannPq *pq = &codes->pq;
	float	   *decoded;
	float		slack = 1e-5f * PipeannKernel->dot[PIPEANN_FLOAT4] (state->query, state->query,
																   pq->dim);

	if (id >= codes->ncodes)
		return false;
	(void) OwnCode(state);
	decoded = palloc(mul_size(pq->dim, sizeof(float)));
	PipeannPqDecode(pq, PipeannCodeAt(codes, id), decoded);
	return !(PipeannKernel->l2[PIPEANN_FLOAT4] (state->query, decoded, pq->dim) >
			 1.01f * state->code_error + slack);
}

/* Link and encode a node whose insert did not come to its end. */
static void
FinishNode(InsertState *state, uint32 id)
{
	PipeannLinkSet *set = FindCandidates(state, NULL);

	PipeannLinkPrune(state->view, set, id, state->slot);
	PipeannLinkNode(state->view, id, state->slot, set);
	(void) PipeannNoteNode(state->view, id, WriteCode(state, id), false);
}

/* For inner product the metapage keeps the largest norm. */
static void
RaiseMaxNorm(InsertState *state)
{
	PipeannMetaUpdate update;

	if (state->view->meta.layout.metric != PIPEANN_IP ||
		state->norm <= state->view->meta.max_norm)
		return;
	PipeannMetaBegin(state->view->index, &update);
	update.meta->max_norm = Max(update.meta->max_norm, (float) state->norm);
	PipeannMetaEnd(&update);
	PipeannRefreshView(state->view);
}

/* Join the node of the row's vector, if that was found and is live. */
static bool
JoinEqual(InsertState *state)
{
	uint32		equal = state->equal;

	if (equal == PIPEANN_INVALID_ID || !JoinNode(state->view, equal,
														state->row))
		return false;
	CoverRow(state, equal);
	if (state->view->cache != NULL && !HasOwnCode(state, equal))
		FinishNode(state, equal);
	return true;
}

/* Insert a row with vector x[dim]. Returns whether to look at how the index has grown. */
static bool
InsertVector(PipeannIndexView *view, const float *x, double norm,
			 const PipeannRow *row)
{
	InsertState state = {
		.view = view,.x = x,.query = x,.norm = norm,.whole = row
	};
	const PipeannLayout *l = &view->meta.layout;
	PipeannLinkSet *set;

	state.row = StoreRow(view, row);
	state.attributes = PipeannAttributesOfView(view);
	if (l->metric == PIPEANN_COSINE)
	{
		float	   *query = palloc(mul_size(PipeannFloats(l->storage, l->dim),
											sizeof(float)));

		PipeannQueryOf(l, x, query);
		state.query = query;
	}
	RaiseMaxNorm(&state);
	FillSlot(&state);
	state.near = NearLayout(l, norm);
	set = FindCandidates(&state, EndsAtEqual);
	PIPEANN_PAUSE("insert-searched");
	if (JoinEqual(&state))
		return false;
	if (set == NULL)
		set = FindCandidates(&state, NULL);
	WriteNewNode(&state, set);
	return state.nodes > 0 && state.nodes % KEEP_UP_EVERY == 0;
}

static MemoryContext row_context = NULL;
static bool row_context_in_use = false;
static Size row_bytes;

static void
EmptyRow(void *context)
{
	MemoryContextReset(context);
	row_context_in_use = false;
}

/*
 * Memory for one row, emptied with owner, whatever ends that. The backend keeps
 * it, since pages returned to the system would have to be mapped and zeroed for
 * the next row. An insert within an insert, by a function that compares values, has
 * memory of its own.
 */
static MemoryContext
RowContext(MemoryContext owner, int dim)
{
	Size		wanted = mul_size(dim, ROW_VECTORS * sizeof(float));
	Size		bytes = Min(Max(wanted, LEAST_ROW_BYTES), MOST_ROW_BYTES);
	MemoryContextCallback *callback;

	if (row_context_in_use)
		return owner;
	callback = MemoryContextAlloc(owner, sizeof(MemoryContextCallback));
	if (row_context != NULL && bytes > row_bytes)
	{
		MemoryContextDelete(row_context);
		row_context = NULL;
	}
	if (row_context == NULL)
	{
		row_context = AllocSetContextCreate(TopMemoryContext, "pipeann row",
											bytes, bytes, bytes);
		row_bytes = bytes;
	}
	Assert(MemoryContextIsEmpty(row_context));
	callback->func = EmptyRow;
	callback->arg = row_context;
	MemoryContextRegisterResetCallback(owner, callback);
	row_context_in_use = true;
	return row_context;
}

/*
 * A row cannot be indexed. Scans that see it, as it is committed, read the metapage
 * after this.
 */
static void
NoteLeftOut(Relation index)
{
	PipeannMetaUpdate update;
	PipeannMeta meta;

	PipeannMetaRead(index, &meta);
	if (!(meta.flags & PIPEANN_META_ALL_ROWS))
		return;
	PipeannMetaBegin(index, &update);
	update.meta->flags &= ~PIPEANN_META_ALL_ROWS;
	PipeannMetaEnd(&update);
}

/* The view, and memory for new codes, are in the statement's own context. */
static void
InsertValues(Relation heap, Relation index, Datum *values, bool *isnull,
			 ItemPointer tid)
{
	MemoryContext context = CurrentMemoryContext;
	PipeannColumns columns = PipeannIndexColumns(index);
	int			dim = PipeannIndexLayoutDim(index);
	const float *x = PipeannRowElements(PipeannIndexType(index),
										  values[columns.vector], dim);
	double		norm = PipeannNorm(x, dim);
	const PipeannRow *row;
	PipeannIndexView view;
	bool		grown;

	if (!PipeannIsIndexable(PipeannIndexMetric(index), norm))
	{
		NoteLeftOut(index);
		return;
	}
	row = PipeannFormRow(&columns, values, isnull, tid);
	LockPage(index, PIPEANN_METAPAGE, ShareLock);
	PipeannOpenView(&view, index);
	MemoryContextSwitchTo(RowContext(context, dim));
	grown = InsertVector(&view, x, norm, row);
	MemoryContextSwitchTo(context);
	UnlockPage(index, PIPEANN_METAPAGE, ShareLock);
	if (grown)
		PipeannKeepUp(heap, index);
}

bool
pipeanninsert(Relation index, Datum *values, bool *isnull,
			  ItemPointer heap_tid, Relation heap,
			  IndexUniqueCheck check_unique, bool index_unchanged,
			  IndexInfo *index_info)
{
	MemoryContext context;
	MemoryContext old;

	if (isnull[PipeannVectorPosition(index)])
	{
		NoteLeftOut(index);
		return false;
	}

	context = AllocSetContextCreate(CurrentMemoryContext, "pipeann insert",
									ALLOCSET_DEFAULT_SIZES);
	old = MemoryContextSwitchTo(context);
	InsertValues(heap, index, values, isnull, heap_tid);
	MemoryContextSwitchTo(old);
	MemoryContextDelete(context);
	return false;
}
