/*
 * verify.c
 *		pipeann_check(): checks the invariants of src/README, like amcheck.
 *
 * What is checked, in this order: blocks; each slot by itself, its vector and
 * code too; codebook and entry graph; neighbour lists. Rows are checked in
 * rows.c.
 */
#include "postgres.h"

#include <float.h>
#include <math.h>

#include "access/htup_details.h"
#include "access/relation.h"
#include "access/table.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "base/id_set.h"
#include "catalog/index.h"
#include "distance/sparse.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "verify/verify.h"

/* Blocks other than graph pages. */

/*
 * The kind of a block that is no graph page, or 0 for any: for a block of a
 * former extent or of a longer entry graph, or with codes that are not in use.
 */
static PipeannKind
KindAt(const PipeannMeta *meta, BlockNumber blkno)
{
	const PipeannExtents *extents = &meta->extents;
	uint32		page = blkno - PipeannExtentBlock(extents);

	if ((meta->flags & PIPEANN_META_HAS_CODES) == 0)
		return 0;
	if (page < PipeannEntryPage(&meta->layout))
		return PIPEANN_CODEBOOK;
	if (page < PipeannExtentPages(&meta->layout, meta->entry_count))
		return PIPEANN_ENTRY;
	for (int i = 0; i < PIPEANN_EXTENTS; i++)
		if (blkno - extents->first[i] < extents->length[i])
			return 0;
	return PIPEANN_CODES;
}

/* Check a block that is no graph page. */
static void
CheckBlock(const PipeannCheck *check, BlockNumber blkno)
{
	PipeannKind kind = KindAt(&check->view.meta, blkno);
	Buffer		buffer = ReadBufferExtended(check->view.index, MAIN_FORKNUM,
											blkno, RBM_NORMAL,
											check->strategy);
	Page		page = BufferGetPage(buffer);

	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	if (!PageIsNew(page))
		PipeannPageCheck(check->view.index, page, blkno, kind);
	UnlockReleaseBuffer(buffer);
}

/*
 * Check all blocks but those that sweeps read. Blocks that inserts add
 * meanwhile are left out.
 */
static void
CheckOtherPages(const PipeannCheck *check)
{
	const PipeannMeta *meta = &check->view.meta;
	BlockNumber blocks = RelationGetNumberOfBlocks(check->view.index);

	for (BlockNumber blkno = PIPEANN_METAPAGE + 1; blkno < blocks; blkno++)
	{
		uint32		page = PipeannPageAt(&meta->extents, &meta->layout, blkno);

		if (page == PIPEANN_INVALID_ID)
		{
			CHECK_FOR_INTERRUPTS();
			CheckBlock(check, blkno);
		}
		else
			blkno += meta->layout.node_pages - 1;
	}
}

/* Checks of a node's aux value and code against its vector. */

/* Relative and absolute error of an element by arithmetic and by half precision. */
#define FLOAT_ERROR 1e-6
#define HALF_ERROR (1.0 / 1024)
#define HALF_SMALLEST (1.0 / (1 << 24))

/* Relative error of a distance in single precision. */
#define DISTANCE_ERROR 1e-4

/* A node's vector, and how exact it is. */
typedef struct Value
{
	const float *x;				/* in the slot */
	const float *full;			/* the exact vector of an out-of-line node, else x */
	double		norm;			/* of full */
	double		relative;		/* error of x's elements */
	double		absolute;		/* their absolute error */
	double		error;			/* PipeannSlotError(): of the whole vector */
	double		anywhere;		/* the part of error that may be in one subvector */
} Value;

/* The entry graph is checked up to this often, as VACUUM may be changing it. */
#define ENTRY_TRIES 50

/* False if an out-of-line node's chain, and so the node, is being changed. */
static bool
LoadValue(const PipeannCheck *check, const PipeannSlot *slot, Value *value)
{
	const PipeannLayout *l = &check->view.meta.layout;
	float	   *x = palloc(mul_size(l->dim, sizeof(float)));
	bool		half = PipeannIsRounded(l) && PipeannSqBits(l->storage) == 0;

	PipeannVectorToFloat(PipeannSlotVector(l, slot), l->storage, l->dim, x);
	value->x = value->full = x;
	value->relative = half ? HALF_ERROR : FLOAT_ERROR;
	value->absolute = half ? HALF_SMALLEST : 0;
	value->error = PipeannSlotError(l, slot);
	value->anywhere = half ? 0 : value->error;
	if (slot->flags & PIPEANN_SLOT_OUT_OF_LINE)
	{
		float	   *full = palloc0(mul_size(PipeannFloats(l->storage, l->dim),
											sizeof(float)));

		if (!PipeannCheckOutOfLineVector(check, slot, full))
			return false;
		value->full = full;
	}
	value->norm = PipeannNorm(value->full, l->dim);
	return true;
}

/* How much the exact vector's norm may differ from that of x. */
static double
NormError(const Value *value, int dim)
{
	return value->error > 0 ? value->error + FLOAT_ERROR * value->norm :
		2 * (value->relative * value->norm + value->absolute * sqrt(dim));
}

static bool
AuxIsRight(const PipeannCheck *check, const PipeannSlot *slot,
		   const Value *value)
{
	const PipeannLayout *l = &check->view.meta.layout;

	if (l->metric != PIPEANN_COSINE)
		return slot->aux == 0;
	if (value->norm <= NormError(value, l->dim))
		return slot->aux > 0;
	return fabs(slot->aux / PipeannAux(l->metric, value->norm, 0) - 1) <=
		1.001 * NormError(value, l->dim) / value->norm;
}

static double
Distance(const PipeannPq *pq, int subvector, int code, const float *x)
{
	const float *centroids = pq->centroids + pq->offset[subvector] + code;
	double		sum = 0;

	for (int d = 0; d < pq->len[subvector]; d++)
	{
		double		diff = x[pq->start[subvector] + d] -
			(double) centroids[(Size) d * PIPEANN_CENTROIDS];

		sum += diff * diff;
	}
	return sqrt(sum);
}

/*
 * A vector with an error of e may be nearer to another centroid by 2 e. scale is
 * the norm by which normalising divided. Codes are chosen by squares in single
 * precision, some of which are subnormal, and all infinite ones are alike.
 */
static bool
SubvectorIsRight(const PipeannPq *pq, int subvector, const Value *value,
				 const float *x, double scale, uint8 code, uint8 nearest)
{
	int			len = pq->len[subvector];
	double		norm = PipeannNorm(x + pq->start[subvector], len);
	double		error = value->relative * norm +
		(value->absolute * sqrt(len) + value->anywhere) / scale;
	double		have = Distance(pq, subvector, code, x);
	double		want = Distance(pq, subvector, nearest, x);

	return have <= want * (1 + DISTANCE_ERROR + len * FLT_EPSILON) + 2 * error +
		FLOAT_ERROR * norm + 2 * sqrt(len * (double) FLT_MIN * FLT_EPSILON) ||
		want * want >= FLT_MAX * (1 - DISTANCE_ERROR);
}

static bool
IsCodeOf(const PipeannCheck *check, const Value *value, const float *x,
		 const uint8 *code)
{
	const PipeannIndexView *view = &check->view;
	const PipeannPq *pq = &view->codes.pq;
	const float *point = x;
	double		scale = 1;
	uint8	   *want = palloc(pq->nsubvectors);

	if (view->meta.layout.metric == PIPEANN_COSINE)
	{
		float	   *normalized = palloc(mul_size(pq->dim, sizeof(float)));

		/* a sparse vector of which only a part is in the slot is coded as that part */
		scale = PipeannIsSparse(view->meta.layout.storage) ? value->norm :
			PipeannNorm(x, pq->dim);
		scale = Max(scale, PIPEANN_LEAST_NORM);
		for (int i = 0; i < pq->dim; i++)
			normalized[i] = (float) (x[i] / scale);
		point = normalized;
	}
	(void) PipeannPqEncode(pq, point, want);
	for (int i = 0; i < pq->nsubvectors; i++)
		if (code[i] != want[i] &&
			!SubvectorIsRight(pq, i, value, point, scale, code[i], want[i]))
			return false;
	return true;
}

/* The payload of a code's page, or NULL if the page does not exist. */
static const uint8 *
PageOfCode(PipeannCheck *check, uint32 id)
{
	const PipeannIndexView *view = &check->view;
	uint32		per_page = PipeannCodesPerPage(&view->meta.layout);
	uint32		page = id / per_page;
	BlockNumber blkno = PipeannCodeBlock(&view->meta.extents, &view->meta.layout, page);
	Buffer		buffer;

	if (page != check->code_page)
	{
		check->code_page = PIPEANN_INVALID_ID;
		if (blkno >= RelationGetNumberOfBlocks(view->index))
			return NULL;
		buffer = PipeannReadBuffer(view->index, blkno, PIPEANN_CODES,
								   BUFFER_LOCK_SHARE, true, check->strategy);
		memcpy(check->codes, PipeannPagePayload(BufferGetPage(buffer)),
			   PIPEANN_PAYLOAD);
		UnlockReleaseBuffer(buffer);
		check->code_page = page;
	}
	return check->codes;
}

/* What is wrong with a node's code, or NULL. */
static const char *
CodeProblem(PipeannCheck *check, uint32 id, const PipeannSlot *slot,
			const Value *value)
{
	const PipeannIndexView *view = &check->view;
	const PipeannLayout *l = &view->meta.layout;
	const uint8 *page = PageOfCode(check, id);
	uint8	   *code = palloc(PipeannCodeBytes(l));

	if (page == NULL)
		return "has no code";
	PipeannCodeGet(l, (const char *) page, id % PipeannCodesPerPage(l), code);
	if (!IsCodeOf(check, value, value->full, code) &&
		!IsCodeOf(check, value, value->x, code))
		return psprintf("does not have the code of its vector at block %u",
						PipeannCodeBlock(&view->meta.extents, l, check->code_page));
	if (id >= view->codes.ncodes)
		return "has no code in memory";
	if (memcmp(code, PipeannCodeAt(&view->codes, id), l->pq_bytes) != 0)
		return "has another code in memory than on its page";
	for (uint32 i = 0; i < l->attr_bytes; i++)
		if (code[l->pq_bytes + i] != *PipeannAttributeAt(&view->codes, id, i))
			return "has another attribute code in memory than on its page";
	if (check->attributes != NULL &&
		!PipeannCheckCovers(check, id, slot, code + l->pq_bytes))
		return psprintf("has an attribute code that does not cover its rows at block %u",
						PipeannCodeBlock(&view->meta.extents, l, check->code_page));
	return NULL;
}

/* Whether an index of this many dimensions may have this form of a sparse vector. */
static bool
IsSparseForm(const int32 *form, int room, int dim)
{
	PipeannSparse v = PipeannSparseIn(form, room);
	bool		sound = v.n == form[0];

	for (int i = 0; i < v.n; i++)
		sound &= v.indices[i] < dim &&
			v.indices[i] > (i == 0 ? -1 : v.indices[i - 1]) && isfinite(v.values[i]);
	return sound;
}

static const char *
StorageProblem(const PipeannCheck *check, const PipeannSlot *slot,
			   const Value *value)
{
	const PipeannLayout *l = &check->view.meta.layout;
	Size		size = PipeannVectorBytes(l->storage, l->dim);
	char	   *rounded;

	if (PipeannIsSparse(l->storage) &&
		!IsSparseForm((const int32 *) PipeannSlotVector(l, slot), PipeannSparseRoom(l->storage),
					  PipeannIndexDimensions(check->view.index)))
		return "has elements that are none of a sparse vector";
	if (!(slot->flags & PIPEANN_SLOT_OUT_OF_LINE))
		return NULL;
	if (PipeannIsSparse(l->storage) &&
		!IsSparseForm(PipeannSparseBehind(value->full), PIPEANN_MAX_INDEXED_NONZERO,
					  PipeannIndexDimensions(check->view.index)))
		return "has elements out of line that are none of a sparse vector";
	rounded = palloc(size);
	PipeannVectorFromFloat(value->full, l->storage, l->dim, rounded);
	return memcmp(rounded, PipeannSlotVector(l, slot), size) == 0 ? NULL :
		"has an out-of-line vector that is not the one rounded in its slot";
}

/*
 * A node that is being inserted, or whose insert a crash or an error ended,
 * may lack its code. A stable node may not.
 */
static const char *
VectorProblem(PipeannCheck *check, uint32 id, const PipeannSlot *slot)
{
	const PipeannLayout *l = &check->view.meta.layout;
	const char *problem;
	Value		value;

	if (!LoadValue(check, slot, &value))
		return NULL;			/* the check of chains reports it */
	if (!isfinite(value.norm))
		problem = PipeannIsRounded(l) ? NULL :
			"has a vector with an element that is not a finite number";
	else
	{
		problem = StorageProblem(check, slot, &value);
		if (problem == NULL && !AuxIsRight(check, slot, &value))
			problem = "does not have the aux value of its vector";
		if (problem == NULL && check->view.cache != NULL)
			problem = CodeProblem(check, id, slot, &value);
	}
	return problem != NULL && PipeannCheckIsStable(check, slot) ? problem : NULL;
}

/* What is wrong with a node, or NULL. */
typedef const char *(*Problem) (PipeannCheck *check, uint32 id,
								const PipeannSlot *slot);

/*
 * Errors if a node has a problem, and still has it when it is read again:
 * VACUUM may have repaired its list before freeing the nodes to which it led,
 * a slot of a chain may have moved to another chain since the node was read,
 * and a code in memory may not have followed its page yet.
 */
static void
CheckNodeFor(PipeannCheck *check, uint32 id, const PipeannSlot *slot,
			 Problem problem)
{
	const char *what = problem(check, id, slot);
	PipeannSlot *again;

	if (what == NULL)
		return;
	again = PipeannSlotAlloc(&check->view.meta.layout);
	for (int i = 0; what != NULL && i < PIPEANN_CHECK_TRIES; i++)
	{
		PipeannCheckPause();
		PipeannCheckRefresh(check);
		check->code_page = PIPEANN_INVALID_ID;
		what = PipeannCheckReadSlot(check, id, again) &&
			PipeannSlotIsNode(again) ? problem(check, id, again) : NULL;
	}
	pfree(again);
	if (what != NULL)
		PipeannCheckReport(check, id, what);
}

/* Whether a slot is a node now. */
static bool
IsNodeNow(PipeannCheck *check, uint32 id)
{
	PipeannSlot *slot;
	bool		is_node;

	if (id < check->ids && (check->seen[id] & PIPEANN_SEEN_NODE))
		return true;
	PipeannCheckRefresh(check);
	slot = PipeannSlotAlloc(&check->view.meta.layout);
	is_node = PipeannCheckReadSlot(check, id, slot) &&
		PipeannSlotIsNode(slot);
	if (is_node)
		check->seen[id] |= PIPEANN_SEEN_NODE;
	pfree(slot);
	return is_node;
}

/* Checks of each slot by itself: flags, counts, TIDs, links, vector. */

#define KNOWN_FLAGS \
	(PIPEANN_SLOT_USED | PIPEANN_SLOT_EXT | PIPEANN_SLOT_OUT_OF_LINE | \
	 PIPEANN_SLOT_CLOSED)

static void
CheckFlags(const PipeannCheck *check, uint32 id, const PipeannSlot *slot)
{
	if (slot->flags & ~KNOWN_FLAGS)
		PipeannCheckReport(check, id, "has unknown flags");
	if (slot->flags != 0 && !(slot->flags & PIPEANN_SLOT_USED))
		PipeannCheckReport(check, id, "is free but has flags");
	if ((slot->flags & PIPEANN_SLOT_EXT) && (slot->flags & PIPEANN_SLOT_OUT_OF_LINE))
		PipeannCheckReport(check, id, "is an overflow slot with a vector");
	if ((slot->flags & PIPEANN_SLOT_OUT_OF_LINE) &&
		!(check->view.meta.flags & PIPEANN_META_AUTO_STORAGE))
		PipeannCheckReport(check, id,
						   "has an out-of-line vector in an index that has none");
}

static void
CheckRows(PipeannCheck *check, uint32 id, const PipeannSlot *slot)
{
	const PipeannLayout *l = &check->view.meta.layout;
	PipeannRowList list = PipeannAnyRows(l, slot);
	const PipeannRow *row = list.rows;
	Datum		values[INDEX_MAX_KEYS];
	bool		isnull[INDEX_MAX_KEYS];

	for (uint32 i = 0; i < list.n; i++, row = PipeannRowNext(l, row))
	{
		if (check->columns.values != NULL && !PipeannRowIsOutOfLine(l, row) &&
			!PipeannDeformRow(check->columns.values, check->columns.values->natts, row, NULL,
							  values, isnull))
			PipeannCheckReport(check, id, "has a row with broken values");
		if (!ItemPointerIsValid(&row->tid) ||
			ItemPointerGetOffsetNumberNoCheck(&row->tid) > MaxOffsetNumber)
			PipeannCheckReport(check, id, "has an invalid heap TID");
	}
	check->tids += list.n;
}

static void
CheckExtSlot(PipeannCheck *check, uint32 id, const PipeannSlot *slot)
{
	const PipeannLayout *l = &check->view.meta.layout;

	check->seen[id] |= PIPEANN_SEEN_EXT;
	if ((slot->length == 0 && slot->ntids > PipeannExtRows(l, slot).n) ||
		slot->length > PipeannExtBytes(l))
		PipeannCheckReport(check, id,
						   "is an overflow slot with too much in it");
	CheckRows(check, id, slot);
}

static void
CheckNode(PipeannCheck *check, uint32 id, const PipeannSlot *slot)
{
	const PipeannLayout *l = &check->view.meta.layout;

	check->seen[id] |= PIPEANN_SEEN_NODE;
	check->count++;
	if (slot->degree > l->max_degree)
		PipeannCheckReport(check, id, "has too many neighbours");
	if (slot->ntids > PipeannSlotRows(l, slot).n)
		PipeannCheckReport(check, id, "has too many inline TIDs");
	CheckRows(check, id, slot);
	CheckNodeFor(check, id, slot, PipeannCheckChains);
	if (slot->ntids > 0 || slot->ext_tids != PIPEANN_INVALID_ID)
		CheckNodeFor(check, id, slot, VectorProblem);
}

static void
CheckSlot(PipeannCheck *check, uint32 id, const PipeannSlot *slot)
{
	MemoryContext old;

	CheckFlags(check, id, slot);
	if (!(slot->flags & PIPEANN_SLOT_USED))
		return;
	old = MemoryContextSwitchTo(check->scratch);
	if (slot->flags & PIPEANN_SLOT_EXT)
		CheckExtSlot(check, id, slot);
	else
		CheckNode(check, id, slot);
	MemoryContextSwitchTo(old);
	MemoryContextReset(check->scratch);
}

/* Checks of the codebook and the entry graph. */

/* Whether the pages of a kind, from the first on, have what memory has. */
static bool
IsOnPages(const PipeannIndexView *view, PipeannKind kind, uint32 first,
		  const void *memory, Size bytes)
{
	char	   *content = PipeannAlloc(Max(bytes, 1));
	bool		same =
		PipeannExtentRead(view->index, PipeannExtentBlock(&view->meta.extents) + first,
						  kind, PipeannGeneration(&view->meta), content, bytes) &&
		memcmp(content, memory, bytes) == 0;

	pfree(content);
	return same;
}

static void
CheckCodebook(const PipeannCheck *check)
{
	const PipeannIndexView *view = &check->view;
	const PipeannLayout *l = &view->meta.layout;
	const PipeannPq *pq = &view->codes.pq;
	Size		count = PipeannPqCentroidCount(pq->dim);

	if (!IsOnPages(view, PIPEANN_CODEBOOK, 0, pq->centroids,
				   mul_size(count, sizeof(float))))
		PipeannCheckReport(check, PIPEANN_INVALID_ID,
						   "the codebook in memory is not the one on pages");
	for (Size i = 0; i < count; i++)
		if (!isfinite(pq->centroids[i]))
			PipeannCheckReport(check, PIPEANN_INVALID_ID,
							   "the codebook has an element that is not a finite number");
	if (!IsOnPages(view, PIPEANN_CODEBOOK, PipeannHistogramsPage(l),
				   view->cache->histograms, PipeannHistogramsBytes(l)))
		PipeannCheckReport(check, PIPEANN_INVALID_ID,
						   "the histograms of attribute codes in memory are not those on pages");
}

static bool
EntryGraphIsSame(const PipeannIndexView *view)
{
	const PipeannCodes *codes = &view->codes;

	return codes->entry_count == view->meta.entry_count &&
		IsOnPages(view, PIPEANN_ENTRY, PipeannEntryPage(&view->meta.layout),
				  codes->entry_ids, PipeannEntryGraphBytes(&view->meta.layout, codes->entry_count));
}

/* An entry of the entry graph that is no node, or has a neighbour that is none; or INVALID_ID. */
static uint32
FindNoNode(PipeannCheck *check)
{
	const PipeannCodes *codes = &check->view.codes;

	for (uint32 i = 0; i < codes->entry_count; i++)
	{
		bool		ok = codes->entry_nneighbors[i] <= PIPEANN_ENTRY_DEGREE;

		for (int j = 0; ok && j < codes->entry_nneighbors[i]; j++)
			ok = codes->entry_neighbors[(Size) i * PIPEANN_ENTRY_DEGREE + j] < codes->entry_count;
		if (!ok || (codes->entry_ids[i] < check->ids &&
					!IsNodeNow(check, codes->entry_ids[i])))
			return codes->entry_ids[i];
	}
	return PIPEANN_INVALID_ID;
}

/*
 * Loading the cache has checked that ids are in range. VACUUM may be replacing
 * ids and freeing the former nodes, so an apparent error is checked again.
 */
static void
CheckEntryGraph(PipeannCheck *check)
{
	uint32		id = PIPEANN_INVALID_ID;
	bool		same = false;

	check->view.all_entries = true;
	for (int i = 0; i <= ENTRY_TRIES; i++)
	{
		if (i > 0)
			PipeannCheckPause();
		PipeannCheckRefresh(check);
		same = EntryGraphIsSame(&check->view);
		id = same ? FindNoNode(check) : PIPEANN_INVALID_ID;
		if (same && id == PIPEANN_INVALID_ID)
			return;
	}
	if (!same)
		PipeannCheckReport(check, PIPEANN_INVALID_ID,
						   "the entry graph in memory is not the one on pages");
	PipeannCheckReport(check, id, "is in the entry graph but is not a node, or has no such neighbors there");
}

/* Neighbour lists. */

/*
 * What is wrong with a node's list, or NULL. A dead node's list may lead to
 * slots that VACUUM has freed, as it will free the node, too.
 */
static const char *
ListProblem(PipeannCheck *check, uint32 id, const PipeannSlot *slot)
{
	if (slot->degree > check->view.meta.layout.max_degree)
		return "has too many neighbours";
	for (int i = 0; i < slot->degree; i++)
	{
		if (slot->neighbors[i] == id)
			return "is its own neighbour";
		for (int j = 0; j < i; j++)
			if (slot->neighbors[j] == slot->neighbors[i])
				return "has a neighbour twice";
	}
	for (int i = 0; i < slot->degree && PipeannSlotIsLive(slot); i++)
		if (!IsNodeNow(check, slot->neighbors[i]))
			return psprintf("has a neighbour %u that is not a node",
							slot->neighbors[i]);
	return NULL;
}

static void
CheckList(PipeannCheck *check, uint32 id, const PipeannSlot *slot)
{
	if (PipeannSlotIsNode(slot))
		CheckNodeFor(check, id, slot, ListProblem);
}

PG_FUNCTION_INFO_V1(pipeann_check);

/* Lock the table before the index, the usual order. */
static void
OpenRelations(PipeannCheck *check, Oid relid)
{
	Oid			heapid = IndexGetRelation(relid, true);

	if (OidIsValid(heapid))
		check->heap = table_open(heapid, AccessShareLock);
	check->view.index = PipeannOpenIndex(relid);
	if (check->heap == NULL || heapid != IndexGetRelation(relid, false))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("could not open parent table of index \"%s\"",
						RelationGetRelationName(check->view.index))));
}

/*
 * Take a snapshot. One from before the index was built may see rows that the
 * index lacks: versions in broken HOT chains.
 */
static void
TakeSnapshot(PipeannCheck *check)
{
	Relation	index = check->view.index;

	check->snapshot = RegisterSnapshot(GetTransactionSnapshot());
	if (IsolationUsesXactSnapshot() && index->rd_index->indcheckxmin &&
		!TransactionIdPrecedes(HeapTupleHeaderGetXmin(index->rd_indextuple->t_data),
							   check->snapshot->xmin))
		ereport(ERROR,
				(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
				 errmsg("index \"%s\" cannot be verified using transaction snapshot",
						RelationGetRelationName(index))));
}

static void
CheckAll(PipeannCheck *check, bool heapallindexed)
{
	Relation	index = check->view.index;

	/* a replica cannot make others wait: see PipeannCheckRefresh() */
	if (!RecoveryInProgress())
		LockPage(index, PIPEANN_MAINTENANCE_LOCK, ShareLock);
	PipeannOpenView(&check->view, index);
	check->columns = PipeannIndexColumns(index);
	if (check->view.cache != NULL)
		check->attributes = PipeannAttributesOfView(&check->view);
	check->build_id = check->view.meta.build_id;
	check->nodes = palloc((Size) check->view.meta.layout.node_pages *
						  PIPEANN_PAYLOAD);
	check->codes = palloc(PIPEANN_PAYLOAD);
	check->code_page = PIPEANN_INVALID_ID;
	check->seen = PipeannAllocZero(1);
	check->strategy = GetAccessStrategy(BAS_BULKREAD);
	PipeannCheckRefresh(check);

	CheckOtherPages(check);
	PipeannCheckSweep(check, CheckSlot);
	PipeannCheckOwners(check);
	if (check->view.cache != NULL)
	{
		CheckCodebook(check);
		CheckEntryGraph(check);
		PipeannCheckSweep(check, CheckList);
	}
	PipeannCheckTids(check, heapallindexed);
	if (!RecoveryInProgress())
		UnlockPage(index, PIPEANN_MAINTENANCE_LOCK, ShareLock);
}

/*
 * pipeann_check(regclass, heapallindexed): returns the number of nodes
 * checked, or errors with ERRCODE_INDEX_CORRUPTED at the first violation.
 */
Datum
pipeann_check(PG_FUNCTION_ARGS)
{
	PipeannCheck check = {0};
	MemoryContext context;
	MemoryContext old;
	Oid			user;
	int			security;
	int			level;

	OpenRelations(&check, PG_GETARG_OID(0));
	TakeSnapshot(&check);
	context = AllocSetContextCreate(CurrentMemoryContext, "pipeann check",
									ALLOCSET_DEFAULT_SIZES);
	check.scratch = AllocSetContextCreate(context, "pipeann check scratch",
										  ALLOCSET_DEFAULT_SIZES);
	old = MemoryContextSwitchTo(context);
	/* as the table's owner, as whom the index's expression and predicate have to run */
	GetUserIdAndSecContext(&user, &security);
	SetUserIdAndSecContext(check.heap->rd_rel->relowner, security | SECURITY_RESTRICTED_OPERATION);
	level = NewGUCNestLevel();
#if PG_VERSION_NUM >= 170000
	RestrictSearchPath();
#endif
	CheckAll(&check, PG_GETARG_BOOL(1));
	AtEOXact_GUC(false, level);
	SetUserIdAndSecContext(user, security);
	MemoryContextSwitchTo(old);
	MemoryContextDelete(context);
	UnregisterSnapshot(check.snapshot);
	relation_close(check.view.index, AccessShareLock);
	table_close(check.heap, AccessShareLock);
	PG_RETURN_INT64(check.count);
}
