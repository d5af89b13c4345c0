/*
 * killed.c
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
PipeannKilledBegin(PipeannKilledRows *killed, IndexScanDesc scan,
				   PipeannIndexView *view)
{
	killed->active = false;
	killed->view = NULL;
	if (!scan->ignore_killed_tuples || view->cache == NULL ||
		!RelationNeedsWAL(view->index))
		return false;
	killed->view = view;
	return true;
}

uint64
PipeannKilledOfPage(uint32 page, const char *nodes, uint64 *version, void *arg)
{
	PipeannKilledRows *killed = arg;
	const PageHeaderData *header = (const PageHeaderData *)
		(nodes - PIPEANN_CONTENTS_OFFSET);

	*version = PageXLogRecPtrGet(header->pd_lsn);
	return PipeannCacheGetKilled(killed->view->cache, page, *version);
}

/*
 * Nodes with rows elsewhere are left alone: their page does not tell of those.
 */
void
PipeannKilledSetNode(PipeannKilledRows *killed, const PipeannSearch *search,
					 const PipeannResult *result)
{
	killed->active = killed->view != NULL && result != NULL &&
		result->ext_tids == PIPEANN_INVALID_ID;
	if (!killed->active)
		return;
	killed->id = result->id;
	killed->rows_left = result->ntids;
	killed->lsn = PipeannSearchVersion(search, result);
}

void
PipeannKilledNoteRow(PipeannKilledRows *killed)
{
	const PipeannLayout *l;

	if (!killed->active || --killed->rows_left > 0)
		return;
	l = &killed->view->meta.layout;
	killed->active = false;
	PipeannCacheSetKilled(killed->view->cache, PipeannIdPage(l, killed->id),
						  killed->lsn, PipeannIdSlot(l, killed->id));
}
