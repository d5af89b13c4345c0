/*
 * parts.h
 *		The parts of an index that servers divide among them; needs no server.
 */
#ifndef PIPEANN_PARTS_H
#define PIPEANN_PARTS_H

#include "base/base.h"

#define PIPEANN_MOST_PARTS 100

/* Ranges of graph pages of equal length. */
typedef struct PipeannParts
{
	uint32		n;				/* 0: the index has none */
	uint32		pages;			/* graph pages in all */
} PipeannParts;

/* The part of a graph page, from 0; pages added since belong to the last. */
static inline uint32
PipeannPartOfPage(const PipeannParts *parts, uint32 page)
{
	return page >= parts->pages ? parts->n - 1 :
		(uint32) ((uint64) page * parts->n / parts->pages);
}

/* Whether a page is in a part; without parts all are. */
static inline bool
PipeannPartHasPage(const PipeannParts *parts, uint32 part, uint32 page)
{
	return parts->n == 0 || PipeannPartOfPage(parts, page) == part;
}

#endif							/* PIPEANN_PARTS_H */
