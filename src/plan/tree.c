/*
 * tree.c
 *		The nodes of a plan: what is below them, what they evaluate, and how rows come
 *		through them.
 *
 * One table has all that is known of the kinds of nodes. A kind that is not in
 * it is assumed to have the two children that any node may have, to evaluate
 * anything, and to read all columns of its children.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "plan/plan.h"

typedef struct Kind
{
	uint16		traits;
	uint16		expressions[2]; /* offsets of expressions besides columns
								 * and conditions; 0: none */
	uint16		children;		/* ... and of a list of children that only this kind has */
} Kind;

#define AT offsetof
#define STEADY PIPEANN_PLAN_STEADY
#define NAMES PIPEANN_PLAN_NAMES
#define PASSES PIPEANN_PLAN_PASSES
#define ORDERED PIPEANN_PLAN_ORDERED
#define DRAINS PIPEANN_PLAN_DRAINS

static const Kind kinds[] = {
	[T_Agg] = {STEADY | NAMES | DRAINS},
	[T_Append] = {STEADY | ORDERED, {0}, AT(Append, appendplans)},
	[T_BitmapAnd] = {STEADY, {0}, AT(BitmapAnd, bitmapplans)},
	[T_BitmapHeapScan] = {STEADY, {AT(BitmapHeapScan, bitmapqualorig)}},
	[T_BitmapIndexScan] = {STEADY, {AT(BitmapIndexScan, indexqual)}},
	[T_BitmapOr] = {STEADY, {0}, AT(BitmapOr, bitmapplans)},
	[T_CteScan] = {STEADY},
	[T_CustomScan] = {STEADY | ORDERED, {AT(CustomScan, custom_exprs)},
	AT(CustomScan, custom_plans)},
	[T_ForeignScan] = {STEADY, {AT(ForeignScan, fdw_exprs)}},
	[T_FunctionScan] = {STEADY, {AT(FunctionScan, functions)}},
	[T_Hash] = {STEADY | NAMES | DRAINS, {AT(Hash, hashkeys)}},
	[T_HashJoin] = {STEADY | NAMES,
	{AT(HashJoin, join.joinqual), AT(HashJoin, hashclauses)}},
	[T_IncrementalSort] = {STEADY | NAMES | ORDERED},
	[T_IndexOnlyScan] = {STEADY, {AT(IndexOnlyScan, indexqual),
	AT(IndexOnlyScan, indexorderby)}},
	[T_IndexScan] = {STEADY,
	{AT(IndexScan, indexqual), AT(IndexScan, indexorderby)}},
	[T_Limit] = {STEADY | NAMES | PASSES,
	{AT(Limit, limitCount), AT(Limit, limitOffset)}},
	[T_LockRows] = {STEADY | NAMES | PASSES},
	[T_Material] = {STEADY | NAMES | PASSES},
	[T_Memoize] = {STEADY | NAMES, {AT(Memoize, param_exprs)}},
	[T_MergeAppend] = {STEADY | ORDERED, {0}, AT(MergeAppend, mergeplans)},
	[T_MergeJoin] = {STEADY,
	{AT(MergeJoin, join.joinqual), AT(MergeJoin, mergeclauses)}},
	[T_NestLoop] = {STEADY | NAMES | PASSES | ORDERED,
	{AT(NestLoop, join.joinqual)}},
	[T_ProjectSet] = {STEADY | NAMES | PASSES | ORDERED},
	[T_Result] = {STEADY | NAMES | PASSES | ORDERED,
	{AT(Result, resconstantqual)}},
	[T_SeqScan] = {STEADY},
	[T_SetOp] = {DRAINS},
	[T_Sort] = {STEADY | NAMES | DRAINS},
	[T_SubqueryScan] = {STEADY | NAMES | PASSES | ORDERED},
	[T_TidScan] = {STEADY, {AT(TidScan, tidquals)}},
	[T_Unique] = {STEADY | NAMES | ORDERED},
	[T_ValuesScan] = {STEADY, {AT(ValuesScan, values_lists)}},
	[T_WindowAgg] = {STEADY | ORDERED,
	{AT(WindowAgg, startOffset), AT(WindowAgg, endOffset)}}
};

static const Kind *
KindOf(const Plan *plan)
{
	static const Kind unknown = {0};
	size_t		tag = nodeTag(plan);

	return tag < lengthof(kinds) ? &kinds[tag] : &unknown;
}

bool
PipeannPlanHas(const Plan *plan, int trait)
{
	return (KindOf(plan)->traits & trait) != 0;
}

/*
 * Call a function for the expressions of a node besides its columns and
 * conditions, until it returns true; returns whether it did.
 */
bool
PipeannVisitExpressions(const Plan *plan, bool (*visit) (Node *, void *),
						void *arg)
{
	const Kind *kind = KindOf(plan);

	for (size_t i = 0; i < lengthof(kind->expressions); i++)
		if (kind->expressions[i] != 0 &&
			visit(*(Node *const *) ((const char *) plan + kind->expressions[i]),
				  arg))
			return true;
	return false;
}

static bool
VisitAll(List *plans, PipeannPlanVisit visit, void *arg)
{
	ListCell   *cell;

	foreach(cell, plans)
		if (lfirst(cell) != NULL && visit((Plan **) &lfirst(cell), arg))
			return true;
	return false;
}

/* See interface.h. */
bool
PipeannVisitPlans(void *above, PipeannPlanVisit visit, void *arg)
{
	Plan	   *plan = above;
	uint16		children;

	check_stack_depth();
	if (IsA(above, PlannedStmt))
		return visit(&((PlannedStmt *) above)->planTree, arg) ||
			VisitAll(((PlannedStmt *) above)->subplans, visit, arg);
	children = KindOf(plan)->children;
	return (plan->lefttree != NULL && visit(&plan->lefttree, arg)) ||
		(plan->righttree != NULL && visit(&plan->righttree, arg)) ||
		(IsA(plan, SubqueryScan) &&
		 visit(&((SubqueryScan *) plan)->subplan, arg)) ||
		(children != 0 &&
		 VisitAll(*(List **) ((char *) plan + children), visit, arg));
}
