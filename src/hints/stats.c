/*
 * stats.c
 *		Counters per index, summed over all backends since server start.
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

static uint32
FirstSlot(Oid dbid, Oid relid)
{
	return murmurhash32(hash_combine(murmurhash32(dbid), relid)) %
		PIPEANN_MAX_STATS;
}

/* Slots are taken over, so the search cannot stop at a free one. */
static PipeannStatsSlot *
FindSlot(PipeannStats *stats, Oid dbid, Oid relid)
{
	uint32		first = FirstSlot(dbid, relid);

	for (uint32 i = 0; i < PIPEANN_MAX_STATS; i++)
	{
		PipeannStatsSlot *slot = &stats->slots[(first + i) % PIPEANN_MAX_STATS];

		if (slot->sums.relid == relid && slot->sums.dbid == dbid)
			return slot;
	}
	return NULL;
}

/*
 * Take a free slot, the first one after the hash's place, or else the one that
 * was used longest ago.
 */
static PipeannStatsSlot *
TakeSlot(PipeannStats *stats, Oid dbid, Oid relid)
{
	uint32		first = FirstSlot(dbid, relid);
	PipeannStatsSlot *best = &stats->slots[first];

	for (uint32 i = 0; i < PIPEANN_MAX_STATS; i++)
	{
		PipeannStatsSlot *slot = &stats->slots[(first + i) % PIPEANN_MAX_STATS];

		if (slot->sums.relid == InvalidOid)
		{
			best = slot;
			break;
		}
		if (slot->last_used < best->last_used)
			best = slot;
	}
	memset(&best->sums, 0, sizeof(best->sums));
	best->sums.dbid = dbid;
	best->sums.relid = relid;
	best->last_used = 0;
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
	sum->in_flight_sum += c->in_flight_sum;
	sum->in_flight_peak = Max(sum->in_flight_peak, c->in_flight_peak);
	sum->rounds += c->rounds;
	sum->wait_us += c->wait_us;
	sum->retries += c->retries;
	sum->rows_out_of_order += c->rows_out_of_order;
}

static void
AddToSlot(PipeannStatsSlot *slot, const PipeannCounters *counters)
{
	TimestampTz now = GetCurrentStatementStartTimestamp();

	SpinLockAcquire(&slot->mutex);
	slot->sums.scans++;
	slot->last_used = now;
	AddCounters(&slot->sums.counters, counters);
	SpinLockRelease(&slot->mutex);
}

/* Add the counters of one scan to those of its index. stats may be NULL. */
void
PipeannStatsAdd(PipeannStats *stats, Relation index,
				const PipeannCounters *counters)
{
	Oid			relid = RelationGetRelid(index);
	PipeannStatsSlot *slot;

	if (stats == NULL)
		return;
	LWLockAcquire(&stats->lock, LW_SHARED);
	slot = FindSlot(stats, MyDatabaseId, relid);
	if (slot == NULL)
	{
		LWLockRelease(&stats->lock);
		LWLockAcquire(&stats->lock, LW_EXCLUSIVE);
		slot = FindSlot(stats, MyDatabaseId, relid);
		if (slot == NULL)
			slot = TakeSlot(stats, MyDatabaseId, relid);
	}
	AddToSlot(slot, counters);
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
