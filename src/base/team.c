/*
 * team.c
 *		Handing out the items of a step.
 */
#include "base/base.h"

#include "base/team.h"

/* Begin a step of n items, handed out in slices of this many. All members call. */
void
PipeannTeamBegin(PipeannTeam *team, uint64 n, uint64 slice)
{
	team->n = n;
	team->slice = Max(slice, 1);
	team->step = 1 - team->step;
	team->steps++;
}

/* Take the next slice of items. False when all of them are done. */
bool
PipeannTeamNext(PipeannTeam *team, uint64 *from, uint64 *to)
{
	CHECK_FOR_INTERRUPTS();
	*from = __atomic_fetch_add(&team->shared->next[team->step], team->slice,
							   __ATOMIC_RELAXED);
	if (*from >= team->n)
	{
		/* all members have finished the step that used the next one's counter last */
		if (PipeannTeamLeads(team))
			__atomic_store_n(&team->shared->next[1 - team->step], 0,
							 __ATOMIC_RELAXED);
		PipeannTeamMeet(team);
		return false;
	}
	*to = Min(*from + team->slice, team->n);
	if (team->progress != NULL && PipeannTeamLeads(team))
		team->progress(*from, team->n, team->progress_arg);
	return true;
}
