/*
 * filter.h
 *		The conditions on filter columns of a scan; private to scan/.
 */
#ifndef PIPEANN_FILTER_H
#define PIPEANN_FILTER_H

#include "access/relscan.h"
#include "index/index.h"

typedef struct PipeannFilter PipeannFilter;

extern bool PipeannFilterIsVoid(const PipeannFilter *filter);
extern bool PipeannFilterMatches(PipeannFilter *filter, uint32 id,
								 const PipeannRow *row, bool *recheck);

#endif							/* PIPEANN_FILTER_H */
