/*
 * one_message.h
 *		Scans of partitions on other servers, one message for each; private to
 *		queries/.
 */
#ifndef PIPEANN_SERVERS_ONE_MESSAGE_H
#define PIPEANN_SERVERS_ONE_MESSAGE_H

#include "nodes/extensible.h"
#include "nodes/plannodes.h"

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

#endif							/* PIPEANN_SERVERS_ONE_MESSAGE_H */
