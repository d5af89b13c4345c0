/*
 * filter_strategy.c
 *		The filter strategy: whether a search with conditions walks the graph or scans
 *		the codes of what matches.
 */
#include "search/filter_strategy.h"

#include <math.h>

#include "search/list.h"

/*
 * What the strategies cost, in code distances at random places: to look at a byte of an
 * attribute code, to explore a node, to read a page, and what a scan of the
 * codes does besides.
 */
#define BYTE_COST 0.01
#define EXPLORE_COST 60
#define READ_COST 1500
#define CODE_SCAN_COST 1000

/* What finding the entry points costs. */
#define ENTRY_COST 2000

/* How often a walk that may be in doubt has to be followed by a code scan. */
#define IN_VAIN 0.8

/*
 * What is known of all nodes counts as much as so many entries near the query. Where
 * few of them match, each more or less makes a difference.
 */
#define KNOWN_BEFORE 2

/*
 * The list is longer by a power of the share that matches, and where that is small
 * so long that it is a part of the nodes among which so many results are.
 */
#define STRETCH 0.3
#define NODES_OF_RESULT 1
#define MOST_STRETCH 20

/* Behind the list all are explored that match, until they are this part of ef. */
#define MATCHING_PART 0.3

/* The share if none of the sample matches. */
#define LEAST_SHARE 1e-6

/* Matching nodes that a walk meets for each result. */
#define MET_OF_RESULT 1.5

/*
 * Pages that a search reads: for each node of the list that it would have without
 * conditions, more by a power of the share that matches; and if it scans the codes.
 */
#define READS_OF_NODE 0.3
#define READS_POWER 0.4
#define READS_OF_CODE_SCAN 20

/*
 * What going through the attribute codes of so many nodes costs, of so many columns,
 * and the codes of the share that passes; in distances of codes.
 */
double
PipeannCodeScanCost(double nodes, int columns, double share)
{
	return CODE_SCAN_COST + nodes * (columns * BYTE_COST + share);
}

/* By how much the list of a walk is longer where this share of the nodes matches. */
double
PipeannListStretch(double share, int ef)
{
	double		nodes = NODES_OF_RESULT * PIPEANN_EARLY_RESULTS / share;

	return Min(Max(pow(share, -STRETCH), nodes / Max(ef, 1)), MOST_STRETCH);
}

static double
CodeScanCost(const PipeannSearch *search)
{
	return PipeannCodeScanCost(search->codes->ncodes,
							   search->params.code_filter->n, search->share);
}

/* Nodes that a walk explores: its list, or until it has met enough that match. */
static double
WalkLength(const PipeannSearch *search)
{
	return Max(search->stretch * Max(search->params.ef, 1) +
			   search->most_matching * (1 - search->near_share),
			   MET_OF_RESULT * PIPEANN_EARLY_RESULTS / search->match_share);
}

/* Nodes that pass, of which so many are likely to match. */
static int
PassingOf(const PipeannSearch *search, double matching)
{
	return (int) (matching *
				  Min(search->near_share / search->match_share,
					  MOST_STRETCH));
}

/*
 * What a walk costs where this share of the nodes near the query pass, if it may
 * have to be followed by a code scan: where its list has to be longer than by the power
 * of the share, so few match nearby that there may be none.
 */
static double
WalkCost(const PipeannSearch *search)
{
	bool		in_doubt = NODES_OF_RESULT * PIPEANN_EARLY_RESULTS >
		search->match_share * pow(search->match_share, -STRETCH) *
		Max(search->params.ef, 1);

	return WalkLength(search) * EXPLORE_COST +
		(in_doubt ? IN_VAIN * CodeScanCost(search) : 0);
}

/* Go by the share of nodes that pass where the search walks. */
static void
SetNearShare(PipeannSearch *search, double share)
{
	double		precision = search->params.code_filter->precision;

	search->near_share = Max(share, LEAST_SHARE);
	search->match_share = Max(share * precision, LEAST_SHARE);
	search->stretch = PipeannListStretch(search->match_share,
										 search->params.ef);
	search->most_matching = search->match_share >= 1 ? 0 :
		PassingOf(search, MATCHING_PART * Max(search->params.ef, 1));
}

/* No walk is shorter than one in which all match. */
static bool
MayWalk(const PipeannSearch *search)
{
	return ENTRY_COST + Max(search->params.ef, 1) * EXPLORE_COST <
		CodeScanCost(search);
}

/*
 * Before a search begins: choose whether it scans the codes of the nodes that match
 * or may walk the graph, and how much longer its list is then.
 */
void
PipeannChooseFilterStrategy(PipeannSearch *search)
{
	search->stretch = 1;
	if (search->params.wanted_nodes != NULL && search->codes != NULL)
		search->scans_codes = true;
	if (search->params.code_filter == NULL || search->codes == NULL)
		return;
	search->share = Max(PipeannSharePassing(search->codes,
											search->params.code_filter),
						LEAST_SHARE);
	SetNearShare(search, search->share);
	search->scans_codes = search->params.together != NULL ?
		WalkLength(search) * EXPLORE_COST > CodeScanCost(search) :
		!MayWalk(search);
}

/*
 * Choose again, once it is known how many of the entries nearest to the query pass,
 * and before any page is asked for. What matches may be all near the query, or far.
 */
void
PipeannChooseFilterStrategyNear(PipeannSearch *search, int passing, int entries)
{
	double		share = passing == entries ? 1 :
		(passing + KNOWN_BEFORE * search->share) / (entries + KNOWN_BEFORE);

	SetNearShare(search, share);
	search->scans_codes = WalkCost(search) > CodeScanCost(search);
	if (!search->scans_codes)
		PipeannListBegin(search);
}

/*
 * Whether a search that is about to walk has found that pages have to be read, and
 * a code scan reads so much less that it is worth more code distances.
 */
bool
PipeannShouldScanCodesUnread(const PipeannSearch *search)
{
	double		reads = READS_OF_NODE * Max(search->params.ef, 1) *
		pow(search->match_share, -READS_POWER);

	return search->params.code_filter != NULL && search->reads > 0 &&
		reads * READ_COST > CodeScanCost(search) + READS_OF_CODE_SCAN * READ_COST;
}

/* Whether a search that walks has gone so far that a code scan takes less. */
bool
PipeannShouldScanCodes(const PipeannSearch *search)
{
	return search->params.code_filter != NULL &&
		(double) search->explored * EXPLORE_COST > CodeScanCost(search);
}

/* Candidates nearer than a distance that are not in the list any more. */
static uint64
DiscardsWithin(const PipeannPool *pool, float dist)
{
	uint64		n = 0;

	for (uint64 i = 0; i < pool->ndiscards; i++)
		n += pool->discards[i].dist < dist;
	return n;
}

/*
 * Whether a first walk may have missed what is nearest.
 *
 * If so many others are nearer than what was found that most of them are not
 * explored, there may be more that match which no explored one leads to.
 */
bool
PipeannWalkIsInDoubt(const PipeannSearch *search)
{
	const PipeannPool *pool = &search->pool;
	int			wanted;
	int			passing = 0;
	int			at = 0;

	if (search->params.code_filter == NULL || pool->matching == 0)
		return false;
	wanted = PassingOf(search, PIPEANN_EARLY_RESULTS);
	for (; at < pool->count && passing < wanted; at++)
		passing += pool->items[at].matches;
	if (passing < wanted)
		return true;
	return at + DiscardsWithin(pool, pool->items[at - 1].dist) >
		search->explored;
}
