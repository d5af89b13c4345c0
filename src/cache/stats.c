/*
 * stats.c
 *		Counters per index, summed over all backends since server start.
 *
 * A slot is found under stats_lock, shared, and changed under its own
 * spinlock; taking a slot for another index needs stats_lock exclusive.
 */
#include "cache/registry.h"

#include "access/xact.h"
#include "common/hashfn.h"

static uint32
FirstSlot(Oid dbid, Oid relid)
{
	return murmurhash32(hash_combine(murmurhash32(dbid), relid)) %
		PIPEANN_MAX_STATS;
}

/* Slots are taken over, so the search cannot stop at a free one. */
static PipeannStatsSlot *
FindSlot(PipeannControl *control, Oid dbid, Oid relid)
{
	uint32		first = FirstSlot(dbid, relid);

	for (uint32 i = 0; i < PIPEANN_MAX_STATS; i++)
	{
		PipeannStatsSlot *slot =
			&control->stats[(first + i) % PIPEANN_MAX_STATS];

		if (slot->relid == relid && slot->dbid == dbid)
			return slot;
	}
	return NULL;
}

/*
 * Take a free slot, the first one after the hash's place, or else the one that
 * was used longest ago.
 */
static PipeannStatsSlot *
TakeSlot(PipeannControl *control, Oid dbid, Oid relid)
{
	uint32		first = FirstSlot(dbid, relid);
	PipeannStatsSlot *best = &control->stats[first];

	for (uint32 i = 0; i < PIPEANN_MAX_STATS; i++)
	{
		PipeannStatsSlot *slot =
			&control->stats[(first + i) % PIPEANN_MAX_STATS];

		if (slot->relid == InvalidOid)
		{
			best = slot;
			break;
		}
		if (slot->last_used < best->last_used)
			best = slot;
	}
	best->dbid = dbid;
	best->relid = relid;
	best->scans = 0;
	best->last_used = 0;
	memset(&best->counters, 0, sizeof(best->counters));
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
	slot->scans++;
	slot->last_used = now;
	AddCounters(&slot->counters, counters);
	SpinLockRelease(&slot->mutex);
}

void
PipeannStatsAdd(Relation index, const PipeannCounters *counters)
{
	PipeannControl *control = PipeannControlGet();
	Oid			relid = RelationGetRelid(index);
	PipeannStatsSlot *slot;

	if (control == NULL)
		return;
	LWLockAcquire(&control->stats_lock, LW_SHARED);
	slot = FindSlot(control, MyDatabaseId, relid);
	if (slot == NULL)
	{
		LWLockRelease(&control->stats_lock);
		LWLockAcquire(&control->stats_lock, LW_EXCLUSIVE);
		slot = FindSlot(control, MyDatabaseId, relid);
		if (slot == NULL)
			slot = TakeSlot(control, MyDatabaseId, relid);
	}
	AddToSlot(slot, counters);
	LWLockRelease(&control->stats_lock);
}

static void
CopySlot(PipeannStatsSlot *slot, PipeannIndexStats *stats)
{
	stats->dbid = slot->dbid;
	stats->relid = slot->relid;
	SpinLockAcquire(&slot->mutex);
	stats->scans = slot->scans;
	stats->counters = slot->counters;
	SpinLockRelease(&slot->mutex);
}

int
PipeannStatsCollect(PipeannIndexStats **stats)
{
	PipeannControl *control = PipeannControlGet();
	int			count = 0;

	*stats = palloc(PIPEANN_MAX_STATS * sizeof(PipeannIndexStats));
	if (control == NULL)
		return 0;
	PipeannSweepIfDue();
	PipeannRegistrySweep(control);
	LWLockAcquire(&control->stats_lock, LW_SHARED);
	for (int i = 0; i < PIPEANN_MAX_STATS; i++)
		if (control->stats[i].relid != InvalidOid &&
			control->stats[i].dbid == MyDatabaseId)
			CopySlot(&control->stats[i], &(*stats)[count++]);
	LWLockRelease(&control->stats_lock);
	return count;
}
