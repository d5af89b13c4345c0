/*
 * places.c
 *		The sizes of stripes, and the places of runs.
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
PipeannPageAt(const PipeannPlaces *places, const PipeannLayout *l,
			  BlockNumber block)
{
	uint32		stripe;
	uint32		at;

	for (int i = PIPEANN_RUNS - 1; i >= 0; i--)
	{
		if (block < places->first[i] || places->length[i] == 0)
			continue;
		if (block - places->first[i] < places->length[i])
			return PIPEANN_INVALID_ID;
		block -= places->length[i];
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
 * for the codes of their nodes, and runs. May be more than a file can have.
 */
uint64
PipeannBlocksInUse(const PipeannPlaces *places, const PipeannLayout *l,
				   uint32 graph_pages, bool has_codes)
{
	uint32		stripe = graph_pages == 0 ? 0 : (graph_pages - 1) / l->stripe_pages;
	uint64		end = 1 + (uint64) graph_pages * l->node_pages +
		((uint64) stripe + (stripe > 0)) * l->stripe_codes;

	if (has_codes && stripe == 0 && graph_pages > 0)
		end = 1 + l->stripe_pages * l->node_pages +
			PipeannCodePages(l, graph_pages * l->slots_per_page);
	for (int i = 0; i < PIPEANN_RUNS; i++)
		if (places->length[i] > 0 && end >= places->first[i])
			end += places->length[i];
	return end;
}

/* The most blocks that a new run can have. */
uint32
PipeannRunRoom(const PipeannPlaces *places)
{
	uint32		most = 0;

	for (int i = 0; i < PIPEANN_RUNS; i++)
		most = Max(most, places->length[i] == 0 ? PG_UINT32_MAX : places->length[i]);
	return most;
}

/*
 * Place a run that needs `least` blocks: where another run is or was if that is long
 * enough, or else as a new run of this length at `end`, behind all blocks in use.
 */
void
PipeannRunPlace(PipeannPlaces *places, BlockNumber end, uint32 least,
				uint32 length)
{
	uint32		run = 0;

	while (places->length[run] > 0 && places->length[run] < least)
		run++;
	places->run = run;
	if (places->length[run] > 0)
		return;
	places->first[run] = end;
	places->length[run] = length;
}
