/*
 * coding.c
 *		A generation of codes and its entry graph: trained, written, named in the
 *		metapage.
 */
#include "postgres.h"

#include <float.h>

#include "build/internal.h"
#include "distance/distance.h"
#include "miscadmin.h"
#include "utils/rel.h"

/*
 * Samples to train on: a hundred for each of 256 centroids, fewer if they do
 * not fit in maintenance_work_mem, but at least sixteen.
 */
#define MAX_SAMPLES (100 * PIPEANN_CENTROIDS)
#define MIN_SAMPLES (16 * PIPEANN_CENTROIDS)

/* One sample in this many is not trained on, but measures the codes' error. */
#define ERROR_SAMPLES 256
#define LEAST_TO_MEASURE (4 * ERROR_SAMPLES)

/* Samples gathered at once by one member. */
#define SAMPLE_RUN 256

#define SEED UINT64CONST(0x70697065616e6e)

/* Begin the metapage's generation, whose pages are logged unless the caller says otherwise. */
void
PipeannCodingBegin(PipeannCoding *k, Relation index, const PipeannMeta *meta)
{
	const PipeannLayout *l = &meta->layout;

	memset(k, 0, sizeof(*k));
	k->index = index;
	k->wal = true;
	k->generation = PipeannGeneration(meta);
	k->layout = *l;
	k->widths = meta->widths;
	k->places = meta->places;
	k->pq = PipeannPqNew(l->storage, l->dim, l->pq_bytes);
}

/* ---------- attribute codes, by rows in memory ---------- */

/* Nodes to train attribute codes on. */
#define MOST_ROWS 30000

/* How many of these, at even distances. */
static uint32
SampledNodes(const PipeannNodes *nodes)
{
	return Min(nodes->vectors.n, MOST_ROWS);
}

/* Row j of sampled node i, or NULL. */
static const PipeannRow *
SampledNodeRow(uint32 i, uint32 j, void *arg)
{
	const PipeannNodes *nodes = arg;
	uint32		node = (uint32) ((uint64) i * nodes->vectors.n /
								 SampledNodes(nodes));
	uint32		dup = j == 0 ? PIPEANN_INVALID_ID : nodes->dup_heads[node];

	for (uint32 k = 1; k < j && dup != PIPEANN_INVALID_ID; k++)
		dup = nodes->dups[dup].next;
	return j > 0 && dup == PIPEANN_INVALID_ID ? NULL :
		PipeannNodeRow(nodes, node, dup);
}

/* The widths of attribute codes. */
void
PipeannChooseWidths(Relation index, const PipeannNodes *nodes,
					PipeannLayout *l, PipeannWidths *widths)
{
	if (l->attr_bytes > 0)
		PipeannSetAttributeBytes(l,
								 PipeannAttributesChoose(PipeannAttributesDescribe(index, NULL),
														 SampledNodeRow,
														 unconstify(PipeannNodes *, nodes),
														 SampledNodes(nodes), widths));
}

/* Put the attribute codes of ids first .. first + n - 1 in a code page; nothing if a is NULL. */
static void
EncodeAttributes(PipeannAttributes *a, const PipeannLayout *l,
						const PipeannNodes *nodes, uint32 first, int n,
						uint8 *out)
{
	uint8		code[PIPEANN_MAX_ATTRIBUTE_BYTES];

	if (a == NULL)
		return;
	for (int i = 0; i < n; i++)
	{
		uint32		node = nodes->node_of_id[first + i];
		uint32		dup;

		if (node == PIPEANN_INVALID_ID)
			continue;
		PipeannAttributesEncode(a, node,
								PipeannNodeRow(nodes, node, PIPEANN_INVALID_ID),
								code);
		for (dup = nodes->dup_heads[node]; dup != PIPEANN_INVALID_ID; dup = nodes->dups[dup].next)
		{
			uint8		other[PIPEANN_MAX_ATTRIBUTE_BYTES];

			PipeannAttributesEncode(a, node, PipeannNodeRow(nodes, node, dup),
									other);
			PipeannAttributesMerge(a, other, code);
		}
		for (uint32 j = 0; j < l->attr_bytes; j++)
			out[PipeannPlaneOffset(l, j) + i] = code[j];
	}
}

/* ---------- vectors to train on ---------- */

/* A node's vector for the quantiser, x[dim]: normalised for cosine. */
static void
CodingVector(const PipeannVectors *v, uint32 node, float *x)
{
	PipeannVectorToFloat(PipeannVectorAt(v, node), v->storage, v->dim, x);
	PipeannCodingScale(v->metric, v->aux == NULL ? 0 : v->aux[node], v->dim,
					   x);
}

/*
 * The number of training samples for this many vectors, by maintenance_work_mem;
 * fewer for very wide ones, as all samples are in memory.
 */
uint32
PipeannCodingSamples(const PipeannLayout *l, uint64 nodes)
{
	Size		fit = (Size) maintenance_work_mem * 1024 /
		(l->dim * sizeof(float));
	Size		least = (Size) MIN_SAMPLES * Min(l->dim, PIPEANN_MAX_DIM) / l->dim;
	Size		want = Max(Min(fit, MAX_SAMPLES), least);

	return Min(nodes, (uint64) want);
}

/* ---------- codebook and histograms ---------- */

/*
 * Centroids trained on x[n][dim], which are put in another order. The error is that of
 * samples that were not trained on, since the error of later vectors is compared with it.
 */
static void
TrainCentroids(PipeannTeam *team, PipeannCoding *k, float *x, uint32 n)
{
	int			dim = k->pq.dim;
	uint32		aside = n >= LEAST_TO_MEASURE ? ERROR_SAMPLES : 0;
	float	   *centroids = PipeannTeamArray(team, float,
											 PipeannPqCentroidCount(dim));
	uint8	   *code = palloc(k->pq.nsubvectors);
	double		sum = 0;

	if (PipeannTeamLeads(team))
	{
		Size		size = mul_size(dim, sizeof(float));
		float	   *row = palloc(size);

		/* samples set aside, evenly spaced, go to the end */
		for (uint32 i = 0; i < aside; i++)
		{
			float	   *from = x + (Size) ((uint64) i * n / aside) * dim;
			float	   *to = x + (Size) (n - 1 - i) * dim;

			memcpy(row, from, size);
			memcpy(from, to, size);
			memcpy(to, row, size);
		}
		pfree(row);
	}
	PipeannTeamMeet(team);
	if (k->pq.bits)
	{
		if (PipeannTeamLeads(team))
			PipeannPqPatterns(&k->pq, centroids);
		PipeannTeamMeet(team);
	}
	else
		PipeannPqTrain(team, &k->pq, x, n - aside, SEED, centroids);
	k->pq.centroids = centroids;
	for (uint32 i = n - aside; i < n; i++)
	{
		CHECK_FOR_INTERRUPTS();
		sum += PipeannPqEncode(&k->pq, x + (Size) i * dim, code);
	}
	pfree(code);
	k->error = aside > 0 ? Max((float) (sum / aside), FLT_MIN) : 0;
}

/*
 * Histograms of attribute codes, if the index has these codes: the leader
 * makes them from n samples of rows, and all members get them.
 */
static void
TrainHistograms(PipeannTeam *team, PipeannCoding *k, PipeannRowAt row_at,
				void *arg, uint32 n)
{
	k->attributes = PipeannAttributesOpen(k->index, &k->layout,
										  &k->widths, NULL);
	if (k->attributes == NULL)
		return;
	k->histograms = PipeannTeamAlloc(team, PipeannHistogramsBytes(&k->layout));
	if (PipeannTeamLeads(team))
		PipeannAttributesTrain(k->attributes, row_at, arg, n, k->histograms);
	PipeannTeamMeet(team);
	PipeannAttributesUseHistogram(k->attributes, k->histograms);
}

/*
 * Train centroids on samples[n][dim], which are put in another order, and
 * histograms on a row of each. All members call.
 */
void
PipeannCodingTrain(PipeannTeam *team, PipeannCoding *k, float *samples,
				   uint32 n, PipeannRowAt row_at, void *arg)
{
	TrainCentroids(team, k, samples, n);
	TrainHistograms(team, k, row_at, arg, n);
}

/* The same with vectors and rows of nodes, at even distances. */
void
PipeannCodingTrainOn(PipeannTeam *team, PipeannCoding *k,
					 const PipeannNodes *nodes)
{
	const PipeannVectors *v = &nodes->vectors;
	/* bits need no training */
	uint32		n = k->pq.bits ? 1 : PipeannCodingSamples(&k->layout, v->n);
	float	   *samples = PipeannTeamArray(team, float, mul_size(n, v->dim));

	PipeannTeamEach(team, i, n, SAMPLE_RUN)
		CodingVector(v, (uint32) (i * v->n / n),
							samples + (Size) i * v->dim);
	TrainCentroids(team, k, samples, n);
	PipeannTeamFree(team, samples);
	TrainHistograms(team, k, SampledNodeRow, unconstify(PipeannNodes *, nodes),
					SampledNodes(nodes));
}

/* ---------- codebook and codes to their pages ---------- */

void
PipeannCodebookWrite(const PipeannCoding *k)
{
	const PipeannLayout *l = &k->layout;
	BlockNumber first = PipeannRunBlock(&k->places);

	PipeannWritePages(k->index, first, PIPEANN_CODEBOOK, k->generation,
					  k->pq.centroids, PipeannCodebookBytes(l), k->wal);
	if (k->histograms != NULL)
		PipeannWritePages(k->index, first + PipeannHistogramsPage(l),
						  PIPEANN_CODEBOOK, k->generation, k->histograms,
						  PipeannHistogramsBytes(l), k->wal);
}

/* Vectors encoded at once. */
#define ENCODE_BLOCK 32

/* Pages of codes made at once by one member, and written by the leader. */
#define CODE_RUN 8

/* Pages of codes that a build has in memory at a time. */
#define CODE_BATCH 2048

/*
 * Fill a code page with the codes of ids first .. first + n - 1. Nodes are
 * encoded in blocks; places without a node get codes of others meanwhile, and
 * are zeroed afterwards.
 */
static void
EncodePage(const PipeannPq *pq, const PipeannNodes *nodes, float *x, uint32 first,
		   int n, uint8 *out)
{
	float		errors[ENCODE_BLOCK];

	memset(out, 0, PIPEANN_PAYLOAD);
	memset(x, 0, ENCODE_BLOCK * pq->dim * sizeof(float));
	for (int i = 0; i < n; i += ENCODE_BLOCK)
	{
		const uint32 *node = nodes->node_of_id + first + i;
		int			count = Min(n - i, ENCODE_BLOCK);
		uint8	   *codes = out + (Size) i * pq->nsubvectors;

		for (int j = 0; j < count; j++)
			if (node[j] != PIPEANN_INVALID_ID)
				CodingVector(&nodes->vectors, node[j],
									x + (Size) j * pq->dim);
		PipeannPqEncodeMany(pq, x, count, codes, pq->nsubvectors, errors);
		for (int j = 0; j < count; j++)
			if (node[j] == PIPEANN_INVALID_ID)
				memset(codes + (Size) j * pq->nsubvectors, 0, pq->nsubvectors);
	}
}

void
PipeannCodePagesWrite(const PipeannCoding *k, uint32 first,
					  const uint8 *payloads, uint32 n)
{
	for (uint32 i = 0; i < n; i++)
		PipeannWritePages(k->index,
						  PipeannCodeBlock(&k->places, &k->layout, first + i),
						  PIPEANN_CODES, k->generation,
						  payloads + (Size) i * PIPEANN_PAYLOAD, PIPEANN_PAYLOAD,
						  k->wal);
}

/* Make and write the codes of all nodes. All members call; the leader writes. */
void
PipeannCodesWrite(PipeannTeam *team, PipeannCoding *k,
				  const PipeannNodes *nodes)
{
	uint32		per_page = PipeannCodesPerPage(&k->layout);
	uint32		pages = PipeannCodePages(&k->layout, nodes->ids);
	uint32		batch = Min(pages, k->wal ? CODE_RUN : CODE_BATCH);
	float	   *x = PipeannArray(float, mul_size(k->layout.dim, ENCODE_BLOCK));
	uint8	   *payloads = PipeannTeamAlloc(team, mul_size(batch, PIPEANN_PAYLOAD));

	for (uint32 first = 0; first < pages; first += batch)
	{
		uint32		n = Min(pages - first, batch);

		PipeannTeamRuns(team, from, to, n, CODE_RUN)
			for (uint32 page = first + from; page < first + to; page++)
			{
				uint32		id = page * per_page;
				int			count = Min(per_page, nodes->ids - id);
				uint8	   *payload = payloads +
					(Size) (page - first) * PIPEANN_PAYLOAD;

				EncodePage(&k->pq, nodes, x, id, count, payload);
				EncodeAttributes(k->attributes, &k->layout, nodes, id, count,
								 payload);
			}
		if (PipeannTeamLeads(team))
			PipeannCodePagesWrite(k, first, payloads, n);
		PipeannTeamMeet(team);
	}
	k->code_pages = pages;
	PipeannTeamMeet(team);
	PipeannTeamFree(team, payloads);
	pfree(x);
}

/* Steps of the team: samples, subvectors compared, subvectors, batches of pages. */
uint32
PipeannCodeSteps(const PipeannLayout *l, uint32 ids)
{
	return 3 +
		(PipeannCodePages(l, ids) + CODE_BATCH - 1) / CODE_BATCH;
}

/* ---------- the entry graph ---------- */

/*
 * Choose the nodes of the entry graph: one of every N ids, so that they are spread over
 * pages and thus over space; one of every M of these comes first. Returns how many.
 */
static uint32
EntrySample(const PipeannNodes *nodes, uint32 *sample)
{
	uint32		want = PipeannEntryCount(nodes->vectors.n);
	uint32		step = (want + PIPEANN_FIRST_ENTRIES - 1) / PIPEANN_FIRST_ENTRIES;
	uint32		n = 0;

	for (int first = 1; first >= 0; first--)
		for (uint32 i = 0; i < want; i++)
		{
			uint64		from = (uint64) i * nodes->ids / want;
			uint64		to = (uint64) (i + 1) * nodes->ids / want;

			if ((i % step == 0) != first)
				continue;
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
SerializeEntryGraph(const PipeannCoding *k, const PipeannNodes *nodes,
					const uint32 *sample, const PipeannGraph *graph, char *stream)
{
	uint32		n = graph->n;
	uint32	   *ids = (uint32 *) stream;
	uint16	   *degrees = (uint16 *) (ids + n);
	uint32	   *neighbors = (uint32 *) (degrees + (n + 1) / 2 * 2);
	uint8	   *codes = (uint8 *) stream + PipeannEntryCodesOffset(n);
	float	   *x = PipeannArray(float, k->pq.dim);

	for (uint32 i = 0; i < n; i++)
	{
		uint32		from = SwapWithFirst(i, graph->medoid);
		const uint32 *list = PipeannNeighbors(graph, from);
		uint32		node = sample != NULL ? sample[from] : from;

		ids[i] = nodes->id_of_node[node];
		CodingVector(&nodes->vectors, node, x);
		(void) PipeannPqEncode(&k->pq, x, codes + (Size) i * k->pq.nsubvectors);
		degrees[i] = Min(graph->degree[from], PIPEANN_ENTRY_DEGREE);
		for (int j = 0; j < degrees[i]; j++)
			neighbors[(Size) i * PIPEANN_ENTRY_DEGREE + j] =
				SwapWithFirst(list[j], graph->medoid);
	}
	pfree(x);
}

/*
 * Build the entry graph over sample[n] of the nodes, or the first n if that is
 * NULL, and write it. All members call.
 */
void
PipeannEntryWrite(PipeannTeam *team, PipeannCoding *k,
				  const PipeannNodes *nodes, const uint32 *sample, uint32 n)
{
	PipeannGraph *graph = PipeannEntryGraphBuild(team, &nodes->near, sample,
												 n, PIPEANN_ENTRY_DEGREE, SEED);
	Size		bytes = PipeannEntryGraphBytes(&k->layout, n);
	char	   *content = PipeannTeamAlloc(team, bytes);

	k->entry_count = n;
	if (PipeannTeamLeads(team))
	{
		SerializeEntryGraph(k, nodes, sample, graph, content);
		PipeannWritePages(k->index, PipeannRunBlock(&k->places) +
						  PipeannEntryPage(&k->layout), PIPEANN_ENTRY,
						  k->generation, content, bytes, k->wal);
	}
	PipeannTeamMeet(team);
	PipeannTeamFree(team, content);
	PipeannGraphFree(team, graph);
}

/* The same over nodes chosen by EntrySample(). */
void
PipeannEntriesWrite(PipeannTeam *team, PipeannCoding *k,
					const PipeannNodes *nodes)
{
	uint32		want = PipeannEntryCount(nodes->vectors.n);
	uint32	   *sample = PipeannTeamArray(team, uint32, (Size) want + 1);

	/* the number of nodes is stored behind the sample */
	if (PipeannTeamLeads(team))
		sample[want] = EntrySample(nodes, sample);
	PipeannTeamMeet(team);
	PipeannEntryWrite(team, k, nodes, sample, sample[want]);
	PipeannTeamFree(team, sample);
}

/* ---------- what a build foresees ---------- */

/*
 * Not the entry graph's memory, which is a fraction of that of the graph itself. It
 * assumes the full number of samples: the memory for all else is enough for them.
 */
Size
PipeannCodingMemory(const PipeannLayout *l, uint32 nodes, uint32 ids)
{
	Size		samples = mul_size(Min(nodes, MAX_SAMPLES),
								   l->dim * sizeof(float));
	Size		pages = mul_size(Min(PipeannCodePages(l, ids), CODE_BATCH),
								 PIPEANN_PAYLOAD);

	/* the index's own codebook and, while there are samples, another one's */
	return add_size(PipeannCodebookBytes(l),
					Max(add_size(samples, PipeannCodebookBytes(l)), pages));
}

/* ---------- the metapage ---------- */

/* Name the generation in the metapage, with all that belongs to it. */
void
PipeannCodingPublish(const PipeannCoding *k, PipeannMeta *meta, uint64 nodes)
{
	meta->flags |= PIPEANN_META_HAS_CODES;
	meta->code_pages = k->code_pages;
	meta->code_error = k->error;
	meta->strayed = 0;
	meta->trained_nodes = Max(meta->trained_nodes, nodes);
	meta->entry_count = k->entry_count;
	meta->entry_dead = 0;
}
