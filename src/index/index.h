/*
 * index.h
 *		One open index, as scans, inserts, VACUUM and the SQL functions need it:
 *		its view, its slots, its overflow chains, the vectors of its column.
 */
#ifndef PIPEANN_INDEX_H
#define PIPEANN_INDEX_H

#include "base/base.h"

#include "access/genam.h"
#include "cache/cache.h"
#include "search/search.h"
#include "storage/storage.h"
#include "utils/rel.h"

/* Support function of an operator class: returns its PipeannMetric. */
#define PIPEANN_METRIC_PROC 1
#define PIPEANN_NUM_PROCS 1
#define PIPEANN_DISTANCE_STRATEGY 1

/* Index options. */
#define PIPEANN_DEFAULT_M 16
#define PIPEANN_MIN_M 2
#define PIPEANN_AUTO_M 0		/* by a profile: degree.c */
#define PIPEANN_MAX_M 100
#define PIPEANN_DEFAULT_EF_CONSTRUCTION 100
#define PIPEANN_MIN_EF_CONSTRUCTION 4
#define PIPEANN_MAX_EF_CONSTRUCTION 1000
#define PIPEANN_MAX_PQ_BYTES 1024
#define PIPEANN_DEFAULT_FILLFACTOR 100
#define PIPEANN_MIN_FILLFACTOR 10
#define PIPEANN_MAX_DIM 16000	/* that of vector */

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

/* Heavyweight page lock of whoever retrains, or frees slots. */
#define PIPEANN_MAINTENANCE_LOCK 1

/*
 * Held shared by who relies on ids for longer than a lock on the metapage
 * (VACUUM, pipeann_check), exclusively by who packs the graph anew.
 */
#define PIPEANN_REPACK_LOCK 2

/* An index of fewer nodes has no codes: a search reads all of it. */
#define PIPEANN_MIN_CODED_NODES 4096

/* pgvector's type, as it is in memory. */
typedef struct PipeannVector
{
	int32		vl_len_;
	int16		dim;
	int16		unused;
	float		x[FLEXIBLE_ARRAY_MEMBER];
} PipeannVector;

/* value.c */

/* The metric of an index's operator class. */
extern PipeannMetric PipeannIndexMetric(Relation index);

/* Dimensions of the indexed column; an error when it declares none. */
extern int	PipeannIndexDimensions(Relation index);

/*
 * The elements of a (possibly toasted) vector datum, checked to have dim
 * dimensions. Points into the detoasted datum, in CurrentMemoryContext.
 */
extern const float *PipeannDatumElements(Datum value, int dim);

/* Euclidean norm. */
extern double PipeannNorm(const float *x, int dim);

/* Slot's aux of a vector of this norm (see storage/slot.h). */
extern float PipeannAux(PipeannMetric metric, double norm, float max_norm);

/* Whether a vector can be in the index at all (cosine: not zero). */
extern bool PipeannIsIndexable(PipeannMetric metric, double norm);

/* out[dim] = x / |x|, or x itself when that is zero. */
extern void PipeannNormalize(const float *x, int dim, float *out);

/*
 * The embedding of graph/graph.h as floats: squared Euclidean distance between
 * embedded vectors is the graph's measure. out has dim + 1 elements for IP.
 */
extern int	PipeannEmbeddedDim(PipeannMetric metric, int dim);
extern void PipeannEmbed(PipeannMetric metric, int dim, const float *x,
						 float aux, float *out);

/* rounding.c */

/*
 * What halves lose of x[dim], of this norm. False if that is so much (elements
 * beyond 65504, or most of them below 1e-5) that it should not be stored in halves.
 */
extern bool PipeannRound(const float *x, double norm, int dim,
						 PipeannRounding *rounding);

/* Whether a vector may be stored so: in bytes without any loss. */
extern bool PipeannIsStorable(const float *x, double norm,
							  PipeannStorage storage, int dim);

/* Whether a vector is not for an index's storage: flagged WIDE where auto chose it. */
extern bool PipeannIsOutOfLine(const PipeannMeta *meta, const float *x,
							   double norm);

/* The hash of a PipeannRounding. */
extern uint32 PipeannVectorHash(const float *x, int dim);

/* index/view.c: what scan, insert and functions need to search an index */
typedef struct PipeannIndexView
{
	Relation	index;
	MemoryContext context;		/* of map and cache */
	PipeannMeta meta;
	PipeannExtentMap own_map;	/* when there is no cache */
	const PipeannExtentMap *map;
	PipeannCache *cache;		/* NULL while there are no codes */
	uint64		build_id;		/* the cache's */
	PipeannCodes codes;
} PipeannIndexView;

/* Metapage, extent map, cache; in CurrentMemoryContext. */
extern void PipeannOpenView(PipeannIndexView *view, Relation index);

/*
 * Re-read the metapage and follow it. Where codes have been made anew there is
 * another cache then, and pointers into the former one are no good; that does
 * not happen while the metapage's heavyweight lock is held.
 */
extern void PipeannRefreshView(PipeannIndexView *view);

/*
 * Where a page of the view's layout begins, or InvalidBlockNumber. Chains of
 * overflow slots, put in front of nodes by others, lead to pages that were given
 * out after the view was opened; those, too, are found.
 */
extern BlockNumber PipeannViewBlock(const PipeannIndexView *view, uint32 page);

/*
 * Error if the view's layout may be gone since it was opened. That can be on a
 * replica only: elsewhere snapshots prevent it.
 */
extern void PipeannCheckPacking(const PipeannIndexView *view);

/* Ids run from 0 to this. */
static inline uint32
PipeannViewIds(const PipeannIndexView *view)
{
	return view->meta.graph_pages * view->meta.layout.slots_per_page;
}

/*
 * Open an index by name for a SQL function: a pipeann index, AccessShareLock,
 * SELECT privilege on its table, not another session's temporary one.
 */
extern Relation PipeannOpenIndex(Oid relid);

/*
 * index/borrow.c: a search that has not begun, with the memory of one that is over if
 * this backend has such; until CurrentMemoryContext goes.
 */
extern PipeannSearch *PipeannBorrowSearch(void);

/* chain.c: overflow slots */

/* A walk along the TIDs of a node. */
typedef struct PipeannChain
{
	uint32		owner;			/* the node */
	uint32		next;			/* slot, or INVALID_ID at the end */
	uint32		number;			/* of the slot read last */
	bool		begun;
	uint64		steps;			/* to notice a cycle */
	int			rewinds;
} PipeannChain;

extern void PipeannChainBegin(PipeannChain *chain, uint32 owner, uint32 first);

/*
 * Copy the TIDs of the next overflow slot to tids[PipeannExtTids()]; returns
 * how many.
 */
extern int	PipeannChainRead(const PipeannIndexView *view,
							 PipeannChain *chain, ItemPointerData *tids);

/*
 * The exact vector of an out-of-line node: float[dim]. False if VACUUM has taken the
 * node away meanwhile.
 */
extern bool PipeannChainVector(const PipeannIndexView *view, uint32 id,
							   const PipeannSlot *node, float *x);

/* place.c: finding room for slots and writing them */

/*
 * Write a slot (slot_size bytes) to a free place: on graph page near if that
 * has one, else where VACUUM has freed one, or at the end. A node may begin a
 * page instead. Returns its id. The view's metapage copy and map are refreshed
 * as the index grows.
 */
extern uint32 PipeannPlaceSlot(PipeannIndexView *view, uint32 near,
							   const PipeannSlot *slot);

/* Whether the index has as many free slots as it should, or more. */
extern bool PipeannHasSpareSlots(const PipeannIndexView *view);

/* Slots of a page that are filled when the graph is packed anew. */
extern int	PipeannWantedFill(const PipeannLayout *l);

/* Lock the page of a slot exclusively, registered for WAL. */
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
 * Change several graph pages (their first blocks) under one WAL record, at most
 * MAX_GENERIC_XLOG_PAGES. They are locked exclusively, in ascending order of
 * their ids.
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

/* Lock the page of a slot: it is then registered, or released by the caller. */
extern Buffer PipeannPagesLock(PipeannPagesUpdate *update, uint32 id);

/* Returns the copy to change. */
extern Page PipeannPagesRegister(PipeannPagesUpdate *update, Buffer buffer);

extern void PipeannPagesEnd(PipeannPagesUpdate *update);

/* Copy slot id (slot_size bytes) out of shared_buffers. */
extern void PipeannSlotCopy(const PipeannIndexView *view, uint32 id,
							PipeannSlot *slot);

/*
 * Copy a graph page's slots out of shared_buffers, so that they can be looked
 * at without a lock: nodes has room for node_pages payloads. False if the page
 * was given out but never written.
 */
extern bool PipeannGraphPageCopy(const PipeannIndexView *view, uint32 page,
								 char *nodes);

/* Bytes of a slot buffer; palloc0'd by PipeannSlotAlloc(). */
extern PipeannSlot *PipeannSlotAlloc(const PipeannLayout *layout);

/*
 * Write a code of a node: id's place in the code pages of a generation.
 */
extern void PipeannPlaceCode(PipeannIndexView *view, uint32 generation,
							 uint32 id, const uint8 *code);

/*
 * Tell in the metapage that a node was added, when is_new, and that its code
 * was written, if there are codes; follow it in memory. Returns the number of
 * nodes: no other insert gets the same. The first node is the root.
 */
extern uint64 PipeannNoteNode(PipeannIndexView *view, uint32 id, bool is_new);

/* index/free_space.c: graph pages with free slots, in the free space map */

/*
 * Make the map as long as an index of so many extents needs it, so that VACUUM
 * can note free slots when the disk is full.
 */
extern void PipeannFreeReserve(Relation index, uint32 extents);

/* Note how many slots of a graph page are free. */
extern void PipeannFreeRecord(const PipeannIndexView *view, uint32 page,
							  uint32 slots);

/*
 * A graph page that has free slots by the map, or INVALID_ID. full was named
 * before and had none, or is INVALID_ID.
 */
extern uint32 PipeannFreeSearch(const PipeannIndexView *view, uint32 full);

#endif							/* PIPEANN_INDEX_H */
