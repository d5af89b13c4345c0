/*
 * columns.c
 *		Which columns of its child a plan node reads.
 *
 * A column that a node hands up and nobody above wants is not read. Columns that
 * the executor finds by name (row marks) are not counted: they are no distances.
 */
#include "postgres.h"

#include "access/sysattr.h"
#include "optimizer/optimizer.h"
#include "plan/columns.h"

/* The columns that are returned: those that are not junk. */
Bitmapset *
PipeannColumnsReturned(const List *targets)
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
Bitmapset *
PipeannColumnsRead(const Plan *node, int varno, const Bitmapset *wanted)
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
