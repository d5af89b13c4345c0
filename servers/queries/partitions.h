/*
 * partitions.h
 *		The partitions that a query for the nearest rows has to look at; private
 *		to queries/.
 */
#ifndef PIPEANN_SERVERS_PARTITIONS_H
#define PIPEANN_SERVERS_PARTITIONS_H

#include "nodes/params.h"
#include "queries/nearest.h"
#include "utils/relcache.h"

typedef struct PipeannPartitions
{
	Relation	table;			/* open */
	List	   *members;		/* of Relation, open: those that have rows */
	List	   *between;		/* open: tables with partitions below the table */
	bool		has_foreign;
} PipeannPartitions;

/*
 * Find the partitions at the leaves of the table's tree that the conditions of
 * the query do not rule out. They are locked as the table is, and open until
 * PipeannPartitionsClose().
 */
extern void PipeannPartitionsOpen(PipeannPartitions *partitions,
								  const PipeannNearest *nearest,
								  ParamListInfo params);
extern void PipeannPartitionsClose(PipeannPartitions *partitions);

/*
 * Conditions that name no column and are true if a partition may have rows that
 * the query asks for: they are for values known only when the query is run.
 */
extern List *PipeannPruningCondition(const PipeannPartitions *partitions,
									 Relation member,
									 const PipeannNearest *nearest);

/* The value of an expression that names no column, as far as it is known now. */
extern Node *PipeannKnownNow(const void *expr, ParamListInfo params);

#endif							/* PIPEANN_SERVERS_PARTITIONS_H */
