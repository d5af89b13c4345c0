/*
 * places.c
 *		The sizes of stripes, and the blocks of pages.
 */
#include "storage/slot.h"

/*
 * Choose how many code pages and graph pages a stripe has, for pages with this
 * many bytes of contents: those with which the file has the fewest blocks, with
 * at most `most` blocks in a stripe. Codes of a stripe may be in the one before.
 */
void
PipeannStripesInit(PipeannLayout *l, uint32 page_bytes, uint32 most)
{
	uint32		capacity = page_bytes / (l->pq_bytes + l->attr_bytes);
	double		best = 0;

	l->stripe_pages = l->stripe_codes = 1;
	for (uint32 codes = 1; codes + l->node_pages <= most; codes++)
	{
		uint32		pages = Min((most - codes) / l->node_pages,
								codes * capacity / l->slots_per_page);
		double		density = (double) pages / (codes + pages * l->node_pages);

		if (pages == 0 || density < best)
			continue;
		best = density;
		l->stripe_pages = (uint16) pages;
		l->stripe_codes = (uint16) codes;
	}
	l->codes_per_page = (l->stripe_pages * l->slots_per_page + l->stripe_codes - 1) /
		l->stripe_codes;
}

/* The graph page that begins at a block, which is not the metapage, or INVALID_ID. */
uint32
PipeannPageAt(const PipeannExtents *extents, const PipeannLayout *l,
			  BlockNumber block)
{
	uint32		stripe;
	uint32		at;

	for (int i = PIPEANN_EXTENTS - 1; i >= 0; i--)
	{
		if (block < extents->first[i] || extents->length[i] == 0)
			continue;
		if (block - extents->first[i] < extents->length[i])
			return PIPEANN_INVALID_ID;
		block -= extents->length[i];
	}
	stripe = (block - 1) / PipeannStripeLength(l);
	at = (block - 1) % PipeannStripeLength(l);
	if (stripe > 0)
		at -= l->stripe_codes;	/* very large if the block is a code page */
	if (at % l->node_pages != 0 || at / l->node_pages >= l->stripe_pages)
		return PIPEANN_INVALID_ID;
	return stripe * l->stripe_pages + at / l->node_pages;
}

/*
 * The number of blocks up to the last one in use: counting graph pages, the pages
 * for the codes of their nodes, and extents. May be more than a file can have.
 */
uint64
PipeannBlocksInUse(const PipeannExtents *extents, const PipeannLayout *l,
				   uint32 graph_pages, bool has_codes)
{
	uint32		stripe = graph_pages == 0 ? 0 : (graph_pages - 1) / l->stripe_pages;
	uint64		end = 1 + (uint64) graph_pages * l->node_pages +
		((uint64) stripe + (stripe > 0)) * l->stripe_codes;

	if (has_codes && stripe == 0 && graph_pages > 0)
		end = 1 + l->stripe_pages * l->node_pages +
			PipeannCodePages(l, graph_pages * l->slots_per_page);
	for (int i = 0; i < PIPEANN_EXTENTS; i++)
		if (extents->length[i] > 0 && end >= extents->first[i])
			end += extents->length[i];
	return end;
}

/* The most blocks that a new extent can have. */
uint32
PipeannExtentRoom(const PipeannExtents *extents)
{
	uint32		most = 0;

	for (int i = 0; i < PIPEANN_EXTENTS; i++)
		most = Max(most, extents->length[i] == 0 ? PG_UINT32_MAX : extents->length[i]);
	return most;
}

/*
 * Choose an extent with at least `least` blocks, which replaces its former contents;
 * or else a new one of this length at `end`, behind all blocks in use.
 */
void
PipeannExtentChoose(PipeannExtents *extents, BlockNumber end, uint32 least,
					uint32 length)
{
	uint32		at = 0;

	while (extents->length[at] > 0 && extents->length[at] < least)
		at++;
	extents->current = at;
	if (extents->length[at] > 0)
		return;
	extents->first[at] = end;
	extents->length[at] = length;
}
