/*
 * code_order.h
 *		The nodes that may match, in the order of the distances of their codes;
 *		private to search/.
 */
#ifndef PIPEANN_SEARCH_CODE_ORDER_H
#define PIPEANN_SEARCH_CODE_ORDER_H

#include "search/state.h"

/* Go through the attribute codes for the nearest. */
extern void PipeannCodeOrderBegin(PipeannSearch *search);

/* Whether any is left; if so it is items[0]. */
extern bool PipeannCodeOrderHasNext(PipeannSearch *search);

/* Take the nearest. */
extern PipeannDiscard PipeannCodeOrderPop(PipeannCodeOrder *order);

#endif							/* PIPEANN_SEARCH_CODE_ORDER_H */
