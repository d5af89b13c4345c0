/*
 * distance.h
 *		The distances that scans of pipeann indexes are ordered by, among a
 *		plan's expressions; private to plan/.
 */
#ifndef PIPEANN_PLAN_DISTANCE_H
#define PIPEANN_PLAN_DISTANCE_H

#include "nodes/plannodes.h"

/*
 * Put NULL in the place of each distance that a node computes although it is not
 * among its columns that are wanted.
 */
extern void PipeannLeaveOutUnread(Plan *node, const Bitmapset *wanted);

#endif							/* PIPEANN_PLAN_DISTANCE_H */
