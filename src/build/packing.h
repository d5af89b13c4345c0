/*
 * packing.h
 *		When codes and packing are made anew, and the packing; private to build/.
 */
#ifndef PIPEANN_BUILD_PACKING_H
#define PIPEANN_BUILD_PACKING_H

#include "build/coding.h"

/*
 * The factor of growth at which codes and packing are made anew. In a small
 * index that is quickly done, and adds little to the WAL of so many inserts.
 */
static inline uint32
PipeannGrowthFactor(const PipeannMeta *meta)
{
	return meta->nodes < 65536 ? 2 : 4;
}

/* A change of the metapage with no insert under way. */
typedef struct PipeannMetaAlone
{
	PipeannMetaUpdate update;
	bool		cancellable;	/* see PipeannKeepInsertsOut() */
} PipeannMetaAlone;

/* Each insert either ends before the change or knows of it. */
static inline PipeannMeta *
PipeannMetaBeginAlone(Relation index, PipeannMetaAlone *alone)
{
	alone->cancellable = PipeannKeepInsertsOut(index);
	PipeannMetaBegin(index, &alone->update);
	return alone->update.meta;
}

static inline void
PipeannMetaEndAlone(Relation index, PipeannMetaAlone *alone)
{
	PipeannMetaEnd(&alone->update);
	PipeannLetInsertsIn(index, alone->cancellable);
}

/*
 * Begin a change of the metapage after which the pages of the generation may be
 * written. Codes that inserts wrote there since an earlier attempt failed are of no
 * use; from here on none does.
 */
static inline PipeannMeta *
PipeannCodingAttempt(Relation index, PipeannMetaAlone *alone)
{
	PipeannMeta *meta = PipeannMetaBeginAlone(index, alone);

	meta->flags &= ~PIPEANN_META_RETRAINING;
	meta->attempt++;
	return meta;
}

/* packing.c */
extern bool PipeannRepack(PipeannIndexView *view);

/* load.c: an index's own nodes, as a build has a table's rows */

/* Edges are between numbers; the medoid is the root. */
typedef struct PipeannLoadedGraph
{
	MemoryContext context;		/* which all of it is in */
	PipeannNodes nodes;
	PipeannGraph *graph;
	uint32		ids;			/* of the index when it was read */
	uint32	   *node_of_id;		/* [ids], INVALID_ID if the node has no rows */
	PipeannRowSizes sizes;		/* of rows with values in nodes' slots, and of
								 * all if they were read */
	bool		out_of_line;	/* there were out-of-line vectors, left out */
} PipeannLoadedGraph;

typedef void (*PipeannTakeNode) (uint32 id, const PipeannSlot *slot,
								 void *arg);

extern void PipeannVisitNodes(PipeannIndexView *view, uint32 pages, bool dead,
							  PipeannTakeNode take, void *arg);
extern Size PipeannLoadGraphMemory(const PipeannIndexView *view);
extern void PipeannLoadGraph(PipeannIndexView *view, uint32 pages, bool rows,
							 PipeannLoadedGraph *g);

#endif							/* PIPEANN_BUILD_PACKING_H */
