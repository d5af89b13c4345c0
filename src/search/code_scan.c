/*
 * code_scan.c
 *		A scan of the codes: searching among the few nodes that match, without the
 *		graph.
 *
 * The attribute codes show which nodes may match, or the caller lists them. If
 * these are no more than ef, the scan ends only when none of the rest can be
 * nearer than the ten nearest results: then these are exact.
 */
#include "search/state.h"

#include <float.h>


#define HEAP_ITEM PipeannDiscard
#include "search/heap.h"

/* Collecting the nodes that may match, in the order of their code distances. */

/*
 * Nodes kept at first. After a walk these are KEPT_OF_EXPLORED for each explored node, as most of
 * the nearest are explored already. When they are used up, GROWTH times as many are kept.
 */
#define FIRST_KEPT 256
#define KEPT_OF_EXPLORED 8
#define GROWTH 4

/* Codes whose distances are computed together. */
#define BATCH 64

/* Up to this many candidates are read without ordering. */
#define MAX_UNORDERED 20

/*
 * Add a node, unless it was found before. When there is no room left, the
 * nearer half is kept.
 */
static void
Add(PipeannCodeScan *order, uint32 id, float dist)
{
	PipeannDiscard item = {.dist = isnan(dist) ? INFINITY : dist,.id = id};

	if (IsNearer(&order->bound, &item) ||
		!IsNearer(&order->last, &item))
		return;
	order->items[order->n++] = item;
	if (order->n < order->size)
		return;
	order->left_out = true;
	order->n = order->size / 2;
	order->bound = SelectNearest(order->items, order->size, order->n);
}

/* Nodes that are added together. */
typedef struct Batch
{
	int			n;
	uint32		ids[BATCH];
} Batch;

static void
AddBatch(PipeannSearch *search, const Batch *batch)
{
	PipeannCodeScan *order = &search->code_scan;
	int			n = batch->n;
	const uint8 *codes[BATCH];
	float		dist[BATCH];

	PipeannMakeTable(search);
	PipeannGatherCodes(search->codes, batch->ids, n, codes);
	search->source->counters->code_distances += n;
	order->passing += n;
	PipeannPqScan(&search->codes->pq, search->layout->metric, search->table, codes, n,
				  dist);
	/* distances by codes of another generation have no meaning: all nodes are read */
	order->unordered |= search->codes->loader != NULL && search->codes->loader->stale;
	for (int i = 0; i < n; i++)
		Add(order, batch->ids[i], order->unordered ? INFINITY : dist[i]);
}

static inline void
Collect(PipeannSearch *search, Batch *batch, uint32 id)
{
	batch->ids[batch->n] = id;
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
		PipeannPassing(codes, search->params.code_filter, first,
					   PIPEANN_CODE_BLOCK, mask);
		for (uint32 i = 0; i < PIPEANN_BLOCK_WORDS; i++)
			for (; mask[i] != 0; mask[i] &= mask[i] - 1)
				Collect(search, batch,
						first + i * 64 + __builtin_ctzll(mask[i]));
	}
}

/*
 * Collect the n given nodes; or all n nodes of the index, as edges may not lead
 * to some of them.
 */
static void
CollectAll(PipeannSearch *search, Batch *batch, uint32 n)
{
	const PipeannCodes *codes = search->codes;
	const uint32 *given = search->params.wanted_nodes;

	for (uint32 i = 0; i < n; i++)
	{
		if (batch->n == 0)
			CHECK_FOR_INTERRUPTS();
		if (codes->loader != NULL && given == NULL && i % PIPEANN_CODE_BLOCK == 0)
			codes->loader->prefetch(codes->loader, i, Min(n - i, PIPEANN_CODE_BLOCK));
		Collect(search, batch, given != NULL ? given[i] : i);
	}
}

/* Find the nearest beyond the last one found, and keep up to `size` of them. */
static void
FindNearest(PipeannSearch *search, uint64 size)
{
	PipeannMemory former = PipeannMemoryEnter(search);
	PipeannCodeScan *order = &search->code_scan;
	Batch		batch = {.n = 0};

	PIPEANN_RESERVE(order->items, order->items_size, size);
	PipeannMemoryLeave(former);
	order->size = size;
	order->n = order->passing = 0;
	order->left_out = false;
	order->bound.dist = INFINITY;
	order->bound.id = PIPEANN_INVALID_ID;
	if (search->params.wanted_nodes != NULL)
		CollectAll(search, &batch, search->params.nwanted_nodes);
	else if (search->params.code_filter != NULL)
		CollectPassing(search, &batch);
	else
		CollectAll(search, &batch, search->codes->ncodes);
	if (order->passing == 0 && batch.n <= Min(MAX_UNORDERED, search->params.ef))
	{
		/* so few in all that their order does not matter */
		for (int i = 0; i < batch.n; i++)
			order->items[i] = (PipeannDiscard) {.dist = 0,.id = batch.ids[i]};
		order->n = order->passing = batch.n;
		order->unordered = true;
	}
	else
	{
		AddBatch(search, &batch);
		HeapMake(order->items, order->n);
	}
	PipeannCountCodeReads(search);
}

/* Whether any is left; if so it is items[0]. */
static bool
HasNext(PipeannSearch *search)
{
	const PipeannCodeScan *order = &search->code_scan;

	if (order->n == 0 && order->left_out)
		FindNearest(search, order->size * GROWTH);
	return order->n > 0;
}

/* Pages requested together: at first as many as are needed in any case. */
#define FIRST_BATCH 16
#define LATER_BATCH 8
#define LATER_RUN 48

/* A first run reads at most this many times ef nodes. */
#define FIRST_RUN_FACTOR 20

/*
 * Standard deviations that a code's error hardly ever exceeds, and that most
 * errors do not. Fewer than FEWEST_ERRORS are not enough to judge.
 */
#define SURE_DEVIATIONS 6
#define LIKELY_DEVIATIONS 1
#define SPARSE_DEVIATIONS 2
#define FEWEST_ERRORS 10

/* Nodes that a run reads for sparse vectors; more if not all that pass match. */
static uint64
MostOfSparse(const PipeannSearch *search)
{
	const PipeannCodeFilter *filter = search->params.code_filter;
	uint64		list = Max(search->params.ef, search->params.min_list);

	return (uint64) (PIPEANN_SPARSE_READ * list /
					 (filter == NULL ? 1 : Max(filter->precision, 0.01)));
}

/* From now on go through the nodes that match, except those scored already. */
static void
Begin(PipeannSearch *search)
{
	PipeannCodeScan *order = &search->code_scan;
	const PipeannCodeFilter *filter = search->params.code_filter;
	double		precision = search->params.wanted_nodes != NULL || filter == NULL ?
		1 : filter->precision;

	search->code_scan.chosen = search->code_scan.begun = true;
	search->source->counters->code_scans++;
	order->last.dist = -INFINITY;
	order->last.id = 0;
	order->unordered = false;
	FindNearest(search, PipeannScansSparse(search) ?
				Max(FIRST_KEPT, 2 * GROWTH * MostOfSparse(search)) :
				Max((uint64) (FIRST_KEPT / Max(precision, 0.01)),
					KEPT_OF_EXPLORED * search->explored));
}

/* Begin without reading anything; returns the distance of the nearest code. */
float
PipeannEnterCodeScan(PipeannSearch *search)
{
	const PipeannCodeScan *order = &search->code_scan;

	Begin(search);
	return order->n > 0 ? order->items[0].dist : INFINITY;
}

/* Note a code's error: errors decide how far to go. */
static void
NoteError(PipeannSearch *search, const PipeannDiscard *item,
		  const PipeannSlot *slot)
{
	float		error;

	if (PipeannIsPoorlyCoded(search->layout, slot) || search->code_scan.unordered)
		return;
	error = item->dist - PipeannSlotDistance(search, slot);
	if (PipeannTerminationWantsError(&search->termination, false))
		PipeannSampleAdd(&search->termination.errors, error);
	PipeannSampleAdd(&search->code_scan.errors, error);
}

/* Score a node whose page has arrived, unless it was scored with its page. */
static void
Score(PipeannSearch *search, const PipeannDiscard *item)
{
	uint32		number = PipeannIdSlot(search->layout, item->id);
	PipeannPageRef *ref = PipeannRefOfPage(search, PipeannIdPage(search->layout, item->id));
	const PipeannSlot *slot = PipeannGetSlot(search, ref, number);

	if (!PipeannSlotIsLive(slot))
		return;					/* a free slot is not a node, either */
	search->source->counters->nodes_explored++;
	search->explored++;
	if (!PipeannIsWanted(search, item->id, slot))
		return;
	search->matching++;
	NoteError(search, item, slot);
	if (!ref->by_node)
		return;
	ref->slots |= (uint64) 1 << number;
	(void) PipeannScoreSlot(search, item->id, slot, true);
}

/* Whether a node was scored already, as a page-mate or before the code scan began. */
static bool
IsScored(const PipeannSearch *search, uint32 id)
{
	const PipeannLayout *l = search->layout;
	const PipeannPageRef *ref = PipeannRefOfPage(search, PipeannIdPage(l, id));

	return ref != NULL && ref->scored &&
		(!ref->by_node || PipeannHasSlotBit(ref->slots, PipeannIdSlot(l, id)));
}

/* The next nodes that are not scored, up to n; returns how many. */
static int
TakeBatch(PipeannSearch *search, PipeannDiscard *batch, int n, float bound)
{
	PipeannCodeScan *order = &search->code_scan;
	int			taken = 0;

	while (taken < n && HasNext(search) && !(order->items[0].dist > bound))
	{
		batch[taken] = order->last = HeapTake(order->items, &order->n);
		if (IsScored(search, batch[taken].id))
			search->matching++;
		else
			taken++;
	}
	return taken;
}

/*
 * The code distance from which on nodes are beyond the horizon of one of several
 * searches. (For sparse vectors it need not be certain, as far more nodes are read
 * than wanted. A horizon by WHERE does not end the scan: all rows within it count.)
 */
static float
HorizonOfScan(const PipeannSearch *search)
{
	const PipeannSample *errors = &search->code_scan.errors;

	return !search->params.one_of_several || !search->params.has_horizon ||
		search->code_scan.unordered || errors->n < FEWEST_ERRORS ? INFINITY :
		search->params.horizon +
		PipeannSampleBound(errors, PipeannScansSparse(search) ? SPARSE_DEVIATIONS :
						   SURE_DEVIATIONS);
}

/* The bound of an early end: by the errors of codes, without the factor. */
static float
ErrorBound(const PipeannSearch *search)
{
	const PipeannTermination *termination = &search->termination;

	return !termination->on || termination->count < PIPEANN_EARLY_RESULTS ?
		HorizonOfScan(search) :
		Min(HorizonOfScan(search), termination->nearest[PIPEANN_EARLY_RESULTS - 1].dist +
			PipeannTerminationMargin(termination, termination->deviations));
}

/*
 * Read and score nodes until `most` are done; false if it ended before because
 * the rest is too far, or none is left.
 */
static bool
ReadNearest(PipeannSearch *search, uint64 most)
{
	PipeannDiscard batch[FIRST_BATCH];
	int			size = FIRST_BATCH;
	uint64		end = search->explored + most;
	int			n;

	while (search->explored < end &&
		   (n = TakeBatch(search, batch,
						  (int) Min(end - search->explored, (uint64) size),
						  ErrorBound(search))) > 0)
	{
		PipeannKeepLimit(search, n);
		for (int i = 0; i < n; i++)
			PipeannRequestPageOf(search, batch[i].id, batch[i].dist);
		search->source->submit(search->source);
		for (int i = 0; i < n; i++)
		{
			while (!PipeannRefIsReady(PipeannRefOfPage(search, PipeannIdPage(search->layout, batch[i].id))))
				PipeannAwaitPage(search);
			Score(search, &batch[i]);
		}
		while (PipeannScoreNext(search))
			;
		size = LATER_BATCH;
	}
	return search->explored >= end;
}

/*
 * Run a code scan; false if nothing was left. If the first run may end early, it
 * may read more than ef nodes until then, as not all that pass match. The next
 * run reads up to ef, and later ones few: a caller that wants more calls again.
 */
bool
PipeannRunCodeScan(PipeannSearch *search)
{
	uint64		ef = search->params.ef;
	uint64		most = Max(ef, search->explored) - search->explored;

	if (PipeannScansSparse(search))
		most = MostOfSparse(search);
	else if (search->stage >= PIPEANN_STARTED)
		most = Max(most, LATER_RUN);
	if (!search->code_scan.begun)
		Begin(search);
	search->termination.on = false;
	if (search->stage < PIPEANN_STARTED && search->params.may_end_early &&
		!PipeannScansSparse(search))
	{
		PipeannTerminationInit(&search->termination, PIPEANN_L2,
							   search->params.ef);
		if (search->code_scan.passing <= ef)
			search->termination.deviations = SURE_DEVIATIONS;
		most *= FIRST_RUN_FACTOR;
	}
	search->stage = Max(search->stage, PIPEANN_STARTED);
	if (!HasNext(search) ||
		search->code_scan.items[0].dist > HorizonOfScan(search))
		return false;
	if (ReadNearest(search, most) || !HasNext(search))
		search->termination.on = false;
	return true;
}

/*
 * The order key up to which all results were found, surely or probably;
 * infinity if all were.
 */
float
PipeannCodeScanReadTo(const PipeannSearch *search, bool surely)
{
	const PipeannCodeScan *order = &search->code_scan;

	if (order->n == 0 && !order->left_out)
		return INFINITY;
	if (order->unordered || order->errors.n < FEWEST_ERRORS)
		return -FLT_MAX;
	/* if none is left here, the next ones are beyond the last one taken */
	return (order->n > 0 ? order->items[0].dist : order->last.dist) -
		PipeannSampleBound(&order->errors, surely ? SURE_DEVIATIONS : LIKELY_DEVIATIONS);
}
