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
 * merge.c: where a limit has a merge of scans of ours below it, let these know from
 * one another which rows are not wanted.
 */
extern void PipeannLimitMerge(Limit *limit);

/*
 * merge_exec.c: how such a merge is run. custom_private is the number of the column
 * by which rows are merged; the child is the merge as it was planned.
 */
extern const CustomScanMethods PipeannMergeMethods;

#endif							/* PIPEANN_PLAN_MERGE_H */
