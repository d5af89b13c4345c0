/*
 * catch_up.c
 *		What is made anew of an index is brought up to date with what inserts change
 *		meanwhile: src/README, "build/: catching up".
 */
#include "postgres.h"

#include "base/pause.h"
#include "build/coding.h"
#include "miscadmin.h"
#include "port/pg_bitutils.h"
#include "storage/lmgr.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

/* Bits are for so many ids beyond twice those that there are. */
#define SPARE_IDS 65536

/*
 * Inserts are kept out for so many ms at a time, once so few slots are left to do; twice
 * as long where inserts between change more than a quarter less than is done in that time,
 * up to a limit, within which what some thousand clients change is brought up to date.
 */
#define KEEP_OUT_MS 25
#define MOST_KEEP_OUT_MS 12800
#define FEW_CHANGES 2048

/*
 * From here on inserts note what they change. False if VACUUM or pipeann_check relies on
 * ids (busy), or there is no memory for it. PipeannCatchUpEnd() in any case but these.
 */
bool
PipeannCatchUpBegin(PipeannCatchUp *c)
{
	PipeannIndexView *view = c->view;
	uint64		ids = 2 * (uint64) PipeannViewIds(view) + SPARE_IDS;
	PipeannMetaAlone alone;
	PipeannMeta *meta;

	c->busy = !ConditionalLockPage(view->index, PIPEANN_REPACK_LOCK, ExclusiveLock);
	if (c->busy)
		return false;
	c->changes = PipeannChangesBegin(view->index, Min(ids, PIPEANN_INVALID_ID),
									 c->lists, &c->segment);
	if (c->changes == NULL)
	{
		UnlockPage(view->index, PIPEANN_REPACK_LOCK, ExclusiveLock);
		return false;
	}
	c->work = AllocSetContextCreate(CurrentMemoryContext, "pipeann catching up",
									ALLOCSET_DEFAULT_SIZES);
	meta = PipeannMetaBeginAlone(view->index, &alone);
	meta->changes_handle = c->segment == NULL ? DSM_HANDLE_INVALID :
		dsm_segment_handle(c->segment);
	meta->changes_key = c->changes->key;
	PipeannMetaEndAlone(view->index, &alone);
	PipeannRefreshView(view);
	return true;
}

/*
 * Go through all bits once, or until a time that is not 0; begins where the last call
 * ended. Returns how many slots have been brought up to date; *all is false if time
 * was up, or nothing will come of it.
 */
static uint64
CatchUp(PipeannCatchUp *c, TimestampTz until, bool *all)
{
	uint32		words = c->changes->ids / PIPEANN_CHANGES_WORD + 1;
	MemoryContext former = MemoryContextSwitchTo(c->work);
	uint64		n = 0;

	*all = true;
	for (uint32 i = 0; i < words && *all; i++)
	{
		pg_atomic_uint32 *word = &c->changes->words[c->word];

		for (uint32 bits = pg_atomic_read_u32(word); bits != 0; bits &= bits - 1)
		{
			int			bit = pg_rightmost_one_pos32(bits);

			if (PipeannCatchUpHasFailed(c) ||
				(until != 0 && GetCurrentTimestamp() >= until))
			{
				*all = false;
				break;
			}
			CHECK_FOR_INTERRUPTS();
			pg_atomic_fetch_and_u32(word, ~(1U << bit));
			PIPEANN_PAUSE("repack-bit-taken");
			c->slot(c->word * PIPEANN_CHANGES_WORD + bit, c->arg);
			MemoryContextReset(c->work);
			n++;
		}
		if (*all)
			c->word = (c->word + 1) % words;
	}
	*all &= !PipeannCatchUpHasFailed(c);
	MemoryContextSwitchTo(former);
	return n;
}

/* Beside inserts, in rounds, as long as each leaves clearly less to do than the one before. */
void
PipeannCatchUpBeside(PipeannCatchUp *c)
{
	uint64		before = PG_UINT64_MAX;
	bool		all;

	for (;;)
	{
		uint64		n = CatchUp(c, 0, &all);

		if (!all || n < FEW_CHANGES || n > before / 4 * 3)
			break;
		before = n;
	}
	PIPEANN_PAUSE("repack-caught-up");
}

static TimestampTz
After(int ms)
{
	return TimestampTzPlusMilliseconds(GetCurrentTimestamp(), ms);
}

/*
 * Bring the rest up to date with inserts kept out, for a little while at a time, and
 * then publish it. They are let in for less and less time, so that they do not change more
 * than that; if they do all the same, being many, they are kept out for longer. Returns
 * what publish returned, or false if nothing has come of it.
 */
bool
PipeannCatchUpFinish(PipeannCatchUp *c)
{
	Relation	index = c->view->index;
	uint64		before = 0;
	int			ms = KEEP_OUT_MS;

	for (int turn = 1;; turn++)
	{
		bool		cancellable = PipeannKeepInsertsOut(index);
		TimestampTz until = After(ms);
		uint64		n = 0;
		uint64		got;
		uint64		left;
		bool		all;
		bool		done = false;

		do
			n += got = CatchUp(c, until, &all);
		while (got > 0 && all);
		if (all)
			done = c->publish(c->arg);
		/* to count takes as long as the index is large */
		left = all ? 0 : PipeannChangesLeft(c->changes);
		PipeannLetInsertsIn(index, cancellable);
		if (all || PipeannCatchUpHasFailed(c))
			return done;
		if (turn > 1 && left + n / 4 > before)
			ms = Min(2 * ms, MOST_KEEP_OUT_MS);
		before = left;
		(void) CatchUp(c, After(KEEP_OUT_MS / turn), &all);
	}
}

/* Have inserts note nothing any more, unless it was published. */
void
PipeannCatchUpEnd(PipeannCatchUp *c, bool published)
{
	Relation	index = c->view->index;

	if (!published)
	{
		PipeannMetaAlone alone;
		PipeannMeta *meta = PipeannMetaBeginAlone(index, &alone);

		meta->changes_handle = DSM_HANDLE_INVALID;
		PipeannMetaEndAlone(index, &alone);
	}
	if (c->segment != NULL)
		dsm_detach(c->segment);
	MemoryContextDelete(c->work);
	UnlockPage(index, PIPEANN_REPACK_LOCK, ExclusiveLock);
}
