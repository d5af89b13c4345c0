/*
 * parts.h
 *		The parts of an index that servers divide among them; needs no server.
 */
#ifndef PIPEANN_PARTS_H
#define PIPEANN_PARTS_H

#include "base/base.h"

#define PIPEANN_MOST_PARTS 100

/*
 * A packing puts the nodes of a part on pages that follow one another, as many as the
 * others have. Pages that came since belong to the parts in turns.
 */
typedef struct PipeannParts
{
	uint32		n;				/* 0: the index has none */
	uint32		pages;			/* graph pages of the packing */
} PipeannParts;

/* The first page of a part, or, for the number of parts, the first of none. */
static inline uint32
PipeannPartStart(const PipeannParts *parts, uint32 part)
{
	return (uint32) ((uint64) parts->pages * part / parts->n);
}

/* The part of a graph page, from 0. */
static inline uint32
PipeannPartOfPage(const PipeannParts *parts, uint32 page)
{
	return page >= parts->pages ? page % parts->n :
		(uint32) ((((uint64) page + 1) * parts->n - 1) / parts->pages);
}

/* Whether a page is of a part, as all are where there are none. */
static inline bool
PipeannPartHasPage(const PipeannParts *parts, uint32 part, uint32 page)
{
	return parts->n == 0 || PipeannPartOfPage(parts, page) == part;
}

#endif							/* PIPEANN_PARTS_H */
