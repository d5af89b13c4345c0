/*
 * memory_index.c
 *		An index in memory, for tests and measurements without a server.
 */
#include "memory_index.h"

PipeannLayout
IndexLayout(int dim, PipeannMetric metric, PipeannStorage storage,
			int max_degree, int inline_tids)
{
	PipeannLayout l;

	memset(&l, 0, sizeof(l));
	l.dim = dim;
	l.metric = metric;
	l.storage = storage;
	l.max_degree = max_degree;
	l.inline_tids = inline_tids;
	l.slots_per_page = l.fill = 1;
	l.node_pages = 1;
	l.tids_offset = PIPEANN_SLOT_HEADER + max_degree * sizeof(uint32);
	l.vector_offset = (l.tids_offset +
					   inline_tids * sizeof(ItemPointerData) + 3) & ~3;
	l.slot_size = l.vector_offset +
		((dim * PipeannElementSize(storage) + 3) & ~3);
	return l;
}

static void
WriteNode(Index *index, uint32 node, const PipeannGraph *graph)
{
	const PipeannLayout *l = &index->layout;
	const PipeannVectors *v = &index->vectors;
	PipeannSlot *slot = IndexSlot(index, index->id_of[node]);
	PipeannRow *row;

	slot->flags = PIPEANN_SLOT_USED;
	slot->degree = graph->degree[node];
	for (int i = 0; i < slot->degree; i++)
		slot->neighbors[i] = index->id_of[PipeannNeighbors(graph, node)[i]];
	slot->ext_tids = slot->ext_vec = PIPEANN_INVALID_ID;
	slot->aux = v->aux == NULL ? 0 : v->aux[node];
	slot->ntids = 1;
	row = PipeannSlotRows(l, slot).rows;
	row->tid.bi_hi = node >> 16;
	row->tid.bi_lo = node & 0xFFFF;
	row->tid.ip_posid = 1;
	memcpy(PipeannSlotVector(l, slot), PipeannVectorAt(v, node), v->stride);
}

void
IndexWritePages(Index *index, const PipeannGraph *graph)
{
	const PipeannLayout *l = &index->layout;
	uint32		n = index->vectors.n;

	index->pages = (n + l->fill - 1) / l->fill;
	index->ids = index->pages * l->slots_per_page;
	index->page_size = (Size) l->slots_per_page * l->slot_size;
	index->data = PipeannAllocZero(index->pages * index->page_size);
	index->id_of = PipeannAlloc(n * sizeof(uint32));
	for (uint32 i = 0; i < n; i++)
		index->id_of[index->order[i]] = IndexIdAt(index, i);
	for (uint32 i = 0; i < n; i++)
		WriteNode(index, i, graph);
}

/* The medoid stands first, so position 0 and its own change places. */
static uint32
Swapped(uint32 position, uint32 medoid)
{
	if (position == 0)
		return medoid;
	return position == medoid ? 0 : position;
}

/* The codes of the entry graph's nodes, uint8[entry_count][nsubvectors]. */
uint8 *
IndexEntryCodes(const PipeannCodes *codes)
{
	Size		bytes = codes->pq.nsubvectors;
	uint8	   *out = PipeannAlloc(codes->entry_count * bytes);

	for (uint32 i = 0; i < codes->entry_count; i++)
		memcpy(out + i * bytes, PipeannCodeAt(codes, codes->entry_ids[i]), bytes);
	return out;
}

void
IndexMakeEntryGraph(Index *index, uint32 n, int max_degree)
{
	uint32	   *sample = PipeannAllocZero(n * sizeof(uint32));
	uint32	   *ids = PipeannAlloc(n * sizeof(uint32));
	uint16	   *degrees = PipeannAlloc(n * sizeof(uint16));
	uint32	   *neighbors = PipeannAllocZero(n * max_degree * sizeof(uint32));
	PipeannGraph *graph;

	for (uint32 i = 0; i < n; i++)
		sample[i] = index->order[(uint64) i * index->vectors.n / n];
	graph = PipeannEntryGraphBuild(PipeannTeamAlone(), &index->vectors, sample, n, max_degree, 1);
	for (uint32 i = 0; i < n; i++)
	{
		uint32		from = Swapped(i, graph->medoid);

		ids[i] = index->id_of[sample[from]];
		degrees[i] = graph->degree[from];
		for (int j = 0; j < degrees[i]; j++)
			neighbors[i * max_degree + j] =
				Swapped(PipeannNeighbors(graph, from)[j], graph->medoid);
	}
	index->codes.entry_count = n;
	index->codes.entry_degree = max_degree;
	index->codes.entry_ids = ids;
	index->codes.entry_nneighbors = degrees;
	index->codes.entry_neighbors = neighbors;
	index->codes.entry_codes = IndexEntryCodes(&index->codes);
	PipeannGraphFree(PipeannTeamAlone(), graph);
	free(sample);
}

void
IndexFreeQuantizer(PipeannPq *pq)
{
	free((void *) pq->start);
	free((void *) pq->len);
	free((void *) pq->offset);
	free((void *) pq->centroids);
}
