/*
 * core.h
 *		The library of pipeann itself, beside which this one works; private to
 *		queries/.
 */
#ifndef PIPEANN_SERVERS_CORE_H
#define PIPEANN_SERVERS_CORE_H

#include "plan/interface.h"

extern const PipeannInterface *pipeann_core;

/* Load it if it is not there. To be done before all else. */
extern void PipeannFindCore(void);

#endif							/* PIPEANN_SERVERS_CORE_H */
