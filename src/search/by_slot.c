/*
 * by_slot.c
 *		Searches in memory: nodes explored, not whole pages.
 *
 * Page-mates save reads; where nothing is read, to copy a page and to score all
 * of its nodes takes longer than to explore one of them: as much recall by a
 * longer list takes 0.87 (GloVe-100) and 0.88 (SIFT) of the time. Until its
 * first read such a search takes from pages in memory the slots that it explores,
 * and scores those.
 *
 * A longer list is no help where codes do not tell what is near. Then the nodes
 * of all pages that it came by are scored in the end.
 */
#include "search/engine.h"

/* Page-mates that are as good as more of them. */
#define MOST_MATES 8

/*
 * Codes are in doubt when among the nodes explored they err by half as much as
 * these differ in distance, both as standard deviations. (Median of the queries
 * of GloVe-100 0.25, MiniLM 0.34, SIFT 0.17, Fashion-MNIST 0.37; SIFT with a
 * fourth of the bytes 0.7, points of a plane with codes of two bytes 1.1.)
 */
#define DOUBT 0.5
#define FEWEST_KNOWN 8

/*
 * A list of explored nodes only has as good results as one of their page-mates,
 * too, if it is up to a sixth longer: by as much as there are page-mates.
 */
int
PipeannLengthInMemory(const PipeannSearch *search)
{
	int			list = PipeannListToExplore(search);
	int			mates = Min(search->layout->slots_per_page - 1, MOST_MATES);

	return PipeannIsOn(search, PIPEANN_NODE_HITS) ?
		list + (int) ((int64) list * mates / (6 * MOST_MATES)) : list;
}

int
PipeannWantedSlot(const PipeannSearch *search, uint32 id)
{
	return PipeannIsOn(search, PIPEANN_NODE_HITS) && search->reads == 0 ?
		(int) PipeannIdSlot(search->layout, id) : PIPEANN_ALL_SLOTS;
}

/*
 * To pin a buffer takes an atomic operation, which waits for all that was begun
 * before: without this slots come from memory one after the other. (SIFT, GloVe-100
 * and MiniLM take 0.94 to 0.96 of the time.)
 */
void
PipeannPrefetchNearest(PipeannSearch *search, int width)
{
	const PipeannPool *pool = &search->pool;

	if (search->reads > 0)
		return;
	for (int i = PipeannPoolFirstOpen(&search->pool);
		 i < pool->count && width > 0; i++)
	{
		const PipeannCandidate *item = &pool->items[i];

		if (item->explored || item->beam != 0)
			continue;
		if (!item->absent)
			search->source->prefetch(search->source, item->page,
									 PipeannWantedSlot(search, item->id));
		width--;
	}
}

const PipeannSlot *
PipeannSlotOf(PipeannSearch *search, PageRef *ref, uint32 slot)
{
	PipeannFrame *frame = ref->frame;

	if (frame->slot != PIPEANN_ALL_SLOTS && frame->slot != (int) slot)
	{
		search->source->load(search->source, frame, slot);
		PipeannLookForKilled(search, ref);
	}
	return PipeannSlotAt(search->layout, frame->nodes, slot);
}

/*
 * Have the nodes of pages scored after all, also of those that are here: the
 * others, of what these are now.
 */
static void
GoByPage(PipeannSearch *search)
{
	search->params.switches &= ~PIPEANN_NODE_HITS;
	for (uint32 i = 0; i < search->nrefs; i++)
	{
		PageRef    *ref = &search->refs[i];

		/* one that was let go may be being read again, and comes whole */
		if (!ref->by_slot || ref->frame == NULL ||
			ref->frame->state != PIPEANN_FRAME_READY)
			continue;
		if (ref->frame->slot != PIPEANN_ALL_SLOTS)
			search->source->load(search->source, ref->frame,
								 PIPEANN_ALL_SLOTS);
		PipeannLookForKilled(search, ref);
		ref->killed |= ref->slots;
		ref->by_slot = false;
		PipeannAwaitScoring(search, i);
	}
}

static void
NoteDistances(PipeannBySlot *known, double exact, double code)
{
	double		error = code - exact;

	known->n++;
	known->sum += exact;
	known->sum_of_squares += exact * exact;
	known->error += error;
	known->error_of_squares += error * error;
}

/* Codes of out-of-line vectors were made for others: they are in doubt at once. */
void
PipeannScoreExplored(PipeannSearch *search, PageRef *ref,
					 const PipeannCandidate *item, const PipeannSlot *slot)
{
	float		code = item->dist;
	bool		wide = (slot->flags & PIPEANN_SLOT_OUT_OF_LINE) != 0;

	ref->slots |= (uint64) 1 << PipeannIdSlot(search->layout, item->id);
	NoteDistances(&search->known,
				  PipeannScoreSlot(search, item->id, slot), code);
	if (wide)
		GoByPage(search);
}

void
PipeannDoubtCodes(PipeannSearch *search)
{
	const PipeannBySlot *known = &search->known;
	double		n = known->n;
	double		variance;
	double		error;

	if (!PipeannIsOn(search, PIPEANN_NODE_HITS) || known->n < FEWEST_KNOWN)
		return;
	variance = known->sum_of_squares - known->sum * known->sum / n;
	error = known->error_of_squares - known->error * known->error / n;
	if (error > DOUBT * DOUBT * variance)
		GoByPage(search);
}
