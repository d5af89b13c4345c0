/*
 * memory_index.h
 *		An index in memory, for tests and measurements without a server: pages,
 *		graph and entry graph as a build makes them.
 */
#ifndef PIPEANN_MEMORY_INDEX_H
#define PIPEANN_MEMORY_INDEX_H

#include "graph/graph.h"
#include "search/search.h"

typedef struct Index
{
	PipeannLayout layout;
	PipeannVectors vectors;
	uint32	   *order;			/* node number at a place */
	uint32	   *id_of;			/* of a node, by its number */
	uint32		pages;
	uint32		ids;			/* pages * slots_per_page */
	Size		page_size;
	char	   *data;
	PipeannCodes codes;
} Index;

/* The id at a place: slots after the first `fill` of a page are free. */
static inline uint32
IndexIdAt(const Index *index, uint32 place)
{
	const PipeannLayout *l = &index->layout;

	return place / l->fill * l->slots_per_page + place % l->fill;
}

static inline PipeannSlot *
IndexSlot(const Index *index, uint32 id)
{
	const PipeannLayout *l = &index->layout;

	return PipeannSlotAt(l, index->data + PipeannIdPage(l, id) *
						 index->page_size, PipeannIdSlot(l, id));
}

static inline PipeannSlot *
IndexSlotAtPlace(const Index *index, uint32 place)
{
	return IndexSlot(index, IndexIdAt(index, place));
}

/* A layout of one slot to a page; the caller sets how many there are. */
extern PipeannLayout IndexLayout(int dim, PipeannMetric metric,
								 PipeannStorage storage, int max_degree,
								 int inline_tids);

/*
 * Write the pages of a graph over index->vectors, whose nodes are in the order
 * index->order, by index->layout. A node's TID is its number.
 */
extern void IndexWritePages(Index *index, const PipeannGraph *graph);

/* Make the entry graph: n nodes that are spread evenly. */
extern uint8 *IndexEntryCodes(const PipeannCodes *codes);
extern void IndexMakeEntryGraph(Index *index, uint32 n, int max_degree);

extern void IndexFreeQuantizer(PipeannPq *pq);

#endif							/* PIPEANN_MEMORY_INDEX_H */
