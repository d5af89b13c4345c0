/*
 * exact.c
 *		Scoring every node: for an index too small to have codes.
 */
#include "search/score.h"

static void
ScoreVisited(uint32 page, const char *nodes, void *arg)
{
	PipeannScorePage(arg, page, nodes, 0, false);
}

/* Score all nodes of graph pages 0 .. pages - 1 instead. */
void
PipeannSearchExact(PipeannSearch *search, uint32 pages)
{
	PipeannVisitPages(search->source, 0, pages, ScoreVisited, search);
}
