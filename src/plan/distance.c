/*
 * distance.c
 *		Distances and vectors among the columns of a plan's nodes.
 *
 * A query that is ordered by a distance has the distance in the target lists of
 * its plan's nodes, so that those above could compare rows by it. The index has
 * ordered the rows, and mostly nobody reads it; to compute it the executor
 * fetches the row's vector, from TOAST if it is long.
 *
 * A distance that nobody reads becomes a NULL. It keeps its column, so that
 * numbers and types of columns are what the nodes above were made for.
 *
 * A distance that is read is computed by the operator, as ever, so that it is the
 * same to the last bit. Only the vector comes from elsewhere: in the place of the
 * column the operator gets pipeann_stored_vector(), which returns what the column
 * holds, from the page that the scan has at hand (scan/stream.c). So does a query
 * that returns the column. Where the index has vectors only rounded they are
 * fetched from TOAST all the same, but the scan learns that they are wanted, and
 * asks for those of the rows that come next (scan/stream.c).
 */
#include "postgres.h"

#include "access/amapi.h"
#include "access/sysattr.h"
#include "base/planted.h"
#include "catalog/pg_language_d.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type_d.h"
#include "fmgr.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/clauses.h"
#include "optimizer/optimizer.h"
#include "parser/parsetree.h"
#include "plan/rewrite.h"
#include "scan/scan.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/relcache.h"
#include "utils/syscache.h"
#if PG_VERSION_NUM >= 160000
#include "varatt.h"
#endif

/* What a node's expressions mean by Vars of varno. */
typedef struct Child
{
	const Plan *plan;			/* NULL: there is none that hands its rows up */
	int			varno;
} Child;

/*
 * Whether an index, or an access method, is one of ours.
 *
 * An index of which there is nothing but a planner's idea is not ours.
 */
bool
PipeannIsIndex(Oid indexid)
{
	Relation	index = RelationIdGetRelation(indexid);
	bool		ours;

	if (!RelationIsValid(index))
		return false;
	ours = index->rd_indam != NULL &&
		index->rd_indam->amgettuple == pipeanngettuple;
	RelationClose(index);
	return ours;
}

bool
PipeannIsMethod(Oid am)
{
	IndexAmRoutine *routine = GetIndexAmRoutineByAmId(am, true);
	bool		ours = routine != NULL &&
		routine->amgettuple == pipeanngettuple;

	if (routine != NULL)
		pfree(routine);
	return ours;
}

/* The planner exchanges the operands where the column stands on the right. */
static bool
IsSameDistance(const Node *expr, const Node *distance)
{
	const OpExpr *a = (const OpExpr *) expr;
	const OpExpr *b = (const OpExpr *) distance;

	if (equal(expr, distance))
		return true;
	return IsA(expr, OpExpr) && IsA(distance, OpExpr) &&
		list_length(a->args) == 2 && list_length(b->args) == 2 &&
		get_commutator(a->opno) == b->opno &&
		a->inputcollid == b->inputcollid &&
		equal(linitial(a->args), lsecond(b->args)) &&
		equal(lsecond(a->args), linitial(b->args));
}

/* Whether an expression is one of the distances that a scan of an index is ordered by. */
static bool
IsOneOf(const Node *expr, const List *distances, Oid indexid)
{
	ListCell   *cell;

	foreach(cell, distances)
		if (IsSameDistance(expr, lfirst(cell)))
			return PipeannIsIndex(indexid);
	return false;
}

/* The child whose rows a node hands up one by one. */
static Child
ChildOf(const Plan *node)
{
	Child		child = {NULL};
	const CustomScan *custom = (const CustomScan *) node;

	if (IsA(node, SubqueryScan))
	{
		child.plan = ((const SubqueryScan *) node)->subplan;
		child.varno = ((const SubqueryScan *) node)->scan.scanrelid;
	}
	else if (IsA(node, CustomScan) &&
			 custom->methods == PipeannBitmapNode)
	{
		child.plan = linitial(custom->custom_plans);
		child.varno = INDEX_VAR;
	}
	else if (PipeannPlanHas(node, PIPEANN_PLAN_PASSES))
	{
		child.plan = outerPlan(node);
		child.varno = OUTER_VAR;
	}
	return child;
}

/* Expressions of the child in the place of its columns. */
static Node *
Expand(Node *node, void *arg)
{
	const Child *child = arg;
	const Var  *var = (const Var *) node;

	if (node != NULL && IsA(node, Var) && var->varno == child->varno)
	{
		const TargetEntry *target = get_tle_by_resno(child->plan->targetlist,
													 var->varattno);

		return target == NULL ? node : (Node *) copyObject(target->expr);
	}
	return expression_tree_mutator(node, Expand, arg);
}

static bool
IsDistance(const Plan *node, Node *expr)
{
	while (!IsA(node, IndexScan) && !IsA(node, IndexOnlyScan))
	{
		Child		child = ChildOf(node);

		if (child.plan == NULL)
			return false;
		expr = Expand(expr, &child);
		node = child.plan;
	}
	if (IsA(node, IndexScan))
		return IsOneOf(expr, ((const IndexScan *) node)->indexorderbyorig,
					   ((const IndexScan *) node)->indexid);
	/* expressions of an index-only scan name the index's columns */
	return IsOneOf(expr, ((const IndexOnlyScan *) node)->indexorderby,
				   ((const IndexOnlyScan *) node)->indexid);
}

/*
 * What a scan's distance is below by this condition, or at the most; NULL if it does not
 * say. Similarities are one less the distance, and have to be above something: as what is
 * no number is. Then sets *no_numbers.
 */
static Expr *
MostByClause(const Plan *scan, const Node *clause, bool *no_numbers)
{
	const OpExpr *condition = (const OpExpr *) clause;
	const OpExpr *difference;
	Node	   *less;
	Node	   *more;

	if (!IsA(clause, OpExpr) || list_length(condition->args) != 2)
		return NULL;
	less = linitial(condition->args);
	more = lsecond(condition->args);
	switch (condition->opfuncid)
	{
		case F_FLOAT8LT:
		case F_FLOAT8LE:
			break;
		case F_FLOAT8GT:
		case F_FLOAT8GE:
			less = lsecond(condition->args);
			more = linitial(condition->args);
			break;
		default:
			return NULL;
	}
	*no_numbers = false;
	if (IsDistance(scan, less))
		return (Expr *) more;
	difference = (const OpExpr *) more;
	if (!IsA(more, OpExpr) || difference->opfuncid != F_FLOAT8MI ||
		!IsDistance(scan, lsecond(difference->args)))
		return NULL;
	*no_numbers = true;
	return (Expr *) makeFuncExpr(F_FLOAT8MI, FLOAT8OID,
								 list_make2(linitial(difference->args), less),
								 InvalidOid, InvalidOid, COERCE_EXPLICIT_CALL);
}

/*
 * What no row of a scan of ours is farther than, as far as its conditions say it by a
 * value that is known before the scan begins; or NULL. Sets *no_numbers if rows whose
 * distance is no number may meet it all the same.
 */
Expr *
PipeannMostDistance(const Plan *scan, bool *no_numbers)
{
	ListCell   *cell;

	foreach(cell, scan->qual)
	{
		Expr	   *most = MostByClause(scan, lfirst(cell), no_numbers);

		if (most != NULL && !contain_var_clause((Node *) most) &&
			!contain_volatile_functions((Node *) most) &&
			!contain_subplans((Node *) most))
			return copyObject(most);
	}
	return NULL;
}

/* The entry may belong to others, too: only a copy is changed. */
static TargetEntry *
WithNull(const TargetEntry *target)
{
	const Node *expr = (const Node *) target->expr;
	TargetEntry *copy = flatCopyTargetEntry(unconstify(TargetEntry *, target));

	copy->expr = (Expr *) makeNullConst(exprType(expr), exprTypmod(expr),
										exprCollation(expr));
	return copy;
}

/*
 * Put NULL in the place of each distance that a node computes although it is not
 * among its columns that are wanted.
 */
static void
LeaveOutUnread(Plan *node, const Bitmapset *wanted)
{
	for (int i = 0; i < list_length(node->targetlist); i++)
	{
		TargetEntry *target = list_nth_node(TargetEntry, node->targetlist, i);

		if (!IsA(target->expr, OpExpr) ||
			PipeannHasColumn(wanted, target->resno) ||
			!IsDistance(node, (Node *) target->expr))
			continue;
		node->targetlist = list_copy(node->targetlist);
		lfirst(list_nth_cell(node->targetlist, i)) = WithNull(target);
	}
}

/* ---------- vectors from the index ---------- */

PG_FUNCTION_INFO_V1(pipeann_stored_vector);

/* Whether a node is a column of a table that is being scanned. */
static bool
IsColumn(const void *node, Index varno, AttrNumber column)
{
	const Var  *var = node;

	return (Index) var->varno == varno && var->varattno == column;
}

/*
 * The column that a call is for, or 0 if it is not for the column of the very row
 * whose table and place it names: a user who wrote a call with others would get
 * vectors that are not theirs.
 */
static AttrNumber
ColumnOfCall(const FmgrInfo *flinfo)
{
	const FuncExpr *call = (const FuncExpr *) flinfo->fn_expr;
	const Var  *column;

	if (call == NULL || !IsA(call, FuncExpr) || list_length(call->args) != 3)
		return 0;
	column = linitial(call->args);
	if (!IsA(column, Var) || !IsA(lsecond(call->args), Var) ||
		!IsA(lthird(call->args), Var) || IS_SPECIAL_VARNO(column->varno) ||
		!IsColumn(lsecond(call->args), column->varno,
				  TableOidAttributeNumber) ||
		!IsColumn(lthird(call->args), column->varno,
				  SelfItemPointerAttributeNumber))
		return 0;
	return Max(column->varattno, 0);
}

Datum
pipeann_stored_vector(PG_FUNCTION_ARGS)
{
	Datum		vector = PG_GETARG_DATUM(0);
	AttrNumber	column;
	struct varlena *stored;

	if (!VARATT_IS_EXTERNAL_ONDISK(DatumGetPointer(vector)))
		PG_RETURN_DATUM(vector);
	column = ColumnOfCall(fcinfo->flinfo);
	stored = column == 0 ? NULL :
		PipeannScanVector(PG_GETARG_OID(1), column,
						  (ItemPointer) PG_GETARG_POINTER(2));
	PG_RETURN_DATUM(stored == NULL ? vector : PointerGetDatum(stored));
}

/* What is known of a node whose expressions are being changed. */
typedef struct Taking
{
	const IndexScan *node;
	bool		looked;			/* column and function are known */
	AttrNumber	column;			/* the indexed one, 0 for none */
	Oid			function;		/* InvalidOid: vectors cannot be taken */
	bool		whole;			/* ... for whoever returns them */
	bool		changed;
} Taking;

/* Whoever runs the plan has to be allowed to call the function. */
static bool
MayCall(Oid function)
{
#if PG_VERSION_NUM >= 160000
	return object_aclcheck(ProcedureRelationId, function, ACL_ID_PUBLIC,
						   ACL_EXECUTE) == ACLCHECK_OK;
#else
	return pg_proc_aclcheck(function, ACL_ID_PUBLIC,
							ACL_EXECUTE) == ACLCHECK_OK;
#endif
}

/* Only superusers make functions in C, so it is no user's that has the name. */
static bool
IsInC(Oid function)
{
	HeapTuple	tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(function));
	bool		in_c = HeapTupleIsValid(tuple) &&
		((Form_pg_proc) GETSTRUCT(tuple))->prolang == ClanguageId;

	if (HeapTupleIsValid(tuple))
		ReleaseSysCache(tuple);
	return in_c;
}

/*
 * The function stands beside the access method's handler. An extension made by a
 * library that had no such function has none.
 */
static Oid
FindFunction(Relation index)
{
	Oid			types[] = {index->rd_opcintype[PipeannVectorPosition(index)], OIDOID, TIDOID};
	oidvector  *signature = buildoidvector(types, lengthof(types));
	Oid			schema = get_func_namespace(index->rd_amhandler);
	Oid			function = GetSysCacheOid3(PROCNAMEARGSNSP,
										   Anum_pg_proc_oid,
										   CStringGetDatum("pipeann_stored_vector"),
										   PointerGetDatum(signature),
										   ObjectIdGetDatum(schema));

	return OidIsValid(function) && IsInC(function) && MayCall(function) ?
		function : InvalidOid;
}

/*
 * A scan of an index without codes goes through all pages and keeps none. Bytes
 * are exact for operators, but have lost the sign of zeroes.
 */
static void
Look(Taking *taking)
{
	Relation	index = RelationIdGetRelation(taking->node->indexid);
	PipeannMeta meta;

	taking->looked = true;
	taking->column = PipeannVectorColumn(index);
	if (PipeannVectorsInToast(index))
	{
		PipeannMetaRead(index, &meta);
		taking->whole = meta.layout.storage != PIPEANN_INT8 &&
			meta.layout.storage != PIPEANN_UINT8;
		if ((meta.flags & PIPEANN_META_HAS_CODES) != 0)
			taking->function = FindFunction(index);
	}
	RelationClose(index);
}

static Var *
SystemColumn(const Var *like, AttrNumber column, Oid type)
{
	return makeVar(like->varno, column, type, -1, InvalidOid, 0);
}

/* pipeann_stored_vector(column, tableoid, ctid) */
static Node *
StoredVector(const Taking *taking, Var *column)
{
	List	   *args = list_make3(copyObject(column),
								  SystemColumn(column,
											   TableOidAttributeNumber,
											   OIDOID),
								  SystemColumn(column,
											   SelfItemPointerAttributeNumber,
											   TIDOID));

	return (Node *) makeFuncExpr(taking->function, column->vartype, args,
								 InvalidOid, InvalidOid,
								 COERCE_EXPLICIT_CALL);
}

/* Whether an expression is the indexed column of the scan's rows. */
static bool
IsVector(const Taking *taking, const void *expr)
{
	return IsA(expr, Var) &&
		IsColumn(expr, taking->node->scan.scanrelid, taking->column);
}

/* The operands of a distance, the column exchanged. */
static Node *
WithStoredVector(Taking *taking, const OpExpr *distance)
{
	OpExpr	   *copy = makeNode(OpExpr);
	ListCell   *cell;

	*copy = *distance;
	copy->args = list_copy(distance->args);
	foreach(cell, copy->args)
	{
		if (!IsVector(taking, lfirst(cell)))
			continue;
		lfirst(cell) = StoredVector(taking, lfirst(cell));
		taking->changed = true;
	}
	return (Node *) copy;
}

static Node *
Take(Node *expr, void *arg)
{
	Taking	   *taking = arg;

	if (expr != NULL && IsA(expr, OpExpr) &&
		IsOneOf(expr, taking->node->indexorderbyorig, taking->node->indexid))
	{
		if (!taking->looked)
			Look(taking);
		if (OidIsValid(taking->function))
			return WithStoredVector(taking, (OpExpr *) expr);
	}
	return expression_tree_mutator(expr, Take, arg);
}

/* Whether an expression is a column by whose distance a scan of ours is ordered. */
static bool
IsOrderedBy(const IndexScan *node, const Expr *expr)
{
	const OpExpr *distance = linitial(node->indexorderbyorig);

	return IsA(expr, Var) && IsA(distance, OpExpr) &&
		list_member(distance->args, expr) && PipeannIsIndex(node->indexid);
}

/* The columns that are wanted, the indexed one exchanged where it is returned. */
static List *
TakeReturned(Taking *taking, List *targets, const Bitmapset *wanted)
{
	ListCell   *cell;

	foreach(cell, targets)
	{
		TargetEntry *target = lfirst_node(TargetEntry, cell);

		if (!IsOrderedBy(taking->node, target->expr) ||
			!PipeannHasColumn(wanted, target->resno))
			continue;
		if (!taking->looked)
			Look(taking);
		if (!OidIsValid(taking->function) || !taking->whole ||
			!IsVector(taking, target->expr))
			continue;
		target = flatCopyTargetEntry(target);
		target->expr = (Expr *) StoredVector(taking, (Var *) target->expr);
		lfirst(cell) = target;
		taking->changed = true;
	}
	return targets;
}

/* A cached plan is made anew when the function is changed. */
static void
DependOn(PlannedStmt *stmt, Oid function)
{
	PlanInvalItem *item = makeNode(PlanInvalItem);

	item->cacheId = PROCOID;
	item->hashValue = GetSysCacheHashValue1(PROCOID,
											ObjectIdGetDatum(function));
	stmt->invalItems = lappend(stmt->invalItems, item);
}

/*
 * Where the node computes the distance that it is ordered by, or returns the
 * vector in a column that is wanted, let it take that from the index, if the table
 * has vectors in TOAST. stmt is the plan that the node belongs to.
 *
 * Expressions may belong to others, too: only copies are changed.
 */
static void
TakeVectors(PlannedStmt *stmt, IndexScan *node, const Bitmapset *wanted)
{
	Taking		taking = {.node = node};
	List	   *targets;
	List	   *qual;

	if (node->indexorderbyorig == NIL)
		return;
	if (PIPEANN_PLANTED("security"))
		node->scan.plan.qual = list_copy_tail(node->scan.plan.qual, 1);
	targets = (List *) Take((Node *) node->scan.plan.targetlist, &taking);
	targets = TakeReturned(&taking, targets, wanted);
	qual = (List *) Take((Node *) node->scan.plan.qual, &taking);
	if (!taking.changed)
		return;
	node->scan.plan.targetlist = targets;
	node->scan.plan.qual = qual;
	DependOn(stmt, taking.function);
}

/*
 * Have a node of a statement's plan compute no distance that is not among the columns
 * that are wanted of it, and read no vector from TOAST that the index has.
 */
void
PipeannCheapenColumns(PlannedStmt *stmt, Plan *node, const Bitmapset *wanted)
{
	LeaveOutUnread(node, wanted);
	if (IsA(node, IndexScan))
		TakeVectors(stmt, (IndexScan *) node, wanted);
}
