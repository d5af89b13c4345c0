/*
 * coding.h
 *		The codes of one generation, and its entry graph: made of samples and
 *		nodes, and written. When they and the packing are made anew. Private to
 *		build/.
 */
#ifndef PIPEANN_BUILD_CODING_H
#define PIPEANN_BUILD_CODING_H

#include "build/rows.h"

/* What a generation consists of. */
typedef struct PipeannCoding
{
	Relation	index;
	bool		wal;			/* pages are logged as they are written */
	uint32		generation;
	PipeannLayout layout;
	PipeannWidths widths;
	PipeannPq	pq;
	float		error;			/* mean squared error to expect of codes; 0 if
								 * there were too few samples to tell */
	PipeannAttributes *attributes;	/* NULL if there are no codes of them */
	char	   *histograms;
	uint32		code_pages;		/* written so far */
	uint32		entry_first;	/* as in the metapage */
	uint32		entry_count;
} PipeannCoding;

/*
 * The entry graph has a tenth of the nodes, with few edges: 7 bytes a row in
 * memory beside its code. A search then begins near its end and reads fewer
 * pages than with PipeANN's 1 % of the nodes, 32 edges each (PipeANN 4.2.2).
 */
#define PIPEANN_ENTRY_FRACTION 10
#define PIPEANN_MIN_ENTRY 256

/* The number of nodes of an entry graph for so many nodes. */
static inline uint32
PipeannEntryCount(uint32 nodes)
{
	return Max(nodes / PIPEANN_ENTRY_FRACTION, Min(nodes, PIPEANN_MIN_ENTRY));
}

/* A vector in memory, or of a slot, becomes that of the quantiser. */
static inline void
PipeannCodingScale(PipeannMetric metric, float aux, int dim, float *x)
{
	if (metric == PIPEANN_COSINE)
		for (int i = 0; i < dim; i++)
			x[i] *= aux;
}

/* coding.c */
extern void PipeannChooseWidths(Relation index,
								const PipeannNodes *nodes, PipeannLayout *l,
								PipeannWidths *widths);
extern void PipeannCodingBegin(PipeannCoding *k, Relation index,
							   const PipeannMeta *meta,
							   const PipeannLayout *l, uint32 generation);
extern uint32 PipeannCodingSamples(const PipeannLayout *l, uint64 nodes);
extern void PipeannCodingTrain(PipeannTeam *team, PipeannCoding *k,
							   float *samples, uint32 n, PipeannRowAt row_at,
							   void *arg);
extern float PipeannCodingError(const PipeannPq *pq, const float *x, uint32 n);
extern void PipeannCodingTrainOn(PipeannTeam *team, PipeannCoding *k,
								 const PipeannNodes *nodes);
extern void PipeannCodingReserveSoon(const PipeannCoding *k, const PipeannMeta *meta,
									 uint32 ids);
extern void PipeannCodingReserve(const PipeannCoding *k, PipeannMeta *meta,
								 uint32 ids);
extern void PipeannCodingPublish(const PipeannCoding *k, PipeannMeta *meta,
								 uint64 nodes);
extern void PipeannCodingFree(PipeannTeam *team, PipeannCoding *k);
extern void PipeannCodingAdd(PipeannCoding *k, PipeannIndexView *view, uint32 old,
							 const PipeannSlot *slot, uint32 id);

/* codebook, codes and entry graph to their pages */
extern void PipeannCodebookWrite(const PipeannCoding *k,
								 const PipeannExtentMap *map);
extern void PipeannCodePagesWrite(const PipeannCoding *k,
								  const PipeannExtentMap *map, uint32 first,
								  const uint8 *payloads, uint32 n);
extern void PipeannCodesWrite(PipeannTeam *team, PipeannCoding *k,
							  const PipeannExtentMap *map,
							  const PipeannNodes *nodes);
extern void PipeannEntryWrite(PipeannTeam *team, PipeannCoding *k,
							  const PipeannMeta *meta,
							  const PipeannExtentMap *map,
							  const PipeannNodes *nodes,
							  const uint32 *sample, uint32 n);
extern void PipeannEntriesWrite(PipeannTeam *team, PipeannCoding *k,
								const PipeannMeta *meta,
								const PipeannExtentMap *map,
								const PipeannNodes *nodes);

/* Nodes have at most so many neighbours in an entry graph. */
#define PIPEANN_ENTRY_DEGREE 16

/* What a build foresees: bytes that members share, and steps of the team. */
extern Size PipeannCodingMemory(const PipeannLayout *l, uint32 nodes,
								uint32 ids);
extern uint32 PipeannCodeSteps(const PipeannLayout *l, uint32 ids);

#define PIPEANN_ENTRY_STEPS (PIPEANN_GRAPH_STEPS + 3)

/* ---------- anew ---------- */

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
 * What is made anew while inserts go on (catch_up.c). `slot` brings up to date what is
 * made of a slot that one of them has changed, in a context that is emptied then;
 * `publish` names in the metapage what was made, with no insert under way, and that inserts
 * note nothing any more; false if it cannot be.
 */
typedef struct PipeannCatchUp
{
	PipeannIndexView *view;
	void		(*slot) (uint32 id, void *arg);
	bool		(*publish) (void *arg);
	void	   *arg;
	bool		lists;			/* slots are wanted of which only the list changed */
	bool		busy;			/* not begun, as ids are relied on elsewhere */
	bool		failed;			/* nothing will come of it */

	PipeannChanges *changes;	/* the bits */
	dsm_segment *segment;		/* of these, or NULL */
	uint32		word;			/* of these, to be looked at next */
	MemoryContext work;
} PipeannCatchUp;

/* Whether nothing will come of it: it was said so, or there are more slots than bits. */
static inline bool
PipeannCatchUpHasFailed(const PipeannCatchUp *c)
{
	return c->failed || pg_atomic_read_u32(&c->changes->beyond) != 0;
}

/* catch_up.c */
extern bool PipeannCatchUpBegin(PipeannCatchUp *c);
extern void PipeannCatchUpBeside(PipeannCatchUp *c);
extern bool PipeannCatchUpFinish(PipeannCatchUp *c);
extern void PipeannCatchUpEnd(PipeannCatchUp *c, bool published);

/* repack.c */
extern bool PipeannRepack(PipeannIndexView *view, double growth);

/* load.c: an index's own nodes, as a build has a table's rows */

typedef struct PipeannLoadedNodes
{
	MemoryContext context;		/* which all of it is in, but for the team's */
	PipeannNodes nodes;
	PipeannClusters *clusters;
	uint32		ids;			/* of the index when it was read */
	uint32	   *node_of_id;		/* [ids], INVALID_ID if the node has no rows */
	PipeannRowSizes sizes;		/* of rows with values in nodes' slots, and of
								 * all if they were read */
	List	   *others;			/* ids of nodes beyond those that the metapage
								 * knew of */
	bool		out_of_line;	/* there were out-of-line vectors, left out */
} PipeannLoadedNodes;

typedef void (*PipeannTakeNode) (uint32 id, const PipeannSlot *slot,
								 void *arg);

extern void PipeannSlotCodingVector(const PipeannIndexView *view, uint32 id,
									const PipeannSlot *slot, float *x);
extern void PipeannVisitNodes(PipeannIndexView *view, uint32 pages, bool dead,
							  PipeannTakeNode take, void *arg);
extern Size PipeannLoadNodesMemory(const PipeannIndexView *view, Size *rows,
								   Size *kept);
extern void PipeannLoadNodes(PipeannTeam *team, PipeannIndexView *view,
							 bool rows, PipeannLoadedNodes *g);

#endif							/* PIPEANN_BUILD_CODING_H */
