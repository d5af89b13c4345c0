/*
 * build.h
 *		CREATE INDEX; and what re-training takes from it: nodes, their codes, the
 *		entry graph, and how they are written.
 */
#ifndef PIPEANN_BUILD_H
#define PIPEANN_BUILD_H

#include "build/collect.h"
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

#endif							/* PIPEANN_BUILD_H */
