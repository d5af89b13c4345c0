/*
 * huge.h
 *		Huge pages for memory that is read at random.
 */
#ifndef PIPEANN_HUGE_H
#define PIPEANN_HUGE_H

#include "base/base.h"

#define PIPEANN_HUGE_PAGE ((Size) 2 * 1024 * 1024)

/*
 * At server start: map a part of the server's shared memory so that it can be in
 * huge pages. There is one such part; it begins at a multiple of PIPEANN_HUGE_PAGE.
 */
extern void PipeannHugeMap(void *part, Size size);

/* Put some of it into huge pages, as far as the kernel does it. */
extern void PipeannHugeCollapse(void *address, Size size);

/*
 * Ask for huge pages elsewhere. Each process that maps a segment has to ask.
 */
extern void PipeannHugeAdvise(void *address, Size size);

#endif							/* PIPEANN_HUGE_H */
