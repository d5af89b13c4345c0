/*
 * connection.c
 *		Connections to other servers, kept until the session ends.
 *
 * There is one for each user mapping, besides that of postgres_fdw. It is closed
 * when the options of the server or the mapping change, and after any error. A
 * server whose connection is closed gives up its query by itself, so nobody waits
 * for a cancel request to be taken.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "pgstat.h"
#include "remote/connection.h"
#include "storage/fd.h"
#include "storage/latch.h"
#include "utils/hsearch.h"
#include "utils/inval.h"
#include "utils/memutils.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"
#if PG_VERSION_NUM >= 170000
#include "utils/wait_event.h"
#endif

/* What postgres_fdw sets, so that a value's text means the same everywhere. */
#define TEXT_SETTINGS \
	"SET search_path = pg_catalog; SET timezone = 'GMT'; SET datestyle = ISO; " \
	"SET intervalstyle = postgres; SET extra_float_digits = 3"

/* Older servers do not have this setting. */
#define CHECK_SETTING "SET client_connection_check_interval = '1s'"

static HTAB *connections;

/* ---------- waiting for other servers, so that a query can be cancelled ---------- */

/* The time from which on waiting is an error, or 0. */
static TimestampTz no_longer;

void
PipeannWaitNoLonger(TimestampTz until)
{
	no_longer = until;
}

/* Wait until the link may be ready, at most until `until`, which is 0 for no end. */
static void
WaitForLink(PGconn *link, int events, TimestampTz until)
{
	long		most = -1;

	if (no_longer != 0 && GetCurrentTimestamp() >= no_longer)
		ereport(ERROR,
				(errcode(ERRCODE_CONNECTION_FAILURE),
				 errmsg("timeout expired")));
	if (no_longer != 0 && (until == 0 || no_longer < until))
		until = no_longer;
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
	/* an answer may have arrived while others were waited for; a lost link is noticed here */
	while (PQisBusy(link) && PQconsumeInput(link) && PQisBusy(link))
	{
		int			left = PQflush(link);

		if (left >= 0)
			WaitForLink(link, WL_SOCKET_READABLE |
							   (left > 0 ? WL_SOCKET_WRITEABLE : 0), 0);
	}
	return PQgetResult(link);
}

/* ---------- connections ---------- */

void
PipeannCloseConnection(KeptConnection *kept)
{
	if (kept->link != NULL)
	{
		PQfinish(kept->link);
		ReleaseExternalFD();
	}
	kept->link = NULL;
	list_free_deep(kept->prepared);
	kept->prepared = NIL;
}

/* A hash of 0 means that anything may have changed. */
static void
Outdate(Datum arg, int cache, uint32 hash)
{
	HASH_SEQ_STATUS scan;
	KeptConnection *kept;

	(void) arg;
	hash_seq_init(&scan, connections);
	while ((kept = hash_seq_search(&scan)) != NULL)
	{
		if (kept->link == NULL ||
			(hash != 0 && hash != (cache == FOREIGNSERVEROID ?
								   kept->server_hash : kept->mapping_hash)))
			continue;
		kept->outdated = true;
		if (!kept->taken)
			PipeannCloseConnection(kept);
	}
}

static KeptConnection *
Find(Oid mapping)
{
	KeptConnection *kept;
	bool		found;

	if (connections == NULL)
	{
		HASHCTL		control = {
			.keysize = sizeof(Oid),
			.entrysize = sizeof(KeptConnection),
			.hcxt = TopMemoryContext
		};

		connections = hash_create("pipeann connections", 8, &control,
								  HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
		CacheRegisterSyscacheCallback(FOREIGNSERVEROID, Outdate, (Datum) 0);
		CacheRegisterSyscacheCallback(USERMAPPINGOID, Outdate, (Datum) 0);
	}
	kept = hash_search(connections, &mapping, HASH_ENTER, &found);
	if (!found)
	{
		memset(kept, 0, sizeof(KeptConnection));
		kept->mapping = mapping;
	}
	return kept;
}

/* Connect step by step: while PQconnectdb() waits a query cannot be cancelled. */
static void
WaitUntilConnected(PGconn *link, int timeout)
{
	TimestampTz until = timeout == 0 ? 0 :
		TimestampTzPlusMilliseconds(GetCurrentTimestamp(), timeout * 1000);
	PostgresPollingStatusType status = PGRES_POLLING_WRITING;

	while (PQstatus(link) != CONNECTION_BAD && status != PGRES_POLLING_OK &&
		   status != PGRES_POLLING_FAILED)
	{
		if (until != 0 && GetCurrentTimestamp() >= until)
			return;
		WaitForLink(link, status == PGRES_POLLING_READING ?
						   WL_SOCKET_READABLE : WL_SOCKET_WRITEABLE, until);
		status = PQconnectPoll(link);
	}
}

/* Execute commands; false if one failed. */
static bool
Set(PGconn *link, const char *commands)
{
	bool		done = true;
	PGresult   *result;

	if (!PQsendQuery(link, commands))
		return false;
	while ((result = PipeannNextResult(link)) != NULL)
	{
		done &= PQresultStatus(result) == PGRES_COMMAND_OK;
		PQclear(result);
	}
	return done;
}

static void
ReportNotConnected(const char *server, const char *why)
{
	ereport(ERROR,
			(errcode(ERRCODE_SQLCLIENT_UNABLE_TO_ESTABLISH_SQLCONNECTION),
			 errmsg("could not connect to server \"%s\"", server),
			 errdetail_internal("%s", why)));
}

static void
Open(KeptConnection *kept, const ForeignServer *server,
	 const ConnectOptions *options)
{
	if (!AcquireExternalFD())
		ereport(ERROR,
				(errcode(ERRCODE_SQLCLIENT_UNABLE_TO_ESTABLISH_SQLCONNECTION),
				 errmsg("could not connect to server \"%s\"",
						server->servername),
				 errdetail("There are too many open files on the local server.")));
	kept->link = PQconnectStartParams(options->keywords, options->values, 0);
	if (kept->link == NULL)
	{
		ReleaseExternalFD();
		ReportNotConnected(server->servername, "out of memory");
	}
	kept->outdated = false;
	kept->server_hash = GetSysCacheHashValue1(FOREIGNSERVEROID,
											  ObjectIdGetDatum(server->serverid));
	kept->mapping_hash = GetSysCacheHashValue1(USERMAPPINGOID,
											   ObjectIdGetDatum(kept->mapping));
	WaitUntilConnected(kept->link, options->timeout);
	if (PQstatus(kept->link) != CONNECTION_OK ||
		!Set(kept->link, TEXT_SETTINGS))
	{
		const char *why = pchomp(PQerrorMessage(kept->link));

		ReportNotConnected(server->servername,
						   why[0] != '\0' ? why : "timeout expired");
	}
	(void) Set(kept->link, CHECK_SETTING);
	(void) PQsetnonblocking(kept->link, 1);
}

/* Open a connection; false if only postgres_fdw may have one. */
static bool
TryOpen(KeptConnection *kept, const UserMapping *user)
{
	const ForeignServer *server = GetForeignServer(user->serverid);
	ConnectOptions options;

	if (!PipeannConnectOptions(server, user, &options))
		return false;
	/* so that a callback about changed options does not close it */
	kept->taken = true;
	PG_TRY();
	{
		Open(kept, server, &options);
	}
	PG_CATCH();
	{
		PipeannCloseConnection(kept);
		kept->taken = false;
		PG_RE_THROW();
	}
	PG_END_TRY();
	if (PipeannMayUse(user, PQconnectionUsedPassword(kept->link)))
		return true;
	PipeannCloseConnection(kept);
	kept->taken = false;
	return false;
}

/* A kept connection may have been closed by the server, which shows when it is used. */
KeptConnection *
PipeannTakeConnection(const UserMapping *user, bool later, bool *is_new)
{
	KeptConnection *kept = Find(user->umid);
	ConnectOptions options;

	if (kept->taken)
		return NULL;
	*is_new = kept->link == NULL;
	if (*is_new && !(later ?
					 PipeannConnectOptions(GetForeignServer(user->serverid), user,
										   &options) :
					 TryOpen(kept, user)))
		return NULL;
	kept->taken = true;
	return kept;
}

/* Whether a query has the connection of a user mapping. */
bool
PipeannIsTaken(const UserMapping *user)
{
	return Find(user->umid)->taken;
}

void
PipeannLeaveConnection(KeptConnection *kept)
{
	kept->taken = false;
	if (kept->outdated)
		PipeannCloseConnection(kept);
}

/* By the user mapping as it is now: a query may have begun long before it is first sent. */
void
PipeannReopenConnection(KeptConnection *kept, const UserMapping *user)
{
	const UserMapping *now = GetUserMapping(user->userid, user->serverid);

	PipeannCloseConnection(kept);
	if (now->umid != kept->mapping)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("user mapping for \"%s\" was recreated",
						MappingUserName(now->userid))));
	if (!TryOpen(kept, now))
		ereport(ERROR,
				(errcode(ERRCODE_S_R_E_PROHIBITED_SQL_STATEMENT_ATTEMPTED),
				 errmsg("password is required"),
				 errdetail("Non-superusers must provide a password in the user mapping.")));
}
