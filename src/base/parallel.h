/*
 * parallel.h
 *		Teams of several processes for CREATE INDEX, and what they share.
 *
 * The leader is the backend that builds the index; parallel workers are the
 * other members of its team. All run the same program.
 */
#ifndef PIPEANN_PARALLEL_H
#define PIPEANN_PARALLEL_H

#include "postgres.h"

#include "access/parallel.h"
#include "access/relscan.h"
#include "base/team.h"
#include "nodes/execnodes.h"
#include "nodes/pg_list.h"
#include "storage/fileset.h"
#include "utils/rel.h"
#include "utils/snapshot.h"

typedef struct PipeannParallelShared PipeannParallelShared;
typedef struct PipeannShare PipeannShare;

/* One member's view of all allocations. */
typedef struct PipeannShares
{
	PipeannShare *share;		/* [2] used in turn */
	int			turn;
	FileSet    *files;			/* NULL: those of a team of one need no names */
	Size		limit;			/* of memory, for all members together */
	Size		used;
	bool		short_of;		/* not everything fits in memory; set by the build */
	uint32		nfiles;			/* made so far */
	bool		noticed;		/* a NOTICE was raised */
	List	   *live;			/* of Allocation */
} PipeannShares;

typedef struct PipeannParallel
{
	PipeannTeam team;			/* first: the team's callbacks get this struct */
	Relation	heap;
	Relation	index;
	IndexInfo  *index_info;
	ParallelTableScanDesc scan;
	BlockNumber nblocks;		/* of the table when the scan began, or more */

	/* results */
	double		heap_tuples;
	double		index_tuples;

	/* private to parallel.c */
	PipeannParallelShared *shared;	/* NULL for a team of one from the start */
	ParallelContext *context;	/* the leader's */
	Snapshot	snapshot;		/* the leader's */
	PipeannShares shares;		/* memory that members share */
} PipeannParallel;

extern void PipeannParallelBegin(PipeannParallel *p, Relation heap,
								 Relation index, IndexInfo *index_info);
extern void PipeannParallelEnd(PipeannParallel *p);
extern void PipeannParallelJoin(PipeannParallel *p, dsm_segment *seg,
								shm_toc *toc);
extern void PipeannParallelLeave(PipeannParallel *p);

#endif							/* PIPEANN_PARALLEL_H */
