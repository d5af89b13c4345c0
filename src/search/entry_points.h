/*
 * entry_points.h
 *		Where a search begins: private to search/.
 */
#ifndef PIPEANN_SEARCH_ENTRY_POINTS_H
#define PIPEANN_SEARCH_ENTRY_POINTS_H

#include "search/state.h"

/*
 * Compute the query's table, find entry points, ask for the first pages, and
 * fill the pool.
 */
extern void PipeannAddEntryPoints(PipeannSearch *search);

/* Make the page-mates of entry points candidates. */
extern void PipeannAddEntryPages(PipeannSearch *search);

#endif							/* PIPEANN_SEARCH_ENTRY_POINTS_H */
