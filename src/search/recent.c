/*
 * recent.c
 *		What the latest queries of an index found.
 */
#include "search/recent.h"

void
PipeannRecentInit(PipeannRecent *recent)
{
	recent->next = 0;
	for (int i = 0; i < PIPEANN_RECENT_QUERIES; i++)
		for (int j = 0; j < PIPEANN_RECENT_IDS; j++)
			recent->ids[i][j] = PIPEANN_INVALID_ID;
}

uint32
PipeannRecentAdd(PipeannRecent *recent, uint32 id)
{
	uint32		entry = recent->next++ % PIPEANN_RECENT_QUERIES;

	for (int j = 1; j < PIPEANN_RECENT_IDS; j++)
		recent->ids[entry][j] = PIPEANN_INVALID_ID;
	recent->ids[entry][0] = id;
	return entry;
}
