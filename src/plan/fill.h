/*
 * fill.h
 *		Limits that a scan of ours is to fill, whatever comes late; private to plan/.
 */
#ifndef PIPEANN_PLAN_FILL_H
#define PIPEANN_PLAN_FILL_H

#include "nodes/extensible.h"
#include "nodes/plannodes.h"

/* fill_exec.c: how such a node is run; its child is the plan that had its place. */
extern const CustomScanMethods PipeannFillMethods;

#endif							/* PIPEANN_PLAN_FILL_H */
