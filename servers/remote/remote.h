/*
 * remote.h
 *		Queries sent to other servers over connections of our own.
 *
 * A query is one message and its answer, in a transaction of its own at the other
 * server. This room knows foreign servers, user mappings and libpq, and nothing of
 * plans. The rules for connecting are postgres_fdw's.
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
	int		   *lengths;		/* of binary values */
	int		   *formats;		/* 1: binary, 0: text */
	bool		comes_again;	/* it will be sent again: prepare it */
	bool		at_once;		/* few rows are expected: read them as one result */
	bool		binary;			/* the answer's values are binary */
} PipeannMessage;

/*
 * query.c: begin a query, which has the user's connection to a server until it is ended
 * or the current memory context is reset. NULL if another query has the connection, or
 * only postgres_fdw may connect. With `later` it connects when it is first sent, if ever.
 */
extern PipeannRemoteQuery *PipeannRemoteBegin(Oid user, Oid server, bool later);

/* Send it without waiting. The message must last until all rows are read. */
extern void PipeannRemoteSend(PipeannRemoteQuery *query,
							  const PipeannMessage *message);

/* Wait for the next row; false if there is none. */
extern bool PipeannRemoteNext(PipeannRemoteQuery *query);

/* A column of this row as text, NULL for null. It lasts until the next row. */
extern char *PipeannRemoteValue(const PipeannRemoteQuery *query, int column);
extern int	PipeannRemoteColumns(const PipeannRemoteQuery *query);

typedef enum PipeannAsked
{
	PIPEANN_ANSWERED,
	PIPEANN_NOT_ASKED,			/* another query has the connection */
	PIPEANN_NO_ANSWER			/* none in time, or the server gave an error or cannot be reached */
} PipeannAsked;

/*
 * Ask for one value, returned as bytes in CurrentMemoryContext, or NULL. If there is no
 * answer *why says why. Only errors that arise here are thrown.
 */
extern PipeannAsked PipeannRemoteAsk(Oid user, Oid server, const PipeannMessage *message,
									 TimestampTz until, bytea **value, char **why);

/* Return a query to its state before it was sent. */
extern void PipeannRemoteReset(PipeannRemoteQuery *query);
extern void PipeannRemoteEnd(PipeannRemoteQuery *query);

#endif							/* PIPEANN_SERVERS_REMOTE_H */
