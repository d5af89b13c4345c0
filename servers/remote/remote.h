/*
 * remote.h
 *		Queries sent to other servers over connections of our own.
 *
 * A query is one message and its answer, in a transaction of its own at the other
 * server. This room knows foreign servers, user mappings and libpq, and nothing of
 * plans. Who may connect, as whom and with which options is as postgres_fdw has
 * it.
 */
#ifndef PIPEANN_SERVERS_REMOTE_H
#define PIPEANN_SERVERS_REMOTE_H

typedef struct PipeannRemoteQuery PipeannRemoteQuery;

/* What is sent: a query, and values for its $1 etc. */
typedef struct PipeannMessage
{
	const char *sql;
	int			nvalues;
	const char **values;		/* NULL for null */
	int		   *lengths;		/* of those that are no text */
	int		   *formats;		/* 1 for these, 0 for text */
	bool		comes_again;	/* prepare it */
	bool		at_once;		/* few rows come: read them as one */
	bool		binary;			/* so come values */
} PipeannMessage;

/*
 * query.c: a query for a server, which has the connection of this user until it
 * is ended or the current memory context is. NULL if it cannot have one: it is
 * another query's, or an option asks for what only postgres_fdw has. One that may not
 * be sent at all connects later, when it is.
 */
extern PipeannRemoteQuery *PipeannRemoteBegin(Oid user, Oid server, bool later);

/* Sends it, and does not wait. The message has to last until the rows have come. */
extern void PipeannRemoteSend(PipeannRemoteQuery *query,
							  const PipeannMessage *message);

/* Waits for the next row; false if there is none. */
extern bool PipeannRemoteNext(PipeannRemoteQuery *query);

/* A column of this row as text, NULL for null. It lasts until the next row. */
extern char *PipeannRemoteValue(const PipeannRemoteQuery *query, int column);
extern int	PipeannRemoteColumns(const PipeannRemoteQuery *query);

typedef enum PipeannAsked
{
	PIPEANN_ANSWERED,
	PIPEANN_NOT_ASKED,			/* something else is being asked */
	PIPEANN_NO_ANSWER			/* until then, or the server is not there for it */
} PipeannAsked;

/*
 * The value that one query gives, bytes in CurrentMemoryContext; NULL if it is null.
 * Where there is no answer, or an error, *why says why. Errors are those that arise here.
 */
extern PipeannAsked PipeannRemoteAsk(Oid user, Oid server, const PipeannMessage *message,
									 TimestampTz until, bytea **value, char **why);

/* Back to before it was sent. */
extern void PipeannRemoteReset(PipeannRemoteQuery *query);
extern void PipeannRemoteEnd(PipeannRemoteQuery *query);

#endif							/* PIPEANN_SERVERS_REMOTE_H */
