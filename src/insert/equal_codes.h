/*
 * equal_codes.h
 *		Where the nodes are that a search cannot tell apart by their codes.
 */
#ifndef PIPEANN_EQUAL_CODES_H
#define PIPEANN_EQUAL_CODES_H

#include "index/neighbors.h"

/*
 * A node that may have this slot's vector, to be compared, or PIPEANN_INVALID_ID.
 */
extern uint32 PipeannEqualCodesFind(const PipeannIndexView *view,
									const PipeannSlot *slot);

/*
 * A search has found other candidates and not the node of the vector, although the
 * index has one. After a few of these the nodes with the codes of the nearest candidates
 * are noted, for which their pages are read.
 */
extern void PipeannEqualCodesMissed(const PipeannIndexView *view,
									const PipeannLinkSet *set);

/* A new node has a vector that was missed. */
extern void PipeannEqualCodesAdd(const PipeannIndexView *view, uint32 id,
								 const PipeannSlot *slot);

#endif							/* PIPEANN_EQUAL_CODES_H */
