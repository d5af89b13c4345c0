/*
 * code_order.c
 *		The nodes that may match, in the order of the distances of their codes.
 *
 * There may be many, and few of them are wanted. So only the nearest are kept: a
 * node that is farther than all of them when half of its code is looked at is passed
 * over. When more are wanted, all are gone through once more.
 */
#include "search/code_order.h"

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
LeaveOut(PipeannCodeOrder *order)
{
	order->left_out = true;
	order->n = order->size / 2;
	order->bound = PipeannSelectNearest(order->items, order->size, order->n);
}

/* Those found before are not added again. */
static void
Add(PipeannCodeOrder *order, uint32 id, float dist)
{
	PipeannDiscard item = {.dist = isnan(dist) ? INFINITY : dist,.id = id};

	if (PipeannIsNearer(&order->bound, &item) ||
		!PipeannIsNearer(&order->last, &item))
		return;
	order->items[order->n++] = item;
	if (order->n == order->size)
		LeaveOut(order);
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
	search->code_order.least_rest = LeastRest(search);
	search->code_order.has_table = true;
}

/*
 * Add a batch, codes[] of ids[]. Always the same two parts are added up, so that a
 * node's distance is the same each time.
 */
static void
AddBatch(PipeannSearch *search, Batch *batch)
{
	PipeannCodeOrder *order = &search->code_order;
	uint32	   *ids = batch->ids;
	const uint8 **codes = batch->codes;
	int			n = batch->n;
	int			nchunks = search->codes->pq.nchunks;
	int			half = nchunks / 2;
	float		first[BATCH];
	float		second[BATCH];
	int			left = 0;

	if (!order->has_table)
		MakeTable(search);
	PipeannKernel->pq_scan(search->table, half, codes, n, first);
	search->counters->code_distances += n;
	order->passing += n;
	for (int i = 0; i < n; i++)
	{
		ids[left] = ids[i];
		codes[left] = codes[i] + half;
		first[left] = first[i];
		left += !(first[i] + order->least_rest > order->bound.dist +
				  ROUNDING * fabsf(first[i]));
	}
	PipeannKernel->pq_scan(search->table + (Size) half * PIPEANN_CENTROIDS,
						   nchunks - half, codes, left, second);
	for (int i = 0; i < left; i++)
		Add(order, ids[i], first[i] + second[i]);
}

/* Add so few nodes, the only ones, that their order does not matter. */
static void
AddFew(PipeannCodeOrder *order, const Batch *batch)
{
	for (int i = 0; i < batch->n; i++)
		order->items[i] = (PipeannDiscard) {.dist = 0,.id = batch->ids[i]};
	order->n = order->passing = batch->n;
	order->unordered = true;
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
	for (uint32 i = 0; i < search->params.nwanted_nodes; i++)
	{
		if (batch->n == 0)
			CHECK_FOR_INTERRUPTS();
		Collect(search, batch, search->params.wanted_nodes[i]);
	}
}

/* Find the nearest behind the last one found. */
static void
FindNearest(PipeannSearch *search)
{
	PipeannCodeOrder *order = &search->code_order;
	Batch		batch = {.n = 0};

	order->n = order->passing = 0;
	order->left_out = false;
	order->bound.dist = INFINITY;
	order->bound.id = PIPEANN_INVALID_ID;
	if (search->params.wanted_nodes != NULL)
		CollectGiven(search, &batch);
	else if (search->params.code_filter != NULL)
		CollectPassing(search, &batch);
	else
		CollectAll(search, &batch);
	if (order->passing == 0 && batch.n <= Min(FEW, search->params.ef))
	{
		AddFew(order, &batch);
		return;
	}
	AddBatch(search, &batch);
	PipeannHeapMake(order->items, order->n);
}

static void
Reserve(PipeannCodeOrder *order, uint64 size)
{
	order->size = size;
	if (size <= order->items_size)
		return;
	if (order->items != NULL)
		pfree(order->items);
	order->items = PipeannAlloc(mul_size(size, sizeof(PipeannDiscard)));
	order->items_size = size;
}

/* Go through the attribute codes for the nearest. */
void
PipeannCodeOrderBegin(PipeannSearch *search)
{
	PipeannMemory former = PipeannMemoryEnter(search);
	PipeannCodeOrder *order = &search->code_order;
	const PipeannCodeFilter *filter = search->params.code_filter;
	double		precision = search->params.wanted_nodes != NULL || filter == NULL ?
		1 : filter->precision;

	Reserve(order, (uint64) (FIRST_KEPT / Max(precision, 0.01)));
	order->last.dist = -INFINITY;
	order->last.id = 0;
	order->has_table = order->unordered = false;
	FindNearest(search);
	PipeannMemoryLeave(former);
}

/* Whether any is left; if so it is items[0]. */
bool
PipeannCodeOrderHasNext(PipeannSearch *search)
{
	PipeannCodeOrder *order = &search->code_order;

	if (order->n == 0 && order->left_out)
	{
		PipeannMemory former = PipeannMemoryEnter(search);

		Reserve(order, order->size * GROWTH);
		FindNearest(search);
		PipeannMemoryLeave(former);
	}
	return order->n > 0;
}

/* Take the nearest. */
PipeannDiscard
PipeannCodeOrderPop(PipeannCodeOrder *order)
{
	order->last = PipeannHeapTake(order->items, &order->n);
	return order->last;
}
