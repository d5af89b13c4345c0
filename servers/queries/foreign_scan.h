/*
 * foreign_scan.h
 *		Scans of tables on other servers, by postgres_fdw; private to
 *		queries/.
 */
#ifndef PIPEANN_SERVERS_FOREIGN_SCAN_H
#define PIPEANN_SERVERS_FOREIGN_SCAN_H

#include "nodes/plannodes.h"

/*
 * Whether a node is a part of ours (mark.h) that runs beside others, and whose
 * query could be sent by anybody.
 */
extern bool PipeannIsSendable(const Plan *plan, List *rtable);

/* Where postgres_fdw has these in the private list of a scan. */
#define PIPEANN_FDW_SQL			0
#define PIPEANN_FDW_COLUMNS		1

#endif							/* PIPEANN_SERVERS_FOREIGN_SCAN_H */
