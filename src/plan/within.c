/*
 * within.c
 *		How many rows a condition on the distance leaves. PostgreSQL has no
 *		statistics of distances and assumes a third of the rows for any bound.
 *		But a scan in the order of the distance ends where the condition does,
 *		so this number decides what it costs. It is estimated by the codes of a
 *		sample of the index's vectors.
 */
#include "postgres.h"

#include <math.h>

#include "index/index.h"
#include "nodes/nodeFuncs.h"
#include "nodes/pathnodes.h"
#include "optimizer/cost.h"
#include "optimizer/optimizer.h"
#include "optimizer/pathnode.h"
#include "plan/plan.h"
#include "utils/memutils.h"
#include "utils/selfuncs.h"

/* Codes in the sample, fewer if each may be on another page; and codes measured together. */
#define SAMPLE 2048
#define SAMPLE_READ 256
#define BATCH 64

/*
 * The share of an index's vectors that are within a distance of a query, above 0; or
 * negative if unknown: the index has no codes, or they are not in memory, or too imprecise.
 */
static double
ShareWithin(Oid indexid, Datum query, double distance)
{
	Relation	index = RelationIdGetRelation(indexid);
	MemoryContext context;
	MemoryContext old;
	PipeannIndexView view;
	const PipeannLayout *l = &view.meta.layout;
	int			within = 0;
	int			n = 0;

	if (!RelationIsValid(index))
		return -1;
	/* the cache is released with it */
	context = AllocSetContextCreate(CurrentMemoryContext, "pipeann sample", ALLOCSET_DEFAULT_SIZES);
	old = MemoryContextSwitchTo(context);
	PipeannPeekView(&view, index);
	if (view.cache != NULL && view.codes.ncodes > 0 && !PipeannIsSparse(l->storage))
	{
		int			sample = view.codes.loader == NULL ? SAMPLE : SAMPLE_READ;
		float	   *x = PipeannArray(float, l->dim);
		float	   *table = PipeannArray(float, view.codes.pq.nsubvectors * PIPEANN_CENTROIDS);

		PipeannQueryOf(l, PipeannDatumElements(l->type, query, l->dim), x);
		PipeannPqTable(&view.codes.pq, l->metric, x, table);
		for (; n < sample; n += BATCH)
		{
			uint32		ids[BATCH];
			const uint8 *codes[BATCH];
			float		keys[BATCH];

			for (int i = 0; i < BATCH; i++)
				ids[i] = (uint32) ((uint64) view.codes.ncodes * (n + i) / sample);
			PipeannGatherCodes(&view.codes, ids, BATCH, codes);
			PipeannPqScan(&view.codes.pq, l->metric, table, codes, BATCH, keys);
			/* all are within NaN */
			for (int i = 0; i < BATCH; i++)
				within += !(PipeannSqlDistance(l->metric, keys[i]) > distance);
		}
	}
	MemoryContextSwitchTo(old);
	MemoryContextDelete(context);
	RelationClose(index);
	return n == 0 ? -1 : (within + 0.5) / (n + 1);
}

/* The condition that bounds the distance of a scan's rows, or NULL; sets *most to the bound. */
static RestrictInfo *
ConditionOf(const IndexPath *path, Expr **most)
{
	IndexScan	scan = {.scan.plan.type = T_IndexScan};
	bool		no_numbers;
	ListCell   *cell;

	scan.indexid = path->indexinfo->indexoid;
	scan.indexorderbyorig = path->indexorderbys;
	foreach(cell, path->indexinfo->rel->baserestrictinfo)
	{
		RestrictInfo *condition = lfirst_node(RestrictInfo, cell);

		scan.scan.plan.qual = list_make1(condition->clause);
		*most = PipeannMostDistance(&scan.scan.plan, &no_numbers);
		if (*most != NULL)
			return condition;
	}
	return NULL;
}

/* The share of the rows that a scan reaches before the condition ends it. */
Selectivity
PipeannShareReached(PlannerInfo *root, const IndexPath *path)
{
	Expr	   *most;
	RestrictInfo *condition = ConditionOf(path, &most);

	return condition == NULL ? 1 :
		clause_selectivity(root, (Node *) condition, 0, JOIN_INNER, NULL);
}

/*
 * The share within a known distance, else what PostgreSQL assumes for a range:
 * a user who writes such a condition wants few rows.
 */
static Selectivity
SelectivityOf(PlannerInfo *root, const IndexPath *path, const Expr *most)
{
	const OpExpr *order = linitial(path->indexorderbys);
	const Const *query = (Const *) estimate_expression_value(root, lsecond(order->args));
	const Const *distance = (Const *) estimate_expression_value(root, (Node *) most);
	double		share = -1;

	if (IsA(query, Const) && IsA(distance, Const))
	{
		if (query->constisnull || distance->constisnull)
			return 0;
		share = ShareWithin(path->indexinfo->indexoid, query->constvalue,
							DatumGetFloat8(distance->constvalue));
	}
	return share < 0 ? DEFAULT_RANGE_INEQ_SEL : share;
}

static void
SetRows(List *paths, double share)
{
	ListCell   *cell;

	foreach(cell, paths)
	{
		Path	   *path = lfirst(cell);

		if (path->param_info == NULL)
			path->rows = clamp_row_est(path->rows * share);
	}
}

/*
 * After the paths of a table are made: if one of ours ends at a condition, estimate how many
 * rows that leaves, unless the user has statistics of the expression, and recompute its cost.
 */
void
PipeannEstimateWithin(PlannerInfo *root, RelOptInfo *table)
{
	double		rows = table->rows;
	List	   *ours = NIL;
	ListCell   *cell;

	foreach(cell, table->pathlist)
	{
		IndexPath  *path = lfirst(cell);
		RestrictInfo *condition;
		Expr	   *most;

		if (!IsA(path, IndexPath) || path->path.param_info != NULL ||
			list_length(path->indexorderbys) != 1 ||
			!PipeannIsMethod(path->indexinfo->relam) ||
			(condition = ConditionOf(path, &most)) == NULL)
			continue;
		if (condition->norm_selec == DEFAULT_INEQ_SEL)
			condition->norm_selec = SelectivityOf(root, path, most);
		ours = lappend(ours, path);
	}
	if (ours == NIL)
		return;
	set_baserel_size_estimates(root, table);
	SetRows(table->pathlist, table->rows / rows);
	SetRows(table->partial_pathlist, table->rows / rows);
	foreach(cell, ours)
	{
		table->pathlist = list_delete_ptr(table->pathlist, lfirst(cell));
		cost_index(lfirst(cell), root, 1.0, false);
		add_path(table, lfirst(cell));
	}
}
