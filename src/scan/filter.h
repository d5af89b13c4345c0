/*
 * filter.h
 *		The conditions on filter columns of a scan; private to scan/.
 */
#ifndef PIPEANN_FILTER_H
#define PIPEANN_FILTER_H

#include "access/relscan.h"
#include "index/index.h"

typedef struct PipeannFilter PipeannFilter;

extern PipeannFilter *PipeannFilterBegin(IndexScanDesc scan,
										 const PipeannIndexView *view);
extern bool PipeannFilterIsVoid(const PipeannFilter *filter);
extern bool PipeannFilterMatches(PipeannFilter *filter, uint32 id,
								 const PipeannRow *row, bool *recheck);
extern const PipeannCodeFilter *PipeannFilterCodes(const PipeannFilter *filter);
extern bool PipeannFilterMatchesNode(uint32 id, const PipeannSlot *slot,
									 void *arg);

#endif							/* PIPEANN_FILTER_H */
