/*
 * shared.h
 *		What the processes of a build share: memory, or temporary files.
 */
#ifndef PIPEANN_SHARED_H
#define PIPEANN_SHARED_H

#include "base/team.h"
#include "nodes/pg_list.h"
#include "storage/dsm.h"
#include "storage/fileset.h"

/* The allocation that the members make just now, in memory that they share. */
typedef struct PipeannShare
{
	dsm_handle	handle;			/* of a segment, or invalid */
	uint32		file;			/* else the number of a file */
	bool		refused;		/* a member cannot attach to the segment */
} PipeannShare;

/* One member's view of all allocations. */
typedef struct PipeannShares
{
	PipeannShare *share;		/* [2] used in turn */
	int			turn;
	FileSet    *files;
	Size		limit;			/* of memory, for all members together */
	Size		used;
	bool		short_of;		/* memory does not hold all; set by the build */
	uint32		nfiles;			/* made so far */
	Size		file_bytes;
	bool		noticed;		/* the user was told */
	List	   *live;			/* of Allocation */
} PipeannShares;

extern void *PipeannSharesAlloc(PipeannTeam *team, PipeannShares *s,
								Size size, bool work);
extern Size PipeannSharesRoom(const PipeannShares *s, bool work);
extern void PipeannSharesFree(PipeannTeam *team, PipeannShares *s,
							  void *memory);
extern void PipeannSharesFreeAll(PipeannTeam *team, PipeannShares *s);

#endif							/* PIPEANN_SHARED_H */
