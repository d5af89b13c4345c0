/*
 * pruning.c
 *		Pruning partitions by values that are known when a query is run.
 *
 * If a condition says that a column of the partition key has some value, the
 * partition's own constraint with that value in the column's place is true for every
 * row that the query asks for. If it names no other column it can be tested before
 * the partition is asked.
 */
#include "postgres.h"

#include "access/stratnum.h"
#include "catalog/partition.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/optimizer.h"
#include "queries/nearest.h"
#include "utils/lsyscache.h"
#include "utils/partcache.h"
#include "utils/rel.h"

/* A column of the partition key and the value that rows asked for have in it. */
typedef struct KnownValue
{
	Var		   *column;
	Node	   *value;
} KnownValue;

static bool
IsKeyColumn(const Node *node, PartitionKey key, int i)
{
	const Var  *column = (const Var *) node;

	/* the number of an expression is 0, as is that of a whole row */
	return IsA(node, Var) && column->varno == PIPEANN_NEAREST_TABLE &&
		key->partattrs[i] > 0 && column->varattno == key->partattrs[i];
}

static bool
IsValue(Node *node, PartitionKey key, int i)
{
	return exprType(node) == key->parttypid[i] && !IsA(node, Const) &&
		!contain_var_clause(node) && !contain_volatile_functions(node);
}

/* Whether a condition is the equality by which the key divides partitions. */
static bool
IsEquality(const OpExpr *condition, PartitionKey key, int i)
{
	int			equal = key->strategy == PARTITION_STRATEGY_HASH ?
		HTEqualStrategyNumber : BTEqualStrategyNumber;

	return list_length(condition->args) == 2 &&
		condition->inputcollid == key->partcollation[i] &&
		get_op_opfamily_strategy(condition->opno,
								 key->partopfamily[i]) == equal;
}

/* Whether a condition gives the value of the key's column i. */
static bool
Gives(Node *condition, PartitionKey key, int i, KnownValue *known)
{
	Node	   *left;
	Node	   *right;

	if (!IsA(condition, OpExpr) || !IsEquality((OpExpr *) condition, key, i))
		return false;
	left = linitial(((OpExpr *) condition)->args);
	right = lsecond(((OpExpr *) condition)->args);
	if (IsKeyColumn(left, key, i) && IsValue(right, key, i))
	{
		known->column = (Var *) left;
		known->value = right;
		return true;
	}
	if (IsKeyColumn(right, key, i) && IsValue(left, key, i))
	{
		known->column = (Var *) right;
		known->value = left;
		return true;
	}
	return false;
}

static Node *
PutValue(Node *node, void *arg)
{
	const KnownValue *known = arg;

	if (node != NULL && IsA(node, Var) &&
		((Var *) node)->varattno == known->column->varattno)
		return copyObject(known->value);
	return expression_tree_mutator(node, PutValue, arg);
}

/* A member's constraint, with the known values put in. */
static List *
ConstraintWith(const PipeannPartitions *partitions, Relation member,
			   const List *conditions)
{
	PartitionKey key = RelationGetPartitionKey(partitions->table);
	List	   *constraint = RelationGetPartitionQual(member);

	for (int i = 0; i < key->partnatts; i++)
	{
		ListCell   *cell;

		foreach(cell, conditions)
		{
			KnownValue	known;

			if (!Gives(lfirst(cell), key, i, &known))
				continue;
			known.column = linitial(map_partition_varattnos(list_make1(known.column),
															PIPEANN_NEAREST_TABLE,
															member,
															partitions->table));
			constraint = (List *) PutValue((Node *) constraint, &known);
			break;
		}
	}
	return constraint;
}

List *
PipeannPruningCondition(const PipeannPartitions *partitions, Relation member,
						const PipeannNearest *nearest)
{
	List	   *conditions = make_ands_implicit((Expr *) nearest->query->jointree->quals);
	List	   *pruning = NIL;
	ListCell   *cell;

	foreach(cell, ConstraintWith(partitions, member, conditions))
		if (!contain_var_clause(lfirst(cell)))
			pruning = lappend(pruning, lfirst(cell));
	return pruning;
}
