/*
 * by_node.h
 *		Searches in memory score the nodes that they explore, not whole pages;
 *		private to search/.
 *
 * Page-mates save reads. Where nothing is read, to copy a page and to score all
 * of its nodes takes longer than to explore one of them: a longer list gives the
 * same recall in less time. So until its first read a search takes from pages in
 * memory the slots that it explores, and scores those.
 *
 * A longer list is no help where codes do not tell what is near. Then the nodes
 * of all pages that the search came by are scored in the end.
 */
#ifndef PIPEANN_SEARCH_BY_NODE_H
#define PIPEANN_SEARCH_BY_NODE_H

#include "search/state.h"

extern void PipeannScoreExplored(PipeannSearch *search, PipeannPageRef *ref,
								 const PipeannCandidate *item,
								 const PipeannSlot *slot, bool wanted);
extern void PipeannScorePagesIfInDoubt(PipeannSearch *search);

#endif							/* PIPEANN_SEARCH_BY_NODE_H */
