/*
 * build.h
 *		CREATE INDEX; new codes, and a new packing, of an index that has outgrown
 *		its own: nodes in memory, their codes, the entry graph, and writing them.
 *
 * This room knows a table's rows, the graph in memory, the format of pages, and
 * codes, entry graph and packing of an index in use. It must not know how rows are
 * inserted, removed and found.
 */
#ifndef PIPEANN_BUILD_H
#define PIPEANN_BUILD_H

#include "base/base.h"

#include "attributes/attributes.h"
#include "graph/graph.h"
#include "index/index.h"
#include "nodes/execnodes.h"
#include "storage/dsm.h"
#include "storage/shm_toc.h"

/* Build phases, as pg_stat_progress_create_index shows them. */
#define PIPEANN_PHASE_SCAN 2
#define PIPEANN_PHASE_TRAIN 3
#define PIPEANN_PHASE_GRAPH 4
#define PIPEANN_PHASE_PACK 5
#define PIPEANN_PHASE_WRITE 6
#define PIPEANN_PHASE_WAL 7
#define PIPEANN_PHASE_ENTRY 8

#define PIPEANN_PHASE_LOAD 9

StaticAssertDecl(PIPEANN_PHASE_LOAD < PIPEANN_BUILD_PHASES,
				 "a phase has no place in the metapage");

/* What a phase is called, or NULL. */
extern const char *PipeannPhaseName(int64 phase);

/* build.c */
extern IndexBuildResult *pipeannbuild(Relation heap, Relation index,
									  IndexInfo *index_info);
extern void pipeannbuildempty(Relation index);

/* What a parallel worker of a build begins with; found by its name. */
extern PGDLLEXPORT void PipeannParallelWorker(dsm_segment *seg, shm_toc *toc);

/* ---------- suits.c: which storage suits vectors ---------- */

/*
 * With fewer vectors, bytes and half precision are not chosen: these few may
 * not be like those to come, which rounding might make equal.
 */
#define PIPEANN_MIN_JUDGED 1000

/* With fewer dimensions half precision saves less than a sixth of a page. */
#define PIPEANN_MIN_HALF_DIM 32

/*
 * More twins than this (vectors that are equal in half precision) make it
 * unfit: a search finds no way among thousands of them, as their distances are
 * equal, and the executor has to sort them.
 */
#define PIPEANN_MOST_TWINS 100

/*
 * Whether half precision would lose what tells the first PIPEANN_MIN_JUDGED
 * vectors apart: they are much farther from zero than from one another.
 */
extern bool PipeannIsFarFromZero(const PipeannVectors *v);

/* An error if x[dim] does not fit a storage that the user chose. */
extern void PipeannRequireFit(PipeannStorage storage, const float *x, int dim);

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
	bool		auto_storage;	/* storage is chosen by the vectors */
	PipeannStorage storage;
	bool		signed_zeros;	/* -0 does not suit bytes */
	bool		half_unfit;		/* half precision does not hold all vectors */
	bool		lost;			/* half_unfit, but others were rounded before */
	bool		few_twins;		/* many vectors that are equal in half
								 * precision make it unfit, too */
	Size		stride;
	float		min;			/* of all elements seen (auto_storage) */
	float		max;

	uint32		n;				/* distinct vectors */
	uint32		size;
	char	   *data;			/* [size] of stride bytes */
	PipeannRounding *roundings;	/* [size] for half precision, else NULL */
	double	   *norms;			/* [size] */
	double		max_norm;
	ItemPointerData *tids;		/* [size] first row of each vector */
	uint32	   *dup_heads;		/* [size] its other rows, in dups[] */

	PipeannDuplicate *dups;
	uint32		ndups;
	uint32		dups_size;

	/* if rows have values: whole rows, one after the other */
	bool		has_values;
	char	   *values;			/* or NULL */
	uint64	   *values_at;		/* [size] the first row of each vector */
	uint64	   *dup_values_at;	/* [dups_size] */
	Size		values_bytes;
	Size		values_size;

	uint32	   *table;			/* hash of equal vectors: numbers, or INVALID */
	uint32		table_mask;
	char	   *scratch;		/* one vector as stored */

} PipeannCollection;

/*
 * Start a collection. storage PIPEANN_STORAGE_AUTO takes bytes if they hold all
 * vectors, else half precision if half_precision allows it and all vectors suit
 * it, else floats.
 */
extern void PipeannCollectionInit(PipeannCollection *c, int dim,
								  PipeannMetric metric,
								  PipeannStorage storage, bool half_precision);

/*
 * Add a row with vector x[dim] of this norm; returns the number of the vector.
 * For a vector that was rounded before, known is its rounding, else NULL. If
 * c->lost is set afterwards, the collection has to be made anew without half
 * precision. Errors if x does not fit a storage that the user chose. Only if
 * has_values was set after PipeannCollectionInit() the row has values.
 */
extern uint32 PipeannCollectionAdd(PipeannCollection *c, const float *x,
								   double norm, const PipeannRounding *known,
								   const PipeannRow *row);

/* Add a row of vector i. */
extern void PipeannCollectionAddRow(PipeannCollection *c, uint32 i,
									const PipeannRow *row);

/*
 * The first row of a node, or that of number dup in dups[] if it is not
 * INVALID_ID.
 */
static inline const PipeannRow *
PipeannCollectionRow(const PipeannCollection *c, uint32 node, uint32 dup)
{
	if (c->values != NULL)
		return (const PipeannRow *)
			(c->values + (dup == PIPEANN_INVALID_ID ? c->values_at[node] :
						  c->dup_values_at[dup]));
	return (const PipeannRow *) (dup == PIPEANN_INVALID_ID ? &c->tids[node] :
								 &c->dups[dup].tid);
}

/* The collected vectors in the form of graph/; aux is allocated. */
extern void PipeannCollectionVectors(const PipeannCollection *c,
									 PipeannVectors *vectors);

/* After the last row: free the hash table, and choose the storage. */
extern void PipeannCollectionFinish(PipeannCollection *c);

extern void PipeannCollectionFree(PipeannCollection *c);

/* ---------- codes.c: making and writing codes ---------- */

/* The nodes of an index: numbers in memory, ids on disk. */
typedef struct PipeannNodes
{
	PipeannVectors vectors;		/* nodes by number */
	uint32	   *id_of_node;		/* [vectors.n] */
	uint32	   *node_of_id;		/* [ids], INVALID_ID if there is no node */
	uint32		ids;
} PipeannNodes;

/* A palloc'd quantiser without centroids. */
extern PipeannPq PipeannCodingLayout(const PipeannLayout *l);

/*
 * The number of training samples for so many vectors, by maintenance_work_mem.
 */
extern uint32 PipeannCodingSamples(const PipeannLayout *l, uint64 nodes);

/*
 * Train centroids on samples[n][dim], which are put in another order, or take
 * those of another partition's index if they are as good (sibling.c). Returns
 * the mean squared error to expect of codes; 0 if there were too few samples
 * to tell.
 */
extern float PipeannCodingTrain(PipeannTeam *team, Relation index,
								PipeannMetric metric, PipeannPq *pq,
								float *samples, uint32 n);

/* The same with samples taken from v at even distances. */
extern float PipeannCodingTrainOn(PipeannTeam *team, Relation index,
								  PipeannPq *pq, const PipeannLayout *l,
								  const PipeannVectors *v);

/* The mean squared error of the codes of x[n][dim]. */
extern float PipeannCodingError(const PipeannPq *pq, const float *x, uint32 n);

/* Bytes that members share at most while codes of so many ids are made. */
extern Size PipeannCodingMemory(const PipeannLayout *l, uint32 nodes,
								uint32 ids);

/* What a build will set in the metapage for meta->nodes nodes. */
extern void PipeannCodingForesee(PipeannMeta *meta);

/* The number of nodes of an entry graph for so many nodes. */
extern uint32 PipeannEntryCount(uint32 nodes);

/*
 * Choose the nodes of the entry graph: the root, and one of every so many ids,
 * so that they are spread over pages and so over space. Returns how many.
 */
extern uint32 PipeannEntrySample(const PipeannNodes *nodes, uint32 root,
								 uint32 *sample);

/* A node's vector for the quantiser, x[dim]: normalised for cosine. */
extern void PipeannCodingVector(const PipeannVectors *v, uint32 node,
								float *x);

/*
 * Fill a code page with the codes of ids first .. first + n - 1, zeroes if
 * there is no node. x is work space of PipeannEncodeSpace() bytes.
 */
extern Size PipeannEncodeSpace(int dim);
extern void PipeannEncodePage(const PipeannPq *pq, const PipeannNodes *nodes,
							  uint32 first, int n, float *x, uint8 *out);

/*
 * attributes.c: the same of their attribute codes, of nodes' rows in c; nothing if
 * a is NULL. Widths of such codes by these rows, and books trained on them.
 */
extern void PipeannEncodeAttributes(PipeannAttributes *a,
									const PipeannLayout *l,
									const PipeannCollection *c,
									const PipeannNodes *nodes, uint32 first,
									int n, uint8 *out);
extern void PipeannChooseWidths(Relation index, uint32 format,
								const PipeannCollection *c, PipeannLayout *l,
								PipeannWidths *widths);
extern void PipeannTrainAttributes(PipeannAttributes *a,
								   const PipeannCollection *c, char *books);

/* The attribute code of one node, of all its rows. */
extern void PipeannCollectedAttributes(PipeannAttributes *a,
									   const PipeannCollection *c,
									   uint32 node, uint8 *code);

/* Samples to train attribute codes on. */
#define PIPEANN_ATTRIBUTE_SAMPLES 30000

/*
 * Give a generation the extents that it still needs for so many ids, inside a
 * metapage update or a build.
 */
extern void PipeannCodingReserve(Relation index, PipeannMeta *meta,
								 const PipeannLayout *l, uint32 generation,
								 uint32 ids);

/*
 * Write the centroids as a generation's codebook, and the books of attribute codes
 * if there are any; WAL-logged if wal is set.
 */
extern void PipeannCodebookWrite(Relation index, const PipeannLayout *l,
								 const PipeannExtentMap *map,
								 uint32 generation, const PipeannPq *pq,
								 const char *books, bool wal);

/* The first page for a new entry graph; the present one stays intact. */
extern uint32 PipeannNextEntryFirst(const PipeannMeta *meta, uint32 count);

/*
 * Build the entry graph over sample[n] of the nodes and write it. Sets entry
 * count, degree and first page in meta.
 */
extern void PipeannEntryWrite(Relation index, PipeannMeta *meta,
							  const PipeannExtentMap *map,
							  const PipeannNodes *nodes, const uint32 *sample,
							  uint32 n, bool wal,
							  PipeannTeam *team);

/*
 * Train, encode and write codebook and codes of a build, without WAL; and then
 * the entry graph. Sets the metapage's fields for these. All members call; the
 * leader writes. Steps are those of the team.
 */
#define PIPEANN_ENTRY_STEPS (PIPEANN_GRAPH_STEPS + 3)

extern uint32 PipeannCodeSteps(const PipeannLayout *l, uint32 ids);
extern void PipeannCodesWrite(PipeannTeam *team, Relation index,
							  PipeannMeta *meta, const PipeannExtentMap *map,
							  const PipeannCollection *c,
							  const PipeannNodes *nodes);
extern void PipeannEntriesWrite(PipeannTeam *team, Relation index,
								PipeannMeta *meta,
								const PipeannExtentMap *map,
								const PipeannNodes *nodes, uint32 root);

/* ---------- estimate.c: what a build will take ---------- */

/* What is known of a column. The metric is taken to be L2. */
typedef struct PipeannBuildInput
{
	uint64		rows;			/* that an index will have */
	BlockNumber nblocks;		/* of the table */
	int			dim;
	const PipeannOptions *options;
	TupleDesc	values;			/* filter and included columns, or NULL */
	int			nfilter;		/* so many of these are filter columns */
	int			nsample;		/* at most PIPEANN_ESTIMATE_SAMPLE */
	Datum	   *sample;			/* [nsample][columns]: the vector, then those
								 * of values */
	bool	   *nulls;			/* [nsample][columns] */
} PipeannBuildInput;

/*
 * More than build/rows.c wants to see before it chooses a storage, as some may
 * be equal.
 */
#define PIPEANN_ESTIMATE_SAMPLE 2000

/* In bytes. */
typedef struct PipeannBuildEstimate
{
	uint64		memory_one_pass;	/* maintenance_work_mem to do without
									 * temporary files for shared arrays */
	uint64		temp_bytes;		/* of temporary files as things are */
	uint64		index_bytes;
	uint64		code_bytes;		/* in memory, for searches */
	uint64		shared_memory;	/* pipeann.shared_memory for it alone */
} PipeannBuildEstimate;

/* Errors as the build would if the options do not suit the column. */
extern void PipeannEstimateBuild(const PipeannBuildInput *in,
								 PipeannBuildEstimate *estimate);

/* ---------- write.c: nodes to pages ---------- */

/*
 * The metapage of an empty index by its options, except for m. sizes are those
 * of rows with values that it will have; NULL: as their types let expect.
 */
extern void PipeannMetaInit(PipeannMeta *meta, Relation index,
							PipeannStorage storage, int m,
							const PipeannRowSizes *sizes);

/*
 * Give nodes ids: position p of order[], from PipeannGraphPack(), becomes slot
 * p % fill of page p / fill. Sets nodes->id_of_node, node_of_id, ids.
 */
extern void PipeannAssignIds(const PipeannLayout *l, int fill,
							 PipeannNodes *nodes, const uint32 *order);

/* Room for the numbers of so many ids, none assigned. All members call. */
extern void PipeannNodesInit(PipeannTeam *team, PipeannNodes *nodes,
							 uint32 ids);

/* The number of graph pages that overflow slots take. */
extern uint64 PipeannExtPages(const PipeannLayout *l,
							  const PipeannCollection *c);

/* Give a kind the extents for so many graph pages, inside a metapage update. */
extern void PipeannReserveGraphPages(Relation index, PipeannMeta *meta,
									 PipeannKind kind, const PipeannLayout *l,
									 uint64 pages);

/*
 * Write nodes that have ids to the first node_pages graph pages of a kind of
 * extents, and overflow slots to those behind them. graph may be NULL: no
 * edges. Moves the spanning-tree edges of its lists to the front. Not
 * WAL-logged. All members call.
 */
extern void PipeannWriteGraph(PipeannTeam *team, Relation index,
							  const PipeannLayout *l,
							  const PipeannExtentMap *map, PipeannKind kind,
							  const PipeannCollection *c,
							  const PipeannNodes *nodes, PipeannGraph *graph,
							  uint32 node_pages);

/* Give a build's nodes extents; returns the number of ids. */
extern uint32 PipeannReserveNodes(Relation index, PipeannMeta *meta,
								  const PipeannCollection *c);

/*
 * Write all nodes of a build in this order. Assigns ids, and sets the
 * metapage's counts. Not WAL-logged. All members call, with the same metapage.
 */
extern void PipeannWriteNodes(PipeannTeam *team, Relation index,
							  PipeannMeta *meta,
							  const PipeannCollection *c, PipeannNodes *nodes,
							  PipeannGraph *graph, const uint32 *order);

/* Write block 0. Not WAL-logged. */
extern void PipeannWriteMeta(Relation index, const PipeannMeta *meta);

/* ---------- degree.c: m = 0, by a profile of the machine ---------- */

/*
 * Choose m, at most max_m, for vectors collected from a table; base has the
 * layout's other options. Sets *degree to the reason. If the machine cannot be
 * profiled, returns the default m, or max_m if that is less.
 */
extern int	PipeannChooseM(Relation heap, const PipeannCollection *c,
						   const PipeannLayout *base, int max_m,
						   PipeannDegree *degree);

/* The reason in words, palloc'd. */
extern char *PipeannDegreeText(const PipeannMeta *meta);

/* ---------- retrain.c: new codes, codebook and entry graph ---------- */

/*
 * Whether an insert has to retrain: codes are missing, or the index outgrew
 * them, or what was inserted since is of another kind.
 */
extern bool PipeannIsOutgrown(const PipeannMeta *meta);

/*
 * Make the next generation if the index is still outgrown. Returns at once if
 * another backend is doing so. Waits twice for inserts under way, and goes on
 * beside later ones.
 */
extern void PipeannRetrain(Relation index);

/* The same for VACUUM, and also if the vectors have drifted. */
extern void PipeannRetrainIfDrifted(Relation index);

/*
 * While PIPEANN_META_RETRAINING is set: the next generation's code of
 * x[dim], normalised for cosine, to out[pq_bytes].
 */
extern void PipeannEncodeNext(PipeannIndexView *view, const float *x,
							  uint8 *out);

#endif							/* PIPEANN_BUILD_H */
