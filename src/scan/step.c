/*
 * step.c
 *		Which server to ask, of several that have the same index.
 */
#include "postgres.h"

#include "access/genam.h"
#include "scan/state.h"
#include "utils/snapmgr.h"

/* Begin a scan for a query. */
static IndexScanDesc
BeginScan(Relation table, Relation index, Datum query, PipeannStep *step)
{
	PipeannScanContext heeds = {.step = step};
	IndexScanDesc scan;
	ScanKeyData key;

	memset(&key, 0, sizeof(key));
	key.sk_attno = PipeannVectorPosition(index) + 1;
	key.sk_argument = query;
	PIPEANN_SCAN_CONTEXT(&key) = &heeds;
	scan = index_beginscan(table, index, GetActiveSnapshot(),
#if PG_VERSION_NUM >= 180000
						   NULL,
#endif
						   0, 1);
	index_rescan(scan, NULL, 0, &key, 1);
	PipeannScanStart(scan);
	return scan;
}

/*
 * The part of an index, from 1, of which some node is near a query, by the entry graph;
 * 0 if there are no parts, or no distances; sparse vectors are not found by the graph.
 */
int
PipeannScanPart(Relation table, Relation index, Datum query)
{
	PipeannStep step = {0};
	IndexScanDesc scan = BeginScan(table, index, query, &step);
	const PipeannScan *state = scan->opaque;
	const PipeannMeta *meta = &state->view.meta;
	uint32		id = meta->parts.n == 0 || state->view.cache == NULL ||
		!state->comparable || PipeannIsSparse(meta->layout.storage) ? PIPEANN_INVALID_ID :
		PipeannSearchNearestEntry(state->search);
	int			part = id == PIPEANN_INVALID_ID ? 0 :
		(int) PipeannPartOfPage(&meta->parts, PipeannIdPage(&meta->layout, id)) + 1;

	index_endscan(scan);
	return part;
}
