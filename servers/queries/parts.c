/*
 * parts.c
 *		Asking servers that have the same index, and a part of it in memory, to go on
 *		with a search (pipeann_servers.part_servers).
 *
 * A search needs none of them. So it is no error if one cannot be reached or is too
 * old: it is not asked for a while.
 */
#include "postgres.h"

#include "foreign/foreign.h"
#include "miscadmin.h"
#include "queries/queries.h"
#include "remote/remote.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/timestamp.h"
#include "utils/varlena.h"
#if PG_VERSION_NUM >= 160000
#include "varatt.h"
#endif

/* How long a server is not asked after it gave no answer, or could not help. */
#define LOST_MS 10000
#define NO_HELP_MS 1000

/* The most servers that are asked, as many as an index may have parts. */
#define MOST_PARTS 100

/*
 * A server that this session has asked for a part, and the time until which it does not
 * ask again.
 */
typedef struct PartServer
{
	Oid			server;
	TimestampTz until;
} PartServer;

static PartServer asked_for[MOST_PARTS];

static void
LeaveAlone(uint32 part, int ms)
{
	asked_for[part].until = TimestampTzPlusMilliseconds(GetCurrentTimestamp(), ms);
}

/* Whether a server may be asked for a part now; notes that it is. */
static bool
MayAsk(Oid server, uint32 part)
{
	if (asked_for[part].server == server &&
		GetCurrentTimestamp() < asked_for[part].until)
		return false;
	asked_for[part] = (PartServer) {server, 0};
	return true;
}

/* The n-th server of the setting, if the user may use it; or NULL. */
static const ForeignServer *
ServerOf(uint32 n)
{
	char	   *names = pstrdup(pipeann_part_servers);
	const ForeignServer *server;
	List	   *list;

	if (!SplitIdentifierString(names, ',', &list) || n >= MOST_PARTS ||
		n >= (uint32) list_length(list))
		return NULL;
	server = GetForeignServerByName(list_nth(list, n), true);
	if (server == NULL ||
		strcmp(GetForeignDataWrapper(server->fdwid)->fdwname, "postgres_fdw") != 0)
		return NULL;
	return PipeannHasUsage(server->serverid) ? server : NULL;
}

/* The query for a step. The extension's functions are in the schema of the access method's. */
static char *
StepQuery(Relation index)
{
	return psprintf("SELECT %s.pipeann_search_step($1::pg_catalog.oid::pg_catalog.regclass, $2)",
					quote_identifier(get_namespace_name(get_func_namespace(index->rd_amhandler))));
}

bytea *
PipeannAskPart(Relation index, uint32 part, const bytea *message, TimestampTz *until)
{
	const ForeignServer *server = ServerOf(part);
	char		id[16];
	const char *values[] = {id, VARDATA_ANY(message)};
	int			lengths[] = {0, (int) VARSIZE_ANY_EXHDR(message)};
	int			formats[] = {0, 1};
	PipeannMessage sent = {
		.nvalues = 2,.values = values,.lengths = lengths,.formats = formats,
		.comes_again = true,.at_once = true,.binary = true
	};
	bytea	   *answer = NULL;
	char	   *why = NULL;
	PipeannAsked asked;

	if (server == NULL || !MayAsk(server->serverid, part))
		return NULL;
	/* one time limit for all calls of a search */
	if (*until == 0)
		*until = TimestampTzPlusMilliseconds(GetCurrentTimestamp(), pipeann_part_timeout);
	if (GetCurrentTimestamp() >= *until)
		return NULL;
	snprintf(id, sizeof(id), "%u", RelationGetRelid(index));
	sent.sql = StepQuery(index);
	asked = PipeannRemoteAsk(GetUserId(), server->serverid, &sent, *until, &answer, &why);
	if (asked == PIPEANN_NO_ANSWER)
	{
		LeaveAlone(part, LOST_MS);
		ereport(LOG,
				(errmsg("server \"%s\" did not go on with a search of index \"%s\": %s",
						server->servername, RelationGetRelationName(index), why)));
	}
	else if (asked == PIPEANN_ANSWERED && answer == NULL)
		LeaveAlone(part, NO_HELP_MS);
	return answer;
}
