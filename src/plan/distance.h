/*
 * distance.h
 *		The distances that scans of pipeann indexes are ordered by, among a
 *		plan's expressions; private to plan/.
 */
#ifndef PIPEANN_PLAN_DISTANCE_H
#define PIPEANN_PLAN_DISTANCE_H

#include "nodes/pathnodes.h"
#include "nodes/plannodes.h"

/*
 * Put NULL in the place of each distance that a node computes although it is not
 * among its columns that are wanted.
 */
extern void PipeannLeaveOutUnread(Plan *node, const Bitmapset *wanted);

/* Whether an index, or an access method, is one of ours. */
extern bool PipeannIsIndex(Oid indexid);
extern bool PipeannIsMethod(Oid am);

/* Take out paths in the order of several distances, which no scan has. */
extern void PipeannDropRefused(RelOptInfo *table);

/* Whether an expression of the node's is the distance that it is ordered by. */
extern bool PipeannOrdersScan(const Node *expr, const IndexScan *node);

#endif							/* PIPEANN_PLAN_DISTANCE_H */
