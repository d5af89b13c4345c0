/*
 * spread.h
 *		Queries for the nearest rows of partitions on other servers; private to
 *		queries/.
 */
#ifndef PIPEANN_PLAN_SPREAD_H
#define PIPEANN_PLAN_SPREAD_H

#include "nodes/params.h"
#include "nodes/parsenodes.h"
#include "nodes/plannodes.h"

/*
 * Where a query, or one inside it, asks for the nearest rows of a table with
 * partitions on other servers, let it ask each partition for as many as there
 * can be of its own. Before the query is planned. Returns whether there was one.
 */
extern bool PipeannSpread(Query *query, ParamListInfo params);

/*
 * at_once.c: after it was planned, let all parts on other servers be asked at the
 * same time where that may be, and no permissions be looked for on any partition.
 */
extern void PipeannFinishSpread(PlannedStmt *stmt);

/* Whether a statement changes no rows, and locks none. */
extern bool PipeannOnlyReads(const PlannedStmt *stmt);

/* Whether a foreign server is postgres_fdw's. */
extern bool PipeannIsPostgres(Oid server);

#endif							/* PIPEANN_PLAN_SPREAD_H */
