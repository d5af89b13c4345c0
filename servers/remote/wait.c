/*
 * wait.c
 *		Waiting for other servers, so that a query can be cancelled meanwhile.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "pgstat.h"
#include "remote/connection.h"
#include "storage/latch.h"
#include "utils/timestamp.h"
#if PG_VERSION_NUM >= 170000
#include "utils/wait_event.h"
#endif

/* Returns when the link is ready, or may be; `until` is 0 for no end. */
void
PipeannWaitForLink(PGconn *link, int events, TimestampTz until)
{
	long		most = -1;

	if (until != 0)
	{
		most = TimestampDifferenceMilliseconds(GetCurrentTimestamp(), until);
		events |= WL_TIMEOUT;
	}
	if (WaitLatchOrSocket(MyLatch, WL_LATCH_SET | WL_EXIT_ON_PM_DEATH | events,
						  PQsocket(link), most, PG_WAIT_EXTENSION) &
		WL_LATCH_SET)
		ResetLatch(MyLatch);
	CHECK_FOR_INTERRUPTS();
}

PGresult *
PipeannNextResult(PGconn *link)
{
	while (PQisBusy(link))
	{
		int			left = PQflush(link);

		if (left >= 0)
			PipeannWaitForLink(link, WL_SOCKET_READABLE |
							   (left > 0 ? WL_SOCKET_WRITEABLE : 0), 0);
		/* a link that is lost has a result that says so */
		if (!PQconsumeInput(link))
			break;
	}
	return PQgetResult(link);
}
