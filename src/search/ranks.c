/*
 * ranks.c
 *		The nodes that may match, in the order of the distances of their codes.
 *
 * There may be many, and few of them are wanted. So only the nearest are kept: a
 * node that is farther than all of them when half of its code is looked at is passed
 * over. When more are wanted, all are gone through once more.
 */
#include "search/ranks.h"

#include <math.h>

#include "distance/distance.h"
#include "search/together.h"

/*
 * So many are kept at first, of which half are surely the nearest, and so many times
 * more each time that it was not enough.
 */
#define FIRST_KEPT 256
#define GROWTH 4

/* By so much, relatively, sums of a few hundred floats may be wrong. */
#define ROUNDING 1e-4f

/* Codes whose distances are computed together. */
#define BATCH 64

/* So few are read whatever their codes are. */
#define FEW 20

/* Keep the nearer half, so that there is room for others. */
static void
LeaveOut(PipeannRanks *ranks)
{
	ranks->left_out = true;
	ranks->n = ranks->size / 2;
	ranks->bound = PipeannSelectNearest(ranks->items, ranks->size, ranks->n);
}

/* Those found before are not added again. */
static void
Add(PipeannRanks *ranks, uint32 id, float dist)
{
	PipeannDiscard item = {.dist = isnan(dist) ? INFINITY : dist,.id = id};

	if (PipeannIsNearer(&ranks->bound, &item) ||
		!PipeannIsNearer(&ranks->last, &item))
		return;
	ranks->items[ranks->n++] = item;
	if (ranks->n == ranks->size)
		LeaveOut(ranks);
}

/* Nodes that are added together. */
typedef struct Batch
{
	int			n;
	uint32		ids[BATCH];
	const uint8 *codes[BATCH];
} Batch;

/* The least that the second halves of codes can add. */
static float
LeastRest(const PipeannSearch *search)
{
	int			nchunks = search->codes->pq.nchunks;
	double		sum = 0;

	for (int i = nchunks / 2; i < nchunks; i++)
	{
		const float *row = search->table + (Size) i * PIPEANN_CENTROIDS;
		float		least[8];

		memcpy(least, row, sizeof(least));
		for (int j = 8; j < PIPEANN_CENTROIDS; j += 8)
			for (int k = 0; k < 8; k++)
				least[k] = row[j + k] < least[k] ? row[j + k] : least[k];
		for (int k = 1; k < 8; k++)
			least[0] = Min(least[0], least[k]);
		sum += least[0];
	}
	return (float) (sum - ROUNDING * fabs(sum));
}

static void
MakeTable(PipeannSearch *search)
{
	PipeannMakeTable(search);
	search->ranks.least_rest = LeastRest(search);
	search->ranks.has_table = true;
}

/*
 * Add a batch, codes[] of ids[]. Always the same two parts are added up, so that a
 * node's distance is the same each time.
 */
static void
AddBatch(PipeannSearch *search, Batch *batch)
{
	PipeannRanks *ranks = &search->ranks;
	uint32	   *ids = batch->ids;
	const uint8 **codes = batch->codes;
	int			n = batch->n;
	int			nchunks = search->codes->pq.nchunks;
	int			half = nchunks / 2;
	float		first[BATCH];
	float		second[BATCH];
	int			left = 0;

	if (!ranks->has_table)
		MakeTable(search);
	PipeannKernel->pq_scan(search->table, half, codes, n, first);
	search->counters->code_distances += n;
	ranks->passing += n;
	for (int i = 0; i < n; i++)
	{
		ids[left] = ids[i];
		codes[left] = codes[i] + half;
		first[left] = first[i];
		left += !(first[i] + ranks->least_rest > ranks->bound.dist +
				  ROUNDING * fabsf(first[i]));
	}
	PipeannKernel->pq_scan(search->table + (Size) half * PIPEANN_CENTROIDS,
						   nchunks - half, codes, left, second);
	for (int i = 0; i < left; i++)
		Add(ranks, ids[i], first[i] + second[i]);
}

/* Add so few nodes, the only ones, that their order does not matter. */
static void
AddFew(PipeannRanks *ranks, const Batch *batch)
{
	for (int i = 0; i < batch->n; i++)
		ranks->items[i] = (PipeannDiscard) {.dist = 0,.id = batch->ids[i]};
	ranks->n = ranks->passing = batch->n;
	ranks->unordered = true;
}

static inline void
Collect(PipeannSearch *search, Batch *batch, uint32 id)
{
	batch->ids[batch->n] = id;
	batch->codes[batch->n] = PipeannCodeAt(search->codes, id);
	__builtin_prefetch(batch->codes[batch->n]);
	if (++batch->n < BATCH)
		return;
	AddBatch(search, batch);
	batch->n = 0;
}

static void
CollectPassing(PipeannSearch *search, Batch *batch)
{
	const PipeannCodes *codes = search->codes;

	for (uint32 first = 0; first < codes->ncodes; first += PIPEANN_CODE_BLOCK)
	{
		uint64		mask[PIPEANN_BLOCK_WORDS];

		CHECK_FOR_INTERRUPTS();
		PipeannPrefetchBlock(codes, search->params.code_filter,
							 first + PIPEANN_CODE_BLOCK);
		PipeannBlockPassing(codes, search->params.code_filter, first, mask);
		for (uint32 i = 0; i < PIPEANN_BLOCK_WORDS; i++)
			for (; mask[i] != 0; mask[i] &= mask[i] - 1)
				Collect(search, batch,
						first + i * 64 + __builtin_ctzll(mask[i]));
	}
}

/* Without conditions any node may be wanted: what the graph did not lead to. */
static void
CollectAll(PipeannSearch *search, Batch *batch)
{
	for (uint32 id = 0; id < search->codes->ncodes; id++)
	{
		if (batch->n == 0)
			CHECK_FOR_INTERRUPTS();
		Collect(search, batch, id);
	}
}

static void
CollectGiven(PipeannSearch *search, Batch *batch)
{
	for (uint32 i = 0; i < search->params.namong; i++)
	{
		if (batch->n == 0)
			CHECK_FOR_INTERRUPTS();
		Collect(search, batch, search->params.among[i]);
	}
}

/* Find the nearest behind the last one found. */
static void
FindNearest(PipeannSearch *search)
{
	PipeannRanks *ranks = &search->ranks;
	Batch		batch = {.n = 0};

	ranks->n = ranks->passing = 0;
	ranks->left_out = false;
	ranks->bound.dist = INFINITY;
	ranks->bound.id = PIPEANN_INVALID_ID;
	if (search->params.among != NULL)
		CollectGiven(search, &batch);
	else if (search->params.code_filter != NULL)
		CollectPassing(search, &batch);
	else
		CollectAll(search, &batch);
	if (ranks->passing == 0 && batch.n <= Min(FEW, search->params.ef))
	{
		AddFew(ranks, &batch);
		return;
	}
	AddBatch(search, &batch);
	PipeannHeapMake(ranks->items, ranks->n);
}

static void
Reserve(PipeannRanks *ranks, uint64 size)
{
	ranks->size = size;
	if (size <= ranks->items_size)
		return;
	if (ranks->items != NULL)
		pfree(ranks->items);
	ranks->items = PipeannAlloc(mul_size(size, sizeof(PipeannDiscard)));
	ranks->items_size = size;
}

void
PipeannRanksBegin(PipeannSearch *search)
{
	PipeannMemory former = PipeannMemoryEnter(search);
	PipeannRanks *ranks = &search->ranks;
	const PipeannCodeFilter *filter = search->params.code_filter;
	double		precision = search->params.among != NULL || filter == NULL ?
		1 : filter->precision;

	Reserve(ranks, (uint64) (FIRST_KEPT / Max(precision, 0.01)));
	ranks->last.dist = -INFINITY;
	ranks->last.id = 0;
	ranks->has_table = ranks->unordered = false;
	FindNearest(search);
	PipeannMemoryLeave(former);
}

bool
PipeannRanksHasNext(PipeannSearch *search)
{
	PipeannRanks *ranks = &search->ranks;

	if (ranks->n == 0 && ranks->left_out)
	{
		PipeannMemory former = PipeannMemoryEnter(search);

		Reserve(ranks, ranks->size * GROWTH);
		FindNearest(search);
		PipeannMemoryLeave(former);
	}
	return ranks->n > 0;
}

PipeannDiscard
PipeannRanksPop(PipeannRanks *ranks)
{
	ranks->last = PipeannHeapTake(ranks->items, &ranks->n);
	return ranks->last;
}
