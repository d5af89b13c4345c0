/*
 * finished.c
 *		From the top of a finished plan down to the scans of pipeann indexes.
 *
 * On the way it is found out which columns of a scan are read. Nodes that are
 * not known to pass rows on are taken to read everything, whatever is in them:
 * sorts, merges, aggregates, set operations, and nodes of other extensions.
 */
#include "postgres.h"

#include "access/sysattr.h"
#include "catalog/pg_operator_d.h"
#include "catalog/pg_proc.h"
#include "miscadmin.h"
#include "nodes/nodeFuncs.h"
#include "nodes/plannodes.h"
#include "optimizer/clauses.h"
#include "optimizer/optimizer.h"
#include "plan/bitmap.h"
#include "plan/columns.h"
#include "plan/distance.h"
#include "plan/fill.h"
#include "plan/finished.h"
#include "plan/merge.h"
#include "plan/vector.h"
#include "plan/wrapper.h"
#include "utils/lsyscache.h"

static bool IsSteadyPlan(PlannedStmt *stmt, const Plan *plan);

/*
 * Which columns of its child a plan node reads.
 *
 * A column that a node hands up and nobody above wants is not read. Columns that
 * the executor finds by name (row marks) are not counted: they are no distances.
 */

/* The columns that are returned: those that are not junk. */
static Bitmapset *
ColumnsReturned(const List *targets)
{
	Bitmapset  *columns = NULL;
	ListCell   *cell;

	foreach(cell, targets)
	{
		const TargetEntry *target = lfirst_node(TargetEntry, cell);

		if (!target->resjunk)
			columns = bms_add_member(columns, target->resno);
	}
	return columns;
}

/*
 * Add the columns of varno that an expression names. A whole row, and whatever
 * else is no column of a target list, stands for all of them.
 */
static Bitmapset *
AddNamed(Bitmapset *columns, const void *expr, int varno)
{
	Bitmapset  *attributes = NULL;
	int			at = -1;

	pull_varattnos(unconstify(Node *, (const Node *) expr), varno,
				   &attributes);
	while ((at = bms_next_member(attributes, at)) >= 0)
	{
		int			column = at + FirstLowInvalidHeapAttributeNumber;

		columns = bms_add_member(columns, column > 0 ? column :
								 PIPEANN_ALL_COLUMNS);
	}
	bms_free(attributes);
	return columns;
}

/*
 * An expression that is not wanted is computed all the same, and might fail
 * with another value; only a column that is handed up as it is does not care.
 */
static Bitmapset *
AddTargets(Bitmapset *columns, const Plan *node, int varno,
		   const Bitmapset *wanted)
{
	ListCell   *cell;

	foreach(cell, node->targetlist)
	{
		const TargetEntry *target = lfirst_node(TargetEntry, cell);

		if (!IsA(target->expr, Var) ||
			PipeannHasColumn(wanted, target->resno))
			columns = AddNamed(columns, target->expr, varno);
	}
	return columns;
}

/* What joins compare rows by, and hand to their inner side. */
static Bitmapset *
AddJoin(Bitmapset *columns, const Plan *node, int varno)
{
	ListCell   *cell;

	columns = AddNamed(columns, ((const Join *) node)->joinqual, varno);
	if (IsA(node, HashJoin))
	{
		columns = AddNamed(columns, ((const HashJoin *) node)->hashclauses,
						   varno);
		columns = AddNamed(columns, ((const HashJoin *) node)->hashkeys, varno);
	}
	if (IsA(node, NestLoop))
		foreach(cell, ((const NestLoop *) node)->nestParams)
			columns = AddNamed(columns,
							   lfirst_node(NestLoopParam, cell)->paramval,
							   varno);
	return columns;
}

static Bitmapset *
AddKeys(Bitmapset *columns, int n, const AttrNumber *keys)
{
	for (int i = 0; i < n; i++)
		columns = bms_add_member(columns, keys[i]);
	return columns;
}

/* The numbers of columns by which a node compares rows. */
static Bitmapset *
AddCompared(Bitmapset *columns, const Plan *node)
{
	switch (nodeTag(node))
	{
		case T_Agg:
			return AddKeys(columns, ((const Agg *) node)->numCols,
						   ((const Agg *) node)->grpColIdx);
		case T_IncrementalSort:
		case T_Sort:
			return AddKeys(columns, ((const Sort *) node)->numCols,
						   ((const Sort *) node)->sortColIdx);
		case T_Limit:			/* WITH TIES */
			return AddKeys(columns, ((const Limit *) node)->uniqNumCols,
						   ((const Limit *) node)->uniqColIdx);
		case T_Unique:
			return AddKeys(columns, ((const Unique *) node)->numCols,
						   ((const Unique *) node)->uniqColIdx);
		default:
			return columns;
	}
}

/*
 * The columns of a child that a node reads when only `wanted` of its own are
 * wanted. The child's columns are those of varno in the node's expressions. Only
 * for nodes that plan.c knows.
 */
static Bitmapset *
ColumnsRead(const Plan *node, int varno, const Bitmapset *wanted)
{
	Bitmapset  *columns = AddNamed(NULL, node->qual, varno);

	columns = AddTargets(columns, node, varno, wanted);
	columns = AddCompared(columns, node);
	if (IsA(node, Hash))
		columns = AddNamed(columns, ((const Hash *) node)->hashkeys, varno);
	if (IsA(node, NestLoop) || IsA(node, HashJoin))
		columns = AddJoin(columns, node, varno);
	return columns;
}

/*
 * Plans that may be run twice, as nothing that they evaluate is volatile.
 *
 * What is evaluated once for a statement (its initial plans, common table expressions,
 * other servers' rows behind a cursor) is not run again with the plan that reads it.
 */

static bool
IsVolatile(Oid function, void *arg)
{
	(void) arg;
	return func_volatile(function) == PROVOLATILE_VOLATILE;
}

static const Plan *
PlanOf(const PlannedStmt *stmt, const SubPlan *node)
{
	return list_nth(stmt->subplans, node->plan_id - 1);
}

/*
 * Whether an expression of a statement, or a sub-plan in it, has something volatile.
 */
static bool
HasVolatile(Node *node, PlannedStmt *stmt)
{
	if (node == NULL)
		return false;
	if (IsA(node, NextValueExpr) ||
		check_functions_in_node(node, IsVolatile, NULL) ||
		(IsA(node, SubPlan) &&
		 !IsSteadyPlan(stmt, PlanOf(stmt, (SubPlan *) node))))
		return true;
	return expression_tree_walker(node, HasVolatile, (void *) stmt);
}

static bool
IsOurs(const CustomScan *scan)
{
	return scan->methods == &PipeannMergeMethods ||
		scan->methods == &PipeannBitmapMethods ||
		scan->methods == &PipeannFillMethods;
}

/* What a scan evaluates beside its columns and conditions. */
static bool
ScanExpressions(const Plan *plan, List **found)
{
	switch (nodeTag(plan))
	{
		case T_SeqScan:
		case T_SubqueryScan:
		case T_CteScan:
			break;
		case T_IndexScan:
			*found = list_make2(((const IndexScan *) plan)->indexqual,
								((const IndexScan *) plan)->indexorderby);
			break;
		case T_IndexOnlyScan:
			*found = list_make2(((const IndexOnlyScan *) plan)->indexqual,
								((const IndexOnlyScan *) plan)->indexorderby);
			break;
		case T_BitmapIndexScan:
			*found = list_make1(((const BitmapIndexScan *) plan)->indexqual);
			break;
		case T_BitmapHeapScan:
			*found = list_make1(((const BitmapHeapScan *) plan)->bitmapqualorig);
			break;
		case T_TidScan:
			*found = list_make1(((const TidScan *) plan)->tidquals);
			break;
		case T_FunctionScan:
			*found = list_make1(((const FunctionScan *) plan)->functions);
			break;
		case T_ValuesScan:
			*found = list_make1(((const ValuesScan *) plan)->values_lists);
			break;
		case T_ForeignScan:
			*found = list_make1(((const ForeignScan *) plan)->fdw_exprs);
			break;
		case T_CustomScan:
			*found = list_make1(((const CustomScan *) plan)->custom_exprs);
			return IsOurs((const CustomScan *) plan);
		default:
			return false;
	}
	return true;
}

/* The same of a node that has rows of others. */
static bool
OtherExpressions(const Plan *plan, List **found)
{
	switch (nodeTag(plan))
	{
		case T_Agg:
		case T_Append:
		case T_BitmapAnd:
		case T_BitmapOr:
		case T_IncrementalSort:
		case T_LockRows:
		case T_Material:
		case T_MergeAppend:
		case T_ProjectSet:
		case T_Sort:
		case T_Unique:
			break;
		case T_Hash:
			*found = list_make1(((const Hash *) plan)->hashkeys);
			break;
		case T_Memoize:
			*found = list_make1(((const Memoize *) plan)->param_exprs);
			break;
		case T_NestLoop:
			*found = list_make1(((const Join *) plan)->joinqual);
			break;
		case T_MergeJoin:
			*found = list_make2(((const Join *) plan)->joinqual,
								((const MergeJoin *) plan)->mergeclauses);
			break;
		case T_HashJoin:
			*found = list_make2(((const Join *) plan)->joinqual,
								((const HashJoin *) plan)->hashclauses);
			break;
		case T_Limit:
			*found = list_make2(((const Limit *) plan)->limitCount,
								((const Limit *) plan)->limitOffset);
			break;
		case T_Result:
			*found = list_make1(((const Result *) plan)->resconstantqual);
			break;
		case T_WindowAgg:
			*found = list_make2(((const WindowAgg *) plan)->startOffset,
								((const WindowAgg *) plan)->endOffset);
			break;
		default:
			return false;
	}
	return true;
}

/* The children of a node, but for the two that any node may have. */
static List *
OtherChildren(const Plan *plan)
{
	switch (nodeTag(plan))
	{
		case T_Append:
			return ((const Append *) plan)->appendplans;
		case T_MergeAppend:
			return ((const MergeAppend *) plan)->mergeplans;
		case T_BitmapAnd:
			return ((const BitmapAnd *) plan)->bitmapplans;
		case T_BitmapOr:
			return ((const BitmapOr *) plan)->bitmapplans;
		case T_SubqueryScan:
			return list_make1(((const SubqueryScan *) plan)->subplan);
		case T_CustomScan:
			return ((const CustomScan *) plan)->custom_plans;
		default:
			return NIL;
	}
}

/* Most are plain columns. */
static bool
HasVolatileTarget(const List *targets, PlannedStmt *stmt)
{
	ListCell   *cell;

	foreach(cell, targets)
	{
		Node	   *expr = (Node *) lfirst_node(TargetEntry, cell)->expr;

		if (!IsA(expr, Var) && HasVolatile(expr, stmt))
			return true;
	}
	return false;
}

/*
 * Whether what a plan of a statement evaluates each time it is run, in sub-plans too,
 * has nothing volatile. Not so if anything in it is not known.
 */
static bool
IsSteadyPlan(PlannedStmt *stmt, const Plan *plan)
{
	List	   *expressions = NIL;
	ListCell   *cell;

	if (plan == NULL)
		return true;
	check_stack_depth();
	if (!ScanExpressions(plan, &expressions) &&
		!OtherExpressions(plan, &expressions))
		return false;
	if (HasVolatileTarget(plan->targetlist, stmt) ||
		HasVolatile((Node *) plan->qual, stmt) ||
		HasVolatile((Node *) expressions, stmt))
		return false;
	foreach(cell, OtherChildren(plan))
		if (!IsSteadyPlan(stmt, lfirst(cell)))
			return false;
	return IsSteadyPlan(stmt, plan->lefttree) &&
		IsSteadyPlan(stmt, plan->righttree);
}

/*
 * Merges of the nearest rows of partitions, one limit for all.
 *
 * The nearest rows of a table with partitions are a merge of as many searches as
 * there are partitions, each as long as that of a table without. Above it there is
 * a limit, which nobody below knows of. So a node of ours takes the merge's place,
 * and has it as its child: it asks the partitions in another order.
 */

/* The node may run a scan twice. */
static bool
MayRunTwice(const Plan *plan)
{
	return !contain_volatile_functions((Node *) plan->targetlist) &&
		!contain_volatile_functions((Node *) plan->qual);
}

/* What a scan of ours is ordered by, NIL if it is none. */
static const List *
OrderOf(const Plan *plan)
{
	const List *order = NIL;
	Oid			index = InvalidOid;

	if (IsA(plan, IndexScan))
	{
		order = ((const IndexScan *) plan)->indexorderby;
		index = ((const IndexScan *) plan)->indexid;
	}
	else if (IsA(plan, IndexOnlyScan))
	{
		order = ((const IndexOnlyScan *) plan)->indexorderby;
		index = ((const IndexOnlyScan *) plan)->indexid;
	}
	return order != NIL && PipeannIsIndex(index) ? order : NIL;
}

static bool
IsSameOrder(const List *a, const List *b)
{
	const OpExpr *x = linitial(a);
	const OpExpr *y = linitial(b);

	return list_length(a) == 1 && list_length(b) == 1 && IsA(x, OpExpr) &&
		IsA(y, OpExpr) && x->opno == y->opno &&
		equal(lsecond(x->args), lsecond(y->args));
}

/*
 * Whether there are several scans of ours, and all of them from one vector by one
 * operator. A UNION ALL may have others, whose distances cannot be compared before
 * the rows are there.
 */
static bool
AreFromOneVector(const List *plans)
{
	const List *first = NIL;
	int			n = 0;
	ListCell   *cell;

	foreach(cell, plans)
	{
		const List *order = OrderOf(lfirst(cell));

		if (order == NIL)
			continue;
		if (first == NIL)
			first = order;
		if (!IsSameOrder(first, order) || !MayRunTwice(lfirst(cell)))
			return false;
		n++;
	}
	return n > 1;
}

static bool
IsByDistance(const MergeAppend *merge)
{
	return merge->numCols == 1 &&
		merge->sortOperators[0] == Float8LessOperator &&
		!merge->nullsFirst[0] && AreFromOneVector(merge->mergeplans);
}

/* The node computes what the limit is, and so does the limit itself. */
static bool
IsAlwaysTheSame(Node *limit)
{
	return !contain_volatile_functions(limit) && !contain_subplans(limit);
}

static Plan *
MakeNode(const Limit *limit, MergeAppend *merge)
{
	CustomScan *node = PipeannWrapBelow(limit, &merge->plan,
										 &PipeannMergeMethods);

	node->custom_private = list_make1_int(merge->sortColIdx[0]);
	return &node->scan.plan;
}

/*
 * Where a limit has a merge of scans of ours below it, let these know from
 * one another which rows are not wanted.
 *
 * Between the two there may be a node that computes columns.
 */
static void
LimitMerge(Limit *limit)
{
	Plan	  **place = &limit->plan.lefttree;

	if (limit->limitCount == NULL ||
		limit->limitOption != LIMIT_OPTION_COUNT ||
		!IsAlwaysTheSame(limit->limitCount) ||
		!IsAlwaysTheSame(limit->limitOffset))
		return;
	if (IsA(*place, Result) && (*place)->lefttree != NULL &&
		(*place)->qual == NIL && ((Result *) *place)->resconstantqual == NULL)
		place = &(*place)->lefttree;
	if (IsA(*place, MergeAppend) && IsByDistance((MergeAppend *) *place))
		*place = MakeNode(limit, (MergeAppend *) *place);
}

/*
 * Scans below a limit that may end before it is filled.
 *
 * In strict order a scan leaves out what it finds after a farther row was returned.
 * Where few rows match, a scan finds all of them, and each that it leaves out is
 * missing: eight rows where there are nine. A node of ours below the limit keeps the
 * rows until this is filled. If it is not, and rows were left out, it begins again
 * with scans that find everything first.
 */

/*
 * The plan whose rows the limit takes as they come: what is between them leaves none
 * out, but for locking. Locks are for the row that is handed up.
 */
static Plan **
PlaceBelow(Limit *limit)
{
	Plan	  **place = &limit->plan.lefttree;

	while (*place != NULL && (*place)->qual == NIL)
	{
		Plan	   *plan = *place;

		if (IsA(plan, SubqueryScan))
			place = &((SubqueryScan *) plan)->subplan;
		else if (IsA(plan, LockRows) ||
				 (IsA(plan, Result) &&
				  ((Result *) plan)->resconstantqual == NULL))
			place = &plan->lefttree;
		else
			break;
	}
	return place;
}

static bool
IsScanOfOurs(Oid index, const List *distances)
{
	return list_length(distances) == 1 && PipeannIsIndex(index);
}

/* Whether a plan's rows come from scans of ours, in their order. */
static bool
IsFromScans(const Plan *plan)
{
	ListCell   *cell;

	if (plan == NULL)
		return false;
	check_stack_depth();
	switch (nodeTag(plan))
	{
		case T_IndexScan:
			return IsScanOfOurs(((const IndexScan *) plan)->indexid,
								((const IndexScan *) plan)->indexorderby);
		case T_IndexOnlyScan:
			return IsScanOfOurs(((const IndexOnlyScan *) plan)->indexid,
								((const IndexOnlyScan *) plan)->indexorderby);
		case T_SubqueryScan:
			return IsFromScans(((const SubqueryScan *) plan)->subplan);
		case T_MergeAppend:
			foreach(cell, ((const MergeAppend *) plan)->mergeplans)
				if (IsFromScans(lfirst(cell)))
					return true;
			return false;
		case T_CustomScan:
			return IsFromScans(outerPlan(plan)) ||
				PipeannScanOfBitmap((const CustomScan *) plan) != NULL;
		case T_IncrementalSort:
		case T_NestLoop:
		case T_ProjectSet:
		case T_Result:
		case T_Unique:
		case T_WindowAgg:
			return IsFromScans(outerPlan(plan));
		default:
			return false;
	}
}

/* Whether PostgreSQL finds the scan of a cursor's table there (execCurrent.c). */
static bool
IsPlaceOfCursor(const Plan *plan)
{
	return !IsA(plan, CustomScan) && !IsA(plan, NestLoop) &&
		!IsA(plan, WindowAgg);
}

/*
 * Where a limit has scans of ours below it that may come to their end before
 * it is filled, put a node of ours between them. To be done when the columns of what
 * is below are what they will be. What is below may be run twice, so it must be steady
 * (IsSteadyPlan), and the limit is evaluated twice. The place of a cursor is where the
 * only scan of its table is (UPDATE ... WHERE CURRENT OF): rows must not be kept above
 * that.
 *
 * How many rows there are is not known, and the planner may be wrong by any factor.
 */
static void
FillLimit(PlannedStmt *stmt, Limit *limit, bool is_cursor)
{
	Plan	  **place = PlaceBelow(limit);

	if (limit->limitCount == NULL || !IsFromScans(*place) ||
		(is_cursor && IsPlaceOfCursor(*place)) ||
		HasVolatile(limit->limitCount, stmt) ||
		HasVolatile(limit->limitOffset, stmt) ||
		!IsSteadyPlan(stmt, *place))
		return;
	*place = &PipeannWrapBelow(limit, *place,
							   &PipeannFillMethods)->scan.plan;
}

/* A node that keeps all rows of what has scans of ours for it. */
static void
FillAll(PlannedStmt *stmt, Plan **place)
{
	if (IsFromScans(*place) && IsSteadyPlan(stmt, *place))
		*place = &PipeannWrapBelow(NULL, *place,
								   &PipeannFillMethods)->scan.plan;
}

/* Whether a node hands up no row before it has had all of its child's. */
static bool
IsDrain(const Plan *plan)
{
	switch (nodeTag(plan))
	{
		case T_Agg:
		case T_Hash:
		case T_SetOp:
		case T_Sort:
			return true;
		default:
			return false;
	}
}

/*
 * Put such a node, for all rows, where something wants all of them before it hands
 * up one. The planner may take a scan of ours as what reads least, below a sort in
 * another order, as there is a limit somewhere above.
 */
static void
FillDrains(PlannedStmt *stmt, Plan **place, bool drained)
{
	Plan	   *plan = *place;
	ListCell   *cell;

	if (plan == NULL)
		return;
	check_stack_depth();
	switch (nodeTag(plan))
	{
		case T_CustomScan:
		case T_IndexScan:
		case T_IndexOnlyScan:
		case T_MergeAppend:
			if (drained)
				FillAll(stmt, place);
			return;
		case T_SubqueryScan:
			FillDrains(stmt, &((SubqueryScan *) plan)->subplan, drained);
			return;
		case T_Append:
			foreach(cell, ((Append *) plan)->appendplans)
				FillDrains(stmt, (Plan **) &lfirst(cell), drained);
			return;
		case T_Limit:
			drained = false;
			break;
		default:
			drained |= IsDrain(plan);
			break;
	}
	FillDrains(stmt, &plan->lefttree, drained);
	FillDrains(stmt, &plan->righttree, drained);
}

typedef struct Rewriting
{
	PlannedStmt *stmt;
	bool		is_cursor;
} Rewriting;

static void Rewrite(const Rewriting *r, Plan *plan, const Bitmapset *wanted);

static void
RewriteAll(const Rewriting *r, const List *plans, const Bitmapset *wanted)
{
	ListCell   *cell;

	foreach(cell, plans)
		Rewrite(r, lfirst(cell), wanted);
}

/* A node that may read all columns of its children, wherever they are. */
static void
RewriteBelow(const Rewriting *r, const Plan *plan)
{
	const Bitmapset *all = bms_make_singleton(PIPEANN_ALL_COLUMNS);

	Rewrite(r, outerPlan(plan), all);
	Rewrite(r, innerPlan(plan), all);
	if (IsA(plan, Append))
		RewriteAll(r, ((const Append *) plan)->appendplans, all);
	else if (IsA(plan, MergeAppend))
		RewriteAll(r, ((const MergeAppend *) plan)->mergeplans, all);
	else if (IsA(plan, CustomScan))
		RewriteAll(r, ((const CustomScan *) plan)->custom_plans, all);
}

/* A node that reads of its children what its expressions and keys name. */
static void
RewriteChildren(const Rewriting *r, const Plan *plan,
				const Bitmapset *wanted)
{
	if (IsA(plan, SubqueryScan))
	{
		const SubqueryScan *scan = (const SubqueryScan *) plan;

		Rewrite(r, scan->subplan,
				ColumnsRead(plan, scan->scan.scanrelid, wanted));
		return;
	}
	if (outerPlan(plan) != NULL)
		Rewrite(r, outerPlan(plan),
				ColumnsRead(plan, OUTER_VAR, wanted));
	if (innerPlan(plan) != NULL)
		Rewrite(r, innerPlan(plan),
				ColumnsRead(plan, INNER_VAR, wanted));
}

static void
Rewrite(const Rewriting *r, Plan *plan, const Bitmapset *wanted)
{
	if (plan == NULL)
		return;
	check_stack_depth();
	PipeannLeaveOutUnread(plan, wanted);
	switch (nodeTag(plan))
	{
		case T_IndexScan:
			PipeannTakeVectors(r->stmt, (IndexScan *) plan, wanted);
			break;
		case T_Limit:
			LimitMerge((Limit *) plan);
			RewriteChildren(r, plan, wanted);
			FillLimit(r->stmt, (Limit *) plan, r->is_cursor);
			break;
		case T_Hash:
		case T_HashJoin:
		case T_IncrementalSort:
		case T_LockRows:
		case T_Material:
		case T_Memoize:
		case T_NestLoop:
		case T_ProjectSet:
		case T_Result:
		case T_Sort:
		case T_SubqueryScan:
		case T_Unique:
			RewriteChildren(r, plan, wanted);
			break;
		case T_Agg:
			if (((const Agg *) plan)->chain == NIL)
				RewriteChildren(r, plan, wanted);
			else
				RewriteBelow(r, plan);
			break;
		default:
			RewriteBelow(r, plan);
			break;
	}
}

/* The plan of a query, or of one inside it. */
static void
RewriteQuery(const Rewriting *r, Plan *plan)
{
	if (plan != NULL)
		Rewrite(r, plan, ColumnsReturned(plan->targetlist));
}

void
PipeannRewritePlan(PlannedStmt *stmt, bool is_cursor)
{
	Rewriting	r = {.stmt = stmt,.is_cursor = is_cursor};
	ListCell   *cell;

	RewriteQuery(&r, stmt->planTree);
	FillDrains(stmt, &stmt->planTree, false);
	foreach(cell, stmt->subplans)
	{
		RewriteQuery(&r, lfirst(cell));
		FillDrains(stmt, (Plan **) &lfirst(cell), false);
	}
}
