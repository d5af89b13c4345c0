/*
 * stats.c
 *		Counters of each index, summed over all backends since server start.
 *
 * A slot is found under the lock, shared, and changed under its own spinlock;
 * taking a slot for another index needs the lock exclusive.
 */
#include "hints/hints.h"

#include "access/xact.h"
#include "common/hashfn.h"
#include "miscadmin.h"
#include "utils/rel.h"

void
PipeannStatsInit(PipeannStats *stats, int tranche_id)
{
	LWLockInitialize(&stats->lock, tranche_id);
	for (int i = 0; i < PIPEANN_MAX_STATS; i++)
		SpinLockInit(&stats->slots[i].mutex);
}

static bool
IsOf(const PipeannStatsSlot *slot, Oid relid)
{
	return slot->sums.relid == relid && slot->sums.dbid == MyDatabaseId;
}

/*
 * The slot of an index of this database, or else the one to take for it: a
 * free one, or the least recently used one.
 */
static PipeannStatsSlot *
FindSlot(PipeannStats *stats, Oid relid)
{
	uint32		first = murmurhash32(hash_combine(murmurhash32(MyDatabaseId),
												  relid));
	PipeannStatsSlot *best = &stats->slots[first % PIPEANN_MAX_STATS];

	for (uint32 i = 0; i < PIPEANN_MAX_STATS; i++)
	{
		PipeannStatsSlot *slot = &stats->slots[(first + i) % PIPEANN_MAX_STATS];

		if (IsOf(slot, relid))
			return slot;
		if (slot->last_used < best->last_used)
			best = slot;
	}
	return best;
}

static void
AddCounters(PipeannCounters *sum, const PipeannCounters *c)
{
	sum->nodes_explored += c->nodes_explored;
	sum->code_distances += c->code_distances;
	sum->exact_distances += c->exact_distances;
	sum->page_hits += c->page_hits;
	sum->page_reads += c->page_reads;
	sum->code_page_reads += c->code_page_reads;
	sum->in_flight_sum += c->in_flight_sum;
	sum->in_flight_peak = Max(sum->in_flight_peak, c->in_flight_peak);
	sum->rounds += c->rounds;
	sum->wait_us += c->wait_us;
	sum->retries += c->retries;
	sum->rows_out_of_order += c->rows_out_of_order;
}

/* Add the counters of one scan to those of its index. stats may be NULL. */
void
PipeannStatsAdd(PipeannStats *stats, Relation index,
				const PipeannCounters *counters)
{
	Oid			relid = RelationGetRelid(index);
	Oid			file = index->rd_rel->relfilenode;
	PipeannStatsSlot *slot;

	if (stats == NULL)
		return;
	LWLockAcquire(&stats->lock, LW_SHARED);
	slot = FindSlot(stats, relid);
	if (!IsOf(slot, relid))
	{
		LWLockRelease(&stats->lock);
		LWLockAcquire(&stats->lock, LW_EXCLUSIVE);
		slot = FindSlot(stats, relid);
		if (!IsOf(slot, relid))
			slot->sums = (PipeannIndexStats) {.dbid = MyDatabaseId,.relid = relid,.file = file};
	}
	SpinLockAcquire(&slot->mutex);
	if (slot->sums.file != file)
		slot->sums = (PipeannIndexStats) {.dbid = MyDatabaseId,.relid = relid,.file = file};
	slot->sums.scans++;
	slot->last_used = GetCurrentStatementStartTimestamp();
	AddCounters(&slot->sums.counters, counters);
	SpinLockRelease(&slot->mutex);
	LWLockRelease(&stats->lock);
}

/* Sets *sums to those of the current database, palloc'd; returns how many. */
int
PipeannStatsCollect(PipeannStats *stats, PipeannIndexStats **sums)
{
	int			count = 0;

	*sums = palloc(PIPEANN_MAX_STATS * sizeof(PipeannIndexStats));
	if (stats == NULL)
		return 0;
	LWLockAcquire(&stats->lock, LW_SHARED);
	for (int i = 0; i < PIPEANN_MAX_STATS; i++)
	{
		PipeannStatsSlot *slot = &stats->slots[i];

		if (slot->sums.relid == InvalidOid || slot->sums.dbid != MyDatabaseId)
			continue;
		SpinLockAcquire(&slot->mutex);
		(*sums)[count++] = slot->sums;
		SpinLockRelease(&slot->mutex);
	}
	LWLockRelease(&stats->lock);
	return count;
}
