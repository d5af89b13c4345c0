/*
 * vacuum.h
 *		VACUUM's callbacks.
 *
 * This room knows how dead rows leave pages and graph. It must not know how
 * indexes are built and scanned, nor how rows are inserted.
 */
#ifndef PIPEANN_VACUUM_H
#define PIPEANN_VACUUM_H

#include "access/amapi.h"

extern IndexBulkDeleteResult *pipeannbulkdelete(IndexVacuumInfo *info,
												IndexBulkDeleteResult *stats,
												IndexBulkDeleteCallback callback,
												void *callback_state);
extern IndexBulkDeleteResult *pipeannvacuumcleanup(IndexVacuumInfo *info,
												   IndexBulkDeleteResult *stats);

#endif							/* PIPEANN_VACUUM_H */
