/*
 * huge.h
 *		Huge pages for memory that is read at random.
 */
#ifndef PIPEANN_HUGE_H
#define PIPEANN_HUGE_H

#include "base/base.h"

#define PIPEANN_HUGE_PAGE ((Size) 2 * 1024 * 1024)

extern void PipeannHugeMap(void *part, Size size);
extern void PipeannHugeCollapse(void *address, Size size);
extern void PipeannHugeAdvise(void *address, Size size);

#endif							/* PIPEANN_HUGE_H */
