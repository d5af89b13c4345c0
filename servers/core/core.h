/*
 * core.h
 *		The library of pipeann itself, which this one works with; settings; rights on servers.
 */
#ifndef PIPEANN_SERVERS_CORE_H
#define PIPEANN_SERVERS_CORE_H

#include "plan/interface.h"

/* core.c */
extern const PipeannInterface *pipeann_core;

/* Load pipeann if it is not loaded. Must be called first. */
extern void PipeannFindCore(void);

/* Whether the current user has USAGE on a foreign server. */
extern bool PipeannHasUsage(Oid server);

/* settings.c: pipeann_servers.shard_coverage, part_servers, part_timeout */
extern double pipeann_shard_coverage;
extern char *pipeann_part_servers;
extern int	pipeann_part_timeout;	/* milliseconds */

extern void PipeannSettingsInit(void);

#endif							/* PIPEANN_SERVERS_CORE_H */
