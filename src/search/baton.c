/*
 * baton.c
 *		A search's state, for servers that have the same index and different parts of it
 *		in memory: what is known of candidates and results travels to where the pages
 *		are (BatANN), and back.
 *
 * A message has ids, and no distances of candidates: whoever gets it has the codes.
 * It is from elsewhere, so nothing in it is believed that memory depends on.
 */
#include "search/pages.h"

#include <limits.h>

#include "search/list.h"

typedef struct Head
{
	PipeannSample errors;
	float		nearest[PIPEANN_EARLY_RESULTS];
	uint32		nnearest;
	uint32		ef;
	uint32		min_list;
	uint32		length;			/* of the list */
	uint32		width;
	uint32		disabled;
	uint32		ends_early;
	uint32		reads;
	uint32		hits;
	uint32		known;			/* nodes with rows that were explored */
	uint32		nexplored;		/* ids that follow; back: explored there, */
	uint32		nopen;			/* then those of other candidates, */
	uint32		nresults;		/* then results */
} Head;

/* A result, which the TIDs of its rows follow. */
typedef struct Found
{
	float		dist;
	float		most;
	uint32		id;
	uint32		nrows;			/* 0: not all are in its slot, or known */
} Found;

#define FIRST_IDS 256

static inline uint32
Counted(uint64 n)
{
	return (uint32) Min(n, INT_MAX);
}

static int
MostFound(const PipeannSearch *search)
{
	return (int) Min(search->results.count, (uint64) search->pool.length);
}

static int
Listed(const PipeannSearch *search)
{
	return Min(search->pool.count, search->pool.length);
}

/* Room that what is exported takes, at the most. */
Size
PipeannSearchExportSize(const PipeannSearch *search)
{
	return sizeof(Head) + Listed(search) * sizeof(uint32) +
		MostFound(search) * sizeof(Found) + search->results.bytes;
}

/* Whether a candidate was explored by others. */
static bool
IsFromElsewhere(const PipeannSearch *search, uint32 id)
{
	return search->nelsewhere > 0 && PipeannIdSetHas(&search->elsewhere, id);
}

/* The candidates that are explored, or those that are not; returns how many. */
static uint32
PutIds(const PipeannSearch *search, bool back, bool explored, char **to)
{
	uint32		n = 0;

	for (int i = 0; i < Listed(search); i++)
	{
		const PipeannCandidate *item = &search->pool.items[i];

		if (item->explored != explored ||
			(back && explored && IsFromElsewhere(search, item->id)))
			continue;
		memcpy(*to, &item->id, sizeof(uint32));
		*to += sizeof(uint32);
		n++;
	}
	return n;
}

/* The nearest results, which are taken. */
static uint32
PutResults(PipeannSearch *search, char **to)
{
	int			n = MostFound(search);

	for (int i = 0; i < n; i++)
	{
		const PipeannResult *result = PipeannSearchPop(search);
		PipeannRowList rows = PipeannSearchRows(search, result);
		bool		whole = result->ext_tids == PIPEANN_INVALID_ID;
		Found		found = {
			result->dist, result->most, result->id, whole ? rows.n : 0
		};

		memcpy(*to, &found, sizeof(found));
		*to += sizeof(found);
		if (!whole)
			continue;
		memcpy(*to, rows.rows, rows.bytes);
		*to += rows.bytes;
	}
	return (uint32) n;
}

/*
 * Write what another server needs to go on with the search, or (back) what it has found
 * since it did; returns how long that is. Of an index whose rows are TIDs.
 */
Size
PipeannSearchExport(PipeannSearch *search, bool back, char *to)
{
	const PipeannTermination *termination = &search->termination;
	Head		head;
	char	   *at = to + sizeof(head);

	memset(&head, 0, sizeof(head));
	head.errors = termination->errors;
	head.nnearest = termination->count;
	for (int i = 0; i < termination->count; i++)
		head.nearest[i] = termination->nearest[i].dist;
	head.ef = search->params.ef;
	head.min_list = search->params.min_list;
	head.length = search->pool.length;
	head.width = search->params.width;
	head.disabled = search->params.disabled;
	head.ends_early = termination->on;
	head.reads = Counted(search->reads);
	head.hits = Counted(search->hits);
	head.known = Counted(search->explored);
	head.nexplored = PutIds(search, back, true, &at);
	head.nopen = PutIds(search, back, false, &at);
	head.nresults = back ? PutResults(search, &at) : 0;
	memcpy(to, &head, sizeof(head));
	return at - to;
}

/* The head of a message, if what follows may be one. */
static bool
TakeHead(const char *from, Size size, Head *head)
{
	Size		ids;

	if (size < sizeof(Head))
		return false;
	memcpy(head, from, sizeof(Head));
	ids = (Size) head->nexplored + head->nopen;
	return ids <= (size - sizeof(Head)) / sizeof(uint32) &&
		ids <= 8 * PIPEANN_MOST_LIST &&
		head->errors.n >= 0 && head->errors.n <= PIPEANN_MAX_SAMPLES &&
		head->nnearest <= PIPEANN_EARLY_RESULTS &&
		head->ef >= 1 && head->ef <= PIPEANN_MOST_LIST &&
		head->min_list <= PIPEANN_MOST_LIST &&
		head->length >= 1 && head->length <= 4 * PIPEANN_MOST_LIST &&
		head->width <= PIPEANN_MOST_LIST &&
		head->reads <= INT_MAX && head->hits <= INT_MAX &&
		head->known <= INT_MAX;
}

/* With what parameters to go on; false if it is no message. */
bool
PipeannSearchTakeParams(const char *from, Size size, PipeannSearchParams *params)
{
	Head		head;

	if (!TakeHead(from, size, &head))
		return false;
	params->ef = (int) head.ef;
	params->ef_reading = 0;
	params->min_list = (int) head.min_list;
	params->width = (int) head.width;
	params->disabled = head.disabled & PIPEANN_ALL_IDEAS;
	params->may_end_early = head.ends_early != 0;
	return true;
}

static uint32
IdAt(const char *ids, uint32 i)
{
	uint32		id;

	memcpy(&id, ids + (Size) i * sizeof(uint32), sizeof(uint32));
	return id;
}

/* Nodes that the search does not know yet become candidates. */
static void
AddIds(PipeannSearch *search, const char *ids, uint32 n)
{
	int			batch = 0;

	for (uint32 i = 0; i < n; i++)
	{
		if (batch == search->batch_size)
		{
			PipeannBatchToPool(search, batch);
			batch = 0;
		}
		batch = PipeannBatchAdd(search, batch, IdAt(ids, i));
	}
	PipeannBatchToPool(search, batch);
}

static void
BeginSet(PipeannSearch *search, PipeannIdSet *set)
{
	PipeannMemory former = PipeannMemoryEnter(search);

	PipeannIdSetReset(set, FIRST_IDS, false);
	PipeannMemoryLeave(former);
}

/* Candidates that were explored elsewhere need not be here, while the list lasts. */
static void
MarkExplored(PipeannSearch *search, const char *ids, uint32 n)
{
	PipeannPool *pool = &search->pool;

	BeginSet(search, &search->passed);
	for (uint32 i = 0; i < n; i++)
		if (IdAt(ids, i) < search->codes->ncodes)
			(void) PipeannIdSetAdd(&search->passed, IdAt(ids, i));
	if (search->nelsewhere == 0)
		BeginSet(search, &search->elsewhere);
	for (int i = 0; i < pool->count; i++)
	{
		if (pool->items[i].explored ||
			!PipeannIdSetHas(&search->passed, pool->items[i].id))
			continue;
		PipeannPoolSetExplored(pool, i);
		search->nelsewhere += PipeannIdSetAdd(&search->elsewhere,
											  pool->items[i].id);
	}
}

/*
 * A node that was found here counts as it is here, so that none comes twice. Of one with
 * rows that may not be here no more is believed than that it is near.
 */
static void
AddFound(PipeannSearch *search, const Found *found, const char *rows)
{
	const PipeannSearchParams *params = &search->params;
	PipeannRowList list = {
		(PipeannRow *) rows, found->nrows, found->nrows * sizeof(ItemPointerData)
	};
	PipeannResult result = {
		.dist = found->dist,.most = found->most,.id = found->id,
		.ext_tids = PIPEANN_INVALID_ID
	};

	if (found->id >= search->codes->ncodes || PipeannIsScored(search, found->id))
		return;
	if (params->doubt != NULL)
		params->doubt(&result, &list, params->pass_on_arg);
	if (search->ntold == 0)
		BeginSet(search, &search->told);
	if (!PipeannIdSetAdd(&search->told, found->id))
		return;
	search->ntold++;
	PipeannResultsAdd(&search->results, &result, &list);
	if (search->termination.on)
		PipeannTerminationFound(&search->termination, found->dist,
								(uint32) search->results.count - 1);
}

/* Look at results, or add them; false if they are broken. */
static bool
TakeResults(PipeannSearch *search, uint32 n, const char *from, Size size, bool add)
{
	Size		most = PipeannInlineBytes(search->layout) / sizeof(ItemPointerData);

	for (uint32 i = 0; i < n; i++)
	{
		Found		found;
		Size		rows;

		if (size < sizeof(found))
			return false;
		memcpy(&found, from, sizeof(found));
		from += sizeof(found);
		size -= sizeof(found);
		if (found.nrows > most || isnan(found.dist) || !(found.most >= found.dist))
			return false;
		rows = found.nrows * sizeof(ItemPointerData);
		if (size < rows)
			return false;
		if (add)
			AddFound(search, &found, from);
		from += rows;
		size -= rows;
	}
	return size == 0;
}

/* How far the others have come. */
static void
TakeCounts(PipeannSearch *search, const Head *head)
{
	search->reads = Max(search->reads, head->reads);
	search->hits = Max(search->hits, head->hits);
	PipeannPoolWiden(&search->pool, (int) head->length, (int) head->length);
	if (search->termination.on)
		search->termination.errors = head->errors;
}

/* What a search that begins here knows from the one that it goes on with. */
static void
TakeBeginning(PipeannSearch *search, const Head *head)
{
	PipeannTermination *termination = &search->termination;

	PipeannMakeTable(search);
	search->policy.passed_on = 1;
	PipeannListNoteFirstRead(search);
	search->has_begun = search->started = true;
	search->explored = search->matching = head->known;
	termination->count = (int) head->nnearest;
	for (int i = 0; i < termination->count; i++)
	{
		termination->nearest[i].dist = head->nearest[i];
		termination->nearest[i].told = true;	/* it is another's */
	}
}

/*
 * Have a search that has not begun go on with another server's; or (back) take what
 * that server has found and explored. False if the message is broken, or says that it
 * has explored nothing: it would be asked for the same again.
 */
bool
PipeannSearchImport(PipeannSearch *search, bool back, const char *from, Size size)
{
	Head		head;
	const char *explored = from + sizeof(head);
	const char *open;
	const char *results;
	uint32		known;

	if (!TakeHead(from, size, &head) || (!back && head.nresults > 0) ||
		(back && head.nexplored == 0))
		return false;
	size -= sizeof(head) + ((Size) head.nexplored + head.nopen) * sizeof(uint32);
	open = explored + (Size) head.nexplored * sizeof(uint32);
	results = open + (Size) head.nopen * sizeof(uint32);
	if (!TakeResults(search, head.nresults, results, size, false))
		return false;
	TakeCounts(search, &head);
	if (!back)
		TakeBeginning(search, &head);
	AddIds(search, explored, head.nexplored);
	MarkExplored(search, explored, head.nexplored);
	AddIds(search, open, head.nopen);
	(void) TakeResults(search, head.nresults, results, size, true);
	if (search->termination.on && !head.ends_early)
		PipeannListForgetEarlyEnd(search);
	known = Counted(search->explored);
	if (back && head.known > known)
	{
		known = Min(head.known - known, head.nexplored);
		search->explored += known;
		search->matching += known;
		search->known_elsewhere += known;
	}
	PipeannListSetBound(search);
	return true;
}

/* Go on with a search that was imported, as far as may be done here. */
void
PipeannSearchStep(PipeannSearch *search)
{
	search->params.policy->run(search);
	PipeannScoreRest(search);
}

/*
 * Before candidates are made of what fell out of the list: what led on from nodes that
 * were explored elsewhere did not come back, so that they are to be explored here, too.
 */
void
PipeannReopenElsewhere(PipeannSearch *search)
{
	const PipeannIdSet *set = &search->elsewhere;
	int			n = 0;

	for (uint32 i = 0; search->nelsewhere > 0 && i <= set->mask; i++)
	{
		if (set->keys[i] == PIPEANN_INVALID_ID)
			continue;
		search->batch_ids[n] = set->keys[i];
		search->batch_codes[n] = PipeannCodeAt(search->codes, set->keys[i]);
		if (++n == search->batch_size)
		{
			PipeannDiscardBatch(search, n);
			n = 0;
		}
	}
	PipeannDiscardBatch(search, n);
	search->explored -= search->known_elsewhere;
	search->matching -= search->known_elsewhere;
	search->known_elsewhere = search->nelsewhere = 0;
	search->params.pass_on = NULL;
}
