/*
 * changes.h
 *		Which slots inserts change while codes or pages are made anew; part of index.h.
 *
 * A bit for each id, in shared memory of who makes them (build/catch_up.c). It is set with
 * the page of the slot locked exclusively, so that an error leaves no change without
 * its bit; who takes the bit back and then reads the slot sees the change, or will
 * find the bit set again. The memory goes with its owner, as what that has done does.
 */
#ifndef PIPEANN_INDEX_CHANGES_H
#define PIPEANN_INDEX_CHANGES_H

#include "index/view.h"
#include "port/atomics.h"
#include "storage/dsm.h"

struct PipeannChanges
{
	uint64		key;			/* as in the metapage: it is this attempt's */
	PipeannLocator locator;
	uint32		ids;			/* that there are bits for */
	bool		lists;			/* a slot counts of which only the list changes */
	pg_atomic_uint32 beyond;	/* whether others have changed */
	pg_atomic_uint32 words[FLEXIBLE_ARRAY_MEMBER];
};

#define PIPEANN_CHANGES_WORD 32

/* Note that a slot changes, as its page is locked. */
static inline void
PipeannNoteChange(PipeannChanges *changes, uint32 id)
{
	pg_atomic_uint32 *word;
	uint32		bit = 1U << id % PIPEANN_CHANGES_WORD;

	if (changes == NULL)
		return;
	if (id >= changes->ids)
	{
		pg_atomic_write_u32(&changes->beyond, 1);
		return;
	}
	word = &changes->words[id / PIPEANN_CHANGES_WORD];
	if ((pg_atomic_read_u32(word) & bit) == 0)
		pg_atomic_fetch_or_u32(word, bit);
}

/* The same of its list. */
static inline void
PipeannNoteList(PipeannChanges *changes, uint32 id)
{
	if (changes != NULL && changes->lists)
		PipeannNoteChange(changes, id);
}

static inline bool
PipeannHasChanged(PipeannChanges *changes, uint32 id)
{
	return (pg_atomic_read_u32(&changes->words[id / PIPEANN_CHANGES_WORD]) &
			1U << id % PIPEANN_CHANGES_WORD) != 0;
}

/* changes.c */
extern uint64 PipeannChangesLeft(PipeannChanges *changes);
extern PipeannChanges *PipeannChangesBegin(Relation index, uint32 ids, bool lists,
										   dsm_segment **segment);
extern void PipeannFollowChanges(PipeannIndexView *view);

#endif							/* PIPEANN_INDEX_CHANGES_H */
