/*
 * filter.h
 *		Which nodes can match, by their attribute codes; private to search/.
 */
#ifndef PIPEANN_SEARCH_FILTER_H
#define PIPEANN_SEARCH_FILTER_H

#include "search/state.h"

static inline bool
PipeannIsMember(const uint8 *set, uint8 byte)
{
	return (set[byte / 8] >> byte % 8) & 1;
}

/* Whether a column lets node id < ncodes pass. */
static inline bool
PipeannColumnPasses(const PipeannCodes *codes, const PipeannCodeColumn *column,
					uint32 id)
{
	uint8		byte = *PipeannAttributeAt(codes, id, column->plane);

	return PipeannIsMember(column->first, byte) &&
		(column->second == NULL ||
		 PipeannIsMember(column->second + (Size) byte * 32,
						 *PipeannAttributeAt(codes, id, column->plane + 1)));
}

/* Whether the code of node id < ncodes lets it pass. */
static inline bool
PipeannCodePasses(const PipeannCodes *codes, const PipeannCodeFilter *filter,
				  uint32 id)
{
	bool		any = false;
	bool		all = true;

	for (int i = 0; i < filter->n; i++)
	{
		const PipeannCodeColumn *column = &filter->columns[i];

		all = all && PipeannColumnPasses(codes, column, id);
		if (column->also)
			continue;
		any |= all;
		all = true;
		if (column->otherwise)
			continue;
		if (!any)
			return false;
		any = false;
	}
	return true;
}

/* The share of nodes that pass, by a sample. */
extern double PipeannSharePassing(const PipeannCodes *codes,
								  const PipeannCodeFilter *filter);

/*
 * The nodes of a block that pass: id first + i for bit i of mask[]; first is a
 * multiple of PIPEANN_CODE_BLOCK.
 */
#define PIPEANN_BLOCK_WORDS (PIPEANN_CODE_BLOCK / 64)

extern void PipeannBlockPassing(const PipeannCodes *codes,
								const PipeannCodeFilter *filter, uint32 first,
								uint64 *mask);

#endif							/* PIPEANN_SEARCH_FILTER_H */
