/*
 * nearest.h
 *		Queries for the nearest rows of a partitioned table; private to
 *		queries/.
 */
#ifndef PIPEANN_SERVERS_NEAREST_H
#define PIPEANN_SERVERS_NEAREST_H

#include "nodes/parsenodes.h"

/* The number of the table among a query's relations: it is the only one. */
#define PIPEANN_NEAREST_TABLE 1

/* SELECT ... FROM table [WHERE ...] ORDER BY distance LIMIT ... [OFFSET ...] */
typedef struct PipeannNearest
{
	Query	   *query;
	RangeTblEntry *table;
	SortGroupClause *order;
	TargetEntry *distance;
} PipeannNearest;

/* Whether a query is of this kind and no other; then describes it. */
extern bool PipeannIsNearest(Query *query, PipeannNearest *nearest);

#endif							/* PIPEANN_SERVERS_NEAREST_H */
