/*
 * code_scan.h
 *		A scan of the codes: searching among the few nodes that match, without the
 *		graph; private to search/.
 */
#ifndef PIPEANN_SEARCH_CODE_SCAN_H
#define PIPEANN_SEARCH_CODE_SCAN_H

#include "search/state.h"

extern bool PipeannRunCodeScan(PipeannSearch *search);

#endif							/* PIPEANN_SEARCH_CODE_SCAN_H */
