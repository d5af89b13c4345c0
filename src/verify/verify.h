/*
 * verify.h
 *		What the parts of pipeann_check() share.
 *
 * The check runs beside inserts and VACUUM, without a lock that they would
 * notice. What keeps it from false alarms is said in src/README.
 */
#ifndef PIPEANN_CHECK_H
#define PIPEANN_CHECK_H

#include "index/index.h"

#include "utils/snapshot.h"

/* What was seen of a slot, by id. */
#define PIPEANN_SEEN_NODE 0x01
#define PIPEANN_SEEN_EXT 0x02
#define PIPEANN_SEEN_ROWS 0x04	/* a node that has TIDs */
#define PIPEANN_SEEN_OWNED 0x08 /* an overflow slot of some node's chain */
#define PIPEANN_SEEN_REACHED 0x10
#define PIPEANN_SEEN_EXPANDED 0x20	/* reached, and its neighbours with it */

/* What looks wrong is looked at again so often, with pauses. */
#define PIPEANN_CHECK_TRIES 4

typedef struct PipeannCheckWalk PipeannCheckWalk;
typedef struct PipeannTidSet PipeannTidSet;

typedef struct PipeannCheck
{
	Relation	heap;
	Snapshot	snapshot;		/* older than anything read of the index */
	PipeannIndexView view;
	uint32		packings;		/* of the metapage when it began */
	BufferAccessStrategy strategy;
	uint32		pages;			/* graph pages in the file */
	uint32		ids;			/* that these have */
	uint32		size;			/* of seen[] */
	uint8	   *seen;			/* [ids] */
	char	   *nodes;			/* the graph page under the sweep */
	int64		count;			/* nodes */
	int64		tids;
	bool		chains;			/* there are some */
	bool		shared;			/* a chain met another one's slot */
	uint32		shared_by;		/* node of that chain */
	uint8	   *codes;			/* payload of a code page */
	uint32		code_page;		/* which, or INVALID_ID */
	MemoryContext scratch;		/* of one slot's or row's check */
	PipeannCheckWalk *walk;		/* verify/edges.c's */
	PipeannTidSet *set;			/* verify/heap.c's */
} PipeannCheck;

typedef void (*PipeannCheckVisit) (PipeannCheck *check, uint32 id,
								   const PipeannSlot *slot);

/* verify/pages.c */

/* Errors with ERRCODE_INDEX_CORRUPTED. */
extern void PipeannCheckReport(const PipeannCheck *check, uint32 id,
							   const char *what);

/* Let a concurrent change get on before looking again. */
extern void PipeannCheckPause(void);

/* Take what the index has grown by into view. */
extern void PipeannCheckRefresh(PipeannCheck *check);

/*
 * Read graph pages in file order and visit their slots, used or not. With
 * wanted, only pages whose byte is set; it is cleared.
 */
extern void PipeannCheckSweep(PipeannCheck *check, uint8 *wanted,
							  PipeannCheckVisit visit);

/*
 * Copy a slot as it is now, all of it for a node. False if nothing has ever
 * been written there.
 */
extern bool PipeannCheckReadSlot(const PipeannCheck *check, uint32 id,
								 PipeannSlot *slot);

/* Whether a slot is a node by now. */
extern bool PipeannCheckIsNodeNow(PipeannCheck *check, uint32 id);

extern void PipeannCheckMap(const PipeannCheck *check);
extern void PipeannCheckOtherPages(const PipeannCheck *check);

/* verify/slots.c */
extern void PipeannCheckSlots(PipeannCheck *check);

/* verify/chains.c */

/* Called for each overflow slot of a chain, in order. */
typedef void (*PipeannChainVisit) (uint32 id, const PipeannSlot *ext,
								   void *arg);

/*
 * Walk a node's chain of TIDs, or of its out-of-line vector. Returns NULL, or what is
 * wrong with it.
 */
extern const char *PipeannCheckWalkChain(const PipeannCheck *check,
										 const PipeannSlot *node, bool vector,
										 PipeannChainVisit visit, void *arg);

/* Both chains of a node, read again while wrong; errors if they stay so. */
extern void PipeannCheckChains(PipeannCheck *check, uint32 id,
							   const PipeannSlot *slot);

/* The vector of an out-of-line node; false if its chain does not hold it now. */
extern bool PipeannCheckOutOfLineVector(const PipeannCheck *check,
										const PipeannSlot *node, float *x);

/* No overflow slot is in two chains. */
extern void PipeannCheckOwners(PipeannCheck *check);

/* verify/codes.c */
extern void PipeannCheckVector(PipeannCheck *check, uint32 id,
							   const PipeannSlot *slot);
extern void PipeannCheckStreams(PipeannCheck *check);

/* verify/edges.c */
extern void PipeannCheckEdges(PipeannCheck *check);

/* verify/heap.c */

/*
 * Whether the node has a row that our snapshot sees: then its insert was over
 * before we began, and what was true then of the node must be true now.
 */
extern bool PipeannCheckIsStable(const PipeannCheck *check,
								 const PipeannSlot *slot);

/*
 * Every TID is in the index once; with heapallindexed every row that the
 * snapshot sees is there, in a node of its vector.
 */
extern void PipeannCheckTids(PipeannCheck *check, bool heapallindexed);

#endif							/* PIPEANN_CHECK_H */
