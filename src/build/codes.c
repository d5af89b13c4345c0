/*
 * codes.c
 *		Writing what caches hold: codebook, codes, entry graph.
 */
#include "postgres.h"

#include "build/coding.h"
#include "distance/distance.h"

/*
 * The entry graph has a tenth of the nodes, with few edges: 7 bytes a row in
 * memory beside its code. A search then begins near its end and reads fewer
 * pages than with PipeANN's 1 % of the nodes, 32 edges each (PipeANN 4.2.2).
 */
#define ENTRY_FRACTION 10
#define MIN_ENTRY 256

#define SEED UINT64CONST(0x70697065616e6e)

/* A vector in memory, or of a slot, becomes that of the quantiser. */
void
PipeannCodingScale(PipeannMetric metric, float aux, int dim, float *x)
{
	if (metric == PIPEANN_COSINE)
		for (int i = 0; i < dim; i++)
			x[i] *= aux;
}

/* A node's vector for the quantiser, x[dim]: normalised for cosine. */
void
PipeannCodingVector(const PipeannVectors *v, uint32 node, float *x)
{
	PipeannVectorToFloat(PipeannVectorAt(v, node), v->storage, v->dim, x);
	PipeannCodingScale(v->metric, v->aux == NULL ? 0 : v->aux[node], v->dim,
					   x);
}

void
PipeannCodebookWrite(const PipeannCoding *k, const PipeannExtentMap *map)
{
	const PipeannLayout *l = &k->layout;

	PipeannStreamWrite(k->index, map, PIPEANN_CODEBOOK,
					   PipeannCodebookFirst(l, k->generation),
					   k->pq.centroids, PipeannCodebookBytes(l), k->wal);
	if (k->histograms != NULL)
		PipeannStreamWrite(k->index, map, PIPEANN_CODEBOOK,
						   PipeannHistogramsFirst(l, k->generation), k->histograms,
						   PipeannHistogramsBytes(l), k->wal);
}

/* ---------- codes ---------- */

/* Vectors encoded at once. */
#define ENCODE_BLOCK 32

/* Pages of codes made at once by one member, and written by the leader. */
#define CODE_RUN 8

/* Pages of codes that a build has in memory at a time. */
#define CODE_BATCH 2048

static uint32
CodePages(const PipeannLayout *l, uint32 ids)
{
	return (ids + PipeannCodesPerPage(l) - 1) / PipeannCodesPerPage(l);
}

/*
 * Fill a code page with the codes of ids first .. first + n - 1. Nodes are encoded in
 * blocks; places without a node have the codes of others in between, and are made
 * zeroes after it.
 */
static void
EncodePage(const PipeannPq *pq, const PipeannNodes *nodes, uint32 first, int n,
		   float *x, uint8 *out)
{
	memset(out, 0, PIPEANN_PAYLOAD);
	memset(x, 0, ENCODE_BLOCK * pq->dim * sizeof(float));
	for (int i = 0; i < n; i += ENCODE_BLOCK)
	{
		int			count = Min(n - i, ENCODE_BLOCK);
		uint8	   *codes = out + (Size) i * pq->nchunks;

		for (int k = 0; k < count; k++)
		{
			uint32		node = nodes->node_of_id[first + i + k];

			if (node != PIPEANN_INVALID_ID)
				PipeannCodingVector(&nodes->vectors, node,
									x + (Size) k * pq->dim);
		}
		PipeannPqEncodeMany(pq, x, count, codes, pq->nchunks);
		for (int k = 0; k < count; k++)
			if (nodes->node_of_id[first + i + k] == PIPEANN_INVALID_ID)
				memset(codes + (Size) k * pq->nchunks, 0, pq->nchunks);
	}
}

/* Make pages first .. first + n - 1. */
static void
EncodePages(PipeannTeam *team, const PipeannCoding *k,
			const PipeannNodes *nodes, float *x, uint32 first, uint32 n,
			uint8 *payloads)
{
	uint32		per_page = PipeannCodesPerPage(&k->layout);
	uint64		from;
	uint64		to;

	PipeannTeamBegin(team, n, CODE_RUN);
	while (PipeannTeamNext(team, &from, &to))
		for (uint32 page = first + from; page < first + to; page++)
		{
			uint32		id = page * per_page;
			int			count = Min(per_page, nodes->ids - id);
			uint8	   *payload = payloads +
				(Size) (page - first) * PIPEANN_PAYLOAD;

			EncodePage(&k->pq, nodes, id, count, x, payload);
			PipeannEncodeAttributes(k->attributes, &k->layout, nodes, id,
									count, payload);
		}
	PipeannTeamEnd(team);
}

/* Write whole pages of codes. */
void
PipeannCodePagesWrite(const PipeannCoding *k, const PipeannExtentMap *map,
					  uint32 first, const uint8 *payloads, uint32 n)
{
	PipeannStreamWrite(k->index, map, PipeannCodesKind(k->generation), first,
					   payloads, mul_size(n, PIPEANN_PAYLOAD), k->wal);
}

/* Make and write the codes of all nodes. All members call; the leader writes. */
void
PipeannCodesWrite(PipeannTeam *team, PipeannCoding *k,
				  const PipeannExtentMap *map, const PipeannNodes *nodes)
{
	uint32		pages = CodePages(&k->layout, nodes->ids);
	uint32		batch = Min(pages, k->wal ? CODE_RUN : CODE_BATCH);
	uint8	   *payloads = PipeannTeamAlloc(team, mul_size(batch,
														   PIPEANN_PAYLOAD));
	float	   *x = palloc(mul_size(k->layout.dim,
									ENCODE_BLOCK * sizeof(float)));

	for (uint32 first = 0; first < pages; first += batch)
	{
		uint32		n = Min(pages - first, batch);

		EncodePages(team, k, nodes, x, first, n, payloads);
		if (PipeannTeamLeads(team))
			PipeannCodePagesWrite(k, map, first, payloads, n);
		PipeannTeamMeet(team);
	}
	k->code_pages = pages;
	PipeannTeamFree(team, payloads);
	pfree(x);
}

/* Bytes of pages that a build has in memory at a time. */
Size
PipeannCodePagesMemory(const PipeannLayout *l, uint32 ids)
{
	return mul_size(Min(CodePages(l, ids), CODE_BATCH), PIPEANN_PAYLOAD);
}

/* Of the team: samples, chunks compared, chunks, batches of pages. */
uint32
PipeannCodeSteps(const PipeannLayout *l, uint32 ids)
{
	return 2 + PIPEANN_SIBLING_STEPS +
		(CodePages(l, ids) + CODE_BATCH - 1) / CODE_BATCH;
}

/* ---------- the entry graph ---------- */

/* The number of nodes of an entry graph for so many nodes. */
uint32
PipeannEntryCount(uint32 nodes)
{
	return Max(nodes / ENTRY_FRACTION, Min(nodes, MIN_ENTRY));
}

/* Pages of an entry graph of so many nodes. */
uint32
PipeannEntryPages(uint32 count)
{
	return PipeannStreamPages(PipeannEntryGraphBytes(count,
													 PIPEANN_ENTRY_DEGREE));
}

/*
 * The first page for a new entry graph, which goes before the present one if there
 * is room, else behind it.
 */
uint32
PipeannNextEntryFirst(const PipeannMeta *meta, uint32 count)
{
	if (PipeannEntryPages(count) <= meta->entry_first ||
		meta->entry_count == 0)
		return 0;
	return meta->entry_first +
		PipeannStreamPages(PipeannEntryGraphBytes(meta->entry_count,
												  meta->entry_degree));
}

/*
 * Choose the nodes of the entry graph: the root, and one of every so many ids,
 * so that they are spread over pages and so over space. Returns how many.
 */
static uint32
EntrySample(const PipeannNodes *nodes, uint32 root, uint32 *sample)
{
	uint32		want = PipeannEntryCount(nodes->vectors.n);
	uint32		n = 0;

	for (uint32 i = 0; i < want; i++)
	{
		uint64		from = (uint64) i * nodes->ids / want;
		uint64		to = (uint64) (i + 1) * nodes->ids / want;

		if (from <= root && root < to)
			from = root;
		while (from < to && nodes->node_of_id[from] == PIPEANN_INVALID_ID)
			from++;
		if (from < to)
			sample[n++] = nodes->node_of_id[from];
	}
	return n;
}

/* Searches enter at position 0, so the medoid changes places with the first. */
static uint32
SwapWithFirst(uint32 position, uint32 medoid)
{
	if (position == 0)
		return medoid;
	return position == medoid ? 0 : position;
}

static void
SerializeEntryGraph(const PipeannNodes *nodes, const uint32 *sample,
					const PipeannGraph *graph, char *stream)
{
	uint32		n = graph->n;
	uint32	   *ids = (uint32 *) stream;
	uint16	   *degrees = (uint16 *) (ids + n);
	uint32	   *neighbors = (uint32 *) (degrees + (n + 1) / 2 * 2);

	for (uint32 i = 0; i < n; i++)
	{
		uint32		from = SwapWithFirst(i, graph->medoid);
		const uint32 *list = PipeannNeighbors(graph, from);

		ids[i] = nodes->id_of_node[sample[from]];
		degrees[i] = Min(graph->degree[from], PIPEANN_ENTRY_DEGREE);
		for (int j = 0; j < degrees[i]; j++)
			neighbors[(Size) i * PIPEANN_ENTRY_DEGREE + j] =
				SwapWithFirst(list[j], graph->medoid);
	}
}

/*
 * Build the entry graph over sample[n] of the nodes and write it; the one that meta
 * tells of stays intact. All members call.
 */
void
PipeannEntryWrite(PipeannTeam *team, PipeannCoding *k, const PipeannMeta *meta,
				  const PipeannExtentMap *map, const PipeannNodes *nodes,
				  const uint32 *sample, uint32 n)
{
	PipeannGraph *graph = PipeannEntryGraphBuild(team, &nodes->vectors, sample,
												 n, PIPEANN_ENTRY_DEGREE, SEED);
	Size		bytes = PipeannEntryGraphBytes(n, PIPEANN_ENTRY_DEGREE);
	char	   *stream = PipeannTeamAlloc(team, bytes);

	k->entry_first = PipeannNextEntryFirst(meta, n);
	k->entry_count = n;
	if (PipeannTeamLeads(team))
	{
		SerializeEntryGraph(nodes, sample, graph, stream);
		PipeannStreamWrite(k->index, map, PIPEANN_ENTRY, k->entry_first,
						   stream, bytes, k->wal);
	}
	PipeannTeamMeet(team);
	PipeannTeamFree(team, stream);
	PipeannGraphFree(team, graph);
}

/* The same over nodes chosen among all. */
void
PipeannEntriesWrite(PipeannTeam *team, PipeannCoding *k,
					const PipeannMeta *meta, const PipeannExtentMap *map,
					const PipeannNodes *nodes, uint32 root)
{
	uint32		want = PipeannEntryCount(nodes->vectors.n);
	uint32	   *sample = PipeannTeamAlloc(team, mul_size((Size) want + 1,
														 sizeof(uint32)));

	/* behind the sample stands how many they are */
	if (PipeannTeamLeads(team))
		sample[want] = EntrySample(nodes, root, sample);
	PipeannTeamMeet(team);
	PipeannEntryWrite(team, k, meta, map, nodes, sample, sample[want]);
	PipeannTeamFree(team, sample);
}

/* What a build will set in the metapage for meta->nodes nodes. */
void
PipeannCodingForesee(PipeannMeta *meta)
{
	if (meta->nodes < PIPEANN_MIN_CODED_NODES)
		return;
	meta->flags |= PIPEANN_META_HAS_CODES;
	meta->entry_count = PipeannEntryCount((uint32) meta->nodes);
	meta->entry_degree = PIPEANN_ENTRY_DEGREE;
	meta->code_pages = CodePages(&meta->layout, meta->graph_pages *
								 meta->layout.slots_per_page);
}
