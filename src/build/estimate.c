/*
 * estimate.c
 *		What a build will take, before it is begun.
 *
 * All vectors are taken to be different, so that an estimate is rather too
 * much. The figures are those of the code that will ask for the memory: what
 * members share is counted where base/parallel.c counts it, at its peaks.
 */
#include "postgres.h"

#include "build/coding.h"
#include "build/rows.h"
#include "miscadmin.h"

/* What the sample tells. */
typedef struct Sampled
{
	PipeannStorage storage;
	double		spool_row;		/* bytes of a row in the spool */
	double		values;			/* bytes of a row with values */
	PipeannRowSizes sizes;		/* of these */
} Sampled;

/* Bytes of a node in the arrays of PipeannNodes. */
static Size
NodeMemory(const PipeannLayout *l)
{
	return l->dim * PipeannElementSize(l->storage) + sizeof(ItemPointerData) +
		sizeof(uint32) +
		(l->storage == PIPEANN_FLOAT2 ? sizeof(PipeannRounding) : 0);
}

/* The same of a row (build/rows.h), which has hash and again as well. */
static Size
RowMemory(const PipeannLayout *l)
{
	return NodeMemory(l) + sizeof(uint32) + 1;
}

/* ---------- the sample ---------- */

/*
 * The sample goes the way that rows will go, so that the rules are the same.
 * An index on few rows has floats, as has one on none.
 */
static Sampled
TakeSample(const PipeannBuildInput *in)
{
	PipeannTeam *team = PipeannTeamAlone();
	int			columns = 1 + (in->values != NULL ? in->values->natts : 0);
	PipeannColumns sampled_columns = {.vector = 0,.values = in->values};
	Sampled		sampled;
	PipeannSpool spool;
	PipeannRows rows;

	PipeannSpoolInit(team, &spool, sampled_columns, in->dim, PIPEANN_L2,
					 in->options->storage, 1);
	for (int i = 0; i < in->nsample; i++)
	{
		ItemPointerData tid;

		CHECK_FOR_INTERRUPTS();
		ItemPointerSet(&tid, 0, i + 1);
		(void) PipeannSpoolAdd(&spool, in->sample + i * columns,
							   in->nulls + i * columns, &tid);
	}
	PipeannSpoolFinish(team, &spool);
	PipeannRowsLoad(team, &spool.source, &rows);
	sampled.storage = rows.vectors.storage;
	sampled.spool_row = spool.stats.rows == 0 ? 0 :
		(double) spool.stats.bytes / spool.stats.rows;
	sampled.sizes = spool.stats.sizes;
	if (in->values != NULL && sampled.sizes.rows == 0)
		PipeannRowSizesAdd(&sampled.sizes, PipeannExpectedRowBytes(in->values));
	sampled.values = in->values == NULL ? 0 :
		(double) sampled.sizes.bytes / sampled.sizes.rows;
	PipeannRowsFree(team, &rows);
	PipeannSpoolFree(team, &spool);
	return sampled;
}

/* ---------- the index ---------- */

/* Overflow slots for the parts of long rows, for each row of an index. */
static double
PartsOfRow(const PipeannLayout *l, const PipeannRowSizes *sizes)
{
	return sizes->rows == 0 ? 0 :
		(double) PipeannLayoutParts(l, sizes) / sizes->rows;
}

/* A row of the sample, as an index would have it. */
static const PipeannRow *
SampledRow(uint32 i, uint32 j, void *arg)
{
	const PipeannBuildInput *in = arg;
	PipeannColumns columns = {.vector = 0,.values = in->values};
	int			n = 1 + in->values->natts;
	ItemPointerData tid;

	if (j > 0)
		return NULL;
	ItemPointerSet(&tid, 0, i + 1);
	return PipeannFormRow(&columns, in->sample + i * n, in->nulls + i * n,
						  &tid);
}

/* The fields of the metapage on which sizes depend. */
static void
ForeseeMeta(const PipeannBuildInput *in, const Sampled *sampled,
			PipeannMeta *meta)
{
	const PipeannOptions *options = in->options;
	PipeannLayout *l = &meta->layout;
	PipeannLayout wanted = {
		.dim = in->dim,
		.metric = PIPEANN_L2,
		.storage = sampled->storage,
		.max_degree = 2 * PipeannInitialM(options),
		.pq_bytes = options->pq_bytes
	};
	uint64		pages;

	memset(meta, 0, sizeof(*meta));
	PipeannLayoutInit(l, &wanted, options->fillfactor);
	if (in->values != NULL)
	{
		wanted.row_bytes = PipeannLayoutRowBytes(l, &sampled->sizes);
		PipeannLayoutInit(l, &wanted, options->fillfactor);
	}
	if (in->nfilter > 0)
		l->attr_bytes =
			PipeannAttributesChoose(PipeannAttributesForesee(in->values,
															 in->nfilter),
									SampledRow,
									unconstify(PipeannBuildInput *, in),
									in->nsample, &meta->widths);
	pages = (in->rows + l->fill - 1) / l->fill +
		(uint64) (in->rows * PartsOfRow(l, &sampled->sizes) /
				  l->slots_per_page);
	if (in->rows >= PG_UINT32_MAX / 4 ||
		pages * l->slots_per_page >= PIPEANN_INVALID_ID)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("too many rows for a pipeann index")));
	meta->nodes = in->rows;
	meta->graph_pages = (uint32) pages;
	PipeannCodingForesee(meta);
}

/* Extents are given out in this order: graph, codebook, entry graph, codes. */
static uint64
IndexBytes(const PipeannMeta *meta)
{
	const PipeannLayout *l = &meta->layout;
	uint32		per_extent = PipeannGraphPagesPerExtent(l);
	uint32		usable = PIPEANN_EXTENT_USABLE;
	uint64		extents = Max(PipeannExtentsOf(meta->graph_pages, per_extent),
							  1);
	Size		entry;

	if ((meta->flags & PIPEANN_META_HAS_CODES) == 0)
		return PipeannBlocksUpTo(extents, meta->graph_pages, per_extent,
								 l->node_pages) * BLCKSZ;
	entry = PipeannEntryGraphBytes(meta->entry_count, meta->entry_degree);
	extents += PipeannExtentsOf(PipeannCodebookPages(l), usable) +
		PipeannExtentsOf(PipeannStreamPages(entry), usable) +
		PipeannExtentsOf(meta->code_pages, usable);
	if (extents > PIPEANN_MAP_INLINE)
		extents += PipeannExtentsOf(extents - PIPEANN_MAP_INLINE,
									PIPEANN_MAP_PER_PAGE * usable);
	return PipeannBlocksUpTo(extents, meta->code_pages, usable, 1) * BLCKSZ;
}

/* ---------- memory ---------- */

static PipeannGraphParams
ParamsOf(const PipeannBuildInput *in, const PipeannLayout *l)
{
	return (PipeannGraphParams) {
		.max_degree = l->max_degree,
		.ef_construction = in->options->ef_construction
	};
}

/*
 * While the graph is built the first partition stays, which
 * PipeannGraphMemory() does not count when lists are made.
 */
static Size
GraphPhase(const PipeannBuildInput *in, const PipeannLayout *l, uint32 n)
{
	PipeannGraphParams params = ParamsOf(in, l);
	PipeannVectors vectors = {.n = n,.dim = l->dim};

	return add_size(mul_size(n, NodeMemory(l) + PipeannClusterMemory()),
					PipeannGraphMemory(n, &params, &vectors));
}

/* Of the phases in build.c, those that can be the peak. */
static Size
MemoryOnePass(const PipeannBuildInput *in, const PipeannMeta *meta,
			  double values)
{
	const PipeannLayout *l = &meta->layout;
	uint32		n = (uint32) meta->nodes;
	uint32		ids = meta->graph_pages * l->slots_per_page;
	Size		starts = mul_size((Size) in->nblocks + 1, sizeof(uint32));
	Size		load = add_size(starts, mul_size(n, RowMemory(l)));
	Size		nodes = mul_size(n, RowMemory(l) + NodeMemory(l) +
								 PipeannClusterMemory());
	Size		graph = GraphPhase(in, l, n);
	Size		codes = 0;
	Size		rows = 0;

	/* rows with values stay from beginning to end, with where they are */
	if (in->values != NULL)
		rows = mul_size(n, (Size) values + 2 * sizeof(uint64));
	if (meta->flags & PIPEANN_META_HAS_CODES)
		codes = add_size(mul_size(n, NodeMemory(l) + sizeof(uint32)),
						 add_size(mul_size(ids, sizeof(uint32)),
								  PipeannCodingMemory(l, n, ids)));
	return add_size(rows, Max(Max(load, nodes), Max(graph, codes)));
}

/* Errors as the build would if the options do not suit the column. */
void
PipeannEstimateBuild(const PipeannBuildInput *in,
					 PipeannBuildEstimate *estimate)
{
	PipeannMeta *meta = palloc(sizeof(PipeannMeta));
	Size		limit = (Size) maintenance_work_mem * 1024;
	PipeannGraphParams params;
	Sampled		sampled;

	PipeannCheckOptions(in->options);
	sampled = TakeSample(in);
	ForeseeMeta(in, &sampled, meta);
	memset(estimate, 0, sizeof(*estimate));
	estimate->memory_one_pass = MemoryOnePass(in, meta, sampled.values);
	estimate->temp_bytes = (uint64) (in->rows * sampled.spool_row);
	params = ParamsOf(in, &meta->layout);
	if (estimate->memory_one_pass > limit)
		estimate->temp_bytes += estimate->memory_one_pass - limit +
			PipeannGraphShardFiles((uint32) meta->nodes, &params);
	estimate->index_bytes = IndexBytes(meta);
	if (meta->flags & PIPEANN_META_HAS_CODES)
	{
		estimate->code_bytes = PipeannCacheMemory(meta,
												  &estimate->shared_memory);
		estimate->shared_memory *= 1024 * 1024;
	}
	pfree(meta);
}
