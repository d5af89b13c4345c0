/*
 * changes.c
 *		Which nodes inserts change while the index is packed anew.
 */
#include "postgres.h"

#include "index/index.h"
#include "miscadmin.h"

/*
 * Bits for so many ids, all zero, with a random key. *segment is the shared memory
 * that they are in, or NULL where no other backend inserts. NULL if the server has no
 * place for another segment.
 */
PipeannChanges *
PipeannChangesBegin(Relation index, uint32 ids, dsm_segment **segment)
{
	Size		size = offsetof(PipeannChanges, words) +
		(ids / PIPEANN_CHANGES_WORD + 1) * sizeof(pg_atomic_uint32);
	PipeannChanges *changes;

	*segment = NULL;
	if (index->rd_rel->relpersistence == RELPERSISTENCE_TEMP ||
		!IsUnderPostmaster)
		changes = PipeannAlloc(size);
	else
	{
		*segment = dsm_create(size, DSM_CREATE_NULL_IF_MAXSEGMENTS);
		if (*segment == NULL)
			return NULL;
		changes = dsm_segment_address(*segment);
	}
	memset(changes, 0, size);
	if (!pg_strong_random(&changes->key, sizeof(changes->key)))
		ereport(ERROR,
				(errcode(ERRCODE_INTERNAL_ERROR),
				 errmsg("could not generate a random number")));
	changes->locator = PipeannRelationLocator(index);
	changes->ids = ids;
	return changes;
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

/*
 * Have an insert that holds the metapage's lock note what it changes, if the index is
 * being packed anew. The backend keeps the memory mapped for its next inserts.
 */
void
PipeannFollowChanges(PipeannIndexView *view)
{
	static dsm_handle kept = DSM_HANDLE_INVALID;
	static PipeannLocator locator;
	dsm_handle	handle = view->meta.changes_handle;
	dsm_segment *segment = dsm_find_mapping(handle);

	if (handle == DSM_HANDLE_INVALID || segment == NULL)
	{
		dsm_segment *former = dsm_find_mapping(kept);

		if (handle == DSM_HANDLE_INVALID &&
			!PipeannLocatorEquals(locator, PipeannRelationLocator(view->index)))
			return;
		if (kept != DSM_HANDLE_INVALID && former != NULL)
			dsm_detach(former);
		kept = DSM_HANDLE_INVALID;
		if (handle == DSM_HANDLE_INVALID)
			return;
		/* there is none if who packed has ended */
		segment = dsm_attach(handle);
		if (segment == NULL)
			return;
		if (ChangesOf(view, segment) == NULL)
		{
			dsm_detach(segment);
			return;
		}
		dsm_pin_mapping(segment);
		kept = handle;
		locator = PipeannRelationLocator(view->index);
	}
	view->changes = ChangesOf(view, segment);
}
