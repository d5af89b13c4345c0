/*
 * policies.c
 *		The policies, by the value of pipeann.search_mode.
 */
#include "search/policy.h"

const PipeannPolicy *const PipeannPolicies[PIPEANN_SEARCH_MODES] = {
	[PIPEANN_BEST_FIRST] = &PipeannBestFirst,
	[PIPEANN_PIPE] = &PipeannPipe,
	[PIPEANN_STALE] = &PipeannStale,
	[PIPEANN_LOOK_AHEAD] = &PipeannLookAhead
};
