/*
 * search_tools.h
 *		What the tests of searches share: an index, queries, and the truth.
 */
#ifndef PIPEANN_SEARCH_TOOLS_H
#define PIPEANN_SEARCH_TOOLS_H

#include "memory_source.h"

#define INLINE_TIDS 3
#define ENTRIES 64				/* nodes in the entry graph */
#define MAX_DIM 256
#define QUERIES 40
#define K 10

static inline int
IndexNodes(const Index *index)
{
	return (int) index->vectors.n;
}

/* An index of n random vectors, each with one row. */
extern Index *MakeIndex(int n, int dim, PipeannMetric metric,
						PipeannStorage storage);

/* The same for each seed with others of the same distribution. */
extern Index *MakePart(int n, int dim, PipeannMetric metric,
					   PipeannStorage storage, int seed);

/* The last search that ended: the next one has its memory, whatever it is of. */
extern PipeannSearch *IdleSearch;

extern PipeannSearch *BeginSearch(const PipeannLayout *layout,
								  const PipeannCodes *codes,
								  PipeannPageSource *source,
								  const float *query,
								  const PipeannSearchParams *params);

/* Begin a search for an index's query of this number, which goes to query[]. */
extern PipeannSearch *BeginQuery(const Index *index, const PipeannCodes *codes,
								 MemorySource *memory, int number,
								 float *query, PipeannSearchParams *params);

/* End a search: all pages have been given back, and no rule was broken. */
extern void EndSearch(PipeannSearch *search, MemorySource *memory);

extern void MakeQuery(const Index *index, int number, float *query);

/* The order key of a node, computed from its vector. */
extern double KeyOf(const Index *index, const float *query, int node);

/* Keep a key if it is one of the k smallest so far, which are in order and at first INFINITY. */
extern void KeepNearest(double *nearest, int k, double key);

/* Key of the k-th nearest node. */
extern double RadiusOf(const Index *index, const float *query, int k);

/* The node's number, of which its TID tells. */
extern int	NodeOfRow(const PipeannRow *row);
extern int	NodeOf(const PipeannSearch *search, const PipeannResult *result);

/*
 * Run a search to its end, taking all results; each node may come only once.
 * Returns how many came.
 */
extern int	TakeAll(const Index *index, PipeannSearch *search, uint8 *seen);

/* Page reads of all queries together, with a list of 60. */
extern uint64 ReadsOf(const Index *index, const PipeannPolicy *policy,
					  bool by_page, int resident);

/* The distance of each out-of-line vector: *arg, a float. Counts its calls. */
extern int	OutOfLineCalls;
extern float OutOfLineDistance(uint32 id, const PipeannSlot *slot, void *arg);

#endif							/* PIPEANN_SEARCH_TOOLS_H */
