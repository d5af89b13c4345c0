/*
 * nearest.c
 *		Recognising queries for the nearest rows of a partitioned table, as the parser
 *		gives them.
 *
 * Whether a row is returned must depend on that row only, and what is asked of the
 * table must be found in each part of it. Anything else (joins, aggregates, row
 * locks, sub-queries) makes it another kind of query. Only the vector from which
 * distances are measured may come from a sub-query.
 */
#include "postgres.h"

#include "catalog/pg_class_d.h"
#include "catalog/pg_operator_d.h"
#include "catalog/pg_type_d.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/optimizer.h"
#include "queries/nearest.h"
#include "queries/queries.h"
#include "rewrite/rewriteManip.h"

/* Whether an expression names columns of outer queries. */
static bool
NamesOthers(Node *node, void *arg)
{
	if (node == NULL)
		return false;
	if (IsA(node, Var) && ((const Var *) node)->varlevelsup > 0)
		return true;
	if (IsA(node, Aggref) || IsA(node, GroupingFunc))
		return true;
	return expression_tree_walker(node, NamesOthers, arg);
}

static bool
HasOnlySelect(const Query *query)
{
	return query->commandType == CMD_SELECT && query->utilityStmt == NULL &&
		!query->hasAggs && !query->hasWindowFuncs && !query->hasTargetSRFs &&
		!query->hasDistinctOn && !query->hasForUpdate && query->rowMarks == NIL &&
		query->cteList == NIL && query->groupClause == NIL &&
		query->groupingSets == NIL && query->havingQual == NULL &&
		query->distinctClause == NIL && query->windowClause == NIL &&
		query->setOperations == NULL;
}

/* A query's only relation, if it is a partitioned table; or NULL. */
static RangeTblEntry *
TableOf(const Query *query)
{
	RangeTblEntry *table;

	if (list_length(query->rtable) != PIPEANN_NEAREST_TABLE ||
		list_length(query->jointree->fromlist) != 1 ||
		!IsA(linitial(query->jointree->fromlist), RangeTblRef))
		return NULL;
	table = linitial_node(RangeTblEntry, query->rtable);
	return table->rtekind == RTE_RELATION && table->inh &&
		table->relkind == RELKIND_PARTITIONED_TABLE &&
		table->tablesample == NULL ? table : NULL;
}

/* Find the only order of a query, if it is by a distance, nearest first. */
static bool
FindDistance(PipeannNearest *nearest)
{
	const OpExpr *distance;

	if (list_length(nearest->query->sortClause) != 1)
		return false;
	nearest->order = linitial_node(SortGroupClause, nearest->query->sortClause);
	nearest->distance = get_sortgroupclause_tle(nearest->order,
												nearest->query->targetList);
	distance = (const OpExpr *) nearest->distance->expr;
	return nearest->order->sortop == Float8LessOperator &&
		IsA(distance, OpExpr) && distance->opresulttype == FLOAT8OID &&
		list_length(distance->args) == 2 && pipeann_core->is_distance(distance->opno) &&
		!contain_volatile_functions((Node *) distance);
}

/* Whether a sub-query gives one value and names only what is its own. */
static bool
IsForValue(const SubLink *link)
{
	Node	   *copy = copyObject(link->subselect);

	IncrementVarSublevelsUp(copy, 1, 1);
	return link->subLinkType == EXPR_SUBLINK && equal(copy, link->subselect);
}

static bool
AsksForMore(Node *node, void *arg)
{
	if (node == NULL)
		return false;
	if (IsA(node, SubLink))
		return !IsForValue((const SubLink *) node);
	return expression_tree_walker(node, AsksForMore, arg);
}

/* Whether there are sub-queries outside of the distance. */
static bool
AsksBeside(Node *node, void *distance)
{
	if (node == NULL || equal(node, distance))
		return false;
	if (IsA(node, SubLink))
		return true;
	return expression_tree_walker(node, AsksBeside, distance);
}

/* Whether sub-queries are only for the vector from which distances are measured. */
static bool
AsksForVector(const PipeannNearest *nearest)
{
	const Query *query = nearest->query;
	Expr	   *distance = nearest->distance->expr;

	return !query->hasSubLinks ||
		(!AsksForMore((Node *) distance, NULL) &&
		 !AsksBeside((Node *) query->targetList, distance) &&
		 !AsksBeside(query->jointree->quals, distance) &&
		 !AsksBeside((Node *) nearest->table->securityQuals, distance) &&
		 !AsksBeside(query->limitCount, distance) &&
		 !AsksBeside(query->limitOffset, distance));
}

bool
PipeannIsNearest(Query *query, PipeannNearest *nearest)
{
	if (!HasOnlySelect(query) || query->limitCount == NULL ||
		query->limitOption != LIMIT_OPTION_COUNT)
		return false;
	nearest->query = query;
	nearest->table = TableOf(query);
	return nearest->table != NULL && FindDistance(nearest) &&
		AsksForVector(nearest) &&
		!contain_volatile_functions(query->limitCount) &&
		!contain_volatile_functions(query->limitOffset) &&
		!NamesOthers((Node *) query->targetList, NULL) &&
		!NamesOthers(query->jointree->quals, NULL) &&
		!NamesOthers((Node *) nearest->table->securityQuals, NULL) &&
		!NamesOthers(query->limitCount, NULL) &&
		!NamesOthers(query->limitOffset, NULL);
}
