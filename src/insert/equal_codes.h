/*
 * equal_codes.h
 *		Where the nodes are that a search cannot tell apart by their codes.
 */
#ifndef PIPEANN_EQUAL_CODES_H
#define PIPEANN_EQUAL_CODES_H

#include "index/index.h"

/*
 * A node that may have this slot's vector, to be compared, or PIPEANN_INVALID_ID.
 */
extern uint32 PipeannEqualCodesFind(const PipeannIndexView *view,
									const PipeannSlot *slot);

/*
 * A search has not found the node of x[dim], normalised for cosine, although the index
 * has one. After a few of these the nodes with codes equal to its are noted, for which
 * their pages are read.
 */
extern void PipeannEqualCodesMissed(const PipeannIndexView *view,
									const float *x);

/* A new node has a vector that was missed. */
extern void PipeannEqualCodesAdd(const PipeannIndexView *view, uint32 id,
								 const PipeannSlot *slot);

#endif							/* PIPEANN_EQUAL_CODES_H */
