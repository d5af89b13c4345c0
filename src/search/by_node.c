/*
 * by_node.c
 *		Searches in memory score the nodes that they explore, not whole pages.
 */
#include "search/by_node.h"

#include "search/pages.h"
#include "search/score.h"

/*
 * Codes are in doubt when among the nodes explored they err by half as much as
 * these differ in distance, both as standard deviations. Good codes err by less
 * than 0.4 of it; codes of a fourth of the bytes, or of two bytes for points of a
 * plane, by 0.7 and more.
 */
#define DOUBT 0.5
#define FEWEST_KNOWN 8

/* From now on score whole pages, also those that are here. */
static void
ScoreWholePages(PipeannSearch *search)
{
	search->params.disabled |= PIPEANN_NODE_HITS;
	for (uint32 i = 0; i < search->nrefs; i++)
	{
		const PipeannPageRef *ref = &search->refs[i];

		/* one that was let go may be being read again, and is scored then */
		if (ref->by_node && ref->frame != NULL &&
			ref->frame->state == PIPEANN_FRAME_READY)
			PipeannScoreWholePage(search, i);
	}
}

static void
AddError(PipeannCodeErrors *errors, double exact, double code)
{
	double		error = code - exact;

	errors->n++;
	errors->sum += exact;
	errors->sum_of_squares += exact * exact;
	errors->error += error;
	errors->error_of_squares += error * error;
}

/*
 * Score a node that was explored of a page whose nodes are not all scored.
 *
 * Codes of out-of-line vectors were made for others: they are in doubt at once.
 */
void
PipeannScoreExplored(PipeannSearch *search, PipeannPageRef *ref,
					 const PipeannCandidate *item, const PipeannSlot *slot,
					 bool wanted)
{
	float		code = item->dist;
	bool		out_of_line = (slot->flags & PIPEANN_SLOT_OUT_OF_LINE) != 0;

	ref->slots |= (uint64) 1 << PipeannIdSlot(search->layout, item->id);
	AddError(&search->code_errors,
			 PipeannScoreSlot(search, item->id, slot, wanted), code);
	if (out_of_line)
		ScoreWholePages(search);
}

/*
 * The list is explored: have whole pages scored if its codes cannot be relied
 * on.
 */
void
PipeannScorePagesIfInDoubt(PipeannSearch *search)
{
	const PipeannCodeErrors *errors = &search->code_errors;
	double		n = errors->n;
	double		variance;
	double		error;

	if (!PipeannIsOn(search, PIPEANN_NODE_HITS) || errors->n < FEWEST_KNOWN)
		return;
	variance = errors->sum_of_squares - errors->sum * errors->sum / n;
	error = errors->error_of_squares - errors->error * errors->error / n;
	if (error > DOUBT * DOUBT * variance)
		ScoreWholePages(search);
}
