/*
 * distance.h
 *		The distances that scans of pipeann indexes are ordered by, among a
 *		plan's expressions; private to plan/.
 */
#ifndef PIPEANN_PLAN_DISTANCE_H
#define PIPEANN_PLAN_DISTANCE_H

#include "nodes/pathnodes.h"
#include "nodes/plannodes.h"

extern void PipeannLeaveOutUnread(Plan *node, const Bitmapset *wanted);
extern bool PipeannIsIndex(Oid indexid);
extern bool PipeannIsMethod(Oid am);
extern bool PipeannOrdersScan(const Node *expr, const IndexScan *node);

#endif							/* PIPEANN_PLAN_DISTANCE_H */
