/*
 * code_order.h
 *		The nodes that may match, in the order of the distances of their codes;
 *		private to search/.
 */
#ifndef PIPEANN_SEARCH_CODE_ORDER_H
#define PIPEANN_SEARCH_CODE_ORDER_H

#include "search/state.h"

extern void PipeannCodeOrderBegin(PipeannSearch *search);
extern bool PipeannCodeOrderHasNext(PipeannSearch *search);
extern PipeannDiscard PipeannCodeOrderPop(PipeannCodeOrder *order);

#endif							/* PIPEANN_SEARCH_CODE_ORDER_H */
