/*
 * build.h
 *		CREATE INDEX; and what re-training takes from it: nodes, their codes, the
 *		entry graph, and how they are written.
 */
#ifndef PIPEANN_BUILD_H
#define PIPEANN_BUILD_H

#include "base/base.h"

#include "graph/graph.h"
#include "index/index.h"
#include "nodes/execnodes.h"

/* Build phases, as pg_stat_progress_create_index shows them. */
#define PIPEANN_PHASE_SCAN 2
#define PIPEANN_PHASE_TRAIN 3
#define PIPEANN_PHASE_GRAPH 4
#define PIPEANN_PHASE_PACK 5
#define PIPEANN_PHASE_WRITE 6
#define PIPEANN_PHASE_WAL 7
#define PIPEANN_PHASE_ENTRY 8

/* build.c */
extern IndexBuildResult *pipeannbuild(Relation heap, Relation index,
									  IndexInfo *index_info);
extern void pipeannbuildempty(Relation index);

/* ---------- collect.c: rows in memory, equal vectors once ---------- */

typedef struct PipeannDuplicate
{
	ItemPointerData tid;
	uint32		next;			/* in dups[], or PIPEANN_INVALID_ID */
} PipeannDuplicate;

typedef struct PipeannCollection
{
	int			dim;
	PipeannMetric metric;
	bool		auto_storage;	/* storage may still become wider */
	PipeannStorage storage;
	bool		half_unfit;			/* halves are not for all vectors seen */
	bool		lost;			/* but others were rounded to them */
	bool		few_twins;		/* too many that halves do not tell apart are
								 * a reason, too */
	Size		stride;
	float		min;			/* of all elements seen (auto_storage) */
	float		max;

	uint32		n;				/* distinct vectors */
	uint32		size;
	char	   *data;			/* [size] of stride bytes */
	PipeannRounding *roundings;	/* [size] of halves, else NULL */
	double	   *norms;			/* [size] */
	double		max_norm;
	ItemPointerData *tids;		/* [size] each one's first row */
	uint32	   *dup_heads;		/* [size] its other rows, in dups[] */

	PipeannDuplicate *dups;
	uint32		ndups;
	uint32		dups_size;

	uint32	   *table;			/* hash of equal vectors: numbers, or INVALID */
	uint32		table_mask;
	char	   *scratch;		/* one vector as stored */

	bool		noticed;		/* said that memory is over the limit */
} PipeannCollection;

/*
 * storage may be PIPEANN_STORAGE_AUTO: bytes if they hold all vectors, else halves
 * if those may be taken and will do for all, else floats.
 */
extern void PipeannCollectionInit(PipeannCollection *c, int dim,
								  PipeannMetric metric,
								  PipeannStorage storage, bool half_precision);

/*
 * Add a row; returns the number of its vector. known is what a vector that is
 * rounded already has lost, else NULL. Nothing more is added once c->lost.
 */
extern uint32 PipeannCollectionAdd(PipeannCollection *c, const float *x,
								   double norm, const PipeannRounding *known,
								   const ItemPointerData *tid);

/* Add a row of vector i. */
extern void PipeannCollectionAddTid(PipeannCollection *c, uint32 i,
									const ItemPointerData *tid);

/* Bytes in use. */
extern Size PipeannCollectionMemory(const PipeannCollection *c);

/* The vectors as the graph sees them; aux is allocated. */
extern void PipeannCollectionVectors(const PipeannCollection *c,
									 PipeannVectors *vectors);

/* Rows of vector i beyond its first. */
extern uint32 PipeannCollectionExtraTids(const PipeannCollection *c, uint32 i);

/* When all rows are in: free the hash table, choose the storage. */
extern void PipeannCollectionFinish(PipeannCollection *c);

extern void PipeannCollectionFree(PipeannCollection *c);

/* ---------- codes.c: making and writing codes ---------- */

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

/* ---------- write.c: nodes to pages ---------- */

/* The metapage of an index without rows, from its options but for m. */
extern void PipeannMetaInit(PipeannMeta *meta, Relation index,
							PipeannStorage storage, int m);

/*
 * Give nodes their ids: order[] as PipeannGraphPack() gives it, position p is
 * slot p % fill of page p / fill. Sets nodes->id_of_node, node_of_id, ids.
 */
extern void PipeannAssignIds(const PipeannLayout *l, int fill,
							 PipeannNodes *nodes, const uint32 *order,
							 uint32 ids);

/* Pages that overflow slots take. */
extern uint64 PipeannExtPages(const PipeannLayout *l,
							  const PipeannCollection *c);

/* Give a kind the extents for so many graph pages, inside a metapage update. */
extern void PipeannReserveGraphPages(Relation index, PipeannMeta *meta,
									 PipeannKind kind, const PipeannLayout *l,
									 uint64 pages);

/*
 * Write nodes that have ids to the first node_pages graph pages of a kind of
 * extents, and overflow slots to those behind them. graph is NULL for nodes
 * without edges; its lists get spanning-tree edges first. Not WAL-logged.
 */
extern void PipeannWriteGraph(Relation index, const PipeannLayout *l,
							  const PipeannExtentMap *map, PipeannKind kind,
							  const PipeannCollection *c,
							  const PipeannNodes *nodes, PipeannGraph *graph,
							  uint32 node_pages);

/*
 * Write all nodes of a build in this order, with the layout's fill. Sets
 * nodes->id_of_node, node_of_id, ids, and meta's counts. Not WAL-logged, but
 * for the extent map.
 */
extern void PipeannWriteNodes(Relation index, PipeannMeta *meta,
							  const PipeannCollection *c, PipeannNodes *nodes,
							  PipeannGraph *graph, const uint32 *order);

/* Write block 0. Not WAL-logged. */
extern void PipeannWriteMeta(Relation index, const PipeannMeta *meta);

/* ---------- degree.c: m = 0, by a profile of the machine ---------- */

/*
 * Choose m for the vectors collected from a table, at most max_m; base has the
 * layout's other options. Says why in *degree. The default m, or max_m if that
 * is less, where the machine cannot be profiled.
 */
extern int	PipeannChooseM(Relation heap, const PipeannCollection *c,
						   const PipeannLayout *base, int max_m,
						   PipeannDegree *degree);

/* The reason in words. Palloc'd. */
extern char *PipeannDegreeText(const PipeannMeta *meta);

#endif							/* PIPEANN_BUILD_H */
