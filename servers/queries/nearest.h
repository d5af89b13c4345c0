/*
 * nearest.h
 *		Queries for the nearest rows of a partitioned table, and the partitions that
 *		they have to look at; private to queries/.
 */
#ifndef PIPEANN_SERVERS_NEAREST_H
#define PIPEANN_SERVERS_NEAREST_H

#include "nodes/params.h"
#include "nodes/parsenodes.h"
#include "utils/relcache.h"

/* The range table index of the table, a query's only relation. */
#define PIPEANN_NEAREST_TABLE 1

/* SELECT ... FROM table [WHERE ...] ORDER BY distance LIMIT ... [OFFSET ...] */
typedef struct PipeannNearest
{
	Query	   *query;
	RangeTblEntry *table;
	SortGroupClause *order;
	TargetEntry *distance;
} PipeannNearest;

/* nearest.c: whether a query is of this kind and no other; then describes it. */
extern bool PipeannIsNearest(Query *query, PipeannNearest *nearest);

typedef struct PipeannPartitions
{
	Relation	table;			/* open */
	List	   *members;		/* of Relation, open: leaf partitions */
	List	   *between;		/* open: partitioned tables below the table */
	bool		has_foreign;
} PipeannPartitions;

/*
 * partitions.c: find the leaf partitions that the query's conditions do not rule out.
 * They are locked as the table is, and open until PipeannPartitionsClose().
 */
extern void PipeannPartitionsOpen(PipeannPartitions *partitions,
								  const PipeannNearest *nearest,
								  ParamListInfo params);
extern void PipeannPartitionsClose(PipeannPartitions *partitions);

/*
 * pruning.c: conditions without columns that are true if a partition may have rows that
 * the query asks for, by values that are known only when the query is run.
 */
extern List *PipeannPruningCondition(const PipeannPartitions *partitions,
									 Relation member,
									 const PipeannNearest *nearest);

/* partitions.c: an expression without columns, with the values that are known put in. */
extern Node *PipeannKnownNow(const void *expr, ParamListInfo params);

#endif							/* PIPEANN_SERVERS_NEAREST_H */
