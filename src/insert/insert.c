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
#include "index/neighbors.h"
#include "insert/insert.h"
#include "io/io.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/memutils.h"
#include "utils/rel.h"

/* A new node, or a row that joins the one that a search has found. */

/*
 * One new node in this many looks at how the index has grown. If making codes fails, by
 * statement_timeout for example, the next inserts must not fail as well.
 */
#define KEEP_UP_EVERY 256

/* Memory for inserting a row, mostly for ROW_VECTORS vectors of neighbours; and its bounds. */
#define ROW_VECTORS 1024
#define LEAST_ROW_BYTES ((Size) 512 * 1024)
#define MOST_ROW_BYTES ((Size) 8 * 1024 * 1024)

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
		memcmp(PipeannOutOfLine(l, full), PipeannOutOfLine(l, state->x), bytes) == 0;
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

/*
 * Where a new node takes a place in lists that are full, these stay full, and what is behind
 * seven tenths of ef_construction adds little.
 */
static int
ListLength(const PipeannIndexView *view)
{
	int			ef = view->meta.ef_construction;

	if (!PipeannListsExchange(view))
		return ef;
	return Min(ef, Max(ef * 7 / 10, 2 * (int) view->meta.layout.max_degree));
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
	PipeannCounters counters = {0};
	PipeannPageSource *source = PipeannViewSource(view, &counters);
	PipeannSearchParams params = {
		.ef = ListLength(view),
		.out_of_line_distance = OutOfLineDistance,
		.out_of_line_arg = state,
		.ends_at = ends_at,
		.ends_at_arg = state
	};
	bool		exact = (state->norm > 0 && state->norm < LEAST_NORM) ||
		state->norm > MOST_NORM;
	PipeannSearch *search;
	PipeannLinkSet *set = NULL;

	state->equal = PIPEANN_INVALID_ID;
	search = PipeannLinkSearch(view, &state->near, source, state->query, exact, params);
	if (state->equal == PIPEANN_INVALID_ID)
		set = PipeannLinkCandidates(view, search, state->x, state->slot->aux);
	EncodeBySearch(state, search);
	PipeannSearchReleasePages(search);
	PipeannSourceClose(source);
	return set;
}

/* Write a node's code, if there are codes. Returns by how much it errs, else 0. */
static float
WriteCode(InsertState *state, uint32 id)
{
	PipeannIndexView *view = state->view;
	const PipeannMeta *meta = &view->meta;
	const PipeannLayout *l = &meta->layout;
	uint8	   *code = palloc0(PipeannCodeBytes(l));
	float		error = 0;

	if (view->cache != NULL)
	{
		PipeannNodeCode node = {
			.attributes = state->attributes,.view = view,.mix = true
		};

		if (state->attributes != NULL)
			(void) PipeannNodeCodeMake(&node, id);
		error = state->code_error;
		if (state->vector_code == NULL)
			error = PipeannPqEncode(&view->codes.pq, state->query, code);
		else
			memcpy(code, state->vector_code, view->codes.pq.nsubvectors);
		PipeannPlaceCode(view, id, code,
						 state->attributes == NULL ? NULL :
						 PipeannNodeCodePut, &node);
	}
	pfree(code);
	return error;
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
		PipeannChangeAttributes(view, id, MergeRow, state))
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
			PipeannWriteParts(view, PipeannOutOfLine(l, state->x),
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
HasOwnCode(const InsertState *state, uint32 id)
{
	const PipeannCodes *codes = &state->view->codes;
	const PipeannPq *pq = &codes->pq;
	float	   *decoded;
	uint8	   *code;
	float		usual = state->code_error;
	float		slack = 1e-5f * PipeannKernel->dot[PIPEANN_FLOAT4] (state->query, state->query,
																   pq->dim);

	if (id >= codes->ncodes)
		return false;
	if (state->vector_code == NULL)
	{
		code = palloc(pq->nsubvectors);
		usual = PipeannPqEncode(pq, state->query, code);
	}
	decoded = palloc(mul_size(pq->dim, sizeof(float)));
	PipeannPqDecode(pq, PipeannCodeAt(codes, id), decoded);
	return !(PipeannKernel->l2[PIPEANN_FLOAT4] (state->query, decoded, pq->dim) >
			 1.01f * usual + slack);
}

/* Link and encode a node whose insert did not come to its end. */
static void
FinishNode(InsertState *state, uint32 id)
{
	PipeannSlot *slot = PipeannSlotAlloc(&state->view->meta.layout);

	PipeannSlotCopy(state->view, id, slot);
	PipeannLinkNode(state->view, id, slot, NULL);
	(void) PipeannNoteNode(state->view, id, WriteCode(state, id), false);
	pfree(slot);
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

	if (equal == PIPEANN_INVALID_ID || !PipeannJoinNode(state->view, equal,
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

	state.row = PipeannStoreRow(view, row);
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
	state.near = PipeannNearLayout(l, norm);
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
