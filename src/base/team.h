/*
 * team.h
 *		The processes that work on one index together.
 *
 * All members of a team run the same program. Work is done in steps: the items
 * 0 .. n - 1 of a step are handed out in slices to the member that asks next,
 * and no member goes on before all items are done. What a step writes must not
 * depend on which member handles an item, so that the result is the same with
 * any number of members.
 *
 *		PipeannTeamEach(team, i, n, 64)
 *			...						-- item i
 *
 * A team of one needs no server. parallel.c makes teams of several.
 */
#ifndef PIPEANN_TEAM_H
#define PIPEANN_TEAM_H

#include "base/base.h"

#include <sched.h>

/* The counters of a team, in memory that all members share. */
typedef struct PipeannTeamShared
{
	uint64		next[2];		/* of even and odd steps: next item */
} PipeannTeamShared;

typedef struct PipeannTeam PipeannTeam;

/*
 * A log is what one member writes to a temporary file, and later reads from the
 * front to the end, where fewer bytes come than were asked for.
 */
typedef struct PipeannLogs
{
	struct BufFile *(*open) (void);
	void		(*write) (struct BufFile *log, const void *data, Size size);
	void		(*rewind) (struct BufFile *log);
	Size		(*read) (struct BufFile *log, void *data, Size size);
	void		(*close) (struct BufFile *log);
} PipeannLogs;

typedef void (*PipeannTeamProgress) (uint64 done, uint64 n, void *arg);

struct PipeannTeam
{
	int			member;			/* 0 is the leader */
	int			members;
	PipeannTeamShared *shared;
	PipeannTeamShared alone;	/* what shared points to in a team of one */

	/* the current step */
	uint64		n;
	uint64		slice;			/* items handed out at once */
	int			step;			/* 0 or 1, in turn */
	uint32		steps;			/* begun so far */

	/* set by the maker of a team of several; NULL for a team of one */
	void		(*meet) (PipeannTeam *team);
	void	   *(*share) (PipeannTeam *team, Size size, bool work);
	Size		(*room) (PipeannTeam *team, bool work);
	void		(*unshare) (PipeannTeam *team, const void *memory);
	const PipeannLogs *logs;

	/* called by the leader with the items handed out, or NULL */
	PipeannTeamProgress progress;
	void	   *progress_arg;
};

static inline bool
PipeannTeamLeads(const PipeannTeam *team)
{
	return team->member == 0;
}

/* Wait until all members have reached this point. */
static inline void
PipeannTeamMeet(PipeannTeam *team)
{
	if (team->meet != NULL)
		team->meet(team);
}

/* Report the progress of a step that the leader does alone. */
static inline void
PipeannTeamReport(PipeannTeam *team, uint64 done, uint64 n)
{
	if (team->progress != NULL)
		team->progress(done, n, team->progress_arg);
}

/*
 * A lock of one byte, zero at first, for a few instructions that cannot fail.
 */
static inline void
PipeannTeamLock(uint8 *lock)
{
	while (__atomic_test_and_set(lock, __ATOMIC_ACQUIRE))
		sched_yield();
}

static inline void
PipeannTeamUnlock(uint8 *lock)
{
	__atomic_clear(lock, __ATOMIC_RELEASE);
}

extern void PipeannTeamBegin(PipeannTeam *team, uint64 n, uint64 slice);
extern bool PipeannTeamNext(PipeannTeam *team, uint64 *from, uint64 *to);

/* A step of n items: what follows is done for each slice from .. to - 1. */
#define PipeannTeamSlices(team, from, to, n, slice) \
	for (uint64 to = (PipeannTeamBegin((team), (n), (slice)), 0), from = 0; \
		 PipeannTeamNext((team), &from, &to);)

/* The same for each item. It must not be left by break. */
#define PipeannTeamEach(team, i, n, slice) \
	PipeannTeamSlices((team), i, i##_end, (n), (slice)) \
		for (; i < i##_end; i++)

static inline void *
PipeannTeamAllocAs(PipeannTeam *team, Size size, bool work)
{
	if (team != NULL && team->share != NULL)
		return team->share(team, size, work);
	return PipeannAllocZero(Max(size, 1));
}

/*
 * Memory that all members share, zeroed; at the same or at different addresses.
 * All members call, with the same size, and in the same order. Without a team
 * it is the caller's own. Fails as PipeannAlloc() does.
 */
static inline void *
PipeannTeamAlloc(PipeannTeam *team, Size size)
{
	return PipeannTeamAllocAs(team, size, false);
}

/* An array of n elements of a type in such memory. */
#define PipeannTeamArray(team, type, n) \
	((type *) PipeannTeamAlloc((team), mul_size((n), sizeof(type))))

/*
 * Such memory for arrays accessed at random: if memory is short, it is a file
 * only if there is no other way.
 */
static inline void *
PipeannTeamAllocWork(PipeannTeam *team, Size size)
{
	return PipeannTeamAllocAs(team, size, true);
}

/* Give memory back, unless it is NULL. All members call, when none uses it any more. */
static inline void
PipeannTeamFree(PipeannTeam *team, const void *memory)
{
	if (memory == NULL)
		return;
	if (team != NULL && team->unshare != NULL)
		team->unshare(team, memory);
	else
		pfree((void *) memory);
}

/* Whether PipeannTeamAlloc() has memory for this many bytes. */
static inline bool
PipeannTeamFits(PipeannTeam *team, Size size)
{
	return team->room == NULL || size <= team->room(team, false);
}

/* Bytes of memory that PipeannTeamAllocWork() has left. */
static inline Size
PipeannTeamRoom(PipeannTeam *team)
{
	return team->room != NULL ? team->room(team, true) : SIZE_MAX;
}

/* Prepare a team of one. */
static inline void
PipeannTeamOfOne(PipeannTeam *team)
{
	memset(team, 0, sizeof(*team));
	team->members = 1;
	team->shared = &team->alone;
}

/* A team of one, valid until the next call. */
static inline PipeannTeam *
PipeannTeamAlone(void)
{
	static PipeannTeam alone;

	PipeannTeamOfOne(&alone);
	return &alone;
}

#endif							/* PIPEANN_TEAM_H */
