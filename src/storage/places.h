/*
 * places.h
 *		Which block a page is. Needs no server; part of storage.h.
 *
 * Behind the metapage the file is a sequence of stripes. A stripe has graph pages, and
 * before them as many code pages as their nodes need; in the first stripe these are
 * behind, so that a small index without codes has no blocks for them. Codebook and entry
 * graph stand in a run of blocks, which stripes skip.
 */
#ifndef PIPEANN_PLACES_H
#define PIPEANN_PLACES_H

#include "storage/slot.h"

#ifdef PIPEANN_STANDALONE
#define BlockNumber uint32
#else
#include "storage/block.h"
#endif

/* The most runs that are and have been. */
#define PIPEANN_RUNS 3

/*
 * The runs, in the order in which they were made and stand in the file. A run is put
 * behind all pages that there are: a page has the same block as long as the index has it.
 */
typedef struct PipeannPlaces
{
	BlockNumber first[PIPEANN_RUNS];
	uint32		length[PIPEANN_RUNS];	/* blocks; 0: there is no such run */
	uint32		run;			/* the one that is in use, if there are codes */
} PipeannPlaces;

static inline uint32
PipeannStripeLength(const PipeannLayout *l)
{
	return l->stripe_codes + (uint32) l->stripe_pages * l->node_pages;
}

/* The block that would be this one if there were no runs. */
static inline BlockNumber
PipeannSkipRuns(const PipeannPlaces *places, BlockNumber block)
{
	for (int i = 0; i < PIPEANN_RUNS; i++)
		block += block >= places->first[i] ? places->length[i] : 0;
	return block;
}

/* The first block of a graph page. */
static inline BlockNumber
PipeannGraphBlock(const PipeannPlaces *places, const PipeannLayout *l,
				  uint32 page)
{
	uint32		stripe = page / l->stripe_pages;

	return PipeannSkipRuns(places, 1 + stripe * PipeannStripeLength(l) +
						   page % l->stripe_pages * l->node_pages +
						   (stripe > 0 ? l->stripe_codes : 0));
}

/* The block of a code page. */
static inline BlockNumber
PipeannCodeBlock(const PipeannPlaces *places, const PipeannLayout *l,
				 uint32 code_page)
{
	uint32		stripe = code_page / l->stripe_codes;

	return PipeannSkipRuns(places, 1 + stripe * PipeannStripeLength(l) +
						   code_page % l->stripe_codes +
						   (stripe > 0 ? 0 : l->stripe_pages * l->node_pages));
}

/* The first block of the run in use. */
static inline BlockNumber
PipeannRunBlock(const PipeannPlaces *places)
{
	return places->first[places->run];
}

static inline uint32
PipeannCodesPerPage(const PipeannLayout *l)
{
	return l->codes_per_page;
}

/* Code pages for this many ids. */
static inline uint32
PipeannCodePages(const PipeannLayout *l, uint32 ids)
{
	return (uint32) (((uint64) ids + l->codes_per_page - 1) / l->codes_per_page);
}

/* places.c */
extern void PipeannStripesInit(PipeannLayout *l, uint32 page_bytes, uint32 most);
extern uint32 PipeannPageAt(const PipeannPlaces *places,
							const PipeannLayout *l, BlockNumber block);
extern uint64 PipeannBlocksInUse(const PipeannPlaces *places,
								 const PipeannLayout *l, uint32 graph_pages,
								 bool has_codes);
extern uint32 PipeannRunRoom(const PipeannPlaces *places);
extern void PipeannRunPlace(PipeannPlaces *places, BlockNumber end,
							uint32 least, uint32 length);

#endif							/* PIPEANN_PLACES_H */
