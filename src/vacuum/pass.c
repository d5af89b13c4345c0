/*
 * pass.c
 *		Passes over the graph pages, for all steps of VACUUM.
 */
#include "postgres.h"

#include "base/pause.h"
#include "utils/rel.h"
#include "utils/spccache.h"
#include "vacuum/passes.h"

static void
Prefetch(PipeannVacuum *v, uint32 page)
{
	Relation	index = v->view.index;
	uint32		ahead =
		get_tablespace_maintenance_io_concurrency(index->rd_rel->reltablespace);
	uint32		end = Min((uint64) page + ahead + 1, v->pages);

	for (v->prefetched = Max(v->prefetched, page + 1); v->prefetched < end;
		 v->prefetched++)
		PrefetchBuffer(index, MAIN_FORKNUM,
					   PipeannGraphBlock(v->view.map, &v->view.meta.layout,
										 v->prefetched));
}

/*
 * Lock the first block of a graph page in such a pass, after
 * PipeannVacuumDelay(). A page that was never written is all zeroes: no slot is in use.
 */
Buffer
PipeannVacuumPage(PipeannVacuum *v, uint32 page, int lockmode)
{
	BlockNumber blkno = PipeannGraphBlock(v->view.map, &v->view.meta.layout,
										  page);

	PipeannVacuumDelay();
	PIPEANN_PAUSE("vacuum-page");
	Prefetch(v, page);
	return PipeannReadBuffer(v->view.index, blkno, PIPEANN_GRAPH, lockmode,
							 true, v->info->strategy);
}
