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
#include "index/options.h"
#include "search/search.h"
#include "storage/storage.h"
#include "utils/rel.h"

/* Heavyweight page lock for retraining, and for freeing slots. */
#define PIPEANN_MAINTENANCE_LOCK 1

/*
 * Heavyweight page lock for a new packing of the graph, which changes ids.
 * Held shared by VACUUM and pipeann_check(), which rely on ids for longer than
 * they lock the metapage.
 */
#define PIPEANN_REPACK_LOCK 2

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

/* columns.c: an index's columns: a vector, and others whose values rows have */
typedef struct PipeannColumns
{
	int			vector;			/* the vector's position */
	TupleDesc	values;			/* the others: filter columns, which are keys,
								 * and included ones; NULL if there are none */
} PipeannColumns;

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

/* Ids are below this. */
static inline uint32
PipeannViewIds(const PipeannIndexView *view)
{
	return view->meta.graph_pages * view->meta.layout.slots_per_page;
}

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

typedef void (*PipeannFillAttributes) (uint32 id, uint8 *attributes,
									   void *arg);

/* inserts.c */
extern bool PipeannKeepInsertsOut(Relation index);
extern void PipeannLetInsertsIn(Relation index, bool cancellable);

/* value.c */
extern PipeannMetric PipeannIndexMetric(Relation index);
extern int	PipeannTypmodDimensions(int32 typmod);
extern int	PipeannIndexDimensions(Relation index);
extern const float *PipeannDatumElements(Datum value, int dim);
extern double PipeannNorm(const float *x, int dim);
extern float PipeannAux(PipeannMetric metric, double norm, float max_norm);
extern bool PipeannIsIndexable(PipeannMetric metric, double norm);
extern void PipeannNormalize(const float *x, int dim, float *out);
extern int	PipeannEmbeddedDim(PipeannMetric metric, int dim);
extern void PipeannEmbed(PipeannMetric metric, int dim, const float *x,
						 float aux, float *out);
extern bool PipeannVectorsInToast(Relation index);

/* columns.c */
extern PipeannColumns PipeannIndexColumns(Relation index);
extern void PipeannCheckColumns(Relation index);
extern int	PipeannVectorPosition(Relation index);
extern AttrNumber PipeannVectorColumn(Relation index);
extern bool PipeannIndexHasValues(Relation index);
extern void PipeannWithoutVector(const PipeannColumns *columns,
								 const Datum *all, const bool *all_null,
								 Datum *values, bool *isnull);

/* values.c */
extern PipeannRow *PipeannFormRow(const PipeannColumns *columns,
								  const Datum *values, const bool *isnull,
								  const ItemPointerData *tid);
extern bool PipeannDeformRow(TupleDesc desc, const PipeannRow *row,
							 Datum *values, bool *isnull);
extern bool PipeannDeformRowTo(TupleDesc desc, int n, const PipeannRow *row,
							   char *tuple, Datum *values, bool *isnull);
extern void PipeannRowError(Relation index, uint32 id);
extern uint32 PipeannHashValues(TupleDesc desc, const Datum *values,
								const bool *isnull);
extern int	PipeannExpectedRowBytes(TupleDesc desc);

/* rounding.c */
extern bool PipeannRound(const float *x, double norm, int dim,
						 PipeannRounding *rounding);
extern bool PipeannIsStorable(const float *x, double norm,
							  PipeannStorage storage, int dim);
extern bool PipeannIsOutOfLine(const PipeannMeta *meta, const float *x,
							   double norm);
extern bool PipeannHasNegativeZero(const float *x, int dim);
extern bool PipeannExactVector(const PipeannMeta *meta,
							   const PipeannSlot *slot, float *x);
extern uint32 PipeannVectorHash(const float *x, int dim);

/* view.c */
extern void PipeannOpenView(PipeannIndexView *view, Relation index);
extern void PipeannRefreshView(PipeannIndexView *view);
extern BlockNumber PipeannViewBlock(const PipeannIndexView *view, uint32 page);
extern void PipeannCheckPacking(const PipeannIndexView *view);
extern Relation PipeannOpenIndex(Oid relid);

/* reuse.c */
extern PipeannSearch *PipeannReuseSearch(void);

/* chain.c */
extern Buffer PipeannReadSlot(const PipeannIndexView *view, uint32 id,
							  BufferAccessStrategy strategy,
							  PipeannSlot **slot);
extern void PipeannChainBegin(PipeannChain *chain, uint32 owner, uint32 first);
extern PipeannRowList PipeannChainRead(const PipeannIndexView *view,
									   PipeannChain *chain, void *copy);
extern bool PipeannChainVector(const PipeannIndexView *view, uint32 id,
							   const PipeannSlot *node, float *x);
extern uint32 PipeannWriteParts(PipeannIndexView *view, const void *data,
								Size total);
extern const PipeannRow *PipeannStoreRow(PipeannIndexView *view,
										 const PipeannRow *row);
extern PipeannRow *PipeannReadRow(const PipeannIndexView *view,
								  const PipeannRow *row);
extern PipeannRow *PipeannTryReadRow(const PipeannIndexView *view,
									 const PipeannRow *row);

/* place.c */
extern uint32 PipeannPlaceSlot(PipeannIndexView *view, uint32 near,
							   const PipeannSlot *slot);
extern bool PipeannHasSpareSlots(const PipeannIndexView *view);
extern int	PipeannWantedFill(const PipeannLayout *l);
extern void PipeannSlotBegin(const PipeannIndexView *view, uint32 id,
							 PipeannSlotUpdate *update);
extern void PipeannSlotEnd(PipeannSlotUpdate *update);
extern void PipeannSlotAbort(PipeannSlotUpdate *update);
extern void PipeannPagesBegin(const PipeannIndexView *view,
							  PipeannPagesUpdate *update);
extern Buffer PipeannPagesLock(PipeannPagesUpdate *update, uint32 id);
extern Page PipeannPagesRegister(PipeannPagesUpdate *update, Buffer buffer);
extern void PipeannPagesEnd(PipeannPagesUpdate *update);
extern void PipeannSlotCopy(const PipeannIndexView *view, uint32 id,
							PipeannSlot *slot);
extern bool PipeannGraphPageCopy(const PipeannIndexView *view, uint32 page,
								 char *nodes);
extern PipeannSlot *PipeannSlotAlloc(const PipeannLayout *layout);
extern void PipeannPlaceCode(PipeannIndexView *view, const PipeannLayout *l,
							 uint32 generation,
							 uint32 id, uint8 *code,
							 PipeannFillAttributes fill, void *arg);
extern bool PipeannChangeAttributes(PipeannIndexView *view, uint32 generation,
									uint32 id, PipeannFillAttributes fill,
									void *arg);
extern void PipeannClearAttributes(PipeannIndexView *view, uint32 code_page,
								   const bool *which);
extern void PipeannNoteCodePages(PipeannIndexView *view, const uint32 *pages,
								 uint32 n);
extern uint64 PipeannNoteNode(PipeannIndexView *view, uint32 id, bool is_new,
							  double strayed);
extern void PipeannFreeReserve(Relation index, uint32 extents);
extern void PipeannFreeRecord(const PipeannIndexView *view, uint32 page,
							  uint32 slots);

#endif							/* PIPEANN_INDEX_H */
