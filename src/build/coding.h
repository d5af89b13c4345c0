/*
 * coding.h
 *		The codes of one generation, and its entry graph: made of samples and
 *		nodes, and written. Private to build/.
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
	PipeannPlaces places;		/* of what is written */
	uint32		code_pages;		/* written so far */
	uint32		entry_count;
} PipeannCoding;

/*
 * The entry graph has a tenth of the nodes, with few edges: 7 bytes a row in
 * memory besides its code. A search then begins near its end and reads fewer
 * pages than with PipeANN's 1 % of the nodes, 32 edges each (PipeANN 4.2.2).
 */
#define PIPEANN_ENTRY_FRACTION 10
#define PIPEANN_MIN_ENTRY 256

/* The number of nodes of an entry graph for an index of this many. */
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
extern void PipeannCodingTrainOn(PipeannTeam *team, PipeannCoding *k,
								 const PipeannNodes *nodes);
extern void PipeannCodingPublish(const PipeannCoding *k, PipeannMeta *meta,
								 uint64 nodes);
extern void PipeannCodingFree(PipeannTeam *team, PipeannCoding *k);

/* codebook, codes and entry graph to their pages */
extern void PipeannCodebookWrite(const PipeannCoding *k);
extern void PipeannCodePagesWrite(const PipeannCoding *k, uint32 first,
								  const uint8 *payloads, uint32 n);
extern void PipeannCodesWrite(PipeannTeam *team, PipeannCoding *k,
							  const PipeannNodes *nodes);
extern void PipeannEntryWrite(PipeannTeam *team, PipeannCoding *k,
							  const PipeannNodes *nodes,
							  const uint32 *sample, uint32 n);
extern void PipeannEntriesWrite(PipeannTeam *team, PipeannCoding *k,
								const PipeannNodes *nodes);

/* What a build foresees: bytes that members share, and steps of the team. */
extern Size PipeannCodingMemory(const PipeannLayout *l, uint32 nodes,
								uint32 ids);
extern uint32 PipeannCodeSteps(const PipeannLayout *l, uint32 ids);

#define PIPEANN_ENTRY_STEPS (PIPEANN_GRAPH_STEPS + 3)

#endif							/* PIPEANN_BUILD_CODING_H */
