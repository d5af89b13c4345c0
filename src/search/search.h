/*
 * search.h
 *		Searching an index's graph for the nearest nodes of a query.
 *
 * Distances here are order keys and not SQL's values: the squared Euclidean
 * distance, the Manhattan distance, the negative inner product, or for cosine the
 * negative product of normalised vectors.
 */
#ifndef PIPEANN_SEARCH_H
#define PIPEANN_SEARCH_H

#include "base/base.h"

#include "pq/codes.h"
#include "storage/slot.h"
#include "storage/page_source.h"

typedef struct PipeannSearch PipeannSearch;

/* Results that are final after an early end: the usual LIMIT. */
#define PIPEANN_EARLY_RESULTS 10

/* A policy decides what a search reads, and when. */
typedef struct PipeannPolicy
{
	const char *name;
	float		overflow;		/* the list with its overflow area, in lengths of
								 * the list; 0 for no such area */

	/* Explore until the list is explored as far as it must be. */
	void		(*run) (PipeannSearch *search);
} PipeannPolicy;

/* The policies, by the value of pipeann.search_mode. */
typedef enum PipeannSearchMode
{
	PIPEANN_BEST_FIRST,			/* DiskANN, AIO-ANN */
	PIPEANN_PIPE,				/* PipeANN */
	PIPEANN_STALE,				/* FlashANNS */
	PIPEANN_LOOK_AHEAD,			/* LAANN */
	PIPEANN_BATON				/* BatANN */
} PipeannSearchMode;

#define PIPEANN_SEARCH_MODES 5
#define PIPEANN_DEFAULT_MODE PIPEANN_LOOK_AHEAD

extern const PipeannPolicy *const PipeannPolicies[PIPEANN_SEARCH_MODES];

/*
 * The exact distance of a node whose slot holds only a rounded vector
 * (PIPEANN_SLOT_OUT_OF_LINE); the caller knows how to fetch it. Infinity if
 * VACUUM has removed the node meanwhile.
 */
typedef float (*PipeannOutOfLineDistance) (uint32 id, const PipeannSlot *slot,
										   void *arg);

/* The rows in the slot of a result that is likely to be returned. */
typedef void (*PipeannSettled) (PipeannRowList rows, void *arg);

/*
 * Whether a live node may have a row that matches the conditions of a scan. One
 * that has none is explored like any other, but is no result.
 */
typedef bool (*PipeannMatches) (uint32 id, const PipeannSlot *slot, void *arg);

/* Asks the server that has a part in memory to go on; false if the run ends instead. */
typedef bool (*PipeannPassOn) (PipeannSearch *search, uint32 part, void *arg);

#define PIPEANN_MOST_PARTS 100

/* The parts of an index that servers divide among them: ranges of graph pages, equally long. */
typedef struct PipeannParts
{
	uint32		n;				/* 0: the index has none */
	uint32		pages;			/* graph pages in all */
	uint32		own;			/* read first by a search, or a larger number for none */
} PipeannParts;

/* The part of a graph page, from 0; pages added since belong to the last. */
static inline uint32
PipeannPartOfPage(const PipeannParts *parts, uint32 page)
{
	return page >= parts->pages ? parts->n - 1 :
		(uint32) ((uint64) page * parts->n / parts->pages);
}

typedef struct PipeannSearchParams
{
	const PipeannPolicy *policy;
	int			ef;				/* length of the candidate list, L */
	int			min_list;		/* least number of candidates explored,
								 * whatever ef, unless the search ends early */
	int			near_pages;		/* all nodes on the pages of this many of the nearest are
								 * results, in place of those on all pages where codes
								 * are in doubt; 0: as usual */
	bool		may_end_early;
	bool		has_horizon;	/* nothing farther than `horizon` is wanted */
	float		horizon;
	bool		one_of_several; /* the horizon may shrink from run to run, and nodes
								 * that only codes would find are not looked for */
	bool		by_codes;		/* sparse vectors are searched by a code scan */
	int			width;			/* most reads in flight; 0: the policy's own width */
	bool		by_page;		/* the nodes of whole pages are scored (pages.c) */
	uint32		max_pages;		/* pages at hand or on their way at a time,
								 * except a few that a round cannot do without */
	PipeannOutOfLineDistance out_of_line_distance;
	PipeannSettled settled;		/* called while pages are read */
	int			most_settled;	/* nearest results to call it for; 0 for none */
	const PipeannCodeFilter *code_filter;	/* or NULL */
	const uint32 *wanted_nodes;	/* or NULL: the nodes that may be results, which
								 * matches() knows as well; all have codes */
	uint32		nwanted_nodes;
	PipeannMatches matches;		/* or NULL: every node matches */
	const uint32 *left_out;		/* or NULL: a node that is no candidate */
	PipeannMatches ends_at;		/* or NULL: whether a scored node ends the search */
	PipeannParts parts;			/* of the index */
	PipeannPassOn pass_on;		/* or NULL: no other server is asked */
	void	   *arg;				/* of all these functions */
} PipeannSearchParams;

/* The longest list that may be requested. */
#define PIPEANN_MOST_LIST 10000

/* In strict order one in this many explored nodes may be returned. */
#define PIPEANN_STRICT_PART 2

/* A node found, with what is needed to return its rows. */
typedef struct PipeannResult
{
	float		dist;			/* exact; if the vector is rounded, the least
								 * distance that its rows may have */
	float		most;			/* the largest that they may have */
	uint32		id;
	uint32		ext_tids;		/* overflow chain, or PIPEANN_INVALID_ID */
	uint16		nrows;			/* rows in its slot */
	uint16		bytes;			/* total length of these rows */
	uint32		rows;			/* where they are (results.c) */
} PipeannResult;

/* The ids of a search's list. */
typedef struct PipeannIdList
{
	uint32	   *ids;
	uint32		n;
	uint32		explored;		/* number at the front that are explored */
	uint32		length;			/* most ids that the list may have */
} PipeannIdList;

/* How far a search goes on for a scan, by the value of pipeann.iterative_scan. */
typedef enum PipeannIterativeScan
{
	PIPEANN_ITERATIVE_OFF,		/* not at all */
	PIPEANN_ITERATIVE_RELAXED,
	PIPEANN_ITERATIVE_STRICT	/* a row that comes after a farther one is left out */
} PipeannIterativeScan;

/* How far a search's results are final: the frontier. A run may change what is beyond it. */
typedef struct PipeannFrontier
{
	uint64		results;		/* number of the nearest that are final, with those taken before */
	float		distance;		/* order key up to which all are final, or -INFINITY */
	bool		ended_early;	/* the last run: the next one explores the rest of its list */
} PipeannFrontier;

/* engine.c */
extern PipeannSearch *PipeannSearchCreate(void);
extern void PipeannSearchBegin(PipeannSearch *search,
							   const PipeannLayout *layout,
							   const PipeannCodes *codes,
							   PipeannPageSource *source, const float *query,
							   const PipeannSearchParams *params);
extern bool PipeannSearchRun(PipeannSearch *search);
extern void PipeannSearchLengthen(PipeannSearch *search, int ef);
extern PipeannFrontier PipeannSearchFrontier(const PipeannSearch *search, PipeannIterativeScan order);
extern float PipeannSearchEnter(PipeannSearch *search);
extern void PipeannSearchSetHorizon(PipeannSearch *search, float horizon);
extern const PipeannSlot *PipeannSearchLoadSlot(PipeannSearch *search,
												uint32 id);
extern const char *PipeannSearchPage(const PipeannSearch *search,
									 uint32 page);
extern void PipeannSearchReleasePages(PipeannSearch *search);

/* results.c */
extern const PipeannResult *PipeannSearchPeek(PipeannSearch *search);
extern const PipeannResult *PipeannSearchPop(PipeannSearch *search);
extern int	PipeannSearchWithin(const PipeannSearch *search, float dist);
extern int	PipeannSearchNext(PipeannSearch *search,
							  const PipeannResult **next, int n);
extern PipeannRowList PipeannSearchRows(const PipeannSearch *search, const PipeannResult *result);

/* pages.c */
extern void PipeannSearchExact(PipeannSearch *search, uint32 pages);
extern float PipeannExactDistance(const PipeannLayout *layout, const void *query,
								  const void *vector, PipeannStorage storage, float aux);

/* baton.c */
extern PipeannIdList PipeannSearchList(const PipeannSearch *search);
extern void PipeannSearchTakeIds(PipeannSearch *search, const char *ids, uint32 n);
extern void PipeannSearchStep(PipeannSearch *search, const char *ids, uint32 n, uint32 explored);

/* A search of sparse vectors reads this many times ef nodes, as their codes err by more. */
#define PIPEANN_SPARSE_READ 6

/* The cost of filter strategies, for the planner as well (engine.c). */
extern double PipeannCodeScanCost(double nodes, int columns, double share);
extern double PipeannListStretch(double share, int ef);

#endif							/* PIPEANN_SEARCH_H */
