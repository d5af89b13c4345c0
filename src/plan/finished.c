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
#include "catalog/pg_type_d.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "nodes/plannodes.h"
#include "optimizer/clauses.h"
#include "optimizer/optimizer.h"
#include "plan/node.h"
#include "plan/rewrite.h"
#include "utils/lsyscache.h"

static bool IsUnsteady(Plan **place, void *stmt);

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

static Plan **
PlaceOf(const PlannedStmt *stmt, const SubPlan *node)
{
	return (Plan **) &lfirst(list_nth_cell(stmt->subplans, node->plan_id - 1));
}

/*
 * Whether an expression of a statement, or a sub-plan in it, has something volatile.
 */
static bool
HasVolatile(Node *node, void *stmt)
{
	if (node == NULL)
		return false;
	if (IsA(node, NextValueExpr) ||
		check_functions_in_node(node, IsVolatile, NULL) ||
		(IsA(node, SubPlan) &&
		 IsUnsteady(PlaceOf(stmt, (SubPlan *) node), stmt)))
		return true;
	return expression_tree_walker(node, HasVolatile, stmt);
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
 * Whether something may be volatile of what a plan of a statement evaluates each time
 * it is run, in sub-plans too.
 */
static bool
IsUnsteady(Plan **place, void *stmt)
{
	Plan	   *plan = *place;

	return !PipeannPlanHas(plan, PIPEANN_PLAN_STEADY) ||
		(IsA(plan, CustomScan) &&
		 ((CustomScan *) plan)->methods->CreateCustomScanState !=
		 PipeannNodeCreate) ||
		HasVolatileTarget(plan->targetlist, stmt) ||
		HasVolatile((Node *) plan->qual, stmt) ||
		PipeannVisitExpressions(plan, HasVolatile, stmt) ||
		PipeannVisitPlans(plan, IsUnsteady, stmt);
}

/* Nodes of ours that take another one's place. */

/*
 * Columns with the numbers and types of others, of a tuple that varno stands for: a
 * node hands up what its scan tuple has, and that is what its child hands up.
 */
static List *
SameColumns(const List *targets, int varno)
{
	List	   *columns = NIL;
	ListCell   *cell;

	foreach(cell, targets)
	{
		TargetEntry *target = flatCopyTargetEntry(lfirst(cell));

		target->expr = (Expr *) makeVar(varno, target->resno,
										exprType((Node *) target->expr),
										exprTypmod((Node *) target->expr),
										exprCollation((Node *) target->expr), 0);
		columns = lappend(columns, target);
	}
	return columns;
}

/* A node that has this one as its child, and hands up the same columns. */
CustomScan *
PipeannWrap(Plan *plan, const CustomScanMethods *methods)
{
	CustomScan *node = makeNode(CustomScan);
	Plan	   *own = &node->scan.plan;

	own->startup_cost = plan->startup_cost;
	own->total_cost = plan->total_cost;
	own->plan_rows = plan->plan_rows;
	own->plan_width = plan->plan_width;
	own->plan_node_id = plan->plan_node_id;
	own->parallel_safe = plan->parallel_safe;
	own->targetlist = SameColumns(plan->targetlist, INDEX_VAR);
	own->lefttree = plan;
	own->extParam = bms_copy(plan->extParam);
	own->allParam = bms_copy(plan->allParam);
	node->custom_scan_tlist = SameColumns(plan->targetlist, OUTER_VAR);
	node->methods = methods;
	return node;
}

/*
 * What a node below a limit has to know of it. The last of rows that are equally far
 * (WITH TIES) may be any: then all rows are wanted.
 */
static List *
Numbers(const Limit *limit)
{
	if (limit == NULL || limit->limitOption != LIMIT_OPTION_COUNT)
		return list_make1(makeNullConst(INT8OID, -1, InvalidOid));
	if (limit->limitOffset == NULL)
		return list_make1(copyObject(limit->limitCount));
	return list_make2(copyObject(limit->limitCount),
					  copyObject(limit->limitOffset));
}

/*
 * The same node below a limit: its custom_exprs are the rows that the limit wants,
 * NULL for all of them, and the rows that it leaves out, if any. Without a limit,
 * all rows.
 */
static CustomScan *
WrapBelow(const Limit *limit, Plan *plan, const PipeannNodeMethods *methods)
{
	CustomScan *node = PipeannWrap(plan, &methods->scan);
	Plan	   *own = &node->scan.plan;

	if (limit != NULL)
	{
		own->extParam = bms_union(own->extParam, limit->plan.extParam);
		own->allParam = bms_union(own->allParam, limit->plan.allParam);
	}
	node->custom_exprs = Numbers(limit);
	return node;
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
	CustomScan *node = WrapBelow(limit, &merge->plan, &PipeannMergeMethods);

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

/*
 * Whether a plan's rows come from scans of ours, in their order; `above` is the node
 * that it is below, or NULL.
 */
static bool
IsFromScans(Plan **place, void *above)
{
	Plan	   *plan = *place;

	if (plan == NULL ||
		(above != NULL && place == &innerPlan((Plan *) above)))
		return false;
	return list_length(OrderOf(plan)) == 1 ||
		(PipeannPlanHas(plan, PIPEANN_PLAN_ORDERED) &&
		 PipeannVisitPlans(plan, IsFromScans, plan));
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
 * (IsUnsteady), and the limit is evaluated twice. The place of a cursor is where the
 * only scan of its table is (UPDATE ... WHERE CURRENT OF): rows must not be kept above
 * that.
 *
 * How many rows there are is not known, and the planner may be wrong by any factor.
 */
static void
FillLimit(PlannedStmt *stmt, Limit *limit, bool is_cursor)
{
	Plan	  **place = PlaceBelow(limit);

	if (limit->limitCount == NULL || !IsFromScans(place, NULL) ||
		(is_cursor && IsPlaceOfCursor(*place)) ||
		HasVolatile(limit->limitCount, stmt) ||
		HasVolatile(limit->limitOffset, stmt) ||
		IsUnsteady(place, stmt))
		return;
	*place = &WrapBelow(limit, *place, &PipeannFillMethods)->scan.plan;
}

typedef struct Filling
{
	PlannedStmt *stmt;
	bool		drained;		/* something above wants all rows first */
} Filling;

/*
 * Put a node that keeps all rows where scans of ours are below something that wants
 * all of them before it hands up one. The planner may take a scan of ours as what
 * reads least, below a sort in another order, as there is a limit somewhere above.
 */
static bool
FillDrains(Plan **place, void *arg)
{
	Plan	   *plan = *place;
	Filling		filling = *(const Filling *) arg;

	switch (nodeTag(plan))
	{
		case T_CustomScan:
		case T_IndexScan:
		case T_IndexOnlyScan:
		case T_MergeAppend:
			if (filling.drained && IsFromScans(place, NULL) &&
				!IsUnsteady(place, filling.stmt))
				*place = &WrapBelow(NULL, plan, &PipeannFillMethods)->scan.plan;
			return false;
		case T_Limit:
			filling.drained = false;
			break;
		default:
			filling.drained |= PipeannPlanHas(plan, PIPEANN_PLAN_DRAINS);
			break;
	}
	return PipeannVisitPlans(plan, FillDrains, &filling);
}

/* A node whose children are visited. */
typedef struct Rewriting
{
	PlannedStmt *stmt;
	bool		is_cursor;
	const Plan *above;			/* NULL: the whole plan of a query */
	const Bitmapset *wanted;	/* its columns */
} Rewriting;

/* The columns that are read of a plan, wherever it is below a node. */
static Bitmapset *
WantedOf(const Rewriting *r, Plan **place)
{
	const Plan *above = r->above;

	if (above == NULL)
		return ColumnsReturned((*place)->targetlist);
	if (!PipeannPlanHas(above, PIPEANN_PLAN_NAMES) ||
		(IsA(above, Agg) && ((const Agg *) above)->chain != NIL))
		return bms_make_singleton(PIPEANN_ALL_COLUMNS);
	if (IsA(above, SubqueryScan))
		return ColumnsRead(above, ((const SubqueryScan *) above)->scan.scanrelid,
						   r->wanted);
	return ColumnsRead(above, place == &outerPlan(above) ? OUTER_VAR : INNER_VAR,
					   r->wanted);
}

static bool
Rewrite(Plan **place, void *arg)
{
	const Rewriting *former = arg;
	Plan	   *plan = *place;
	Rewriting	r = *former;

	r.above = plan;
	r.wanted = WantedOf(former, place);
	PipeannCheapenColumns(r.stmt, plan, r.wanted);
	if (IsA(plan, Limit))
		LimitMerge((Limit *) plan);
	(void) PipeannVisitPlans(plan, Rewrite, &r);
	if (IsA(plan, Limit))
		FillLimit(r.stmt, (Limit *) plan, r.is_cursor);
	return false;
}

void
PipeannRewritePlan(PlannedStmt *stmt, bool is_cursor)
{
	Rewriting	r = {.stmt = stmt,.is_cursor = is_cursor};
	Filling		filling = {.stmt = stmt};

	(void) PipeannVisitPlans(stmt, Rewrite, &r);
	(void) PipeannVisitPlans(stmt, FillDrains, &filling);
}
