/*
 * index.h
 *		One open index in use: its view (metapage, extent map, cache), its
 *		slots, its overflow chains, and the vectors of its column.
 *
 * This room knows how to open an index and how to read and write its slots. It
 * must not know what scans, inserts and VACUUM do with them.
 */
#ifndef PIPEANN_INDEX_H
#define PIPEANN_INDEX_H

#include "base/base.h"

#include "access/genam.h"
#include "cache/cache.h"
#include "search/search.h"
#include "storage/storage.h"
#include "utils/rel.h"

/*
 * Support functions of operator classes: a vector's returns its PipeannMetric, others
 * have options of a column.
 */
#define PIPEANN_METRIC_PROC 1
#define PIPEANN_OPTIONS_PROC 2
#define PIPEANN_NUM_PROCS 2

/*
 * Strategies of operators: the distance of a vector column, and the conditions of
 * the other key columns. In catalogs: never renumber.
 */
#define PIPEANN_DISTANCE_STRATEGY 1
#define PIPEANN_LESS_STRATEGY 2
#define PIPEANN_LESS_EQUAL_STRATEGY 3
#define PIPEANN_EQUAL_STRATEGY 4
#define PIPEANN_GREATER_EQUAL_STRATEGY 5
#define PIPEANN_GREATER_STRATEGY 6
#define PIPEANN_OVERLAPS_STRATEGY 7
#define PIPEANN_CONTAINS_STRATEGY 8
#define PIPEANN_NUM_STRATEGIES 8

/* Key columns beside the vector. */
#define PIPEANN_MAX_FILTER_COLUMNS PIPEANN_MOST_CODED

/* Index options. */
#define PIPEANN_DEFAULT_M 16
#define PIPEANN_MIN_M 2
#define PIPEANN_AUTO_M 0		/* by a profile: index/degree.c */
#define PIPEANN_MAX_M 100
#define PIPEANN_DEFAULT_EF_CONSTRUCTION 100
#define PIPEANN_MIN_EF_CONSTRUCTION 4
#define PIPEANN_MAX_EF_CONSTRUCTION 1000
#define PIPEANN_MAX_PQ_BYTES 1024
#define PIPEANN_DEFAULT_FILLFACTOR 100
#define PIPEANN_MIN_FILLFACTOR 10
#define PIPEANN_MAX_DIM 16000	/* of pgvector's type vector */

typedef struct PipeannOptions
{
	int32		vl_len_;		/* varlena header (do not touch directly!) */
	int			m;
	int			ef_construction;
	int			pq_bytes;		/* 0: by the number of dimensions */
	int			storage;		/* PipeannStorage */
	int			fillfactor;
} PipeannOptions;

/* options.c */
extern const PipeannOptions *PipeannGetOptions(Relation index);

/* The option m, or what a build for m = 0 begins with. */
extern int	PipeannInitialM(const PipeannOptions *options);

/* Errors if options do not go together. */
extern void PipeannCheckOptions(const PipeannOptions *options);

/* Heavyweight page lock for retraining, and for freeing slots. */
#define PIPEANN_MAINTENANCE_LOCK 1

/*
 * Heavyweight page lock for a new packing of the graph, which changes ids.
 * Held shared by VACUUM and pipeann_check(), which rely on ids for longer than
 * they lock the metapage.
 */
#define PIPEANN_REPACK_LOCK 2

/* inserts.c */

/*
 * Wait for the inserts under way, and let others wait until inserts are let in
 * again: the metapage's heavyweight lock. Those that wait do not cancel an autovacuum
 * worker meanwhile. Returns whether this backend could be cancelled by them before,
 * which PipeannLetInsertsIn() restores.
 */
extern bool PipeannKeepInsertsOut(Relation index);
extern void PipeannLetInsertsIn(Relation index, bool cancellable);

/* An index with fewer nodes has no codes: a search reads all of it. */
#define PIPEANN_MIN_CODED_NODES 4096

/* pgvector's type in memory. */
typedef struct PipeannVector
{
	int32		vl_len_;
	int16		dim;
	int16		unused;
	float		x[FLEXIBLE_ARRAY_MEMBER];
} PipeannVector;

typedef struct PipeannIndexView PipeannIndexView;

/* value.c */

/* The metric of an index's operator class. */
extern PipeannMetric PipeannIndexMetric(Relation index);

/* Dimensions by a column's type modifier. Errors if it declares none. */
extern int	PipeannTypmodDimensions(int32 typmod);

/* Dimensions of the indexed column. Errors if it declares none. */
extern int	PipeannIndexDimensions(Relation index);

/*
 * The elements of a possibly toasted vector datum, float[dim], in
 * CurrentMemoryContext. Errors if it has another number of dimensions.
 */
extern const float *PipeannDatumElements(Datum value, int dim);

/* Euclidean norm. */
extern double PipeannNorm(const float *x, int dim);

/* The aux of a slot for a vector of this norm (see storage/slot.h). */
extern float PipeannAux(PipeannMetric metric, double norm, float max_norm);

/*
 * Whether a vector of this norm can be indexed: for cosine it must not be
 * zero.
 */
extern bool PipeannIsIndexable(PipeannMetric metric, double norm);

/* out[dim] = x / |x|, or x itself if that is zero. */
extern void PipeannNormalize(const float *x, int dim, float *out);

/*
 * The embedding of graph/graph.h in floats: the squared Euclidean distance
 * between embedded vectors is the graph's measure. out has
 * PipeannEmbeddedDim() elements, dim + 1 for inner product.
 */
extern int	PipeannEmbeddedDim(PipeannMetric metric, int dim);
extern void PipeannEmbed(PipeannMetric metric, int dim, const float *x,
						 float aux, float *out);

/* columns.c: an index's columns: a vector, and others whose values rows have */
typedef struct PipeannColumns
{
	int			vector;			/* the vector's position */
	TupleDesc	values;			/* the others: filter columns, which are keys,
								 * and included ones; NULL if there are none */
} PipeannColumns;

extern PipeannColumns PipeannIndexColumns(Relation index);

/* Errors if the key columns are not one vector and a few others. */
extern void PipeannCheckColumns(Relation index);

/* The position of the vector among an index's columns. */
extern int	PipeannVectorPosition(Relation index);

/* The vector's column in the table, or InvalidAttrNumber for an expression. */
extern AttrNumber PipeannVectorColumn(Relation index);

/* Whether the table has most of the vectors in TOAST. */
extern bool PipeannVectorsInToast(Relation index);

extern bool PipeannIndexHasValues(Relation index);

/* The position among all columns of the values' column i, and the reverse. */
static inline int
PipeannValuePosition(const PipeannColumns *columns, int i)
{
	return i < columns->vector ? i : i + 1;
}

static inline int
PipeannValueNumber(const PipeannColumns *columns, int position)
{
	return position < columns->vector ? position : position - 1;
}

/* Take the vector out of all columns' values. */
extern void PipeannWithoutVector(const PipeannColumns *columns,
								 const Datum *all, const bool *all_null,
								 Datum *values, bool *isnull);

/* values.c: rows of values */

/*
 * A row of an index, palloc'd, of all its columns' values. Errors with
 * ERRCODE_PROGRAM_LIMIT_EXCEEDED if they are too long. The row is whole, however
 * long.
 */
extern PipeannRow *PipeannFormRow(const PipeannColumns *columns,
								  const Datum *values, const bool *isnull,
								  const ItemPointerData *tid);

/*
 * The values of a whole row, in CurrentMemoryContext. False if it is broken.
 */
extern bool PipeannDeformRow(TupleDesc desc, const PipeannRow *row,
							 Datum *values, bool *isnull);

/*
 * The first n values of a whole row, in the memory at tuple, which has
 * PIPEANN_ROW_SIZE bytes and is aligned. False if they are broken.
 */
extern bool PipeannDeformRowTo(TupleDesc desc, int n, const PipeannRow *row,
							   char *tuple, Datum *values, bool *isnull);

/* An error: a row of node id is broken. */
extern void PipeannRowError(Relation index, uint32 id);

/* A hash of what values are, compressed or not. */
extern uint32 PipeannHashValues(TupleDesc desc, const Datum *values,
								const bool *isnull);

/* Bytes of a row as the types of its values let expect. */
extern int	PipeannExpectedRowBytes(TupleDesc desc);

/* rounding.c */

/*
 * Set *rounding to what half precision loses of x[dim] with this norm. False if
 * that is too much to store it so (elements beyond 65504, or most of them below
 * 1e-5).
 */
extern bool PipeannRound(const float *x, double norm, int dim,
						 PipeannRounding *rounding);

/* Whether x[dim] suits a storage; integers have to hold it exactly. */
extern bool PipeannIsStorable(const float *x, double norm,
							  PipeannStorage storage, int dim);

/* Whether a vector has to be out of line, as it does not suit the storage. */
extern bool PipeannIsOutOfLine(const PipeannMeta *meta, const float *x,
							   double norm);

/* Whether an element of x[dim] is -0, which bytes cannot hold. */
extern bool PipeannHasNegativeZero(const float *x, int dim);

/*
 * Set x[dim] to the vector in a node's slot. False if that need not be the rows' own to
 * the last bit.
 */
extern bool PipeannExactVector(const PipeannMeta *meta,
							   const PipeannSlot *slot, float *x);

/* The hash of a PipeannRounding. */
extern uint32 PipeannVectorHash(const float *x, int dim);

/* view.c: what scans, inserts and SQL functions need to search an index */
struct PipeannIndexView
{
	Relation	index;
	MemoryContext context;		/* holds map and cache */
	PipeannMeta meta;
	PipeannExtentMap own_map;	/* used if there is no cache */
	const PipeannExtentMap *map;
	PipeannCache *cache;		/* NULL if the index has no codes */
	uint64		build_id;		/* of the cache */
	PipeannCodes codes;
};

/*
 * Read metapage and extent map, and acquire the cache, in
 * CurrentMemoryContext.
 */
extern void PipeannOpenView(PipeannIndexView *view, Relation index);

/*
 * Read the metapage again and follow it. After a retraining the view gets
 * another cache, and pointers into the former one are invalid; that does not
 * happen while the caller holds the metapage's heavyweight lock.
 */
extern void PipeannRefreshView(PipeannIndexView *view);

/*
 * The first block of a graph page of the view's layout, or InvalidBlockNumber.
 * Finds pages, too, that were given out after the view was opened: chains of
 * overflow slots may lead there.
 */
extern BlockNumber PipeannViewBlock(const PipeannIndexView *view, uint32 page);

/*
 * Errors if the view's layout may have been replaced and its pages used again.
 * That can happen on a replica only; elsewhere snapshots prevent it.
 */
extern void PipeannCheckPacking(const PipeannIndexView *view);

/* Ids are below this. */
static inline uint32
PipeannViewIds(const PipeannIndexView *view)
{
	return view->meta.graph_pages * view->meta.layout.slots_per_page;
}

/*
 * Open an index for a SQL function, with AccessShareLock. Errors unless it is
 * a pipeann index, not another session's temporary one, and the user may
 * select from its table.
 */
extern Relation PipeannOpenIndex(Oid relid);

/*
 * reuse.c: a search that has not begun, if possible with the memory of an
 * earlier one. It goes back to the backend when CurrentMemoryContext is reset
 * or deleted.
 */
extern PipeannSearch *PipeannReuseSearch(void);

/* chain.c: overflow slots */

/*
 * Lock the page of a slot, shared. Page and slot may be newer than the view.
 * Errors if there is no such page.
 */
extern Buffer PipeannReadSlot(const PipeannIndexView *view, uint32 id,
							  BufferAccessStrategy strategy,
							  PipeannSlot **slot);

/* A walk along the rows of a node. */
typedef struct PipeannChain
{
	uint32		owner;			/* the node */
	uint32		next;			/* slot to read, or INVALID_ID at the end */
	uint32		number;			/* of the slot read last */
	bool		begun;
	uint64		steps;			/* to notice a cycle */
	int			rewinds;
} PipeannChain;

/* Begin a walk at slot `first` of the node's chain, or INVALID_ID. */
extern void PipeannChainBegin(PipeannChain *chain, uint32 owner, uint32 first);

/*
 * Copy the rows of the next overflow slot to copy[PipeannExtBytes()]. Errors
 * if the chain is broken.
 */
extern PipeannRowList PipeannChainRead(const PipeannIndexView *view,
									   PipeannChain *chain, void *copy);

/*
 * Read the exact vector of an out-of-line node to x[dim]. False if VACUUM has
 * removed the node meanwhile.
 */
extern bool PipeannChainVector(const PipeannIndexView *view, uint32 id,
							   const PipeannSlot *node, float *x);

/*
 * Write data to overflow slots, for a vector or a row that does not fit a
 * node's slot; returns the first one.
 */
extern uint32 PipeannWriteParts(PipeannIndexView *view, const void *data,
								Size total);

/*
 * A row in the form in which a slot holds it: the row itself, or what stands in
 * its place when this has written it to overflow slots.
 */
extern const PipeannRow *PipeannStoreRow(PipeannIndexView *view,
										 const PipeannRow *row);

/*
 * The whole of a row that is out of line, palloc'd. Errors if it is not there, so
 * VACUUM must not be able to remove the row: a snapshot sees it, or VACUUM is
 * kept out.
 */
extern PipeannRow *PipeannReadRow(const PipeannIndexView *view,
								  const PipeannRow *row);

/* The whole of a row that VACUUM may remove meanwhile; NULL if it has. */
extern PipeannRow *PipeannTryReadRow(const PipeannIndexView *view,
									 const PipeannRow *row);

/* place.c: finding room for slots and writing them */

/*
 * Write a slot of slot_size bytes to a free place: on graph page `near` if
 * that has one, else where VACUUM has freed one, or at the end of the index; a
 * node may also begin a page. Returns its id. Refreshes the view as the index
 * grows.
 */
extern uint32 PipeannPlaceSlot(PipeannIndexView *view, uint32 near,
							   const PipeannSlot *slot);

/* Whether the index has as many free slots as inserts need, or more. */
extern bool PipeannHasSpareSlots(const PipeannIndexView *view);

/* Slots of a page to fill when the graph is packed anew. */
extern int	PipeannWantedFill(const PipeannLayout *l);

/*
 * Change a slot: Begin locks its page exclusively and registers it for WAL; End
 * writes the record, Abort drops the changes; both release the page.
 */
typedef struct PipeannSlotUpdate
{
	Buffer		buffer;
	BlockNumber blkno;
	GenericXLogState *state;
	Page		page;
	PipeannSlot *slot;
} PipeannSlotUpdate;

extern void PipeannSlotBegin(const PipeannIndexView *view, uint32 id,
							 PipeannSlotUpdate *update);
extern void PipeannSlotEnd(PipeannSlotUpdate *update);
extern void PipeannSlotAbort(PipeannSlotUpdate *update);

/*
 * Change several graph pages (their first blocks) under one WAL record, at
 * most MAX_GENERIC_XLOG_PAGES. They are locked exclusively, in ascending order
 * of their ids. End writes the record and releases the registered pages.
 */
typedef struct PipeannPagesUpdate
{
	const PipeannIndexView *view;
	GenericXLogState *state;
	int			n;				/* registered */
	Buffer		buffers[MAX_GENERIC_XLOG_PAGES];
	Page		pages[MAX_GENERIC_XLOG_PAGES];
} PipeannPagesUpdate;

extern void PipeannPagesBegin(const PipeannIndexView *view,
							  PipeannPagesUpdate *update);

/* Lock the page of a slot; the caller then registers or releases it. */
extern Buffer PipeannPagesLock(PipeannPagesUpdate *update, uint32 id);

/* Register the page; returns the copy to change. */
extern Page PipeannPagesRegister(PipeannPagesUpdate *update, Buffer buffer);

extern void PipeannPagesEnd(PipeannPagesUpdate *update);

/* Copy slot id (slot_size bytes) out of shared_buffers. */
extern void PipeannSlotCopy(const PipeannIndexView *view, uint32 id,
							PipeannSlot *slot);

/*
 * Copy a graph page's slots to nodes[node_pages payloads], to be looked at
 * without a lock. False if the page was given out but never written.
 */
extern bool PipeannGraphPageCopy(const PipeannIndexView *view, uint32 page,
								 char *nodes);

/* Bytes of a slot buffer; palloc0'd by PipeannSlotAlloc(). */
extern PipeannSlot *PipeannSlotAlloc(const PipeannLayout *layout);

/*
 * Write a node's codes, uint8[PipeannCodeBytes()], to their place in a
 * generation's pages. If fill is not NULL it sets the attribute code, with the page
 * locked: so it covers rows that have joined the node, and those that join later
 * find it there. It must compare no values.
 */
typedef void (*PipeannFillAttributes) (uint32 id, uint8 *attributes,
									   void *arg);

extern void PipeannPlaceCode(PipeannIndexView *view, const PipeannLayout *l,
							 uint32 generation,
							 uint32 id, uint8 *code,
							 PipeannFillAttributes fill, void *arg);

/*
 * Change a node's attribute code in a generation's pages. fill gets the present
 * code, under the same rules as above. Returns whether the code was changed.
 */
extern bool PipeannChangeAttributes(PipeannIndexView *view, uint32 generation,
									uint32 id, PipeannFillAttributes fill,
									void *arg);

/*
 * Make zeroes of attribute codes of a code page. which[] has an element for each
 * code of the page. PipeannNoteCodePages() then notes in the metapage that pages
 * have changed so.
 */
extern void PipeannClearAttributes(PipeannIndexView *view, uint32 code_page,
								   const bool *which);
extern void PipeannNoteCodePages(PipeannIndexView *view, const uint32 *pages,
								 uint32 n);

/*
 * Count a new node in the metapage, if is_new, and what it adds to `strayed`, and note
 * the change of its code page, if there are codes; then follow that in memory. Returns
 * the number of nodes: no other insert gets the same. The first node becomes the root.
 */
extern uint64 PipeannNoteNode(PipeannIndexView *view, uint32 id, bool is_new,
							  double strayed);

/* degree.c: m = 0, by a profile of the machine */

/*
 * Choose m, at most max_m, for vectors[n] of a table, one after the other; base has
 * the layout's other options. Sets *degree to the reason. If the machine cannot be
 * profiled, returns the default m, or max_m if that is less.
 */
extern int	PipeannChooseM(Relation heap, const char *vectors, uint32 n,
						   const PipeannLayout *base, int max_m,
						   PipeannDegree *degree);

/* The reason in words, palloc'd. */
extern char *PipeannDegreeText(const PipeannMeta *meta);

/* codebook.c */

/*
 * While PIPEANN_META_RETRAINING is set: the next generation's code of
 * x[dim], normalised for cosine, to out[pq_bytes].
 */
extern void PipeannEncodeNext(PipeannIndexView *view, const float *x,
							  uint8 *out);

/*
 * Read the codebook of another partition's index to centroids. False if there is
 * none for such codes of such vectors.
 */
extern bool PipeannReadSibling(Relation index, const PipeannPq *pq,
							   PipeannMetric metric, float *centroids);

/* free_space.c: graph pages with free slots, in the free space map */

/*
 * Make the map long enough for an index of so many extents, so that VACUUM can
 * note free slots even when the disk is full.
 */
extern void PipeannFreeReserve(Relation index, uint32 extents);

/* Note how many slots of a graph page are free. */
extern void PipeannFreeRecord(const PipeannIndexView *view, uint32 page,
							  uint32 slots);

/*
 * A graph page that has free slots according to the map, or INVALID_ID. `full`
 * is a page named before that had none, or INVALID_ID.
 */
extern uint32 PipeannFreeSearch(const PipeannIndexView *view, uint32 full);

#endif							/* PIPEANN_INDEX_H */
