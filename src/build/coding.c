/*
 * coding.c
 *		A generation of codes: trained, given extents, named in the metapage.
 */
#include "postgres.h"

#include "build/coding.h"
#include "distance/distance.h"
#include "miscadmin.h"

/*
 * Samples to train on: a hundred for each of 256 centroids, fewer if
 * maintenance_work_mem does not hold them, but at least sixteen.
 */
#define MAX_SAMPLES (100 * PIPEANN_CENTROIDS)
#define MIN_SAMPLES (16 * PIPEANN_CENTROIDS)

/* One sample in so many is not trained on, but measures the codes' error. */
#define ERROR_SAMPLES 256

/* Samples gathered at once by one member. */
#define SAMPLE_RUN 256

#define SEED UINT64CONST(0x70697065616e6e)

/*
 * Begin a generation, in a layout that may be another than that of the metapage. Its
 * pages are logged one by one unless the caller says otherwise.
 */
void
PipeannCodingBegin(PipeannCoding *k, Relation index, const PipeannMeta *meta,
				   const PipeannLayout *l, uint32 generation)
{
	memset(k, 0, sizeof(*k));
	k->index = index;
	k->wal = true;
	k->format = meta->format;
	k->generation = generation;
	k->layout = *l;
	k->widths = meta->widths;
	k->pq = PipeannPqNew(l->dim, l->pq_bytes);
}

/* ---------- training ---------- */

/*
 * The number of training samples for so many vectors, by maintenance_work_mem.
 */
uint32
PipeannCodingSamples(const PipeannLayout *l, uint64 nodes)
{
	Size		fit = (Size) maintenance_work_mem * 1024 /
		(l->dim * sizeof(float));
	Size		want = Max(Min(fit, MAX_SAMPLES), MIN_SAMPLES);

	return Min(nodes, (uint64) want);
}

/* The mean squared error of the codes of x[n][dim]. */
float
PipeannCodingError(const PipeannPq *pq, const float *x, uint32 n)
{
	float	   *decoded = palloc(mul_size(pq->dim, sizeof(float)));
	uint8	   *code = palloc(pq->nchunks);
	double		sum = 0;

	for (uint32 i = 0; i < n; i++)
	{
		CHECK_FOR_INTERRUPTS();
		PipeannPqEncode(pq, x + (Size) i * pq->dim, code);
		PipeannPqDecode(pq, code, decoded);
		sum += PipeannKernel->l2[PIPEANN_FLOAT4] (x + (Size) i * pq->dim,
												  decoded, pq->dim);
	}
	pfree(decoded);
	pfree(code);
	return n > 0 ? (float) (sum / n) : 0;
}

/*
 * Train centroids on samples[n][dim], which are put in another order, or take
 * those of another partition's index if they are as good (sibling.c). The error is
 * that of samples that were not trained on, since the error of later vectors is
 * compared with it. All members call.
 */
void
PipeannCodingTrain(PipeannTeam *team, PipeannCoding *k, float *samples,
				   uint32 n)
{
	int			dim = k->pq.dim;
	uint32		aside = n >= MIN_SAMPLES ? ERROR_SAMPLES : 0;
	PipeannSamples s = {samples, n, aside};
	float	   *centroids =
		PipeannTeamAlloc(team, mul_size(PipeannPqCentroidCount(dim),
										sizeof(float)));

	if (PipeannTeamLeads(team))
		PipeannMoveSamples(samples, n, dim, aside);
	PipeannTeamMeet(team);
	if (!PipeannSiblingCodebook(team, k, &s, centroids))
		PipeannPqTrain(team, &k->pq, samples, n - aside, SEED, centroids);
	k->pq.centroids = centroids;
	k->error = PipeannCodingError(&k->pq, samples + (Size) (n - aside) * dim,
								  aside);
}

/* The same with samples taken from v at even distances. */
void
PipeannCodingTrainOn(PipeannTeam *team, PipeannCoding *k,
					 const PipeannVectors *v)
{
	uint32		n = PipeannCodingSamples(&k->layout, v->n);
	float	   *samples = PipeannTeamAlloc(team,
										   mul_size(mul_size(n, v->dim),
													sizeof(float)));
	uint64		from;
	uint64		to;

	PipeannTeamBegin(team, n, SAMPLE_RUN);
	while (PipeannTeamNext(team, &from, &to))
		for (uint64 i = from; i < to; i++)
			PipeannCodingVector(v, (uint32) (i * v->n / n),
								samples + (Size) i * v->dim);
	PipeannTeamEnd(team);
	PipeannCodingTrain(team, k, samples, n);
	PipeannTeamFree(team, samples);
}

/*
 * Histograms of attribute codes, if the index has such: all members get those that the
 * leader makes of n samples of rows.
 */
void
PipeannCodingTrainHistograms(PipeannTeam *team, PipeannCoding *k,
							 PipeannRowAt row_at, void *arg, uint32 n)
{
	k->attributes = PipeannAttributesOpen(k->index, k->format, &k->layout,
										  &k->widths, NULL);
	if (k->attributes == NULL)
		return;
	k->histograms = PipeannTeamAlloc(team, PipeannHistogramsBytes(&k->layout));
	if (PipeannTeamLeads(team))
		PipeannAttributesTrain(k->attributes, row_at, arg, n, k->histograms);
	PipeannTeamMeet(team);
	PipeannAttributesUseHistogram(k->attributes, k->histograms);
}

/* The same by rows of nodes. */
void
PipeannCodingTrainHistogramsOn(PipeannTeam *team, PipeannCoding *k,
							   const PipeannNodes *nodes)
{
	PipeannNodeSampling s = PipeannSampleNodes(nodes);

	PipeannCodingTrainHistograms(team, k, PipeannSampledNodeRow, &s, s.n);
}

void
PipeannCodingFree(PipeannTeam *team, PipeannCoding *k)
{
	PipeannTeamFree(team, (void *) k->pq.centroids);
	if (k->histograms != NULL)
		PipeannTeamFree(team, k->histograms);
}

/*
 * Not the entry graph's memory, which is a fraction of that of the graph itself.
 * As many samples as there should be: memory for all else is memory for these.
 */
Size
PipeannCodingMemory(const PipeannLayout *l, uint32 nodes, uint32 ids)
{
	Size		samples = mul_size(Min(nodes, MAX_SAMPLES),
								   l->dim * sizeof(float));

	/* the index's own codebook and, while there are samples, another one's */
	return add_size(PipeannCodebookBytes(l),
					Max(add_size(samples, PipeannCodebookBytes(l)),
						PipeannCodePagesMemory(l, ids)));
}

/* ---------- the metapage ---------- */

static void
Reserve(Relation index, PipeannMeta *meta, PipeannKind kind, uint64 pages)
{
	while ((uint64) meta->kind_extents[kind] * PIPEANN_EXTENT_USABLE < pages)
		PipeannExtentAdd(index, meta, kind);
}

/*
 * Give the generation the extents that it still needs for so many ids, inside a
 * metapage update or a build.
 */
void
PipeannCodingReserve(const PipeannCoding *k, PipeannMeta *meta, uint32 ids)
{
	const PipeannLayout *l = &k->layout;
	uint32		entries = PipeannEntryCount(ids) + 1;	/* the root */

	Reserve(k->index, meta, PIPEANN_CODEBOOK,
			PipeannCodebookFirst(l, k->generation) + PipeannCodebookPages(l));
	Reserve(k->index, meta, PIPEANN_ENTRY,
			(uint64) PipeannNextEntryFirst(meta, entries) +
			PipeannEntryPages(entries));
	Reserve(k->index, meta, PipeannCodesKind(k->generation),
			(ids + PipeannCodesPerPage(l) - 1) / PipeannCodesPerPage(l));
}

/* Each insert either ends before the change or knows of it. */
PipeannMeta *
PipeannMetaBeginAlone(Relation index, PipeannMetaAlone *alone)
{
	alone->cancellable = PipeannKeepInsertsOut(index);
	PipeannMetaBegin(index, &alone->update);
	return alone->update.meta;
}

void
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
PipeannMeta *
PipeannCodingAttempt(const PipeannCoding *k, PipeannMetaAlone *alone)
{
	PipeannMeta *meta = PipeannMetaBeginAlone(k->index, alone);

	meta->flags &= ~PIPEANN_META_RETRAINING;
	meta->attempt++;
	return meta;
}

/* Name the generation in the metapage, with all that belongs to it. */
void
PipeannCodingPublish(const PipeannCoding *k, PipeannMeta *meta, uint64 nodes)
{
	meta->flags &= ~PIPEANN_META_RETRAINING;
	meta->flags |= PIPEANN_META_HAS_CODES;
	PipeannNewBuildId(meta);
	meta->generation = k->generation;
	meta->code_pages = k->code_pages;
	meta->code_error = k->error;
	meta->strayed = 0;
	meta->trained_nodes = nodes;
	meta->entry_first = k->entry_first;
	meta->entry_count = k->entry_count;
	meta->entry_degree = PIPEANN_ENTRY_DEGREE;
	meta->entry_dead = 0;
}
