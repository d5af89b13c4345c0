/*
 * code_scan.h
 *		A scan of the codes: searching among the few nodes that match, without the
 *		graph; private to search/.
 */
#ifndef PIPEANN_SEARCH_CODE_SCAN_H
#define PIPEANN_SEARCH_CODE_SCAN_H

#include "search/state.h"

/* From now on go through the nodes that match, but for those scored already. */
extern void PipeannBeginCodeScan(PipeannSearch *search);

/* A run of such a search; false if nothing was left. */
extern bool PipeannRunCodeScan(PipeannSearch *search);

#endif							/* PIPEANN_SEARCH_CODE_SCAN_H */
