/*
 * bitmap.c
 *		Paths for the nearest of the rows that other indexes find.
 *
 * Conditions on columns that an index of ours has not are looked at in the table,
 * row by row. Where few rows meet them that is long, and to sort these rows by
 * distance all of them have to be read. So a node of ours takes the bitmap that
 * other indexes make of them, and has a scan of ours search among them.
 *
 * The paths for the bitmap are PostgreSQL's own: it makes those of a copy of the
 * table once more, as it has dropped them where a scan of the whole table would be
 * cheaper.
 */
#include "postgres.h"

#include <math.h>

#include "access/amapi.h"
#include "base/planted.h"
#include "catalog/pg_am_d.h"
#include "catalog/pg_class.h"
#include "miscadmin.h"
#include "optimizer/cost.h"
#include "optimizer/optimizer.h"
#include "optimizer/pathnode.h"
#include "optimizer/paths.h"
#include "optimizer/planmain.h"
#include "parser/parsetree.h"
#include "plan/node.h"
#include "plan/plan.h"
#include "plan/rewrite.h"
#include "scan/scan.h"
#include "utils/spccache.h"
#include "utils/syscache.h"

/*
 * To take a row of the bitmap, find its node and scan its code, in operators. Pages of
 * the index and of the table are asked for together, each costs so many times less.
 */
#define ROW_COST 30
#define START_COST 20000
#define OVERLAP 4.0

/* A bitmap of more pages than this share of what work_mem holds may become lossy. */
#define MOST_PAGES_SHARE 0.5

static Plan *PlanBitmap(PlannerInfo *root, RelOptInfo *table,
						CustomPath *path, List *targets, List *clauses,
						List *plans);

static const CustomPathMethods path_methods = {
	.CustomName = "PipeannBitmap",
	.PlanCustomPath = PlanBitmap
};

/*
 * A condition without columns is tested above the node, and need not be below. Where
 * it was to be, a scan hands up columns that nobody asked for.
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

/* A plan of the bitmap comes as the child of a scan of the table, which is dropped. */
static Plan *
PlanBitmap(PlannerInfo *root, RelOptInfo *table, CustomPath *path,
		   List *targets, List *clauses, List *plans)
{
	CustomScan *node = makeNode(CustomScan);
	Plan	   *scan = WithoutGate(linitial(plans));
	Plan	   *table_scan = WithoutGate(lsecond(plans));

	(void) root;
	(void) table;
	(void) path;
	(void) clauses;
	if (PIPEANN_PLANTED("bitmap-condition"))
		scan->qual = NIL;
	node->scan.plan.targetlist = targets;
	node->custom_scan_tlist = copyObject(scan->targetlist);
	node->custom_plans = list_make2(scan, outerPlan(table_scan));
	node->methods = &PipeannBitmapMethods.scan;
	return &node->scan.plan;
}

/*
 * The scan of ours in the order of a distance, or NULL. One whose own columns answer
 * conditions searches among what matches already. Rows that came lately are compared
 * by the column's vectors, so it must be on a column.
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
	HeapTuple	tuple;
	bool		heap;

	if (entry->rtekind != RTE_RELATION || entry->inh ||
		entry->tablesample != NULL)
		return false;
	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(entry->relid));
	heap = HeapTupleIsValid(tuple) &&
		((Form_pg_class) GETSTRUCT(tuple))->relam == HEAP_TABLE_AM_OID;
	if (HeapTupleIsValid(tuple))
		ReleaseSysCache(tuple);
	return heap;
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

/* How a bitmap of the same rows as a path's is made, or NULL. */
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

/* Each row that is looked at costs a page of the table and one of the index. */
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
 * The scan of ours, as it reads the table; the original may yet be changed. It also
 * returns rows of the bitmap that a partial index does not have, so it has to test
 * what the index's predicate implies, too. PostgreSQL leaves that out of the
 * conditions of its scans (indrestrictinfo).
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
	path->methods = &path_methods;
	SetCost(root, path, scan, cost, rows);
	add_path(table, &path->path);
}

/*
 * Where a scan of ours has conditions on other columns that other indexes
 * answer, add a path of both.
 */
void
PipeannAddBitmapPaths(PlannerInfo *root, RelOptInfo *table)
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
