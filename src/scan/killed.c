/*
 * killed.c
 *		Killed nodes: searches skip nodes whose rows a scan found dead.
 *
 * The executor tells the scan whether the row that it fetched last is dead to
 * all snapshots (kill_prior_tuple). If all rows of a node are dead, the node
 * is killed: the cache keeps that with the LSN of the page from which the rows
 * were read. Later searches that see the page with this LSN skip the node, so
 * that rows deleted and not yet vacuumed take no places among their results.
 * (nbtree keeps such hints, as LP_DEAD flags, on the page.)
 *
 * A hint holds as long as the page does not change: before the place of a dead
 * row in the table is used again, VACUUM must remove its TID from the index.
 * So nobody has to take hints back. Pages that are not WAL-logged have no LSN
 * to go by, and in recovery the executor tells nothing.
 */
#include "postgres.h"

#include "access/relscan.h"
#include "scan/rows.h"
#include "utils/rel.h"

/* Begin a scan. False if nothing may be noted of it, and nothing be skipped. */
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

/*
 * For PipeannSearchParams: the killed nodes of a page, bit i for slot i; sets
 * *version to the page's LSN. arg is the PipeannKilledRows.
 */
uint64
PipeannKilledOfPage(uint32 page, const char *nodes, uint64 *version, void *arg)
{
	PipeannKilledRows *killed = arg;
	const PageHeaderData *header = (const PageHeaderData *)
		(nodes - PIPEANN_CONTENTS_OFFSET);

	*version = PageXLogRecPtrGet(header->pd_lsn);
	return PipeannKilledGet(killed->view->cache->killed, page, *version);
}

/*
 * From now on rows of this result are returned, or of none if it is NULL.
 *
 * A node with rows in overflow slots is never killed: its page's LSN does not
 * cover them.
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
	killed->rows_left = result->nrows;
	killed->lsn = PipeannSearchVersion(search, result);
}

/* The row returned last is dead to everybody. */
void
PipeannKilledNoteRow(PipeannKilledRows *killed)
{
	const PipeannLayout *l;

	if (!killed->active || --killed->rows_left > 0)
		return;
	l = &killed->view->meta.layout;
	killed->active = false;
	PipeannKilledSet(killed->view->cache->killed,
					 PipeannIdPage(l, killed->id), killed->lsn,
					 PipeannIdSlot(l, killed->id));
}
