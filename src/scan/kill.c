/*
 * kill.c
 *		Rows that a scan found dead to everybody are not returned again.
 *
 * The executor tells of a row it fetched whether it is dead to all snapshots
 * (kill_prior_tuple). When that is so for all rows of a node, this is kept in
 * memory with the LSN of the page the rows were read from, and later searches
 * that see this very page pass over the node: rows deleted and not yet
 * vacuumed take no places among their results.
 *
 * What was found of a page holds for as long as the page does not change: for
 * the place of a dead row in the table to be used again, VACUUM must first have
 * removed its TID from the index. So whoever changes a page need not know of
 * this. Pages that are not WAL-logged have no LSN to go by, and in recovery
 * rows are not judged.
 */
#include "postgres.h"

#include "access/relscan.h"
#include "scan/rows.h"
#include "utils/rel.h"

bool
PipeannKillerBegin(PipeannKiller *killer, IndexScanDesc scan,
				   PipeannIndexView *view)
{
	killer->armed = false;
	killer->view = NULL;
	if (!scan->ignore_killed_tuples || view->cache == NULL ||
		!RelationNeedsWAL(view->index))
		return false;
	killer->view = view;
	return true;
}

uint64
PipeannKillerLook(uint32 page, const char *nodes, uint64 *version, void *arg)
{
	PipeannKiller *killer = arg;
	const PageHeaderData *header = (const PageHeaderData *)
		(nodes - PIPEANN_CONTENTS_OFFSET);

	*version = PageXLogRecPtrGet(header->pd_lsn);
	return PipeannCacheKilled(killer->view->cache, page, *version);
}

/*
 * Nodes with rows elsewhere are left alone: their page does not tell of those.
 */
void
PipeannKillerNode(PipeannKiller *killer, const PipeannSearch *search,
				  const PipeannResult *result)
{
	killer->armed = killer->view != NULL && result != NULL &&
		result->ext_tids == PIPEANN_INVALID_ID;
	if (!killer->armed)
		return;
	killer->id = result->id;
	killer->rows_left = result->ntids;
	killer->lsn = PipeannSearchVersion(search, result);
}

void
PipeannKillerRow(PipeannKiller *killer)
{
	const PipeannLayout *l;

	if (!killer->armed || --killer->rows_left > 0)
		return;
	l = &killer->view->meta.layout;
	killer->armed = false;
	PipeannCacheKill(killer->view->cache, PipeannIdPage(l, killer->id),
					 killer->lsn, PipeannIdSlot(l, killer->id));
}
