/*
 * partitions.c
 *		The partitions that a query for the nearest rows has to look at.
 *
 * PostgreSQL's own pruning finds them. It wants a relation of the planner's, so a
 * planner's state is made that has only this relation, as CLUSTER does.
 */
#include "postgres.h"

#include "access/table.h"
#include "catalog/partition.h"
#include "catalog/pg_class_d.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "nodes/pathnodes.h"
#include "optimizer/optimizer.h"
#include "optimizer/pathnode.h"
#include "optimizer/restrictinfo.h"
#include "parser/parse_relation.h"
#include "partitioning/partdesc.h"
#include "partitioning/partprune.h"
#include "queries/nearest.h"
#include "utils/lsyscache.h"
#include "utils/partcache.h"
#include "utils/rel.h"

/* A tree of partitions that is being searched. */
typedef struct Tree
{
	PipeannPartitions *found;
	PartitionDirectory directory;
	ParamListInfo params;
	LOCKMODE	lock;
} Tree;

static PlannerInfo *
EmptyPlan(ParamListInfo params, PartitionDirectory directory)
{
	PlannerInfo *root = makeNode(PlannerInfo);

	root->parse = makeNode(Query);
	root->parse->commandType = CMD_SELECT;
	root->glob = makeNode(PlannerGlobal);
	root->glob->boundParams = params;
	root->glob->partition_directory = directory;
	root->query_level = 1;
	root->planner_cxt = CurrentMemoryContext;
	root->wt_param_id = -1;
#if PG_VERSION_NUM >= 160000
	root->join_domains = list_make1(makeNode(JoinDomain));
#endif
	return root;
}

Node *
PipeannKnownNow(const void *expr, ParamListInfo params)
{
	return eval_const_expressions(EmptyPlan(params, NULL),
								  copyObject(unconstify(void *, expr)));
}

static RangeTblEntry *
EntryOf(Relation table, LOCKMODE lock)
{
	RangeTblEntry *entry = makeNode(RangeTblEntry);

	entry->rtekind = RTE_RELATION;
	entry->relid = RelationGetRelid(table);
	entry->relkind = table->rd_rel->relkind;
	entry->rellockmode = lock;
	entry->inh = true;
	entry->inFromCl = true;
	return entry;
}

/* The indexes of a table's own partitions that conditions leave. */
static Bitmapset *
Prune(const Tree *tree, Relation table, const List *conditions)
{
	PlannerInfo *root = EmptyPlan(tree->params, tree->directory);
	RangeTblEntry *entry = EntryOf(table, tree->lock);
	RelOptInfo *relation;
	ListCell   *cell;

	root->parse->rtable = list_make1(entry);
#if PG_VERSION_NUM >= 160000
	addRTEPermissionInfo(&root->parse->rteperminfos, entry);
#endif
	setup_simple_rel_arrays(root);
	relation = build_simple_rel(root, PIPEANN_NEAREST_TABLE, NULL);
	foreach(cell, conditions)
		relation->baserestrictinfo =
		lappend(relation->baserestrictinfo,
				make_simple_restrictinfo(root, (Expr *) lfirst(cell)));
	return prune_append_rel_partitions(relation);
}

/* Add the leaves below a table. A partition that was dropped meanwhile has no rows. */
static void
AddBelow(Tree *tree, Relation table, List *conditions)
{
	PartitionDesc partitions = PartitionDirectoryLookup(tree->directory, table);
	Bitmapset  *left = Prune(tree, table, conditions);
	int			i = -1;

	check_stack_depth();
	while ((i = bms_next_member(left, i)) >= 0)
	{
		Relation	member = try_table_open(partitions->oids[i], tree->lock);

		if (member == NULL)
			continue;
		if (member->rd_rel->relkind == RELKIND_PARTITIONED_TABLE)
		{
			AddBelow(tree, member,
					 map_partition_varattnos(conditions,
											 PIPEANN_NEAREST_TABLE,
											 member, table));
			tree->found->between = lappend(tree->found->between, member);
			continue;
		}
		tree->found->has_foreign |=
			member->rd_rel->relkind == RELKIND_FOREIGN_TABLE;
		tree->found->members = lappend(tree->found->members, member);
	}
}

void
PipeannPartitionsOpen(PipeannPartitions *partitions,
					  const PipeannNearest *nearest, ParamListInfo params)
{
	Tree		tree = {.found = partitions, .params = params};
	Node	   *conditions = PipeannKnownNow(nearest->query->jointree->quals,
											 params);

	conditions = (Node *) canonicalize_qual((Expr *) conditions, false);
	tree.lock = nearest->table->rellockmode;
	tree.directory = CreatePartitionDirectory(CurrentMemoryContext, true);
	partitions->table = table_open(nearest->table->relid, NoLock);
	partitions->members = NIL;
	partitions->between = NIL;
	partitions->has_foreign = false;
	AddBelow(&tree, partitions->table, make_ands_implicit((Expr *) conditions));
	DestroyPartitionDirectory(tree.directory);
}

void
PipeannPartitionsClose(PipeannPartitions *partitions)
{
	ListCell   *cell;

	foreach(cell, partitions->members)
		table_close(lfirst(cell), NoLock);
	foreach(cell, partitions->between)
		table_close(lfirst(cell), NoLock);
	table_close(partitions->table, NoLock);
	list_free(partitions->members);
	list_free(partitions->between);
	partitions->members = partitions->between = NIL;
}
