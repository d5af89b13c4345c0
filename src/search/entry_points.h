/*
 * entry_points.h
 *		Where a search begins: private to search/.
 */
#ifndef PIPEANN_SEARCH_ENTRY_POINTS_H
#define PIPEANN_SEARCH_ENTRY_POINTS_H

#include "search/state.h"

extern void PipeannAddEntryPoints(PipeannSearch *search);
extern void PipeannAddEntryPages(PipeannSearch *search);

#endif							/* PIPEANN_SEARCH_ENTRY_POINTS_H */
