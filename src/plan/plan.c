/*
 * plan.c
 *		The planner's hooks, and what other libraries find here (interface.h).
 *
 * Hooks are chained: others that were there first plan, and what they return
 * passes through here.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/stratnum.h"
#include "catalog/pg_amop.h"
#include "catalog/pg_index.h"
#include "catalog/pg_operator_d.h"
#include "catalog/pg_opfamily_d.h"
#include "catalog/pg_type_d.h"
#include "fmgr.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "nodes/parsenodes.h"
#include "optimizer/optimizer.h"
#include "optimizer/paths.h"
#include "optimizer/planner.h"
#include "parser/parse_coerce.h"
#include "parser/parsetree.h"
#include "plan/node.h"
#include "plan/plan.h"
#include "plan/rewrite.h"
#include "utils/catcache.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/relcache.h"
#include "utils/syscache.h"
#include "utils/typcache.h"

/*
 * Conditions that a column of arrays has an element.
 *
 * PostgreSQL hands `x = ANY (column)` to no index: it looks for an index on x. What
 * contains the array of x alone has the same elements, if both go by the same
 * equality. The two differ where x is NULL, which as a condition is as good as
 * false, so only conditions that all have to hold are changed.
 */

/* Whether an index is ours and has a column of the table as a key column. */
static bool
HasKey(Oid indexid, AttrNumber column)
{
	HeapTuple	tuple = SearchSysCache1(INDEXRELID, ObjectIdGetDatum(indexid));
	Form_pg_index index;
	bool		has = false;

	if (!HeapTupleIsValid(tuple))
		return false;
	index = (Form_pg_index) GETSTRUCT(tuple);
	for (int i = 0; i < index->indnkeyatts && !has; i++)
		has = index->indkey.values[i] == column;
	ReleaseSysCache(tuple);
	return has && PipeannIsIndex(indexid);
}

/* The query has been analysed, so the table is locked. */
static bool
IsKeyOfOurs(Oid table, AttrNumber column)
{
	Relation	relation = RelationIdGetRelation(table);
	List	   *indexes;
	ListCell   *cell;
	bool		is = false;

	if (!RelationIsValid(relation))
		return false;
	indexes = RelationGetIndexList(relation);
	foreach(cell, indexes)
		if (HasKey(lfirst_oid(cell), column))
			is = true;
	list_free(indexes);
	RelationClose(relation);
	return is;
}

/* A column of a domain over arrays is taken as its arrays. */
static const Node *
WithoutDomain(const Node *node)
{
	return IsA(node, RelabelType) ?
		(const Node *) ((const RelabelType *) node)->arg : node;
}

/* Its elements must be compared as the index compares them. */
static bool
IsOurColumn(const Query *query, const Node *node)
{
	const Var  *column = (const Var *) WithoutDomain(node);
	const RangeTblEntry *table;

	if (!IsA(column, Var) || column->varlevelsup > 0 || column->varattno <= 0 ||
		getBaseType(column->vartype) != exprType(node))
		return false;
	table = rt_fetch(column->varno, query->rtable);
	return table->rtekind == RTE_RELATION &&
		IsKeyOfOurs(table->relid, column->varattno);
}

/*
 * x as an element of an array, if an operator says whether it equals one, NULL
 * if not. It must be the same value, so that it is equal to the same ones: of casts
 * to other types that is known for integers only. One of a date to a timestamp fails
 * where the operator does not.
 */
static Node *
AsElement(Node *x, Oid operator, Oid element)
{
	Oid			family;

	if (!OidIsValid(element) || contain_volatile_functions(x))
		return NULL;
	family = lookup_type_cache(element, TYPECACHE_BTREE_OPFAMILY)->btree_opf;
	if (!OidIsValid(family) ||
		get_op_opfamily_strategy(operator, family) != BTEqualStrategyNumber ||
		(family != INTEGER_BTREE_FAM_OID &&
		 !IsBinaryCoercible(exprType(x), element)))
		return NULL;
	return coerce_to_target_type(NULL, x, exprType(x), element, -1,
								 COERCION_IMPLICIT, COERCE_IMPLICIT_CAST, -1);
}

static Node *
AskForElement(const Query *query, ScalarArrayOpExpr *condition)
{
	Node	   *array = lsecond(condition->args);
	Oid			element = get_element_type(exprType(array));
	Node	   *x = AsElement(linitial(condition->args), condition->opno,
							  element);
	ArrayExpr  *wanted;

	if (!condition->useOr || x == NULL || !IsOurColumn(query, array))
		return (Node *) condition;
	wanted = makeNode(ArrayExpr);
	wanted->array_typeid = exprType(array);
	wanted->array_collid = exprCollation(x);
	wanted->element_typeid = element;
	wanted->elements = list_make1(x);
	wanted->location = -1;
	return (Node *) make_opclause(OID_ARRAY_CONTAINS_OP, BOOLOID, false,
								  (Expr *) array, (Expr *) wanted,
								  InvalidOid, condition->inputcollid);
}

/* A condition that has to hold. */
static Node *
Condition(const Query *query, Node *node)
{
	ListCell   *cell;

	if (node == NULL)
		return NULL;
	if (IsA(node, ScalarArrayOpExpr))
		return AskForElement(query, (ScalarArrayOpExpr *) node);
	if (is_andclause(node))
		foreach(cell, ((BoolExpr *) node)->args)
			lfirst(cell) = Condition(query, lfirst(cell));
	return node;
}

static bool
Visit(Node *node, void *arg)
{
	if (node == NULL)
		return false;
	if (IsA(node, Query))
	{
		Query	   *query = (Query *) node;

		if (query->sortClause != NIL && query->jointree != NULL)
			query->jointree->quals = Condition(query, query->jointree->quals);
		return query_tree_walker(query, Visit, arg, 0);
	}
	return expression_tree_walker(node, Visit, arg);
}

/*
 * Where a query with an order, or one inside it, asks for rows whose array has an
 * element, `x = ANY (column)`, and the column is a key column of an index of ours,
 * let it ask `column @> ARRAY[x]`, which an index can answer. Before the query is
 * planned; it returns the same rows.
 */
static void
AskForElements(Query *query)
{
	(void) Visit((Node *) query, NULL);
}

/* What this library has for others that are loaded beside it. */

static bool
RewritesPlans(void)
{
	return pipeann_rewrite_plans;
}

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

static const PipeannInterface interface = {
	.version = PIPEANN_INTERFACE_VERSION,
	.rewrites_plans = RewritesPlans,
	.rewrite_query = AskForElements,
	.is_distance = IsDistance,
	.wrap = PipeannWrap,
	.visit_plans = PipeannVisitPlans
};

bool		pipeann_rewrite_plans;
bool		pipeann_bitmap_scan;

static planner_hook_type former_planner;
static set_rel_pathlist_hook_type former_rel_paths;

static PlannedStmt *
PlanQuery(Query *query, const char *text, int cursor_options,
		  ParamListInfo params)
{
	return former_planner != NULL ?
		former_planner(query, text, cursor_options, params) :
		standard_planner(query, text, cursor_options, params);
}

static PlannedStmt *
PlanAndRewrite(Query *query, const char *text, int cursor_options,
			   ParamListInfo params)
{
	PlannedStmt *stmt;

	if (!pipeann_rewrite_plans)
		return PlanQuery(query, text, cursor_options, params);
	AskForElements(query);
	stmt = PlanQuery(query, text, cursor_options, params);
	PipeannRewritePlan(stmt, (cursor_options & CURSOR_OPT_FAST_PLAN) != 0);
	return stmt;
}

/*
 * Take out paths in the order of several distances, which no scan has.
 *
 * Its cost says so, too (am/cost.c). But a path is compared by how many of its nodes
 * are disabled first, and PostgreSQL 18 forgets that in merges of partitions' scans.
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
	if (pipeann_bitmap_scan)
		PipeannAddBitmapPaths(root, rel);
}

/*
 * Let all plans that the server makes from now on pass through here, and libraries
 * find the interface.
 */
void
PipeannPlanInit(void)
{
	RegisterCustomScanMethods(&PipeannMergeMethods.scan);
	RegisterCustomScanMethods(&PipeannBitmapMethods.scan);
	RegisterCustomScanMethods(&PipeannFillMethods.scan);
	former_rel_paths = set_rel_pathlist_hook;
	set_rel_pathlist_hook = AddRelPaths;
	former_planner = planner_hook;
	planner_hook = PlanAndRewrite;
	*find_rendezvous_variable(PIPEANN_INTERFACE) =
		unconstify(PipeannInterface *, &interface);
}
