/*
 * part_servers.h
 *		The servers that have parts of indexes in memory, for interface.h.
 */
#ifndef PIPEANN_PART_SERVERS_H
#define PIPEANN_PART_SERVERS_H

#include "base/parts.h"
#include "datatype/timestamp.h"
#include "utils/relcache.h"

typedef struct PipeannPartServers
{
	char	   *names;			/* pipeann.part_servers: of foreign servers */
	int			timeout;		/* pipeann.part_timeout, milliseconds */

	/*
	 * Has the server with a part, from 0, take a step of a search; its answer, or NULL
	 * if there is none until then, which is set if it is 0. NULL while no library is
	 * loaded that knows of servers.
	 */
	bytea	   *(*ask) (Relation index, uint32 part, const bytea *message,
						TimestampTz *until);
} PipeannPartServers;

#endif							/* PIPEANN_PART_SERVERS_H */
