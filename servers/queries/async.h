/*
 * async.h
 *		Scans of partitions on other servers, run at the same time; private to
 *		queries/.
 */
#ifndef PIPEANN_SERVERS_ASYNC_H
#define PIPEANN_SERVERS_ASYNC_H

#include "nodes/plannodes.h"

/*
 * After a query that was rewritten for its partitions is planned, let all parts on
 * other servers be asked at the same time where that may be, and no permissions be
 * looked for on any partition.
 */
extern void PipeannRunAsync(PlannedStmt *stmt);

/* Whether a statement changes no rows, and locks none. */
extern bool PipeannOnlyReads(const PlannedStmt *stmt);

/* Whether a foreign server is postgres_fdw's. */
extern bool PipeannIsPostgres(Oid server);

#endif							/* PIPEANN_SERVERS_ASYNC_H */
