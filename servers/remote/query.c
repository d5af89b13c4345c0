/*
 * query.c
 *		A query that another server answers.
 *
 * It is one message; a text with parameters is prepared before it is first sent, as
 * it will be sent again. If many rows may come they are read one by one, so that
 * memory does not grow with them. A query that did not end leaves no connection
 * behind.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "remote/connection.h"
#include "remote/remote.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"
#if PG_VERSION_NUM >= 160000
#include "varatt.h"
#endif

/* The number of statements that a connection has prepared. */
#define MOST_PREPARED	64

struct PipeannRemoteQuery
{
	const UserMapping *user;
	KeptConnection *kept;		/* NULL if it was ended */
	const PipeannMessage *sent;
	PGresult   *rows;
	int			current;		/* row of rows, from 0 */
	bool		is_new;			/* kept is a new connection, so not lost since its last use */
	bool		running;
	bool		refused;		/* the other server has reported an error */
	MemoryContextCallback at_end;
};

/*
 * Forget what was sent. If the connection is closed it is opened when the query is sent
 * again.
 */
void
PipeannRemoteReset(PipeannRemoteQuery *query)
{
	PQclear(query->rows);
	query->rows = NULL;
	query->current = -1;
	if (query->running)
		PipeannCloseConnection(query->kept);
	query->running = false;
}

void
PipeannRemoteEnd(PipeannRemoteQuery *query)
{
	if (query->kept == NULL)
		return;
	PipeannRemoteReset(query);
	PipeannLeaveConnection(query->kept);
	query->kept = NULL;
}

static void
EndWithContext(void *arg)
{
	PipeannRemoteEnd(arg);
}

static PipeannRemoteQuery *
Begin(const UserMapping *user, bool later)
{
	PipeannRemoteQuery *query = palloc0(sizeof(PipeannRemoteQuery));

	query->user = user;
	query->kept = PipeannTakeConnection(user, later, &query->is_new);
	if (query->kept == NULL)
		return NULL;
	query->at_end.func = EndWithContext;
	query->at_end.arg = query;
	MemoryContextRegisterResetCallback(CurrentMemoryContext, &query->at_end);
	return query;
}

PipeannRemoteQuery *
PipeannRemoteBegin(Oid user, Oid server, bool later)
{
	return Begin(GetUserMapping(user, server), later);
}

/* Report the server's error, or libpq's if it sent none. */
static void
Report(PipeannRemoteQuery *query)
{
	const PGresult *result = query->rows;
	const char *state = PQresultErrorField(result, PG_DIAG_SQLSTATE);
	const char *message = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);
	const char *detail = PQresultErrorField(result, PG_DIAG_MESSAGE_DETAIL);
	const char *hint = PQresultErrorField(result, PG_DIAG_MESSAGE_HINT);
	const char *context = PQresultErrorField(result, PG_DIAG_CONTEXT);

	query->refused = true;
	if (message == NULL)
		message = pchomp(PQerrorMessage(query->kept->link));
	ereport(ERROR,
			(errcode(state != NULL ?
					 MAKE_SQLSTATE(state[0], state[1], state[2], state[3],
								   state[4]) : ERRCODE_CONNECTION_FAILURE),
			 message[0] != '\0' ? errmsg_internal("%s", message) :
			 errmsg("could not obtain message string for remote error"),
			 detail != NULL ? errdetail_internal("%s", detail) : 0,
			 hint != NULL ? errhint("%s", hint) : 0,
			 context != NULL ? errcontext("%s", context) : 0,
			 errcontext("remote SQL command: %s", query->sent->sql)));
}

/* Number of the prepared statement with this text, from 1. */
static int
Prepared(const PipeannRemoteQuery *query)
{
	ListCell   *cell;

	foreach(cell, query->kept->prepared)
		if (strcmp(lfirst(cell), query->sent->sql) == 0)
			return foreach_current_index(cell) + 1;
	return 0;
}

static void
Remember(const PipeannRemoteQuery *query)
{
	MemoryContext former = MemoryContextSwitchTo(TopMemoryContext);

	query->kept->prepared = lappend(query->kept->prepared,
									pstrdup(query->sent->sql));
	MemoryContextSwitchTo(former);
}

/*
 * False if the connection is lost. An error in the statement is reported when it is
 * executed.
 */
static bool
Prepare(PipeannRemoteQuery *query, const char *name)
{
	PGconn	   *link = query->kept->link;
	PGresult   *result;

	if (!PQsendPrepare(link, name, query->sent->sql, 0, NULL))
		return false;
	query->running = true;
	while ((result = PipeannNextResult(link)) != NULL)
	{
		PQclear(query->rows);
		query->rows = result;
	}
	if (PQstatus(link) != CONNECTION_OK)
		return false;
	if (PQresultStatus(query->rows) != PGRES_COMMAND_OK)
		Report(query);
	query->running = false;
	Remember(query);
	return true;
}

static bool
Execute(PipeannRemoteQuery *query)
{
	PGconn	   *link = query->kept->link;
	const PipeannMessage *sent = query->sent;
	int			number = Prepared(query);
	char		name[32];

	if (number == 0 && sent->comes_again &&
		list_length(query->kept->prepared) < MOST_PREPARED)
	{
		number = list_length(query->kept->prepared) + 1;
		snprintf(name, sizeof(name), "pipeann_%d", number);
		if (!Prepare(query, name))
			return false;
	}
	snprintf(name, sizeof(name), "pipeann_%d", number);
	query->running = true;
	return (number > 0 ?
			PQsendQueryPrepared(link, name, sent->nvalues, sent->values,
								sent->lengths, sent->formats, sent->binary) :
			PQsendQueryParams(link, sent->sql, sent->nvalues, NULL,
							  sent->values, sent->lengths, sent->formats,
							  sent->binary)) &&
		(sent->at_once || PQsetSingleRowMode(link)) && PQflush(link) >= 0;
}

/*
 * Send a query over a new connection, which prepares it again. It does not matter whether
 * it has run before, as it changes nothing.
 */
static void
SendAgain(PipeannRemoteQuery *query)
{
	PipeannRemoteReset(query);
	PipeannReopenConnection(query->kept, query->user);
	query->is_new = true;
	if (!Execute(query))
		Report(query);
}

void
PipeannRemoteSend(PipeannRemoteQuery *query, const PipeannMessage *message)
{
	query->sent = message;
	if (query->kept->link == NULL)
		SendAgain(query);
	else if (!Execute(query))
	{
		if (query->is_new)
			Report(query);
		SendAgain(query);
	}
}

/*
 * Whether the connection was lost since its last use, or its prepared statements are gone
 * or no longer fit their tables.
 */
static bool
IsStale(const PipeannRemoteQuery *query)
{
	const char *state = PQresultErrorField(query->rows, PG_DIAG_SQLSTATE);
	PGresult   *rest;

	if (query->is_new)
		return false;
	/* a server that goes away may say so before it does */
	while ((rest = PipeannNextResult(query->kept->link)) != NULL)
		PQclear(rest);
	if (PQstatus(query->kept->link) != CONNECTION_OK)
		return true;
	return state != NULL && Prepared(query) > 0 &&
		(strcmp(state, "26000") == 0 || strcmp(state, "0A000") == 0);
}

bool
PipeannRemoteNext(PipeannRemoteQuery *query)
{
	while (++query->current >= PQntuples(query->rows))
	{
		PQclear(query->rows);
		query->rows = NULL;
		query->rows = PipeannNextResult(query->kept->link);
		query->current = -1;
		switch (PQresultStatus(query->rows))
		{
			case PGRES_SINGLE_TUPLE:
			case PGRES_TUPLES_OK:
				break;
			default:
				if (query->rows == NULL &&
					PQstatus(query->kept->link) == CONNECTION_OK)
				{
					query->running = false;
					query->is_new = false;
					return false;
				}
				if (!IsStale(query))
					Report(query);
				SendAgain(query);
		}
	}
	/* from now on it cannot be sent again */
	query->is_new = true;
	return true;
}

char *
PipeannRemoteValue(const PipeannRemoteQuery *query, int column)
{
	return PQgetisnull(query->rows, query->current, column) ? NULL :
		PQgetvalue(query->rows, query->current, column);
}

int
PipeannRemoteColumns(const PipeannRemoteQuery *query)
{
	return PQnfields(query->rows);
}

typedef struct Asking
{
	PipeannRemoteQuery *query;
	bytea	   *value;
	PipeannAsked asked;
} Asking;

static void
Ask(Asking *asking, Oid user, Oid server, const PipeannMessage *message,
	MemoryContext context)
{
	const UserMapping *mapping = GetUserMapping(user, server);
	PipeannRemoteQuery *query;

	if (PipeannIsTaken(mapping))
	{
		asking->asked = PIPEANN_NOT_ASKED;
		return;
	}
	asking->query = query = Begin(mapping, false);
	if (query == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_SQLCLIENT_UNABLE_TO_ESTABLISH_SQLCONNECTION),
				 errmsg("only postgres_fdw may connect")));
	PipeannRemoteSend(query, message);
	while (PipeannRemoteNext(query))
	{
		int			length = PQgetlength(query->rows, query->current, 0);
		char	   *bytes = PipeannRemoteValue(query, 0);

		if (bytes == NULL)
			continue;
		asking->value = MemoryContextAlloc(context, VARHDRSZ + length);
		SET_VARSIZE(asking->value, VARHDRSZ + length);
		memcpy(VARDATA(asking->value), bytes, length);
	}
	PipeannRemoteEnd(query);
	asking->asked = PIPEANN_ANSWERED;
}

/*
 * Whether an error is the other server's, or means that it cannot be reached. Other
 * errors, such as a cancel, are the statement's.
 */
static bool
IsOfOther(const Asking *asking, int code)
{
	return (asking->query != NULL && asking->query->refused) ||
		ERRCODE_TO_CATEGORY(code) == ERRCODE_CONNECTION_EXCEPTION ||
		code == ERRCODE_UNDEFINED_OBJECT ||
		code == ERRCODE_S_R_E_PROHIBITED_SQL_STATEMENT_ATTEMPTED;
}

/*
 * No subtransaction is needed: an error that is caught leaves only the connection behind,
 * which is closed with the context.
 */
PipeannAsked
PipeannRemoteAsk(Oid user, Oid server, const PipeannMessage *message, TimestampTz until,
				 bytea **value, char **why)
{
	MemoryContext outer = CurrentMemoryContext;
	MemoryContext context = AllocSetContextCreate(outer, "pipeann question",
												  ALLOCSET_SMALL_SIZES);
	uint32		holdoff = InterruptHoldoffCount;
	Asking	   *asking = MemoryContextAllocZero(context, sizeof(Asking));
	PipeannAsked asked;

	asking->asked = PIPEANN_NO_ANSWER;
	PipeannWaitNoLonger(until);
	MemoryContextSwitchTo(context);
	PG_TRY();
	{
		Ask(asking, user, server, message, outer);
	}
	PG_CATCH();
	{
		ErrorData  *data;

		PipeannWaitNoLonger(0);
		MemoryContextSwitchTo(outer);
		if (!IsOfOther(asking, geterrcode()))
		{
			MemoryContextDelete(context);
			PG_RE_THROW();
		}
		data = CopyErrorData();
		InterruptHoldoffCount = holdoff;
		FlushErrorState();
		*why = pstrdup(data->message);
		FreeErrorData(data);
	}
	PG_END_TRY();
	PipeannWaitNoLonger(0);
	MemoryContextSwitchTo(outer);
	asked = asking->asked;
	*value = asked == PIPEANN_ANSWERED ? asking->value : NULL;
	MemoryContextDelete(context);
	return asked;
}
