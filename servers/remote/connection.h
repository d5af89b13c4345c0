/*
 * connection.h
 *		Connections to other servers; private to remote/.
 */
#ifndef PIPEANN_SERVERS_CONNECTION_H
#define PIPEANN_SERVERS_CONNECTION_H

#include "foreign/foreign.h"
#include "libpq-fe.h"
#include "datatype/timestamp.h"

/* A connection that is kept until the session ends. */
typedef struct KeptConnection
{
	Oid			mapping;		/* user mapping, the key */
	PGconn	   *link;			/* NULL if there is none */
	List	   *prepared;		/* texts of prepared statements; the n-th is named pipeann_n */
	uint32		server_hash;
	uint32		mapping_hash;
	bool		taken;			/* in use by a query */
	bool		outdated;		/* options have changed */
} KeptConnection;

/* options.c */
typedef struct ConnectOptions
{
	const char **keywords;
	const char **values;
	int			timeout;		/* seconds, 0 if there is none */
} ConnectOptions;

/* False if an option asks for what only postgres_fdw has. */
extern bool PipeannConnectOptions(const ForeignServer *server,
								  const UserMapping *user,
								  ConnectOptions *options);

/* Whether a user may have a connection for which a password was used, or was not. */
extern bool PipeannMayUse(const UserMapping *user, bool used_password);

/* connection.c: NULL as for PipeannRemoteBegin(); with `later` it may be closed still */
extern KeptConnection *PipeannTakeConnection(const UserMapping *user,
											 bool later, bool *is_new);
extern bool PipeannIsTaken(const UserMapping *user);
extern void PipeannLeaveConnection(KeptConnection *kept);
extern void PipeannCloseConnection(KeptConnection *kept);

/* Open a closed connection again. */
extern void PipeannReopenConnection(KeptConnection *kept,
									const UserMapping *user);

/* Set the time from which on waiting is an error, or 0. */
extern void PipeannWaitNoLonger(TimestampTz until);

/* Wait for PQgetResult()'s next result; NULL at the end. */
extern PGresult *PipeannNextResult(PGconn *link);

#endif							/* PIPEANN_SERVERS_CONNECTION_H */
