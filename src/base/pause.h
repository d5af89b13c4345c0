/*
 * pause.h
 *		Points at which tests can make a backend wait, and faults that they plant.
 *
 * If built with PAUSE_POINTS=1, a backend that reaches a point named in
 * pipeann.pause_at waits while another session holds the advisory lock
 * PIPEANN_PAUSE_KEY, or, if the name is followed by a colon and a number, for that
 * many ms. In a server with injection points each point is an injection point.
 * Otherwise nothing is compiled in. A backend must hold no buffer lock at a point.
 *
 * If built with PLANTED_FAULTS=1, PIPEANN_PLANTED(name) is true in a session
 * whose setting pipeann.planted_fault is that name. Otherwise it is false at
 * compile time, and leaves no code. scripts/random-faults.sh plants each.
 */
#ifndef PIPEANN_PAUSE_H
#define PIPEANN_PAUSE_H

#include "base/base.h"

#ifdef PIPEANN_PAUSE_POINTS

#define PIPEANN_PAUSE_KEY 7011

#define PIPEANN_PAUSE(name) PipeannPause(name)

extern void PipeannPause(const char *name);

#elif PG_VERSION_NUM >= 170000 && defined(USE_INJECTION_POINTS)

#include "utils/injection_point.h"

#if PG_VERSION_NUM >= 180000
#define PIPEANN_PAUSE(name) INJECTION_POINT("pipeann-" name, NULL)
#else
#define PIPEANN_PAUSE(name) INJECTION_POINT("pipeann-" name)
#endif

#else

#define PIPEANN_PAUSE(name) ((void) 0)

#endif

#ifdef PIPEANN_PAUSE_POINTS
/* The unit of time of automatic REINDEX, in ms. */
extern int	pipeann_minute;
#define PIPEANN_MINUTE pipeann_minute

extern void PipeannPauseInit(void);
#else
#define PIPEANN_MINUTE 60000
#define PipeannPauseInit() ((void) 0)
#endif

#ifdef PIPEANN_PLANTED_FAULTS

#define PIPEANN_PLANTED(name) PipeannIsPlanted(name)

extern bool PipeannIsPlanted(const char *name);
extern void PipeannPlantedInit(void);

#else

#define PIPEANN_PLANTED(name) false
#define PipeannPlantedInit() ((void) 0)

#endif

#endif							/* PIPEANN_PAUSE_H */
