/*
 * queries.h
 *		Queries for the nearest rows of partitions on other servers, and their plans.
 */
#ifndef PIPEANN_SERVERS_QUERIES_H
#define PIPEANN_SERVERS_QUERIES_H

#include "core/core.h"
#include "nodes/extensible.h"
#include "nodes/params.h"
#include "nodes/pathnodes.h"
#include "nodes/plannodes.h"

/* parts.c: have another server take a step of a search (interface.h, ask_part) */
extern bytea *PipeannAskPart(Relation index, uint32 part, const bytea *message,
							 TimestampTz *until);

/*
 * per_partition.c: where a query, or one inside it, asks for the nearest rows of a
 * table with partitions on other servers, let it ask each partition for as many as
 * there can be of its own. Before the query is planned. Returns whether there was one.
 */
extern bool PipeannRewritePerPartition(Query *query, ParamListInfo params);

/* mark.c: mark an entry as made for the query of this number. */
extern void PipeannMark(RangeTblEntry *entry, int number);
extern bool PipeannIsMarked(const RangeTblEntry *entry);

/*
 * Whether an Append has the rows of all parts of a query, and nothing else; they
 * are in no order.
 */
extern bool PipeannIsOfParts(const Append *append, List *rtable);

/* Whether a node only scans the relation of a part, and that a foreign table. */
extern bool PipeannIsPart(const Plan *plan, List *rtable);

/* Whether that is a part of the query whose parts the Append has. */
extern bool PipeannIsPartOf(const Plan *plan, const Append *append,
							List *rtable);

/*
 * async.c: after a query that was rewritten for its partitions is planned, let all
 * parts on other servers be asked at the same time where that may be, and no
 * permissions be looked for on any partition.
 */
extern void PipeannRunAsync(PlannedStmt *stmt);

/* Whether a statement changes no rows, and locks none. */
extern bool PipeannOnlyReads(const PlannedStmt *stmt);

/* Whether a foreign server is postgres_fdw's. */
extern bool PipeannIsPostgres(Oid server);

/*
 * Whether a node is a part of ours that runs concurrently with others, and whose query could be
 * sent by anybody.
 */
extern bool PipeannIsSendable(const Plan *plan, List *rtable);

/* Where postgres_fdw has these in the private list of a scan. */
#define PIPEANN_FDW_SQL			0
#define PIPEANN_FDW_COLUMNS		1

/*
 * foreign_limit.c: while the paths of a query's final relation are made: if it is for
 * the nearest rows of a foreign table, and the server can be sent the limit, leave no
 * path but the one by which it is.
 */
extern void PipeannSendLimit(PlannerInfo *root, RelOptInfo *input,
							 RelOptInfo *final, void *extra);

/*
 * one_message.c: whether it does not matter how often and when functions of a
 * statement are called, and none of them can ask the servers as well.
 */
extern bool PipeannIsSteady(Query *query);

/*
 * Where such a statement scans other servers below one Append of ours, and each of
 * them once, put a node of ours in its place.
 */
extern void PipeannAskInOneMessage(PlannedStmt *stmt);

/* one_message_exec.c: how that node is run. Its child is the Append. */
extern const CustomScanMethods PipeannOneMessageMethods;

#endif							/* PIPEANN_SERVERS_QUERIES_H */
