/*
 * filter.h
 *		The conditions on filter columns of a scan; private to scan/.
 */
#ifndef PIPEANN_FILTER_H
#define PIPEANN_FILTER_H

#include "access/relscan.h"
#include "index/index.h"

typedef struct PipeannFilter PipeannFilter;

/*
 * The conditions of a scan's keys, in CurrentMemoryContext; NULL if there are
 * none.
 */
extern PipeannFilter *PipeannFilterBegin(IndexScanDesc scan,
										 const PipeannIndexView *view);

/* Whether a condition has an argument with which no row can match. */
extern bool PipeannFilterIsVoid(const PipeannFilter *filter);

/*
 * Whether a row of node id matches. If the row is out of line and VACUUM has
 * removed its parts meanwhile that is not known: then sets *recheck. Errors if the
 * row is broken.
 */
extern bool PipeannFilterMatches(PipeannFilter *filter, uint32 id,
								 const PipeannRow *row, bool *recheck);

/*
 * The attribute codes with which a node may have a matching row; NULL if they do
 * not tell.
 */
extern const PipeannCodeFilter *PipeannFilterCodes(const PipeannFilter *filter);

/*
 * For PipeannSearchParams: whether a node may have a row that matches. arg is the
 * PipeannFilter.
 */
extern bool PipeannFilterMatchesNode(uint32 id, const PipeannSlot *slot,
									 void *arg);

#endif							/* PIPEANN_FILTER_H */
