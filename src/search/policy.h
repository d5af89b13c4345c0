/*
 * policy.h
 *		The policies, a file each; private to search/.
 */
#ifndef PIPEANN_SEARCH_POLICY_H
#define PIPEANN_SEARCH_POLICY_H

#include "search/search.h"

extern const PipeannPolicy PipeannBestFirst;
extern const PipeannPolicy PipeannPipe;
extern const PipeannPolicy PipeannStale;
extern const PipeannPolicy PipeannLookAhead;

#endif							/* PIPEANN_SEARCH_POLICY_H */
