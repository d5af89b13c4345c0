/*
 * planted.h
 *		Faults that tests plant, to see that they would be found.
 *
 * Built with PLANTED_FAULTS=1, PIPEANN_PLANTED(name) is true in a session whose
 * setting pipeann.planted_fault is that name. Otherwise it is false when it is
 * compiled, and nothing is left of it. scripts/random-faults.sh plants each.
 */
#ifndef PIPEANN_PLANTED_H
#define PIPEANN_PLANTED_H

#include <stdbool.h>

#ifdef PIPEANN_PLANTED_FAULTS

#define PIPEANN_PLANTED(name) PipeannIsPlanted(name)

extern bool PipeannIsPlanted(const char *name);
extern void PipeannPlantedInit(void);

#else

#define PIPEANN_PLANTED(name) false
#define PipeannPlantedInit() ((void) 0)

#endif

#endif							/* PIPEANN_PLANTED_H */
