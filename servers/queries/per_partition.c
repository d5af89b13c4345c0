/*
 * per_partition.c
 *		Queries for the nearest rows of partitions on other servers.
 *
 * As written they are planned as scans of all partitions below a sort or a merge:
 * postgres_fdw does not know that few rows are wanted, and asks one server after
 * the other, or for whole tables. So before planning such a query becomes
 *
 *		SELECT ... FROM (
 *			SELECT distance, columns FROM partition WHERE ...
 *				ORDER BY distance LIMIT ...
 *			UNION ALL ...) ORDER BY distance + 0 LIMIT ...
 *
 * whose parts each have a limit of their own, which is sent to the servers. As the
 * order of the whole is by another expression, it cannot be made by merging, one
 * row at a time: rows are taken in the order in which they arrive, and sorted.
 *
 * The table itself stays among the query's relations, so that its permissions are
 * checked, and it is locked and invalidates cached plans. So do tables between it
 * and its partitions.
 *
 * A sub-query for the vector is evaluated once, before all parts: it might give
 * each of them another vector (without an order any row is a right answer).
 */
#include "postgres.h"

#include "catalog/partition.h"
#include "catalog/pg_class_d.h"
#include "catalog/pg_type_d.h"
#include "common/int.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "parser/parse_relation.h"
#include "queries/nearest.h"
#include "queries/queries.h"
#include "rewrite/rewriteManip.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

/* A query that is being rewritten. */
typedef struct Rewriting
{
	const PipeannNearest *nearest;
	const PipeannPartitions *partitions;
	int			number;			/* of the query in the statement */
	Node	   *limit;			/* for each partition */
	List	   *columns;		/* columns of the table that partitions return */
	List	   *queries;		/* CommonTableExpr: sub-queries that are evaluated once */
} Rewriting;

/* Expressions of a part, this many levels below the whole query. */
typedef struct Below
{
	Rewriting  *r;
	int			levels;
} Below;

/* A walk through all queries of a statement. */
typedef struct Walk
{
	ParamListInfo params;
	int			nrewritten;
} Walk;

/*
 * The rows wanted of each partition, NULL for all of them. OFFSET has to be known, as the
 * sum with the limit must not overflow.
 */
static Node *
PartLimit(const Query *query, ParamListInfo params)
{
	const Const *count = (const Const *) PipeannKnownNow(query->limitCount,
														 params);
	const Const *offset = (const Const *) PipeannKnownNow(query->limitOffset,
														  params);
	int64		sum;

	if (IsA(count, Const) && count->constisnull)
		return NULL;
	if (offset == NULL || (IsA(offset, Const) && offset->constisnull))
		return query->limitCount;
	if (!IsA(count, Const) || !IsA(offset, Const) ||
		pg_add_s64_overflow(DatumGetInt64(count->constvalue),
							DatumGetInt64(offset->constvalue), &sum))
		return NULL;
	return (Node *) makeConst(INT8OID, -1, InvalidOid, sizeof(int64),
							  Int64GetDatum(sum), false, FLOAT8PASSBYVAL);
}

/* The number of a column among those that partitions return. */
static AttrNumber
NumberOf(Rewriting *r, Node *column)
{
	AttrNumber	number = 1;
	ListCell   *cell;

	foreach(cell, r->columns)
	{
		if (equal(lfirst(cell), column))
			return number;
		number++;
	}
	r->columns = lappend(r->columns, copyObject(column));
	return number;
}

/*
 * Turn an expression over the table into one over the columns that partitions return.
 * These are in the order in which the whole query names them first, so that no node is
 * needed to reorder them: it would keep servers from being asked at the same time.
 */
static Node *
OverParts(Node *node, void *arg)
{
	Rewriting  *r = arg;

	if (node == NULL)
		return NULL;
	if (IsA(node, Var) || equal(node, r->nearest->distance->expr))
		return (Node *) makeVar(PIPEANN_NEAREST_TABLE, NumberOf(r, node),
								exprType(node), exprTypmod(node),
								exprCollation(node), 0);
	return expression_tree_mutator(node, OverParts, arg);
}

static List *
ColumnNames(Relation relation)
{
	TupleDesc	columns = RelationGetDescr(relation);
	List	   *names = NIL;

	for (int i = 0; i < columns->natts; i++)
	{
		const FormData_pg_attribute *column = TupleDescAttr(columns, i);

		names = lappend(names, makeString(column->attisdropped ? pstrdup("") :
										  pstrdup(NameStr(column->attname))));
	}
	return names;
}

/*
 * A relation of the table's tree. As for partitions that the planner finds, its
 * permissions are not checked, and it is read as the user who reads the table.
 */
static RangeTblEntry *
MakeRelation(const Rewriting *r, Query *query, Relation member)
{
	const RangeTblEntry *table = r->nearest->table;
	RangeTblEntry *entry = makeNode(RangeTblEntry);

	entry->rtekind = RTE_RELATION;
	entry->relid = RelationGetRelid(member);
	entry->relkind = member->rd_rel->relkind;
	entry->rellockmode = table->rellockmode;
	entry->eref = makeAlias(RelationGetRelationName(member),
							ColumnNames(member));
	PipeannMark(entry, r->number);
#if PG_VERSION_NUM >= 160000
	addRTEPermissionInfo(&query->rteperminfos, entry)->checkAsUser =
		getRTEPermissionInfo(r->nearest->query->rteperminfos,
							 unconstify(RangeTblEntry *, table))->checkAsUser;
#else
	entry->checkAsUser = table->checkAsUser;
#endif
	query->rtable = lappend(query->rtable, entry);
	return entry;
}

static List *
MakeTargets(const List *exprs, const Node *key)
{
	List	   *targets = NIL;
	ListCell   *cell;

	foreach(cell, exprs)
	{
		AttrNumber	number = foreach_current_index(cell) + 1;
		TargetEntry *target = makeTargetEntry(lfirst(cell), number,
											  psprintf("c%d", number), false);

		if (equal(target->expr, key))
			target->ressortgroupref = 1;
		targets = lappend(targets, target);
	}
	return targets;
}

static Query *
MakeSelect(List *relations, Node *conditions)
{
	Query	   *query = makeNode(Query);
	RangeTblRef *reference = makeNode(RangeTblRef);

	query->commandType = CMD_SELECT;
	query->canSetTag = true;
	query->rtable = relations;
	reference->rtindex = 1;
	query->jointree = makeFromExpr(list_make1(reference), conditions);
	return query;
}

static RangeTblEntry *
MakeSubquery(Query *query, const char *name)
{
	RangeTblEntry *entry = makeNode(RangeTblEntry);
	List	   *names = NIL;
	ListCell   *cell;

	foreach(cell, query->targetList)
		names = lappend(names, makeString(lfirst_node(TargetEntry, cell)->resname));
	entry->rtekind = RTE_SUBQUERY;
	entry->subquery = query;
	entry->eref = makeAlias(name, names);
	entry->inFromCl = true;
	return entry;
}

/* Vars for all columns of relation 1. */
static List *
ColumnsOf(const Query *query)
{
	List	   *columns = NIL;
	ListCell   *cell;

	foreach(cell, query->targetList)
		columns = lappend(columns,
						  makeVarFromTargetEntry(PIPEANN_NEAREST_TABLE,
												 lfirst(cell)));
	return columns;
}

/* A query that returns all rows of another one if a condition holds. */
static Query *
Behind(List *pruning, Query *part)
{
	Query	   *query = MakeSelect(list_make1(MakeSubquery(part, "part")),
								   (Node *) make_ands_explicit(pruning));

	query->targetList = MakeTargets(ColumnsOf(part), NULL);
	return query;
}

/* Turn a sub-query for one value into a CTE of the whole, unless it is one already. */
static const CommonTableExpr *
AskedOnce(Rewriting *r, const SubLink *link)
{
	Query	   *query = castNode(Query, link->subselect);
	const Node *value = (const Node *) linitial_node(TargetEntry,
													 query->targetList)->expr;
	CommonTableExpr *asked;
	ListCell   *cell;

	foreach(cell, r->queries)
	{
		asked = lfirst(cell);
		if (!equal(asked->ctequery, query))
			continue;
		asked->cterefcount++;
		return asked;
	}
	asked = makeNode(CommonTableExpr);
	asked->ctename = psprintf("vector %d", list_length(r->queries) + 1);
	asked->ctematerialized = CTEMaterializeAlways;
	asked->ctequery = copyObject(link->subselect);
	asked->location = -1;
	asked->cterefcount = 1;
	asked->ctecolnames = list_make1(makeString(pstrdup("value")));
	asked->ctecoltypes = list_make1_oid(exprType(value));
	asked->ctecoltypmods = list_make1_int(exprTypmod(value));
	asked->ctecolcollations = list_make1_oid(exprCollation(value));
	r->queries = lappend(r->queries, asked);
	return asked;
}

/* A query for the value of that CTE. */
static Query *
AskAgain(const CommonTableExpr *asked, int levels)
{
	RangeTblEntry *entry = makeNode(RangeTblEntry);
	Query	   *query = MakeSelect(list_make1(entry), NULL);
	Var		   *value = makeVar(1, 1, linitial_oid(asked->ctecoltypes),
								linitial_int(asked->ctecoltypmods),
								linitial_oid(asked->ctecolcollations), 0);

	entry->rtekind = RTE_CTE;
	entry->ctename = pstrdup(asked->ctename);
	entry->ctelevelsup = levels;
	entry->coltypes = list_copy(asked->ctecoltypes);
	entry->coltypmods = list_copy(asked->ctecoltypmods);
	entry->colcollations = list_copy(asked->ctecolcollations);
	entry->eref = makeAlias(asked->ctename, copyObject(asked->ctecolnames));
	entry->inFromCl = true;
	query->targetList = MakeTargets(list_make1(value), NULL);
	return query;
}

static Node *
AskOnce(Node *node, void *arg)
{
	const Below *below = arg;

	if (node != NULL && IsA(node, SubLink))
	{
		SubLink    *link = copyObject((SubLink *) node);

		link->subselect = (Node *) AskAgain(AskedOnce(below->r, link),
											below->levels + 1);
		return (Node *) link;
	}
	return expression_tree_mutator(node, AskOnce, arg);
}

/* The nearest rows of one partition, this many levels below the whole query. */
static Query *
PartOf(Rewriting *r, Relation member, int levels)
{
	const PipeannNearest *nearest = r->nearest;
	SortGroupClause *order = copyObject(nearest->order);
	List	   *own = map_partition_varattnos(list_make4(r->columns,
														 nearest->query->jointree->quals,
														 nearest->table->securityQuals,
														 nearest->distance->expr),
											  PIPEANN_NEAREST_TABLE, member,
											  r->partitions->table);
	List	   *pruning = PipeannPruningCondition(r->partitions, member,
												 nearest);
	Below		below = {r, levels + (pruning != NIL)};
	Query	   *part;

	own = (List *) AskOnce((Node *) own, &below);
	part = MakeSelect(NIL, lsecond(own));
	MakeRelation(r, part, member)->inFromCl = true;
	linitial_node(RangeTblEntry, part->rtable)->securityQuals = lthird(own);
	part->hasRowSecurity = nearest->query->hasRowSecurity;
	part->targetList = MakeTargets(linitial(own), lfourth(own));
	part->hasSubLinks = checkExprHasSubLink((Node *) own);
	order->tleSortGroupRef = 1;
	part->sortClause = list_make1(order);
	part->limitCount = copyObject(r->limit);
	part->limitOption = LIMIT_OPTION_COUNT;
	return pruning == NIL ? part : Behind(pruning, part);
}

static Node *
Reference(int relation)
{
	RangeTblRef *reference = makeNode(RangeTblRef);

	reference->rtindex = relation;
	return (Node *) reference;
}

static Node *
UnionAll(Node *left, Node *right, const List *columns)
{
	SetOperationStmt *both = makeNode(SetOperationStmt);
	ListCell   *cell;

	both->op = SETOP_UNION;
	both->all = true;
	both->larg = left;
	both->rarg = right;
	foreach(cell, columns)
	{
		Node	   *column = lfirst(cell);

		both->colTypes = lappend_oid(both->colTypes, exprType(column));
		both->colTypmods = lappend_int(both->colTypmods, exprTypmod(column));
		both->colCollations = lappend_oid(both->colCollations,
										  exprCollation(column));
	}
	return (Node *) both;
}

/* The nearest rows of each partition, in no order. */
static Query *
AllParts(Rewriting *r)
{
	Query	   *query = makeNode(Query);
	bool		alone = list_length(r->partitions->members) == 1;
	ListCell   *cell;

	query->commandType = CMD_SELECT;
	query->canSetTag = true;
	query->jointree = makeFromExpr(NIL, NULL);
	foreach(cell, r->partitions->members)
	{
		Query	   *part = PartOf(r, lfirst(cell), alone ? 1 : 2);
		int			number = foreach_current_index(cell) + 1;

		if (alone)
			return part;
		query->rtable = lappend(query->rtable,
								MakeSubquery(part, psprintf("part %d", number)));
		query->setOperations = number == 1 ? Reference(number) :
			UnionAll(query->setOperations, Reference(number), r->columns);
		if (number == 1)
			query->targetList = MakeTargets(ColumnsOf(part), NULL);
	}
	return query;
}

/* The distance plus 0: another expression with the same order. */
static Node *
PlusNothing(Node *distance)
{
	Const	   *nothing = makeConst(FLOAT8OID, -1, InvalidOid, sizeof(float8),
									Float8GetDatum(0), false, FLOAT8PASSBYVAL);

	return (Node *) makeFuncExpr(F_FLOAT8PL, FLOAT8OID,
								 list_make2(distance, nothing),
								 InvalidOid, InvalidOid, COERCE_EXPLICIT_CALL);
}

/* The target list over the parts, ordered by distance + 0. */
static List *
TargetsOver(Rewriting *r)
{
	const PipeannNearest *nearest = r->nearest;
	List	   *targets = (List *) OverParts((Node *) nearest->query->targetList,
											 r);
	TargetEntry *old = list_nth_node(TargetEntry, targets,
									 nearest->distance->resno - 1);
	Expr	   *key = (Expr *) PlusNothing(copyObject((Node *) old->expr));

	if (old->resjunk)
	{
		old->expr = key;
		return targets;
	}
	old->ressortgroupref = 0;
	old = makeTargetEntry(key, list_length(targets) + 1, "distance", true);
	old->ressortgroupref = nearest->order->tleSortGroupRef;
	return lappend(targets, old);
}

/* Put the parts in the table's place, which stays among the relations. */
static void
Rewrite(Rewriting *r)
{
	Query	   *query = r->nearest->query;
	RangeTblEntry *table = r->nearest->table;
	List	   *targets = TargetsOver(r);
	RangeTblEntry *parts = MakeSubquery(AllParts(r),
										table->eref->aliasname);
	ListCell   *cell;

	PipeannMark(parts, r->number);
	query->rtable = list_make2(parts, table);
	foreach(cell, r->partitions->between)
		(void) MakeRelation(r, query, lfirst(cell));
	query->cteList = r->queries;
	query->targetList = targets;
	query->jointree->quals = NULL;
	table->inh = false;
	table->inFromCl = false;
	table->securityQuals = NIL;
}

static void
RewriteQuery(Walk *walk, Query *query)
{
	PipeannNearest nearest;
	PipeannPartitions partitions;
	Rewriting	r = {.nearest = &nearest, .partitions = &partitions};

	if (!PipeannIsNearest(query, &nearest))
		return;
	r.limit = PartLimit(query, walk->params);
	if (r.limit == NULL)
		return;
	PipeannPartitionsOpen(&partitions, &nearest, walk->params);
	if (partitions.has_foreign)
	{
		r.number = walk->nrewritten++;
		Rewrite(&r);
	}
	PipeannPartitionsClose(&partitions);
}

static bool
Visit(Node *node, void *arg)
{
	if (node == NULL)
		return false;
	if (IsA(node, Query))
	{
		if (query_tree_walker((Query *) node, Visit, arg, 0))
			return true;
		RewriteQuery(arg, (Query *) node);
		return false;
	}
	return expression_tree_walker(node, Visit, arg);
}

bool
PipeannRewritePerPartition(Query *query, ParamListInfo params)
{
	Walk		walk = {.params = params};

	(void) Visit((Node *) query, &walk);
	return walk.nrewritten > 0;
}
