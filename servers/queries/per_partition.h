/*
 * per_partition.h
 *		Queries for the nearest rows of partitions on other servers; private to
 *		queries/.
 */
#ifndef PIPEANN_SERVERS_PER_PARTITION_H
#define PIPEANN_SERVERS_PER_PARTITION_H

#include "nodes/params.h"
#include "nodes/parsenodes.h"

/*
 * Where a query, or one inside it, asks for the nearest rows of a table with
 * partitions on other servers, let it ask each partition for as many as there
 * can be of its own. Before the query is planned. Returns whether there was one.
 */
extern bool PipeannRewritePerPartition(Query *query, ParamListInfo params);

#endif							/* PIPEANN_SERVERS_PER_PARTITION_H */
