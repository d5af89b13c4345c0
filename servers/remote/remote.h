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

/*
 * query.c: a query for a server, which has the connection of this user until it
 * is ended or the current memory context is. NULL if it cannot have one: it is
 * another query's, or an option asks for what only postgres_fdw has.
 */
extern PipeannRemoteQuery *PipeannRemoteBegin(Oid user, Oid server,
											  const char *sql);

/* Sends it, and does not wait. The values (text, NULL for null) are for $1 etc. */
extern void PipeannRemoteSend(PipeannRemoteQuery *query, int n,
							  const char *const *values);

/* Waits for the next row; false if there is none. */
extern bool PipeannRemoteNext(PipeannRemoteQuery *query);

/* A column of this row as text, NULL for null. It lasts until the next row. */
extern char *PipeannRemoteValue(const PipeannRemoteQuery *query, int column);
extern int	PipeannRemoteColumns(const PipeannRemoteQuery *query);

/* Back to before it was sent. */
extern void PipeannRemoteReset(PipeannRemoteQuery *query);
extern void PipeannRemoteEnd(PipeannRemoteQuery *query);

#endif							/* PIPEANN_SERVERS_REMOTE_H */
