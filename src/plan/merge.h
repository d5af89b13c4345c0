/*
 * merge.h
 *		Merges of the nearest rows of partitions, one limit for all; private to
 *		plan/.
 */
#ifndef PIPEANN_PLAN_MERGE_H
#define PIPEANN_PLAN_MERGE_H

#include "nodes/extensible.h"
#include "nodes/plannodes.h"

/*
 * merge_exec.c: how such a merge is run. custom_private is the number of the column
 * by which rows are merged; the child is the merge as it was planned.
 */
extern const CustomScanMethods PipeannMergeMethods;

#endif							/* PIPEANN_PLAN_MERGE_H */
