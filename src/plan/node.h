/*
 * node.h
 *		How nodes of ours are run, as far as all are alike; private to plan/.
 */
#ifndef PIPEANN_PLAN_NODE_H
#define PIPEANN_PLAN_NODE_H

#include "executor/executor.h"
#include "nodes/extensible.h"
#include "scan/scan.h"

/*
 * Rows are its child's. When it is asked for the first one it begins: it tells scans
 * below it what it wants of them, and lets the child begin, anew if that had begun
 * before. So on a rescan nothing is done until then.
 */
typedef struct PipeannNode
{
	CustomScanState state;
	CustomExecMethods methods;	/* of state */
	PlanState  *child;
	List	   *limit;			/* what the limit above wants of the child, and
								 * leaves out, if anything; NIL: unknown */
	TupleTableSlot *slot;		/* for rows that were kept */
	MemoryContext memory;		/* reset by each rescan */
	bool		begun;			/* since the last rescan */
	bool		anew;			/* the child had begun before */
} PipeannNode;

/* What kinds of such nodes do in their own way; NULL: no more than all do. */
typedef struct PipeannNodeMethods
{
	CustomScanMethods scan;		/* must be first */
	Size		size;			/* of its state, which begins with a PipeannNode */
	void		(*begin) (PipeannNode *node);
	void		(*start) (PipeannNode *node);	/* ... before its first row */
	TupleTableSlot *(*next) (PipeannNode *node);	/* NULL: the child's */
	void		(*end) (PipeannNode *node);
} PipeannNodeMethods;

/*
 * merge_exec.c: merges of the nearest rows of partitions, one limit for all.
 * custom_private is the number of the column by which rows are merged; the child is
 * the merge as it was planned.
 */
extern const PipeannNodeMethods PipeannMergeMethods;

/*
 * bitmap_exec.c: the nearest of the rows that other indexes find. The children are
 * the scan of ours, with all conditions and the columns of the node, and what makes
 * the bitmap.
 */
extern const PipeannNodeMethods PipeannBitmapMethods;

/*
 * fill_exec.c: limits that a scan of ours is to fill, whatever comes late. The child
 * is the plan that had its place.
 */
extern const PipeannNodeMethods PipeannFillMethods;

/*
 * A row is looked at again by itself (EvalPlanQual): the node hands up what its child
 * does, as scans have that row.
 */
static inline bool
PipeannNodeIsRecheck(const PipeannNode *node)
{
	return node->state.ss.ps.state->es_epq_active != NULL;
}

extern Node *PipeannNodeCreate(CustomScan *plan);
extern int64 PipeannNodeWanted(PipeannNode *node, int64 most);
extern PipeannScanContext *PipeannContextOfScan(PlanState *scan);

/* The node begins; scans below have been told what is wanted of them. */
static inline void
PipeannNodeBeginChild(PipeannNode *node)
{
	if (node->anew)
		ExecReScan(node->child);
	node->begun = node->anew = true;
}

#endif							/* PIPEANN_PLAN_NODE_H */
