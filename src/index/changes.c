/*
 * changes.c
 *		Which slots inserts change while codes or pages are made anew.
 */
#include "postgres.h"

#include "base/attempt.h"
#include "index/index.h"
#include "miscadmin.h"
#include "port/pg_bitutils.h"

/*
 * Bits for so many ids, all zero, with a random key. *segment is the shared memory
 * that they are in, or NULL where there are no other backends. NULL if the server has
 * no place for another segment.
 */
PipeannChanges *
PipeannChangesBegin(Relation index, uint32 ids, bool lists, dsm_segment **segment)
{
	Size		size = offsetof(PipeannChanges, words) +
		(ids / PIPEANN_CHANGES_WORD + 1) * sizeof(pg_atomic_uint32);
	PipeannChanges *changes;

	*segment = NULL;
	if (!IsUnderPostmaster)
		changes = PipeannAlloc(size);
	else
	{
		char		error[256];

		*segment = PipeannAttemptSegment(DSM_HANDLE_INVALID, size, error, sizeof(error));
		if (*segment == NULL)
		{
			ereport(LOG,
					(errmsg("index \"%s\" cannot be retrained: %s",
							RelationGetRelationName(index), error)));
			return NULL;
		}
		/* it goes with the statement */
		dsm_unpin_mapping(*segment);
		changes = dsm_segment_address(*segment);
	}
	memset(changes, 0, size);
	if (!pg_strong_random(&changes->key, sizeof(changes->key)))
		ereport(ERROR,
				(errcode(ERRCODE_INTERNAL_ERROR),
				 errmsg("could not generate a random number")));
	changes->locator = PipeannRelationLocator(index);
	changes->ids = ids;
	changes->lists = lists;
	return changes;
}

/* How many bits are set. */
uint64
PipeannChangesLeft(PipeannChanges *changes)
{
	uint32		words = changes->ids / PIPEANN_CHANGES_WORD + 1;
	uint64		n = 0;

	for (uint32 i = 0; i < words; i++)
		n += pg_popcount32(pg_atomic_read_u32(&changes->words[i]));
	return n;
}

/* A handle may be another segment's by now, and the metapage one that was copied. */
static PipeannChanges *
ChangesOf(const PipeannIndexView *view, dsm_segment *segment)
{
	PipeannChanges *changes = dsm_segment_address(segment);

	if (dsm_segment_map_length(segment) < sizeof(PipeannChanges) ||
		changes->key != view->meta.changes_key ||
		!PipeannLocatorEquals(changes->locator,
							  PipeannRelationLocator(view->index)))
		return NULL;
	return changes;
}

/* What this backend has mapped, of the indexes that it inserted into last. */
#define KEPT 4

static struct
{
	PipeannLocator locator;
	dsm_handle	handle;
}			kept[KEPT];
static int	nkept = 0;

static void
Forget(int i)
{
	dsm_segment *segment = kept[i].handle == DSM_HANDLE_INVALID ? NULL :
		dsm_find_mapping(kept[i].handle);

	if (segment != NULL)
		dsm_detach(segment);
	memset(&kept[i], 0, sizeof(kept[i]));
}

/* Unmap what this backend noted changes of the index in before. */
static void
ForgetFormer(Relation index)
{
	for (int i = 0; i < KEPT; i++)
		if (PipeannLocatorEquals(kept[i].locator, PipeannRelationLocator(index)))
			Forget(i);
}

/* Keep a segment mapped; one that no insert comes back to is, as long as the session. */
static void
Keep(Relation index, dsm_segment *segment)
{
	Forget(nkept);
	dsm_pin_mapping(segment);
	kept[nkept].locator = PipeannRelationLocator(index);
	kept[nkept].handle = dsm_segment_handle(segment);
	nkept = (nkept + 1) % KEPT;
}

/*
 * Have an insert that holds the metapage's lock note what it changes, if the index gets
 * other codes or pages. The backend keeps the memory mapped for its next inserts.
 */
void
PipeannFollowChanges(PipeannIndexView *view)
{
	dsm_handle	handle = view->meta.changes_handle;
	dsm_segment *segment = handle == DSM_HANDLE_INVALID ? NULL :
		dsm_find_mapping(handle);

	if (segment == NULL)
	{
		ForgetFormer(view->index);
		/*
		 * There is none if who packed has ended. An error for another reason is the
		 * insert's: who packs would not hear of its changes.
		 */
		segment = handle == DSM_HANDLE_INVALID ? NULL : dsm_attach(handle);
		if (segment == NULL)
			return;
		if (ChangesOf(view, segment) == NULL)
		{
			dsm_detach(segment);
			return;
		}
		Keep(view->index, segment);
	}
	view->changes = ChangesOf(view, segment);
}
