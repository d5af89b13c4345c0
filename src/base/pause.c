/*
 * pause.c
 *		Waiting at a point, for tests.
 */
#include "base/pause.h"

#ifdef PIPEANN_PAUSE_POINTS

#include "miscadmin.h"
#include "storage/lock.h"
#include "utils/guc.h"

static char *pause_at;

/* Whether a name is in the setting, a list with commas and blanks. */
static bool
IsNamed(const char *name)
{
	const char *at = pause_at;
	size_t		length = strlen(name);

	while (at != NULL && *at != '\0')
	{
		size_t		word;

		at += strspn(at, ", ");
		word = strcspn(at, ", ");
		if (word == length && strncmp(at, name, length) == 0)
			return true;
		at += word;
	}
	return false;
}

void
PipeannPause(const char *name)
{
	LOCKTAG		tag;

	if (!IsNamed(name))
		return;
	SET_LOCKTAG_ADVISORY(tag, MyDatabaseId, 0, PIPEANN_PAUSE_KEY, 1);
	(void) LockAcquire(&tag, ShareLock, false, false);
	LockRelease(&tag, ShareLock, false);
}

/* Registers pipeann.pause_at, if the library is built with it. */
void
PipeannPauseInit(void)
{
	DefineCustomStringVariable("pipeann.pause_at",
							   "Points at which this session waits for advisory lock 7011.",
							   NULL, &pause_at, "", PGC_SUSET, 0, NULL, NULL,
							   NULL);
}

#endif
