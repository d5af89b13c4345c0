/*
 * filter_strategy.h
 *		The filter strategy: whether a search with conditions walks the graph or scans
 *		the codes of what matches; private to search/.
 */
#ifndef PIPEANN_SEARCH_FILTER_STRATEGY_H
#define PIPEANN_SEARCH_FILTER_STRATEGY_H

#include "search/state.h"

extern void PipeannChooseFilterStrategy(PipeannSearch *search);
extern void PipeannChooseFilterStrategyNear(PipeannSearch *search, int passing,
											 int entries);
extern bool PipeannShouldScanCodesUnread(const PipeannSearch *search);
extern bool PipeannShouldScanCodes(const PipeannSearch *search);
extern bool PipeannWalkIsInDoubt(const PipeannSearch *search);

#endif							/* PIPEANN_SEARCH_FILTER_STRATEGY_H */
