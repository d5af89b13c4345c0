/*
 * explain.c
 *		What EXPLAIN (ANALYZE) shows of our scans, from PostgreSQL 18 on: the
 *		same counters as pipeann_last_search() for the session's last scan.
 */
#include "postgres.h"

#if PG_VERSION_NUM >= 180000

#include "access/relscan.h"
#include "commands/explain.h"
#include "commands/explain_format.h"
#include "commands/explain_state.h"
#include "nodes/execnodes.h"
#include "plan/plan.h"
#include "scan/scan.h"

static explain_per_node_hook_type former_per_node;

/* How a search has found the rows that match. */
static const char *
FilteredBy(const PipeannCounters *c)
{
	if (c->code_scans > 0)
		return "codes";
	return c->nodes_explored > 0 ? "graph" : "all nodes";
}

static void
ShowCounters(const PipeannCounters *c, bool filters, ExplainState *es)
{
	if (es->format == EXPLAIN_FORMAT_TEXT)
	{
		ExplainIndentText(es);
		appendStringInfo(es->str, "Search: nodes=" UINT64_FORMAT " codes=" UINT64_FORMAT
						 " vectors=" UINT64_FORMAT " hits=" UINT64_FORMAT " reads=" UINT64_FORMAT,
						 c->nodes_explored, c->code_distances, c->exact_distances,
						 c->page_hits, c->page_reads);
		if (c->code_page_reads > 0)
			appendStringInfo(es->str, " code_reads=" UINT64_FORMAT, c->code_page_reads);
		if (filters)
			appendStringInfo(es->str, " filter=%s", FilteredBy(c));
		appendStringInfoChar(es->str, '\n');
		return;
	}
	ExplainPropertyUInteger("Nodes Explored", NULL, c->nodes_explored, es);
	ExplainPropertyUInteger("Code Distances", NULL, c->code_distances, es);
	ExplainPropertyUInteger("Exact Distances", NULL, c->exact_distances, es);
	ExplainPropertyUInteger("Page Hits", NULL, c->page_hits, es);
	ExplainPropertyUInteger("Page Reads", NULL, c->page_reads, es);
	ExplainPropertyUInteger("Code Page Reads", NULL, c->code_page_reads, es);
	if (filters)
		ExplainPropertyText("Filter Strategy", FilteredBy(c), es);
}

/* The scan of a node, or NULL if it was never executed. */
static IndexScanDesc
ScanOf(const PlanState *state)
{
	if (IsA(state, IndexScanState))
		return ((const IndexScanState *) state)->iss_ScanDesc;
	if (IsA(state, IndexOnlyScanState))
		return ((const IndexOnlyScanState *) state)->ioss_ScanDesc;
	return NULL;
}

static void
ExplainNode(PlanState *state, List *ancestors, const char *relationship,
			const char *plan_name, ExplainState *es)
{
	IndexScanDesc scan = es->analyze ? ScanOf(state) : NULL;

	if (former_per_node != NULL)
		former_per_node(state, ancestors, relationship, plan_name, es);
	if (scan != NULL && PipeannScanCounters(scan) != NULL)
		ShowCounters(PipeannScanCounters(scan), scan->numberOfKeys > 0, es);
}

void
PipeannExplainInit(void)
{
	former_per_node = explain_per_node_hook;
	explain_per_node_hook = ExplainNode;
}

#endif
