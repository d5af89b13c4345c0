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
 * per_partition.c: if a query, or one inside it, asks for the nearest rows of a table
 * with partitions on other servers, have it ask each partition for as many of its own
 * rows. To be called before the query is planned. Returns whether there was such a query.
 */
extern bool PipeannRewritePerPartition(Query *query, ParamListInfo params);

/* mark.c: mark an entry as made for the query with this number. */
extern void PipeannMark(RangeTblEntry *entry, int number);
extern bool PipeannIsMarked(const RangeTblEntry *entry);

/* Whether an Append has the rows of all parts of a query, in no order, and nothing else. */
extern bool PipeannIsOfParts(const Append *append, List *rtable);

/* Whether a node only scans the relation of a part, and that a foreign table. */
extern bool PipeannIsPart(const Plan *plan, List *rtable);

/* Whether that is a part of the query whose parts the Append has. */
extern bool PipeannIsPartOf(const Plan *plan, const Append *append,
							List *rtable);

/*
 * async.c: after a rewritten query was planned, have all parts on other servers asked at
 * the same time where possible, and remove permissions on partitions.
 */
extern void PipeannRunAsync(PlannedStmt *stmt);

/* Whether a statement changes no rows, and locks none. */
extern bool PipeannOnlyReads(const PlannedStmt *stmt);

/* Whether a foreign server is postgres_fdw's. */
extern bool PipeannIsPostgres(Oid server);

/*
 * Whether a node is a part of ours that runs concurrently with others, and whose query we
 * could send ourselves.
 */
extern bool PipeannIsSendable(const Plan *plan, List *rtable);

/* Positions in the private list of postgres_fdw's scans. */
#define PIPEANN_FDW_SQL			0
#define PIPEANN_FDW_COLUMNS		1

/*
 * foreign_limit.c: called while the paths of a query's final relation are made. If it is
 * for the nearest rows of a foreign table, and the limit can be sent to the server,
 * leaves only the path that sends it.
 */
extern void PipeannSendLimit(PlannerInfo *root, RelOptInfo *input,
							 RelOptInfo *final, void *extra);

/*
 * one_message.c: whether it does not matter how often and when functions of a statement
 * are called, and none of them may ask servers itself.
 */
extern bool PipeannIsSteady(Query *query);

/*
 * If such a statement scans other servers only below one Append of ours, and each once,
 * put a node of ours in its place.
 */
extern void PipeannAskInOneMessage(PlannedStmt *stmt);

/* one_message_exec.c: the node's methods. Its child is the Append. */
extern const CustomScanMethods PipeannOneMessageMethods;

#endif							/* PIPEANN_SERVERS_QUERIES_H */
