/*
 * verify.h
 *		State and functions that the parts of pipeann_check() share.
 *
 * This room knows the invariants of src/README and every page of an index. It
 * must not change any of them.
 *
 * The check runs concurrently with inserts and VACUUM, and takes no lock that they would
 * wait for. src/README says why concurrent changes cause no false alarms.
 */
#ifndef PIPEANN_CHECK_H
#define PIPEANN_CHECK_H

#include "attributes/attributes.h"
#include "index/index.h"

#include "utils/snapshot.h"

/* Flags in seen[], for each slot. */
#define PIPEANN_SEEN_NODE 0x01
#define PIPEANN_SEEN_EXT 0x02
#define PIPEANN_SEEN_OWNED 0x04 /* an overflow slot in the chain of a node */

/* How often an apparent error is checked again, with pauses. */
#define PIPEANN_CHECK_TRIES 4

typedef struct PipeannTidSet PipeannTidSet;

typedef struct PipeannCheck
{
	Relation	heap;
	Snapshot	snapshot;		/* taken before the index was read */
	PipeannIndexView view;
	uint64		build_id;		/* in the metapage at the start */
	BufferAccessStrategy strategy;
	uint32		pages;			/* graph pages in the file */
	uint32		ids;			/* ids on these pages */
	uint32		size;			/* allocated length of seen[] */
	uint8	   *seen;			/* [ids] */
	char	   *nodes;			/* the graph page that a sweep is at */
	int64		count;			/* nodes found */
	int64		tids;
	bool		chains;			/* there are overflow slots in chains */
	bool		owning;			/* slots of chains are noted in seen[] */
	uint32		shared_by;		/* node of the second chain of a slot, or INVALID_ID */
	uint8	   *codes;			/* payload of a code page */
	uint32		code_page;		/* its ordinal, or INVALID_ID */
	PipeannColumns columns;		/* of the index */
	PipeannAttributes *attributes;	/* NULL if there are no attribute codes */
	MemoryContext scratch;		/* for the check of one slot or row */
	PipeannTidSet *set;			/* private to rows.c */
} PipeannCheck;

typedef void (*PipeannCheckVisit) (PipeannCheck *check, uint32 id,
								   const PipeannSlot *slot);

/* pages.c */
extern void PipeannCheckReport(const PipeannCheck *check, uint32 id,
							   const char *what);
extern void PipeannCheckRefresh(PipeannCheck *check);
extern void PipeannCheckSweep(PipeannCheck *check, PipeannCheckVisit visit);
extern bool PipeannCheckReadSlot(const PipeannCheck *check, uint32 id,
								 PipeannSlot *slot);

/* rows.c */
extern const char *PipeannCheckChains(PipeannCheck *check, uint32 id,
									  const PipeannSlot *slot);
extern bool PipeannCheckOutOfLineVector(const PipeannCheck *check,
										const PipeannSlot *node, float *x);
extern void PipeannCheckOwners(PipeannCheck *check);
extern bool PipeannCheckIsStable(const PipeannCheck *check,
								 const PipeannSlot *slot);
extern bool PipeannCheckCovers(PipeannCheck *check, uint32 id,
							   const PipeannSlot *slot, const uint8 *code);
extern void PipeannCheckTids(PipeannCheck *check, bool heapallindexed);

/* Sleep a little, to let a concurrent change end before another look. */
static inline void
PipeannCheckPause(void)
{
	CHECK_FOR_INTERRUPTS();
	pg_usleep(20000L);
}

#endif							/* PIPEANN_CHECK_H */
