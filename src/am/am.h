/*
 * am.h
 *		PostgreSQL's side: callbacks, options, settings.
 */
#ifndef PIPEANN_AM_H
#define PIPEANN_AM_H

#include "base/base.h"

#include "access/amapi.h"
#include "access/genam.h"
#include "graph/graph.h"
#include "nodes/execnodes.h"
#include "storage/storage.h"
#include "search/search.h"
#include "cache/cache.h"

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

/* On squared distances; 1.095 on distances. */
#define PIPEANN_ALPHA 1.2f

/* Heavyweight page lock of whoever retrains, or frees slots. */
#define PIPEANN_MAINTENANCE_LOCK 1

/*
 * Held shared by who relies on ids for longer than a lock on the metapage
 * (VACUUM, pipeann_check), exclusively by who packs the graph anew.
 */
#define PIPEANN_REPACK_LOCK 2

/* An index of fewer nodes has no codes: a search reads all of it. */
#define PIPEANN_MIN_CODED_NODES 4096

typedef struct PipeannOptions
{
	int32		vl_len_;		/* varlena header (do not touch directly!) */
	int			m;
	int			ef_construction;
	int			pq_bytes;		/* 0: by the number of dimensions */
	int			storage;		/* PipeannStorage */
	int			fillfactor;
} PipeannOptions;

/* Settings. */
typedef enum PipeannIterativeScan
{
	PIPEANN_ITERATIVE_OFF,
	PIPEANN_ITERATIVE_RELAXED,
	PIPEANN_ITERATIVE_STRICT
} PipeannIterativeScan;

#define PIPEANN_DEFAULT_EF_SEARCH 100

extern int	pipeann_ef_search;
extern int	pipeann_iterative_scan;
extern int	pipeann_max_scan_tuples;
extern double pipeann_scan_mem_multiplier;
extern int	pipeann_search_mode;
extern int	pipeann_pipeline_width;
extern int	pipeann_prefetch_rows;

/* The search's ideas that are switched on (search.h). */
extern uint32 PipeannSwitches(void);

extern const char *PipeannSearchModeName(int mode);

/* Build phases, as pg_stat_progress_create_index shows them. */
#define PIPEANN_PHASE_SCAN 2
#define PIPEANN_PHASE_TRAIN 3
#define PIPEANN_PHASE_GRAPH 4
#define PIPEANN_PHASE_PACK 5
#define PIPEANN_PHASE_WRITE 6
#define PIPEANN_PHASE_WAL 7
#define PIPEANN_PHASE_ENTRY 8

/* pgvector's type, as it is in memory. */
typedef struct PipeannVector
{
	int32		vl_len_;
	int16		dim;
	int16		unused;
	float		x[FLEXIBLE_ARRAY_MEMBER];
} PipeannVector;

/* options.c */
extern bytea *pipeannoptions(Datum reloptions, bool validate);
extern void PipeannOptionsInit(void);
extern const PipeannOptions *PipeannGetOptions(Relation index);

/* settings.c */
extern void PipeannSettingsInit(void);

/* cost.c */
extern void pipeanncostestimate(struct PlannerInfo *root,
								struct IndexPath *path, double loop_count,
								Cost *startup_cost, Cost *total_cost,
								Selectivity *selectivity, double *correlation,
								double *pages);

/* validate.c */
extern bool pipeannvalidate(Oid opclassoid);

/* build.c */
extern IndexBuildResult *pipeannbuild(Relation heap, Relation index,
									  IndexInfo *index_info);
extern void pipeannbuildempty(Relation index);

/* insert.c */
extern bool pipeanninsert(Relation index, Datum *values, bool *isnull,
						  ItemPointer heap_tid, Relation heap,
						  IndexUniqueCheck check_unique, bool index_unchanged,
						  IndexInfo *index_info);

/* vacuum.c */
extern IndexBulkDeleteResult *pipeannbulkdelete(IndexVacuumInfo *info,
												IndexBulkDeleteResult *stats,
												IndexBulkDeleteCallback callback,
												void *callback_state);
extern IndexBulkDeleteResult *pipeannvacuumcleanup(IndexVacuumInfo *info,
												   IndexBulkDeleteResult *stats);

/* scan.c */
extern IndexScanDesc pipeannbeginscan(Relation index, int nkeys,
									  int norderbys);
extern void pipeannrescan(IndexScanDesc scan, ScanKey keys, int nkeys,
						  ScanKey orderbys, int norderbys);
extern bool pipeanngettuple(IndexScanDesc scan, ScanDirection dir);
extern void pipeannendscan(IndexScanDesc scan);

/* Counters and mode of this session's last scan. */
extern PipeannCounters PipeannLastCounters;
extern int	PipeannLastMode;

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

/*
 * prefetch.c: ask the operating system for the table pages of the results that
 * come next, of no more than `most`, when so many were taken; returns of how many.
 */
#define PIPEANN_MAX_PREFETCH 256
extern int	PipeannPrefetchRows(IndexScanDesc scan, PipeannSearch *search,
								uint64 taken, uint64 most);

/* kill.c: rows that a scan found dead to everybody */
typedef struct PipeannKiller
{
	PipeannIndexView *view;		/* NULL: it does not know any */
	bool		armed;			/* there is a node of which it is to know */
	uint32		id;
	int			rows_left;		/* that are not known to be dead */
	uint64		lsn;			/* of the page as it was read */
} PipeannKiller;

/* False if the scan is to return dead rows as well. */
extern bool PipeannKillerBegin(PipeannKiller *killer, IndexScanDesc scan,
							   PipeannIndexView *view);
extern uint64 PipeannKillerLook(uint32 page, const char *nodes,
								uint64 *version, void *arg);

/* The rows of a result, or none, are returned from now on. */
extern void PipeannKillerNode(PipeannKiller *killer,
							  const PipeannSearch *search,
							  const PipeannResult *result);

/* The row returned last is dead. */
extern void PipeannKillerRow(PipeannKiller *killer);

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

/* build/codes.c: making and writing codes, for build and retrain/retrain.c */

/* The nodes of an index, by number here and by id there. */
typedef struct PipeannNodes
{
	PipeannVectors vectors;		/* nodes by number */
	uint32	   *id_of_node;		/* [vectors.n] */
	uint32	   *node_of_id;		/* [ids], INVALID_ID where there is none */
	uint32		ids;
} PipeannNodes;

/* A quantiser without its centroids. Palloc'd. */
extern PipeannPq PipeannCodingLayout(const PipeannLayout *l);

/* Training samples that maintenance_work_mem and use allow. */
extern uint32 PipeannCodingSamples(const PipeannLayout *l, uint64 nodes);

/*
 * Train centroids on samples[n][dim], which are put in another order. Returns
 * the mean squared error that codes are to be expected to have.
 */
extern float PipeannCodingTrain(PipeannPq *pq, float *samples, uint32 n,
								PipeannPqProgress progress, void *arg);

/*
 * The same on vectors at even distances, so that any order of them is as good.
 */
extern float PipeannCodingTrainOn(PipeannPq *pq, const PipeannLayout *l,
								  const PipeannVectors *v,
								  PipeannPqProgress progress);

/* Mean squared error of the codes of x[n][dim]. */
extern float PipeannCodingError(const PipeannPq *pq, const float *x, uint32 n);

/* How many of so many nodes are in the entry graph. */
extern uint32 PipeannEntryCount(uint32 nodes);

/*
 * Choose them: one node of every so many ids, so that they are spread over the
 * pages, which are spread over space, and the root. Returns how many.
 */
extern uint32 PipeannEntrySample(const PipeannNodes *nodes, uint32 root,
								 uint32 *sample);

/* A node as the quantiser sees it, x[dim]: normalised for cosine. */
extern void PipeannCodingVector(const PipeannVectors *v, uint32 node,
								float *x);

/*
 * Fill a code page with the codes of ids first to first + n - 1, all zero where
 * there is no node. x has room for a vector.
 */
extern void PipeannEncodePage(const PipeannPq *pq, const PipeannNodes *nodes,
							  uint32 first, int n, float *x, uint8 *out);

/*
 * Give a generation the extents that it needs for so many ids, inside a
 * metapage update or a build. What is there already is used.
 */
extern void PipeannCodingReserve(Relation index, PipeannMeta *meta,
								 uint32 generation, uint32 ids);

extern void PipeannCodebookWrite(Relation index, const PipeannLayout *l,
								 const PipeannExtentMap *map,
								 uint32 generation, const PipeannPq *pq,
								 bool wal);

/* Where an entry graph of so many nodes goes; the present one stays intact. */
extern uint32 PipeannNextEntryFirst(const PipeannMeta *meta, uint32 count);

/*
 * Build the entry graph over sample[n] of the nodes and write it. Sets entry
 * count, degree and first page in meta. progress may be NULL.
 */
extern void PipeannEntryWrite(Relation index, PipeannMeta *meta,
							  const PipeannExtentMap *map,
							  const PipeannNodes *nodes, const uint32 *sample,
							  uint32 n, bool wal,
							  PipeannGraphProgress progress, void *arg);

/*
 * Everything for a build, without WAL: train, encode, entry graph. Sets the
 * metapage fields that go with it in meta.
 */
extern void PipeannCodingWrite(Relation index, PipeannMeta *meta,
							   const PipeannExtentMap *map,
							   const PipeannNodes *nodes);

/* retrain/retrain.c: an index that has outgrown its codes, or grown to need some */

/*
 * How many times the nodes make codes and layout anew. In a small index that is
 * quickly done, and adds little to the WAL of so many inserts.
 */
#define PIPEANN_SMALL_INDEX 65536

static inline uint32
PipeannGrowth(const PipeannMeta *meta)
{
	return meta->nodes < PIPEANN_SMALL_INDEX ? 2 : 4;
}

/* Whether an insert is to do it: there are none, or so many times the nodes. */
extern bool PipeannIsOutgrown(const PipeannMeta *meta);

/*
 * Make the next generation if that is wanted still. Returns at once if somebody
 * else is at it. Waits for inserts under way, twice; they go on meanwhile.
 */
extern void PipeannRetrain(Relation index);

/* The same, and also if the vectors have drifted: for VACUUM. */
extern void PipeannRetrainIfDrifted(Relation index);

/* retrain/repack.c: packing the graph anew, as a build would */

typedef enum PipeannRepackResult
{
	PIPEANN_REPACK_DONE,
	PIPEANN_REPACK_LATER,		/* somebody is in the way */
	PIPEANN_REPACK_NEVER		/* not wanted, or there is not the room */
} PipeannRepackResult;

/*
 * If the graph has grown to several times what it was when it was laid out, do
 * it again, with codes of the next generation. For the holder of the
 * maintenance lock. Inserts wait while pages are written.
 */
extern PipeannRepackResult PipeannRepack(PipeannIndexView *view);

/* retrain/retrain.c: the next generation's build_id. */
extern void PipeannNewBuildId(PipeannMeta *meta);

/*
 * While PIPEANN_META_RETRAINING is set: the next generation's code of x (for
 * cosine normalised), out[pq_bytes].
 */
extern void PipeannEncodeNext(PipeannIndexView *view, const float *x,
							  uint8 *out);

#endif							/* PIPEANN_AM_H */
