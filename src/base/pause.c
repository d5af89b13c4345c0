/*
 * pause.c
 *		For tests: waiting at pause points, and planted faults.
 */
#include "base/pause.h"

#include "miscadmin.h"
#include "storage/lock.h"
#include "utils/guc.h"

#ifdef PIPEANN_PAUSE_POINTS

static char *pause_at;
int			pipeann_minute = 60000;

/*
 * The rest of the setting, a list with commas and blanks, after a name; NULL
 * if the name is not in it.
 */
static const char *
BehindName(const char *name)
{
	const char *at = pause_at;
	size_t		length = strlen(name);

	while (at != NULL && *at != '\0')
	{
		size_t		word;

		at += strspn(at, ", ");
		word = strcspn(at, ":, ");
		if (word == length && strncmp(at, name, length) == 0)
			return at + word;
		at += word + strcspn(at + word, ", ");
	}
	return NULL;
}

void
PipeannPause(const char *name)
{
	const char *behind = BehindName(name);
	LOCKTAG		tag;

	if (behind == NULL)
		return;
	if (*behind == ':')
	{
		pg_usleep(atol(behind + 1) * 1000);
		return;
	}
	SET_LOCKTAG_ADVISORY(tag, MyDatabaseId, 0, PIPEANN_PAUSE_KEY, 1);
	(void) LockAcquire(&tag, ShareLock, false, false);
	LockRelease(&tag, ShareLock, false);
}

/* Registers pipeann.pause_at and pipeann.minute, if the library is built with them. */
void
PipeannPauseInit(void)
{
	DefineCustomStringVariable("pipeann.pause_at",
							   "Points at which this session waits for advisory lock 7011.",
							   NULL, &pause_at, "", PGC_SUSET, 0, NULL, NULL,
							   NULL);
	DefineCustomIntVariable("pipeann.minute",
							"The unit of time of automatic REINDEX, in milliseconds.",
							NULL, &pipeann_minute, 60000, 60, 60000, PGC_SUSET, 0,
							NULL, NULL, NULL);
}

#endif

#ifdef PIPEANN_PLANTED_FAULTS

static char *planted_fault;

bool
PipeannIsPlanted(const char *name)
{
	return planted_fault != NULL && strcmp(planted_fault, name) == 0;
}

/* Registers pipeann.planted_fault, if the library is built with it. */
void
PipeannPlantedInit(void)
{
	DefineCustomStringVariable("pipeann.planted_fault",
							   "The fault that this session has, for tests.",
							   NULL, &planted_fault, "", PGC_USERSET, 0, NULL,
							   NULL, NULL);
}

#endif
