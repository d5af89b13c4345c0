/*
 * page_uses.c
 *		Which pages a search would bring into shared_buffers.
 */
#include "io/page_uses.h"

/* Pages with fewer recent uses are not brought in. */
#define FEWEST_USES 2

/* Count a use by a search. hit: the page was resident. */
void
PipeannSearchCountUse(PipeannSearchUses *uses, uint32 page, bool hit)
{
	uint8		count;
	int			at;

	if (!uses->counting)
		return;
	count = PipeannPageCountUse(uses->table, page);
	uses->count++;
	if (hit || count < FEWEST_USES)
		return;

	/* pages are sorted by count, largest first */
	at = uses->nwanted;
	if (at < PIPEANN_HOT_PER_SEARCH)
		uses->nwanted++;
	else if (count <= uses->counts[--at])
		return;
	for (; at > 0 && uses->counts[at - 1] < count; at--)
	{
		uses->pages[at] = uses->pages[at - 1];
		uses->counts[at] = uses->counts[at - 1];
	}
	uses->pages[at] = page;
	uses->counts[at] = count;
}
