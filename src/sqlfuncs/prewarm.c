/*
 * prewarm.c
 *		pipeann_prewarm(): loads an index's codes and pages into memory.
 */
#include "postgres.h"

#include "access/relation.h"
#include "fmgr.h"
#include "index/index.h"
#include "io/io.h"
#include "miscadmin.h"
#include "scan/scan.h"
#include "utils/rel.h"

PG_FUNCTION_INFO_V1(pipeann_prewarm);

/* The part of shared_buffers that prewarming may fill. */
#define PREWARM_PART 0.75

/*
 * pipeann_prewarm(regclass, max_pages): loads the codes, and graph pages into
 * shared_buffers, as many as fit. Returns the number of blocks read.
 */
Datum
pipeann_prewarm(PG_FUNCTION_ARGS)
{
	Relation	index;
	PipeannIndexView view;
	PipeannCounters counters = {0};
	PipeannPageSource *source;
	int			node_pages;
	int64		room;
	int64		n = 0;

	if (PG_ARGISNULL(0))
		PG_RETURN_NULL();
	index = PipeannOpenIndex(PG_GETARG_OID(0));
	room = (int64) (NBuffers * PREWARM_PART);
	if (!PG_ARGISNULL(1))
	{
		if (PG_GETARG_INT64(1) < 0)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("max_pages must not be negative")));
		room = Min(room, PG_GETARG_INT64(1));
	}
	PipeannOpenView(&view, index);
	if (view.cache != NULL)
		PipeannCacheLoadAll(index, view.cache, &view.meta);
	node_pages = view.meta.layout.node_pages;
	source = PipeannViewSource(&view, &counters);
	for (uint32 page = 0; page < PipeannViewPages(&view) && n + node_pages <= room; page++)
	{
		CHECK_FOR_INTERRUPTS();
		if (!PipeannIsOwnPage(&view.meta, page))
			continue;
		PipeannSourceBringIn(source, page);
		n += node_pages;
	}
	PipeannSourceClose(source);
	if (view.cache != NULL)
		PipeannCacheRelease(view.cache);
	relation_close(index, AccessShareLock);
	PG_RETURN_INT64(n);
}
