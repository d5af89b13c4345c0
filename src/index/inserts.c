/*
 * inserts.c
 *		Keeping inserts out of an index for a moment.
 */
#include "postgres.h"

#include "index/index.h"
#include "storage/lmgr.h"
#include "storage/proc.h"
#include "storage/procarray.h"

/*
 * Whether inserters that wait for an autovacuum worker may cancel it, as they do
 * after deadlock_timeout. All that the worker has done for this index would be
 * thrown away, and again the next time. The end of its transaction, of whatever kind,
 * makes it cancellable again.
 */
static void
SetCancellable(bool cancellable)
{
	if (!(MyProc->statusFlags & PROC_IS_AUTOVACUUM))
		return;
	LWLockAcquire(ProcArrayLock, LW_EXCLUSIVE);
	if (cancellable)
		MyProc->statusFlags &= ~PROC_VACUUM_FOR_WRAPAROUND;
	else
		MyProc->statusFlags |= PROC_VACUUM_FOR_WRAPAROUND;
	ProcGlobal->statusFlags[MyProc->pgxactoff] = MyProc->statusFlags;
	LWLockRelease(ProcArrayLock);
}

/*
 * Wait for the inserts under way, and let others wait until inserts are let in
 * again: the metapage's heavyweight lock. Those that wait do not cancel an autovacuum
 * worker meanwhile. Returns whether this backend could be cancelled by them before,
 * which PipeannLetInsertsIn() restores.
 */
bool
PipeannKeepInsertsOut(Relation index)
{
	bool		cancellable = (MyProc->statusFlags & PROC_VACUUM_FOR_WRAPAROUND) == 0;

	SetCancellable(false);
	LockPage(index, PIPEANN_METAPAGE, ExclusiveLock);
	return cancellable;
}

void
PipeannLetInsertsIn(Relation index, bool cancellable)
{
	UnlockPage(index, PIPEANN_METAPAGE, ExclusiveLock);
	SetCancellable(cancellable);
}
