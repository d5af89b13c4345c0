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
	Oid			mapping;		/* of a user, the key */
	PGconn	   *link;			/* NULL if there is none */
	List	   *prepared;		/* texts of statements, the n-th is named pipeann_n */
	uint32		server_hash;
	uint32		mapping_hash;
	bool		taken;			/* by a query */
	bool		outdated;		/* options have changed */
} KeptConnection;

/* options.c */
typedef struct ConnectOptions
{
	const char **keywords;
	const char **values;
	int			timeout;		/* seconds, 0 if there is none */
} ConnectOptions;

/* False if they ask for what only postgres_fdw has. */
extern bool PipeannConnectOptions(const ForeignServer *server,
								  const UserMapping *user,
								  ConnectOptions *options);

/* Whether a connection may be used that needed a password, or did not. */
extern bool PipeannMayUse(const UserMapping *user, bool used_password);

/* connection.c: NULL as PipeannRemoteBegin(); where it is for later it may be closed */
extern KeptConnection *PipeannTakeConnection(const UserMapping *user,
											 bool later, bool *is_new);
extern bool PipeannIsTaken(const UserMapping *user);
extern void PipeannLeaveConnection(KeptConnection *kept);
extern void PipeannCloseConnection(KeptConnection *kept);

/* Instead of one that was closed. */
extern void PipeannReopenConnection(KeptConnection *kept,
									const UserMapping *user);

/* From now on waiting errors at this time; 0: it does not. */
extern void PipeannWaitNoLonger(TimestampTz until);

/* Wait until there is a result that PQgetResult() has; NULL at the end. */
extern PGresult *PipeannNextResult(PGconn *link);

#endif							/* PIPEANN_SERVERS_CONNECTION_H */
