/*
 * plan.c
 *		The planner hooks, and the interface for other libraries (interface.h).
 *		A query for the nearest rows is changed twice: paths by bitmaps are
 *		added to its paths, and the finished plan is changed from its top down
 *		to our scans.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/parallel.h"
#include "access/xact.h"
#include "base/pause.h"
#include "catalog/pg_am_d.h"
#include "catalog/pg_amop.h"
#include "catalog/pg_class_d.h"
#include "catalog/pg_operator_d.h"
#include "distance/distance.h"
#include "executor/executor.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "nodes/parsenodes.h"
#include "nodes/plannodes.h"
#include "optimizer/cost.h"
#include "optimizer/optimizer.h"
#include "optimizer/pathnode.h"
#include "optimizer/paths.h"
#include "optimizer/planner.h"
#include "parser/parsetree.h"
#include "plan/plan.h"
#include "scan/scan.h"
#include "tcop/pquery.h"
#include "utils/catcache.h"
#include "utils/plancache.h"
#include "utils/spccache.h"
#include "utils/syscache.h"

bool		pipeann_rewrite_plans;
bool		pipeann_bitmap_scan;

/* ---------- paths by bitmaps ---------- */

/*
 * If few rows meet conditions on columns that our index does not have, a node
 * of ours takes the bitmap that other indexes make of these rows, and has our
 * scan search among them. The paths for the bitmap are PostgreSQL's own: it
 * makes them again for a copy of the RelOptInfo, as it has dropped those of the
 * table if a scan of the whole table is cheaper.
 */

/*
 * The cost of taking a row of the bitmap, finding its node and scanning its code, in operators.
 * Pages of the index and of the table are requested together, so each costs 1 / OVERLAP.
 */
#define ROW_COST 30
#define START_COST 20000
#define OVERLAP 4.0

/* A bitmap of more pages than this share of those for which work_mem has room may become lossy. */
#define MOST_PAGES_SHARE 0.5

/*
 * A condition without columns is tested above the node, and need not be tested
 * below, where it makes a scan return columns that are not needed.
 */
static Plan *
WithoutGate(Plan *plan)
{
	Plan	   *scan = outerPlan(plan);

	if (!IsA(plan, Result))
		return plan;
	scan->targetlist = plan->targetlist;
	return scan;
}

/* PostgreSQL plans a bitmap only as the child of a scan of the table; that is dropped. */
static Plan *
PlanBitmap(PlannerInfo *root, RelOptInfo *table, CustomPath *path,
		   List *targets, List *clauses, List *plans)
{
	CustomScan *node = makeNode(CustomScan);
	Plan	   *scan = WithoutGate(linitial(plans));
	Plan	   *table_scan = WithoutGate(lsecond(plans));

	if (PIPEANN_PLANTED("bitmap-condition"))
		scan->qual = NIL;
	node->scan.plan.targetlist = targets;
	node->custom_scan_tlist = copyObject(scan->targetlist);
	node->custom_plans = list_make2(scan, outerPlan(table_scan));
	node->methods = PipeannBitmapNode;
	return &node->scan.plan;
}

static const CustomPathMethods bitmap_path_methods = {
	.CustomName = "PipeannBitmap",
	.PlanCustomPath = PlanBitmap
};

/*
 * Our scan in the order of a distance, or NULL. One whose own columns answer
 * conditions searches among matching rows already. New rows are compared by
 * the table's vectors, so the index must be on a column.
 */
static const IndexPath *
OrderedScan(const RelOptInfo *table)
{
	ListCell   *cell;

	foreach(cell, table->pathlist)
	{
		const IndexPath *path = lfirst(cell);

		if (IsA(path, IndexPath) && list_length(path->indexorderbys) == 1 &&
			path->indexclauses == NIL && path->path.param_info == NULL &&
			path->indexinfo->indexkeys[linitial_int(path->indexorderbycols)] > 0 &&
			PipeannIsMethod(path->indexinfo->relam))
			return path;
	}
	return NULL;
}

static bool
IsHeap(const PlannerInfo *root, const RelOptInfo *table)
{
	const RangeTblEntry *entry = planner_rt_fetch(table->relid, root);

	return entry->rtekind == RTE_RELATION && !entry->inh &&
		entry->tablesample == NULL &&
		GetSysCacheOid1(RELOID, Anum_pg_class_relam,
						ObjectIdGetDatum(entry->relid)) == HEAP_TABLE_AM_OID;
}

/* The paths of scans by conditions on the table alone. */
static List *
ScansByIndexes(PlannerInfo *root, const RelOptInfo *table)
{
	RelOptInfo *copy = makeNode(RelOptInfo);

	memcpy(copy, table, sizeof(RelOptInfo));
	copy->pathlist = copy->partial_pathlist = copy->ppilist = NIL;
	copy->consider_parallel = false;
	copy->joininfo = NIL;
	copy->has_eclass_joins = false;
	create_index_paths(root, copy);
	return copy->pathlist;
}

/* A bitmap of a BRIN index has pages only, no rows. */
static bool
HasRows(const Path *path)
{
	const List *parts = NIL;
	ListCell   *cell;

	if (IsA(path, IndexPath))
		return ((const IndexPath *) path)->indexinfo->relam != BRIN_AM_OID;
	if (IsA(path, BitmapAndPath))
		parts = ((const BitmapAndPath *) path)->bitmapquals;
	else if (IsA(path, BitmapOrPath))
		parts = ((const BitmapOrPath *) path)->bitmapquals;
	foreach(cell, parts)
		if (!HasRows(lfirst(cell)))
			return false;
	return true;
}

/* The bitmap of the rows that a path finds, or NULL if none can be made. */
static Path *
BitmapOf(Path *path)
{
	IndexPath  *scan = (IndexPath *) path;
	Path	   *bitmap = NULL;

	if (path->param_info != NULL)
		return NULL;
	if (IsA(path, BitmapHeapPath))
		bitmap = ((BitmapHeapPath *) path)->bitmapqual;
	else if (IsA(path, IndexPath) && scan->indexorderbys == NIL &&
			 scan->indexclauses != NIL && scan->indexinfo->amhasgetbitmap)
		bitmap = path;
	return bitmap != NULL && HasRows(bitmap) ? bitmap : NULL;
}

/* Each row that is read costs a page of the table and one of the index. */
static void
SetCost(PlannerInfo *root, CustomPath *path, const IndexPath *scan,
		Cost bitmap_cost, double rows)
{
	const RelOptInfo *table = path->path.parent;
	double		returned = Min(Max(table->rows, 1), rows);
	double		index_page;
	double		table_page;

	get_tablespace_page_costs(scan->indexinfo->reltablespace, &index_page,
							  NULL);
	get_tablespace_page_costs(table->reltablespace, &table_page, NULL);
	path->path.rows = scan->path.rows;
	path->path.startup_cost = bitmap_cost + cpu_operator_cost *
		(START_COST + rows * ROW_COST) +
		Min(rows, PIPEANN_EARLY_RESULTS * 2) * index_page / OVERLAP;
	path->path.total_cost = path->path.startup_cost +
		rows * (index_page + table_page) / OVERLAP +
		rows * (cpu_tuple_cost + table->baserestrictcost.per_tuple);
	PipeannTakeOffVectors(root, scan->indexinfo, returned,
						  &path->path.startup_cost, &path->path.total_cost);
#if PG_VERSION_NUM >= 180000
	path->path.disabled_nodes = scan->path.disabled_nodes;
#endif
}

/*
 * A copy of our scan that returns the table's rows; the original may still be
 * changed. It also returns rows of the bitmap that a partial index does not
 * have, so it has to test conditions that the index's predicate implies, too.
 * PostgreSQL leaves these out of a scan's conditions (indrestrictinfo).
 */
static Path *
CopyOf(const IndexPath *scan)
{
	IndexPath  *copy = makeNode(IndexPath);
	IndexOptInfo *index = makeNode(IndexOptInfo);

	memcpy(index, scan->indexinfo, sizeof(IndexOptInfo));
	index->indrestrictinfo = index->rel->baserestrictinfo;
	memcpy(copy, scan, sizeof(IndexPath));
	copy->path.pathtype = T_IndexScan;
	copy->path.pathtarget = scan->path.parent->reltarget;
	copy->indexinfo = index;
	return &copy->path;
}

static void
AddPath(PlannerInfo *root, RelOptInfo *table, const IndexPath *scan,
		Path *bitmap)
{
	CustomPath *path = makeNode(CustomPath);
	Cost		cost;
	Selectivity share;
	double		rows;

	cost_bitmap_tree_node(bitmap, &cost, &share);
	rows = clamp_row_est(share * table->tuples);
	if (Min(rows, table->pages) >
		tbm_calculate_entries(work_mem * 1024L) * MOST_PAGES_SHARE)
		return;
	path->path.pathtype = T_CustomScan;
	path->path.parent = table;
	path->path.pathtarget = table->reltarget;
	path->path.pathkeys = scan->path.pathkeys;
	path->custom_paths = list_make2(CopyOf(scan),
									create_bitmap_heap_path(root, table,
															bitmap, NULL,
															1.0, 0));
	path->methods = &bitmap_path_methods;
	SetCost(root, path, scan, cost, rows);
	add_path(table, &path->path);
}

/*
 * If our scan has conditions on other columns that other indexes answer, add a
 * path of both.
 */
static void
AddBitmapPaths(PlannerInfo *root, RelOptInfo *table)
{
	const IndexPath *scan;
	ListCell   *cell;

	if (!enable_bitmapscan || !enable_indexscan ||
		root->query_pathkeys == NIL || table->baserestrictinfo == NIL ||
		table->lateral_relids != NULL || !PipeannMayMapRows(table->tuples) ||
		table->tuples < PIPEANN_MIN_CODED_NODES ||
		!PipeannWantsFew(root, table->rows))
		return;
	scan = OrderedScan(table);
	if (scan == NULL || !IsHeap(root, table))
		return;
	foreach(cell, ScansByIndexes(root, table))
	{
		Path	   *bitmap = BitmapOf(lfirst(cell));

		if (bitmap != NULL)
			AddPath(root, table, scan, bitmap);
	}
}

/* ---------- finished plans ---------- */

/*
 * On the way down it is found which columns of each plan are read. Nodes not
 * known to pass rows on are assumed to read everything: sorts, merges,
 * aggregates, set operations, and nodes of other extensions.
 */

/*
 * Which columns of its child a plan node reads. Row marks, which the executor
 * finds by name, are not counted, as they are no distances.
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
			columns = bms_add_member(columns, PIPEANN_COLUMN(target->resno));
	}
	return columns;
}

/* Columns of varno that are read. */
typedef struct Reading
{
	int			varno;
	Bitmapset  *columns;
} Reading;

static bool
AddNamed(Node *expr, void *arg)
{
	Reading    *reading = arg;

	pull_varattnos(expr, reading->varno, &reading->columns);
	return false;
}

static Bitmapset *
AddKeys(Bitmapset *columns, int n, const AttrNumber *keys)
{
	for (int i = 0; i < n; i++)
		columns = bms_add_member(columns, PIPEANN_COLUMN(keys[i]));
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
 * wanted. The child's columns are Vars of varno in the node's expressions.
 * Only for nodes that read what their expressions refer to (tree.c).
 */
static Bitmapset *
ColumnsRead(const Plan *node, int varno, const Bitmapset *wanted)
{
	Reading		reading = {.varno = varno};
	ListCell   *cell;

	foreach(cell, node->targetlist)
	{
		const TargetEntry *target = lfirst_node(TargetEntry, cell);

		/*
		 * An expression that is not wanted is still computed, and might fail
		 * with another value; a column that is only passed up cannot.
		 */
		if (!IsA(target->expr, Var) ||
			PipeannHasColumn(wanted, target->resno))
			(void) AddNamed((Node *) target->expr, &reading);
	}
	(void) AddNamed((Node *) node->qual, &reading);
	(void) PipeannVisitExpressions(node, AddNamed, &reading);
	if (IsA(node, NestLoop))
		foreach(cell, ((const NestLoop *) node)->nestParams)
			(void) AddNamed((Node *) lfirst_node(NestLoopParam, cell)->paramval,
							&reading);
	return AddCompared(reading.columns, node);
}

/*
 * Plans that may be run twice, as they evaluate nothing volatile. What is
 * evaluated once for a statement (initial plans, common table expressions,
 * foreign rows behind a cursor) is not run again with the plan that reads it.
 */

static bool IsVolatilePlan(Plan **place, void *stmt);

static bool
HasVolatilePlan(Node *node, void *stmt)
{
	if (node == NULL)
		return false;
	if (IsA(node, SubPlan) &&
		IsVolatilePlan((Plan **) &lfirst(list_nth_cell(((PlannedStmt *) stmt)->subplans,
													   ((SubPlan *) node)->plan_id - 1)),
					   stmt))
		return true;
	return expression_tree_walker(node, HasVolatilePlan, stmt);
}

/*
 * Whether an expression of a statement, or a sub-plan in it, has something volatile.
 */
static bool
HasVolatile(Node *node, void *stmt)
{
	return contain_volatile_functions(node) || HasVolatilePlan(node, stmt);
}

static bool
IsOurNode(const CustomScan *node)
{
	return node->methods == PipeannBitmapNode ||
		node->methods == PipeannFillNode || node->methods == PipeannMergeNode;
}

/*
 * Whether what a plan of a statement evaluates each time it is run, in
 * sub-plans too, may be volatile.
 */
static bool
IsVolatilePlan(Plan **place, void *stmt)
{
	Plan	   *plan = *place;

	return !PipeannPlanHas(plan, PIPEANN_PLAN_STEADY) ||
		(IsA(plan, CustomScan) && !IsOurNode((CustomScan *) plan)) ||
		HasVolatile((Node *) plan->targetlist, stmt) ||
		HasVolatile((Node *) plan->qual, stmt) ||
		PipeannVisitExpressions(plan, HasVolatile, stmt) ||
		PipeannVisitPlans(plan, IsVolatilePlan, stmt);
}

/* Our nodes that replace another node. */

/*
 * Vars of varno with the numbers and types of these columns: our nodes return
 * their scan tuple, which is what their child returns.
 */
static List *
SameColumns(const List *targets, int varno)
{
	List	   *columns = NIL;
	ListCell   *cell;

	foreach(cell, targets)
	{
		TargetEntry *target = flatCopyTargetEntry(lfirst(cell));

		target->expr = (Expr *) makeVarFromTargetEntry(varno, target);
		columns = lappend(columns, target);
	}
	return columns;
}

/* Make a node with this one as its child, and the same columns. */
static CustomScan *
Wrap(Plan *plan, const CustomScanMethods *methods)
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
 * Merges of the nearest rows of partitions. Each partition's search takes as long as that
 * of a whole table, as no scan knows how far the others are. So a node of ours replaces the
 * merge, which becomes its child, and reads the partitions in another order.
 */

/* The expressions by which our scan is ordered; NIL if it is not ours. */
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
 * Whether several of the plans are our scans, and all of these are ordered by one
 * operator and vector (in a UNION ALL they need not be, and then their distances
 * cannot be compared before rows are read) and may be run twice.
 */
static bool
AreFromOneVector(List *plans, PlannedStmt *stmt)
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
		if (!IsSameOrder(first, order) ||
			IsVolatilePlan((Plan **) &lfirst(cell), stmt))
			return false;
		n++;
	}
	return n > 1;
}

/*
 * If a limit has a merge of our scans below it, let each scan know from the
 * others' rows which are not wanted. Between limit and merge there may be a
 * node that computes columns.
 */
static void
LimitMerge(PlannedStmt *stmt, Limit *limit)
{
	Plan	  **place = &limit->plan.lefttree;
	const MergeAppend *merge;
	CustomScan *node;

	if (limit->limitCount == NULL || limit->limitOption != LIMIT_OPTION_COUNT)
		return;
	if (IsA(*place, Result) && (*place)->lefttree != NULL &&
		(*place)->qual == NIL && ((Result *) *place)->resconstantqual == NULL)
		place = &(*place)->lefttree;
	merge = (const MergeAppend *) *place;
	if (!IsA(merge, MergeAppend) || merge->numCols != 1 ||
		merge->sortOperators[0] != Float8LessOperator ||
		merge->nullsFirst[0] || !AreFromOneVector(merge->mergeplans, stmt))
		return;
	node = Wrap(*place, PipeannMergeNode);
	node->custom_private = list_make1_int(merge->sortColIdx[0]);
	*place = &node->scan.plan;
}

/*
 * Scans below a limit may end before it is filled, having left out late rows.
 * A node of ours below the limit collects rows until it is filled, or else
 * restarts the scans, which then find everything first.
 */

/*
 * The plan below a limit whose rows it takes one by one: nodes in between drop no
 * rows, except LockRows, which must lock only rows that are returned.
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

/* The bound of the distance that all scans below a limit have. */
typedef struct Most
{
	Expr	   *distance;		/* of the first scan, or NULL */
	bool		no_numbers;		/* rows at NaN may be wanted all the same */
	Bitmapset  *params;			/* parameters set before the scans begin */
} Most;

/* An executor's parameter that is set further down may change later. */
static bool
IsSetBelow(Node *node, void *params)
{
	if (node == NULL)
		return false;
	if (IsA(node, Param))
		return ((const Param *) node)->paramkind == PARAM_EXEC &&
			!bms_is_member(((const Param *) node)->paramid, params);
	return expression_tree_walker(node, IsSetBelow, params);
}

/* Whether there is a scan without a bound, or with another one; goes where IsFromScans() does. */
static bool
HasOtherMost(Plan **place, void *arg)
{
	Most	   *most = arg;
	Plan	   *plan = *place;
	Expr	   *distance;

	if (OrderOf(plan) == NIL)
		return !PipeannPlanHas(plan, PIPEANN_PLAN_ORDERED) || innerPlan(plan) != NULL ||
			PipeannVisitPlans(plan, HasOtherMost, most);
	distance = PipeannMostDistance(plan, &most->no_numbers);
	if (distance == NULL || IsSetBelow((Node *) distance, most->params) ||
		(most->distance != NULL && !equal(distance, most->distance)))
		return true;
	most->distance = distance;
	return false;
}

/*
 * If a limit has scans of ours below it that may end before it is filled, put
 * a node of ours between. Must be called when the columns of the plan below
 * are final. That plan may be run twice, so it must evaluate nothing volatile
 * (IsVolatilePlan). A cursor's position is that of the only scan of its table
 * (UPDATE ... WHERE CURRENT OF): rows must not be collected above that. The
 * number of rows is not known, and the planner's estimate may be wrong by any
 * factor.
 */
static void
FillLimit(PlannedStmt *stmt, Limit *limit, bool is_cursor)
{
	Plan	  **place = PlaceBelow(limit);
	Most		most = {NULL};
	CustomScan *node;

	if (limit->limitCount == NULL || !IsFromScans(place, NULL) ||
		(is_cursor && !IsA(*place, CustomScan) && !IsA(*place, NestLoop) &&
		 !IsA(*place, WindowAgg)) ||	/* see execCurrent.c */
		IsVolatilePlan(place, stmt))
		return;
	most.params = (*place)->extParam;
	node = Wrap(*place, PipeannFillNode);
	if (!HasOtherMost(place, &most))
		node->custom_exprs = list_make1(most.distance);
	node->custom_private = list_make1_int(most.no_numbers);
	*place = &node->scan.plan;
}

/* A node whose children are visited. */
typedef struct Rewriting
{
	PlannedStmt *stmt;
	bool		is_cursor;
	bool		drained;		/* something above wants all rows first */
	const Plan *above;			/* NULL: the whole plan of a query */
	const Bitmapset *wanted;	/* its columns */
} Rewriting;

/* The columns of a plan that the node above it reads. */
static Bitmapset *
WantedOf(const Rewriting *r, Plan **place)
{
	const Plan *above = r->above;

	if (above == NULL)
		return ColumnsReturned((*place)->targetlist);
	if (!PipeannPlanHas(above, PIPEANN_PLAN_NAMES) ||
		(IsA(above, Agg) && ((const Agg *) above)->chain != NIL))
		return bms_make_singleton(PIPEANN_COLUMN(InvalidAttrNumber));
	if (IsA(above, SubqueryScan))
		return ColumnsRead(above, ((const SubqueryScan *) above)->scan.scanrelid,
						   r->wanted);
	return ColumnsRead(above, place == &outerPlan(above) ? OUTER_VAR : INNER_VAR,
					   r->wanted);
}

/*
 * Below a node that reads all rows before it returns one, a node of ours has the scan find
 * all: the planner may choose our scan as the cheapest below a sort in another order, as
 * there is a limit somewhere above.
 */
static bool
Rewrite(Plan **place, void *arg)
{
	const Rewriting *former = arg;
	Plan	   *plan = *place;
	Rewriting	r = *former;
	bool		fills = false;

	r.above = plan;
	r.wanted = WantedOf(former, place);
	PipeannLeaveOutUnread(plan, r.wanted);
	switch (nodeTag(plan))
	{
		case T_Limit:
			LimitMerge(r.stmt, (Limit *) plan);
			r.drained = false;
			break;
		case T_CustomScan:
		case T_IndexScan:
		case T_IndexOnlyScan:
		case T_MergeAppend:
			fills = r.drained && IsFromScans(place, NULL) && !IsVolatilePlan(place, r.stmt);
			r.drained &= !fills;
			break;
		default:
			r.drained |= PipeannPlanHas(plan, PIPEANN_PLAN_DRAINS);
			break;
	}
	(void) PipeannVisitPlans(plan, Rewrite, &r);
	if (IsA(plan, Limit))
		FillLimit(r.stmt, (Limit *) plan, r.is_cursor);
	else if (fills)
		*place = &Wrap(plan, PipeannFillNode)->scan.plan;
	return false;
}

/* ---------- hooks ---------- */

/* The interface of this library for other libraries. */

static bool
IsDistance(Oid operator)
{
	CatCList   *entries = SearchSysCacheList1(AMOPOPID,
											  ObjectIdGetDatum(operator));
	bool		ours = false;

	for (int i = 0; i < entries->n_members && !ours; i++)
	{
		Form_pg_amop entry = (Form_pg_amop)
			GETSTRUCT(&entries->members[i]->tuple);

		ours = entry->amoppurpose == AMOP_ORDER && PipeannIsMethod(entry->amopmethod);
	}
	ReleaseSysCacheList(entries);
	return ours;
}

static PipeannInterface interface = {
	.version = PIPEANN_INTERFACE_VERSION,
	.elements = PipeannDatumElements,
	.rewrites_plans = &pipeann_rewrite_plans,
	.is_distance = IsDistance,
	.wrap = Wrap,
	.visit_plans = PipeannVisitPlans,
	.bound_scans = PipeannBoundScans,
	.ask_part = &pipeann_ask_part
};

static planner_hook_type former_planner;	/* or PostgreSQL's own */

/* The library was loaded while a plan was being made, which these hooks have not seen. */
static bool came_late;
static set_rel_pathlist_hook_type former_rel_paths;

static PlannedStmt *
RewriteStmt(PlannedStmt *stmt, int cursor_options)
{
	Rewriting	r = {
		.stmt = stmt,.is_cursor = (cursor_options & CURSOR_OPT_FAST_PLAN) != 0
	};

	if (pipeann_rewrite_plans)
		(void) PipeannVisitPlans(stmt, Rewrite, &r);
	return stmt;
}

static PlannedStmt *
PlanAndRewrite(Query *query, const char *text, int cursor_options,
			   ParamListInfo params)
{
	came_late = false;
	return RewriteStmt(former_planner(query, text, cursor_options, params),
					   cursor_options);
}

/*
 * Remove paths in the order of several distances, which no scan can return.
 * Their cost forbids them, too (am/handler.c). But paths are compared first by
 * their number of disabled nodes, which PostgreSQL 18 forgets in merges of
 * partitions' scans.
 */
static void
DropRefused(RelOptInfo *table)
{
	ListCell   *cell;

	foreach(cell, table->pathlist)
	{
		const IndexPath *path = lfirst(cell);

		if (IsA(path, IndexPath) && list_length(path->indexorderbys) > 1 &&
			PipeannIsMethod(path->indexinfo->relam))
			table->pathlist = foreach_delete_current(table->pathlist, cell);
	}
}

static void
AddRelPaths(PlannerInfo *root, RelOptInfo *rel, Index number,
			RangeTblEntry *entry)
{
	if (former_rel_paths != NULL)
		former_rel_paths(root, rel, number, entry);
	DropRefused(rel);
	PipeannEstimateWithin(root, rel);
	if (pipeann_bitmap_scan)
		AddBitmapPaths(root, rel);
}

static ExecutorStart_hook_type former_start;

/*
 * Change a plan that did not pass through the planner hook like those that do,
 * in a copy, as the plan may be cached; each execution then gets a copy.
 */
static void
Start(QueryDesc *query, int flags)
{
	if (came_late)
	{
		came_late = false;
		query->plannedstmt = RewriteStmt(copyObject(query->plannedstmt),
										 ActivePortal == NULL ? 0 : ActivePortal->cursorOptions);
		ResetPlanCache();
	}
	former_start(query, flags);
	/* another hook's library may not have made a tree of states */
	if (query->planstate != NULL)
		(void) PipeannTellLimit(query->planstate, NULL);
}

/* Install the hooks for all plans made from now on, and publish the interface. */
void
PipeannPlanInit(void)
{
	RegisterCustomScanMethods(PipeannMergeNode);
	RegisterCustomScanMethods(PipeannBitmapNode);
	RegisterCustomScanMethods(PipeannFillNode);
	came_late = IsTransactionState() && !IsParallelWorker();
	former_rel_paths = set_rel_pathlist_hook;
	set_rel_pathlist_hook = AddRelPaths;
	former_planner = planner_hook != NULL ? planner_hook : standard_planner;
	planner_hook = PlanAndRewrite;
	former_start = ExecutorStart_hook != NULL ? ExecutorStart_hook :
		standard_ExecutorStart;
	ExecutorStart_hook = Start;
#if PG_VERSION_NUM >= 180000
	PipeannExplainInit();
#endif
	interface.kernels = PipeannKernel;
	*find_rendezvous_variable(PIPEANN_INTERFACE) = &interface;
}
