/*
 * insert.c
 *		Inserting a row: its node, code, neighbours, and the edges that lead to it.
 *
 * src/README, "insert/", gives the order of the steps and says why it is right.
 *
 * The inserts of one statement share the backend's memory, reads and cache. A
 * view is opened for each insert, which takes a thousandth of its time.
 */
#include "postgres.h"

#include <math.h>

#include "attributes/attributes.h"
#include "base/id_set.h"
#include "base/pause.h"
#include "build/build.h"
#include "distance/distance.h"
#include "distance/sparse.h"
#include "index/neighbors.h"
#include "insert/insert.h"
#include "io/io.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/memutils.h"
#include "utils/rel.h"

/*
 * One new node in this many checks how the index has grown. Not each, so that when
 * retraining fails, by statement_timeout for example, the next inserts do not fail as well.
 */
#define KEEP_UP_EVERY 256

/* Memory for inserting a row, mostly for ROW_VECTORS vectors of neighbours; and its bounds. */
#define ROW_VECTORS 1024
#define LEAST_ROW_BYTES ((Size) 512 * 1024)
#define MOST_ROW_BYTES ((Size) 8 * 1024 * 1024)

/* Candidates beyond seven tenths of ef_construction add little to lists of this length. */
#define LONG_LIST 32

/* All nodes on the pages of this many nearest nodes are candidates. */
#define NEAR_PAGES 24

typedef struct InsertState
{
	PipeannIndexView *view;
	PipeannLayout near;			/* layout with the metric by which neighbours are searched */
	const float *x;				/* the vector */
	const float *query;			/* x, normalised for cosine */
	double		norm;
	bool		out_of_line;	/* x does not fit in the storage */
	PipeannSlot *slot;			/* the new node's slot */
	const PipeannRow *row;
	const PipeannRow *whole;	/* the same row, not out of line */
	PipeannAttributes *attributes;	/* NULL if there are no attribute codes */
	uint8		code[PIPEANN_MAX_ATTRIBUTE_BYTES];	/* the row's attribute code */
	uint8	   *vector_code;	/* x's code, or NULL until it is computed */
	float		code_error;		/* squared distance of vector_code from x */
	uint32		equal;			/* a node with this vector, or INVALID_ID */
	uint64		nodes;			/* nodes of the index, with the new one */
} InsertState;

/* ---------- overflow slots ---------- */

/*
 * Try to add the row to overflow slot first of node id. Sets *number to the
 * slot's number in any case.
 */
static bool
AddToExt(PipeannIndexView *view, uint32 id, uint32 first,
		 const PipeannRow *row, uint32 *number)
{
	PipeannPageUpdate update;

	PipeannSlotBegin(view, first, &update);
	*number = update.slot->number;
	if (!PipeannSlotIsTidsOf(update.slot, id) ||
		(update.slot->flags & PIPEANN_SLOT_CLOSED) ||
		!PipeannSlotAddRow(&view->meta.layout, update.slot, row))
	{
		PipeannPageAbort(&update);
		return false;
	}
	PipeannPageEnd(&update);
	return true;
}

/*
 * Put a new overflow slot with the row in front of the node's chain, whose first
 * slot old_first has the given number. False if another insert has changed the
 * chain meanwhile or the node has died; then the new slot is emptied again.
 */
static bool
PushExt(PipeannIndexView *view, uint32 id, uint32 old_first,
		uint32 number, const PipeannRow *row)
{
	PipeannSlot *ext = PipeannSlotAlloc(&view->meta.layout);
	PipeannPageUpdate update;
	uint32		ext_id;
	bool		pushed;

	ext->flags = PIPEANN_SLOT_USED | PIPEANN_SLOT_EXT;
	ext->ext_tids = old_first;
	ext->owner = id;
	ext->number = number + 1;
	(void) PipeannSlotAddRow(&view->meta.layout, ext, row);
	ext_id = PipeannPlaceSlot(view, PIPEANN_INVALID_ID, ext);
	pfree(ext);
	PIPEANN_PAUSE("chain-slot-written");

	PipeannSlotBegin(view, id, &update);
	pushed = PipeannSlotIsLive(update.slot) && update.slot->ext_tids == old_first;
	if (pushed)
	{
		update.slot->ext_tids = ext_id;
		PipeannPageEnd(&update);
		return true;
	}
	PipeannPageAbort(&update);
	PipeannSlotBegin(view, ext_id, &update);
	update.slot->flags = 0;
	PipeannPageEnd(&update);
	return false;
}

/*
 * Add a row to node id, inline if there is room, else in an overflow slot.
 * False if the node has died meanwhile.
 */
static bool
JoinNode(PipeannIndexView *view, uint32 id, const PipeannRow *row)
{
	const PipeannLayout *l = &view->meta.layout;

	for (;;)
	{
		PipeannPageUpdate update;
		uint32		first;
		uint32		number = 0;

		CHECK_FOR_INTERRUPTS();
		/* notes a change of the node, wherever the row is stored */
		PipeannSlotBegin(view, id, &update);
		if (!PipeannSlotIsLive(update.slot))
		{
			PipeannPageAbort(&update);
			return false;
		}
		if (PipeannSlotAddRow(l, update.slot, row))
		{
			PipeannPageEnd(&update);
			return true;
		}
		first = update.slot->ext_tids;
		PipeannPageAbort(&update);
		PIPEANN_PAUSE("chain-first-read");
		if (first != PIPEANN_INVALID_ID &&
			AddToExt(view, id, first, row, &number))
			return true;
		if (PushExt(view, id, first, number, row))
			return true;
	}
}

/* The part of a whole vector that is stored out of line. */
static const float *
OutOfLine(const PipeannLayout *l, const float *x)
{
	return PipeannIsSparse(l->storage) ? PipeannSparseBehind(x) : x;
}

/*
 * Write data to overflow slots, for a vector or a row that does not fit a
 * node's slot; returns the first one.
 *
 * The last part is written first, so that each slot can have the id of the next.
 */
static uint32
WriteParts(PipeannIndexView *view, const void *data, Size total)
{
	const PipeannLayout *l = &view->meta.layout;
	Size		part_size = PipeannPartBytes(l);
	uint32		parts = PipeannPartsOf(l, total);
	uint32		next = PIPEANN_INVALID_ID;

	while (parts-- > 0)
	{
		PipeannSlot *ext = PipeannSlotAlloc(l);

		ext->flags = PIPEANN_SLOT_USED | PIPEANN_SLOT_EXT;
		ext->length = Min(part_size, total - parts * part_size);
		ext->ext_vec = next;
		memcpy(PipeannSlotBody(ext), (const char *) data + parts * part_size,
			   ext->length);
		next = PipeannPlaceSlot(view, PIPEANN_INVALID_ID, ext);
		pfree(ext);
	}
	return next;
}

/*
 * A row in the form in which a slot stores it: the row itself, or what
 * replaces it after this has written it to overflow slots.
 */
static const PipeannRow *
StoreRow(PipeannIndexView *view, const PipeannRow *row)
{
	PipeannRowOutOfLine *out_of_line;

	if (!PipeannRowIsLong(&view->meta.layout, row))
		return row;
	out_of_line = palloc(sizeof(PipeannRowOutOfLine));
	*out_of_line = PipeannRowSetOutOfLine(row, WriteParts(view, row,
														  row->info & PIPEANN_ROW_SIZE));
	return &out_of_line->row;
}

/* ---------- candidates for neighbours ---------- */

/*
 * Candidates for a node's neighbours, nearest first; behind them other nodes
 * that were looked at.
 */
typedef struct LinkSet
{
	const PipeannIndexView *view;
	uint32		id;				/* the node, or INVALID_ID if it has none yet */
	int			n;
	int			ncandidates;
	int			size;			/* of the arrays */
	PipeannPairFn pair;			/* compares two of the vectors */
	int			dim;			/* elements of each */
	void	   *self;			/* the node's vector */
	uint32	   *ids;			/* [n] */
	float	   *dists;			/* [n] from self */
	void	  **vectors;		/* [n] embedded, or as bytes: ToBytes() */
	char	   *lists;			/* [ncandidates] slots with their lists, as the search
								 * saw them */
	PipeannIdSet numbers;		/* id -> number in the set, while edges are made */
	int			needed;			/* neighbours at the front of the list that pruning
								 * kept; the others only fill it */
	uint32		roomy_page;		/* page of the nearest candidate whose page has
								 * a free slot, or INVALID_ID */
	float	   *x;				/* work space, one vector */
} LinkSet;

/*
 * Candidates to look at, as a multiple of ef_construction. Wide vectors get as many as
 * in a build: more do not lead to better neighbours, and pruning takes twice as long.
 */
#define MAX_CANDIDATES_FACTOR 2

/* Candidates whose pages are always checked for room. */
#define NEAR_CANDIDATES 32

/* The option, which may have been changed since the build. */
static int
EfConstruction(const PipeannIndexView *view)
{
	return Max(PipeannIndexOptions(view->index)->ef_construction,
			   view->meta.layout.max_degree);
}

/* Whether vectors are wide, that is quantised: few fit on a page. */
static bool
IsWide(const PipeannLayout *l)
{
	return PipeannSqBits(l->storage) > 0;
}

/* Bytes of a slot up to the end of its list, which a set keeps of each candidate. */
static Size
ListBytes(const PipeannLayout *l)
{
	return PIPEANN_SLOT_HEADER + mul_size(l->max_degree, sizeof(uint32));
}

static PipeannSlot *
SlotSeen(const LinkSet *set, int i)
{
	return (PipeannSlot *) (set->lists + i * ListBytes(&set->view->meta.layout));
}

/*
 * The slot of candidate id, or NULL. If wants_room, its page is noted as roomy_page
 * if it has room. A page that the search does not hold is read into buffer.
 */
static const PipeannSlot *
SlotAtHand(LinkSet *set, PipeannSearch *search, uint32 id, bool wants_room, char *buffer)
{
	const PipeannLayout *l = &set->view->meta.layout;
	uint32		page = PipeannIdPage(l, id);
	const PipeannSlot *slot = wants_room ? NULL : PipeannSearchLoadSlot(search, id);
	const char *nodes;

	if (slot != NULL)
		return slot;
	nodes = PipeannSearchPage(search, page);
	if (nodes == NULL && !PipeannGraphPageCopy(set->view, page, buffer))
		return NULL;
	nodes = nodes == NULL ? buffer : nodes;
	for (uint32 i = 0; wants_room && i < l->slots_per_page; i++)
		if (!(PipeannSlotAt(l, nodes, i)->flags & PIPEANN_SLOT_USED))
			set->roomy_page = page;
	return PipeannSlotAt(l, nodes, PipeannIdSlot(l, id));
}

/* Add a node, with its distance from self. Keeps the pointer. Returns its number. */
static int
AddNode(LinkSet *set, uint32 id, void *vector)
{
	if (set->n == set->size)
	{
		set->size *= 2;
		set->ids = repalloc(set->ids, mul_size(set->size, sizeof(uint32)));
		set->dists = repalloc(set->dists, mul_size(set->size, sizeof(float)));
		set->vectors = repalloc(set->vectors, mul_size(set->size, sizeof(void *)));
	}
	set->ids[set->n] = id;
	set->vectors[set->n] = vector;
	set->dists[set->n] = set->pair(set->self, vector, set->dim);
	return set->n++;
}

/* Bytes cover this many standard deviations of the elements of the farthest candidate. */
#define DEVIATIONS 6
#define MOST_BYTE 127

/*
 * Compare wide vectors as bytes: their differences from the node's vector, in a scale in which
 * the farthest fits. They are rotated, so their elements are of similar size. Distances from
 * the node remain exact, as these decide which candidates are nearer.
 */
static void
ToBytes(LinkSet *set)
{
	int16	   *fixed = palloc(mul_size(set->dim, sizeof(int16)));
	float		farthest = 0;
	float		scale;

	for (int i = 0; i < set->n; i++)
		farthest = Max(farthest, set->dists[i]);
	scale = MOST_BYTE / (DEVIATIONS * sqrtf(farthest / set->dim));
	if (!isfinite(scale) || !isfinite(farthest))
		return;
	set->pair = PipeannKernel->l2_pair[PIPEANN_INT8];
	for (int i = 0; i < set->n; i++)
	{
		int8	   *restrict bytes = palloc(set->dim);

		PipeannKernel->to_fixed(set->vectors[i], set->self, scale, set->dim, fixed);
		/* sixteen at a time (PipeannSqSuits()), so that compilers vectorise it */
		for (int d = 0; d < set->dim; d += 16)
			for (int k = d; k < d + 16; k++)
			{
				int16		most = Min(fixed[k], MOST_BYTE);

				bytes[k] = (int8) Max(most, -MOST_BYTE);
			}
		set->vectors[i] = bytes;
		set->dists[i] *= scale * scale;
	}
}

/*
 * Make a set of the nearest results of a search, for a node with this slot and vector. Pages
 * that the search does not hold, as after PipeannSearchExact(), are read.
 */
static LinkSet *
LinkCandidates(const PipeannIndexView *view, PipeannSearch *search, const float *x, float aux)
{
	const PipeannLayout *l = &view->meta.layout;
	int			most = EfConstruction(view) * (IsWide(l) ? 1 : MAX_CANDIDATES_FACTOR);
	LinkSet    *set = palloc0(sizeof(LinkSet));
	char	   *buffer = palloc((Size) l->node_pages * PIPEANN_PAYLOAD);

	set->view = view;
	set->id = set->roomy_page = PIPEANN_INVALID_ID;
	set->pair = PipeannEmbeddedPair(l);
	set->dim = PipeannEmbeddedDim(l->metric, l->dim);
	set->size = most;
	set->ids = palloc(mul_size(most, sizeof(uint32)));
	set->dists = palloc(mul_size(most, sizeof(float)));
	set->vectors = palloc(mul_size(most, sizeof(void *)));
	set->lists = palloc(mul_size(most, ListBytes(l)));
	set->x = palloc(mul_size(l->dim, sizeof(float)));
	set->self = palloc(PipeannEmbeddedBytes(l));
	PipeannEmbed(view, x, aux, set->self);
	for (int i = 0;; i++)
	{
		bool		wants_room = set->roomy_page == PIPEANN_INVALID_ID && l->node_pages == 1 &&
			(i < NEAR_CANDIDATES || PipeannHasSpareSlots(view));
		const PipeannResult *result = set->n < most || wants_room ? PipeannSearchPop(search) : NULL;
		const PipeannSlot *slot;

		CHECK_FOR_INTERRUPTS();
		if (result == NULL)
			break;
		slot = SlotAtHand(set, search, result->id, wants_room, buffer);
		if (set->n < most && slot != NULL && PipeannSlotIsLive(slot))
		{
			void	   *vector = palloc(PipeannEmbeddedBytes(l));

			PipeannEmbedSlot(view, result->id, slot, true, set->x, vector);
			memcpy(SlotSeen(set, set->n), slot, ListBytes(l));
			(void) AddNode(set, result->id, vector);
		}
	}
	set->ncandidates = set->n;
	/* an embedded vector for inner product has one more element, which is not rotated */
	if (IsWide(l) && set->dim == l->dim)
		ToBytes(set);
	pfree(buffer);
	return set;
}

/* Candidates are numbered from the last one. */
static float
CandidateDistance(uint32 a, uint32 b, void *arg)
{
	const LinkSet *set = arg;
	int			last = set->n - 1;

	return set->pair(set->vectors[last - a], set->vectors[last - b], set->dim);
}

/*
 * Prune the set into slot's neighbour list: first the neighbours that pruning keeps, then the
 * nearest of the others. The node itself, which the search finds if an earlier insert of it was
 * interrupted, is skipped.
 *
 * Of equally far candidates pruning takes the one with the lowest number,
 * which is the last. So where rounding makes many vectors equal, each leads to
 * the one before: the list of the first would have no room for all.
 */
static void
PruneCandidates(LinkSet *set, PipeannSlot *slot)
{
	const PipeannLayout *l = &set->view->meta.layout;
	PipeannPruneParams params = {PIPEANN_ALPHA, l->max_degree};
	uint32	   *numbers = palloc(mul_size(set->n + 1, sizeof(uint32)));
	float	   *dists = palloc(mul_size(set->n + 1, sizeof(float)));
	int			n = 0;

	for (int i = 0; i < set->n; i++)
	{
		if (set->ids[i] == set->id)
			continue;
		numbers[n] = set->n - 1 - i;
		dists[n++] = set->dists[i];
	}
	set->needed = PipeannRobustPrune(numbers, dists, n, &params, CandidateDistance, set,
									 slot->neighbors);
	for (int i = 0; i < set->needed; i++)
		slot->neighbors[i] = set->ids[set->n - 1 - slot->neighbors[i]];
	slot->degree = set->needed;

	/* candidates are sorted, nearest first */
	for (int i = 0; i < set->n && slot->degree < l->max_degree; i++)
		if (set->ids[i] != set->id &&
			!PipeannListHas(slot->neighbors, set->needed, set->ids[i]))
			slot->neighbors[slot->degree++] = set->ids[i];
	pfree(numbers);
	pfree(dists);
}

/* ---------- edges that lead to a node ---------- */

/* What may be done to a target's list to make the edge. */
typedef enum Effort
{
	PIPEANN_IF_ROOM,			/* a full list stays as it is */
	PIPEANN_REPLACE,			/* if the node makes a neighbour superfluous */
	PIPEANN_FORCE				/* the edge is made in any case */
} Effort;

/* Initial room of the set's numbers by id. */
#define FIRST_NUMBERS 512

/*
 * An edge that need not be made is given up after this many tries. Each time
 * that it fails, another backend has made its change.
 */
#define MAX_TRIES 3

/*
 * Get the list of target, without the rest of its slot: from its page if reread, else
 * the search's copy if there is one. If the list has changed since it was copied, the
 * edge is not made, but tried again.
 */
static void
GetList(const LinkSet *set, uint32 target, bool reread, PipeannSlot *slot)
{
	uint32		at;

	if (!reread && PipeannIdSetGet(&set->numbers, target, &at) && (int) at < set->ncandidates)
		memcpy(slot, SlotSeen(set, at), ListBytes(&set->view->meta.layout));
	else
		PipeannSlotCopy(set->view, target, slot);
}

/* Whether a node's first neighbour, mostly its nearest one, is target. */
static bool
IsFirstNeighbor(const LinkSet *set, uint32 id, uint32 target)
{
	const PipeannLayout *l = &set->view->meta.layout;
	PipeannSlot *slot;
	bool		first;

	if (id >= PipeannViewIds(set->view))
		return true;
	slot = PipeannSlotAlloc(l);
	GetList(set, id, false, slot);
	first = PipeannSlotIsNode(slot) && PipeannSlotDegree(l, slot) > 0 &&
		slot->neighbors[0] == target;
	pfree(slot);
	return first;
}

/* Add those of ids[n] to the set that are not in it, decoded from their codes if there are any. */
static void
LookAt(LinkSet *set, const uint32 *ids, int n)
{
	const PipeannCodes *codes = &set->view->codes;
	bool		has_codes = set->view->cache != NULL;
	uint32		wanted[PG_UINT8_MAX];
	const uint8 *found[PG_UINT8_MAX];
	int			nwanted = 0;
	uint32		at;

	for (int i = 0; i < n; i++)
		if (!PipeannIdSetGet(&set->numbers, ids[i], &at) &&
			(!has_codes || ids[i] < codes->ncodes))
			wanted[nwanted++] = ids[i];
	if (has_codes)
	{
		PipeannGatherCodes(codes, wanted, nwanted, found);
		for (int i = 0; i < nwanted; i++)
			for (int c = PIPEANN_CACHE_LINE; c < codes->pq.nsubvectors; c += PIPEANN_CACHE_LINE)
				__builtin_prefetch(found[i] + c);
	}
	for (int i = 0; i < nwanted; i++)
	{
		void	   *vector = palloc(PipeannEmbeddedBytes(&set->view->meta.layout));

		if (PipeannEmbedNode(set->view, wanted[i], set->x, vector))
			PipeannIdSetPut(&set->numbers, wanted[i], AddNode(set, wanted[i], vector));
	}
}

/* The neighbours of a full list: their numbers in the set, and distances, infinite if not known. */
typedef struct FullList
{
	uint32		numbers[PG_UINT8_MAX];
	float		from_target[PG_UINT8_MAX];
	float		from_node[PG_UINT8_MAX];
} FullList;

/*
 * Measure the full list of edge->target, number `target` of the set. Returns the position of the
 * neighbour that gives way to the node, or less than 0. One whose own nearest neighbour is the
 * target stays: the edge may be the only one that leads to it.
 */
static int
GivesWay(const LinkSet *set, const PipeannListChange *edge, uint32 target, FullList *list)
{
	int			place;

	for (int i = 0; i < edge->n; i++)
	{
		uint32	   *other = &list->numbers[i];

		list->from_node[i] = list->from_target[i] = INFINITY;
		if (!PipeannIdSetGet(&set->numbers, edge->list[i], other))
			continue;
		list->from_node[i] = set->dists[*other];
		list->from_target[i] = set->pair(set->vectors[target], set->vectors[*other], set->dim);
	}
	while ((place = PipeannGivesWay(list->from_target, list->from_node, edge->n,
									set->dists[target])) >= 0 &&
		   IsFirstNeighbor(set, edge->list[place], edge->target))
		list->from_node[place] = INFINITY;
	return place;
}

/*
 * Remove neighbours that others make superfluous by RobustPrune's rule, and that
 * only fill the list, from the last one on, until it has no more than `most`.
 */
static void
MakeRoom(const LinkSet *set, PipeannListChange *edge, FullList *list, int most)
{
	float	   *dists = list->from_target;

	for (int i = edge->n - 1; i > 0 && edge->n > most; i--)
	{
		bool		superfluous = false;

		for (int j = 0; j < edge->n && isfinite(dists[i]) && !superfluous; j++)
			superfluous = j != i && dists[j] <= dists[i] &&
				PIPEANN_ALPHA * set->pair(set->vectors[list->numbers[i]],
										  set->vectors[list->numbers[j]], set->dim) <= dists[i];
		if (!superfluous || IsFirstNeighbor(set, edge->list[i], edge->target))
			continue;
		edge->n--;
		edge->list[i] = edge->list[edge->n];
		list->numbers[i] = list->numbers[edge->n];
		dists[i] = dists[edge->n];
	}
}

/* What is left of a full list that has to take a node, so that the next edges find room, too. */
#define ROOM_LEFT(n) ((n) * 3 / 4)

/*
 * The position that the node takes in a full list, or less than 0 if none. Candidates decide
 * it if they can. If not, the neighbours are measured as well, except wide vectors, which
 * are far from the node and have long codes. If none gives way to the node, and none makes
 * it superfluous, a neighbour that others make superfluous has to go.
 */
static int
PlaceInFull(LinkSet *set, bool forced, PipeannListChange *edge)
{
	const PipeannLayout *l = &set->view->meta.layout;
	FullList	list;			/* of 2 kB, so not zeroed */
	uint32		target;
	int			place;

	if (!IsWide(l))
		LookAt(set, &edge->target, 1);
	if (!PipeannIdSetGet(&set->numbers, edge->target, &target))
		return forced ? edge->n - 1 : PIPEANN_SUPERFLUOUS;
	place = GivesWay(set, edge, target, &list);
	if (place == PIPEANN_UNDECIDED && !IsWide(l))
	{
		LookAt(set, edge->list, edge->n);
		place = GivesWay(set, edge, target, &list);
	}
	if (place == PIPEANN_UNDECIDED || (place < 0 && forced))
	{
		MakeRoom(set, edge, &list, forced ? ROOM_LEFT(edge->n) : edge->n - 1);
		if (edge->n < l->max_degree)
			place = edge->n++;
	}
	return place < 0 && forced ? edge->n - 1 : place;
}

/*
 * Plan an edge from target on a copy of its list (GetList()). False if there is to be none: no
 * neighbour gives way, or target is no node.
 */
static bool
PlanEdge(LinkSet *set, uint32 target, Effort effort, bool reread, PipeannListChange *edge)
{
	const PipeannLayout *l = &set->view->meta.layout;
	int			place;

	edge->target = target;
	edge->done = false;
	edge->seen = PipeannSlotAlloc(l);
	edge->list = palloc(l->max_degree * sizeof(uint32));
	GetList(set, target, reread, edge->seen);
	if (!PipeannSlotIsNode(edge->seen) || target == set->id)
		return false;
	edge->n = PipeannSlotDegree(l, edge->seen);
	memcpy(edge->list, edge->seen->neighbors, edge->n * sizeof(uint32));
	if (PipeannListHas(edge->list, edge->n, set->id))
		return true;
	if (edge->n < l->max_degree)
		place = edge->n++;
	else
		place = effort == PIPEANN_IF_ROOM ? -1 : PlaceInFull(set, effort == PIPEANN_FORCE, edge);
	if (place >= 0)
		edge->list[place] = set->id;
	return place >= 0;
}

/* Make one edge, and try again while other backends change the list. */
static void
LinkBack(LinkSet *set, uint32 target, Effort effort)
{
	PipeannListChange edge = {.done = false};

	for (int i = 0; (i < MAX_TRIES || effort == PIPEANN_FORCE) && !edge.done &&
		 PlanEdge(set, target, effort, true, &edge); i++)
		PipeannChangeLists(set->view, &edge, 1, NULL);
}

/*
 * Make the edges that lead to the node from the neighbours in its list, which were chosen from
 * the set. The nearest one always takes the node, so that some edge leads to it. A node without
 * neighbours, as in an index just emptied, is led to by the dead node that the entries share.
 */
static void
LinkNode(LinkSet *set, const PipeannSlot *slot)
{
	int			degree = PipeannSlotDegree(&set->view->meta.layout, slot);
	PipeannListChange *edges = palloc(degree * sizeof(PipeannListChange));
	int			n = 0;

	PipeannIdSetReset(&set->numbers, FIRST_NUMBERS, true);
	for (int i = 0; i < set->n; i++)
		PipeannIdSetPut(&set->numbers, set->ids[i], i);
	if (degree == 0 && set->view->cache != NULL)
		LinkBack(set, set->view->codes.entry_ids[0], PIPEANN_FORCE);
	for (int i = 0; i < degree; i++)
		if (PlanEdge(set, slot->neighbors[i], i == 0 ? PIPEANN_FORCE :
					 i < set->needed ? PIPEANN_REPLACE : PIPEANN_IF_ROOM, false, &edges[n]))
			n++;
	PipeannChangeLists(set->view, edges, n, NULL);
	for (int i = 0; i < n; i++)
		if (!edges[i].done)
			LinkBack(set, edges[i].target, edges[i].target == slot->neighbors[0] ?
					 PIPEANN_FORCE : PIPEANN_REPLACE);
}

/* ---------- the search ---------- */

/* Fill the slot except for neighbours and overflow slots. */
static void
FillSlot(InsertState *state)
{
	const PipeannMeta *meta = &state->view->meta;
	const PipeannLayout *l = &meta->layout;
	PipeannSlot *slot = PipeannSlotAlloc(l);

	state->out_of_line = PipeannIsOutOfLine(meta, state->x, state->norm);
	if (state->out_of_line && !(meta->flags & PIPEANN_META_AUTO_STORAGE))
		ereport(ERROR,
				(errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
				 errmsg("vector does not fit the storage of index \"%s\"",
						RelationGetRelationName(state->view->index)),
				 errdetail("Storage int8 holds whole numbers from -128 to 127, uint8 from 0 to 255."),
				 errhint("Use storage = auto or float4.")));
	slot->flags = PIPEANN_SLOT_USED |
		(state->out_of_line ? PIPEANN_SLOT_OUT_OF_LINE : 0);
	slot->aux = l->metric == PIPEANN_COSINE ?
		PipeannAux(l->metric, state->norm, 0) : 0;
	(void) PipeannSlotAddRow(l, slot, state->row);
	PipeannVectorFromFloat(state->x, l->storage, l->dim,
						   PipeannSlotVector(l, slot));
	if (PipeannIsRounded(l) && !state->out_of_line)
	{
		PipeannRounding rounding;

		PipeannRound(state->x, state->norm, PipeannSlotVector(l, slot), l->storage,
					 l->dim, &rounding);
		PipeannSlotSetRounding(slot, &rounding);
	}
	if (state->out_of_line && PipeannIsSparse(l->storage))
		slot->length = PipeannSparseWords(PipeannSparseBehind(state->x));
	state->slot = slot;
}

/*
 * Whether a node is live and has exactly this vector. Out-of-line nodes, with
 * a rounded vector in the slot, are compared by their exact ones; for rounded
 * vectors the hashes are compared.
 */
static bool
SameVector(const InsertState *state, uint32 id, const PipeannSlot *slot)
{
	const PipeannLayout *l = &state->view->meta.layout;
	Size		size = PipeannVectorBytes(l->storage, l->dim);
	Size		bytes = PipeannOutOfLineBytes(l, state->slot);
	float	   *full;
	bool		same;

	if (!PipeannSlotIsLive(slot) ||
		((slot->flags & PIPEANN_SLOT_OUT_OF_LINE) != 0) != state->out_of_line ||
		memcmp(PipeannSlotVector(l, slot), PipeannSlotVector(l, state->slot),
			   size) != 0)
		return false;
	if (!state->out_of_line)
		return PipeannSlotError(l, slot) == 0 ||
			slot->hash == state->slot->hash;
	full = palloc(mul_size(PipeannFloats(l->storage, l->dim), sizeof(float)));
	same = PipeannOutOfLineBytes(l, slot) == bytes &&
		PipeannChainVector(state->view, id, slot, full) &&
		memcmp(OutOfLine(l, full), OutOfLine(l, state->x), bytes) == 0;
	pfree(full);
	return same;
}

static float
OutOfLineDistance(uint32 id, const PipeannSlot *slot, void *arg)
{
	InsertState *state = arg;
	const PipeannLayout *l = &state->near;
	float	   *full = palloc(mul_size(PipeannFloats(l->storage, l->dim),
									   sizeof(float)));
	float		dist;

	dist = !PipeannChainVector(state->view, id, slot, full) ? INFINITY :
		PipeannWholeDistance(l, state->query, full, slot->aux);
	pfree(full);
	return dist;
}

static bool
EndsAtEqual(uint32 id, const PipeannSlot *slot, void *arg)
{
	InsertState *state = arg;

	if (!SameVector(state, id, slot))
		return false;
	state->equal = id;
	return true;
}

/* Below and above these norms squares of elements underflow or overflow single precision. */
#define LEAST_NORM 1e-18
#define MOST_NORM 1e18

/*
 * Find candidates for neighbours. If ends_at is EndsAtEqual, and the search meets a node
 * with exactly this vector, it ends: returns NULL, and sets state->equal to the node. If
 * squares underflow or overflow, all nodes are scored: codes and edges lead nowhere.
 */
static LinkSet *
FindCandidates(InsertState *state, PipeannMatches ends_at)
{
	PipeannIndexView *view = state->view;
	int			ef = EfConstruction(view);
	int			degree = view->meta.layout.max_degree;
	PipeannCounters counters = {0};
	PipeannPageSource *source = PipeannViewSource(view, &counters);
	PipeannSearchParams params = {
		.policy = PipeannPolicies[PIPEANN_DEFAULT_MODE],
		.ef = degree < LONG_LIST ? ef : Min(ef, Max(ef * 7 / 10, 2 * degree)),
		.near_pages = IsWide(&state->near) ? 0 : NEAR_PAGES,
		.max_pages = PG_INT32_MAX,
		.out_of_line_distance = OutOfLineDistance,
		.ends_at = ends_at,
		.arg = state
	};
	bool		exact = view->cache == NULL ||
		(state->norm > 0 && state->norm < LEAST_NORM) || state->norm > MOST_NORM;
	PipeannSearch *search = PipeannReuseSearch();
	LinkSet *set = NULL;

	state->equal = PIPEANN_INVALID_ID;
	PipeannSearchBegin(search, &state->near, exact ? NULL : &view->codes, source,
					   state->query, &params);
	if (exact)
		PipeannSearchExact(search, PipeannViewPages(view));
	else
		(void) PipeannSearchRun(search);
	if (state->equal == PIPEANN_INVALID_ID)
		set = LinkCandidates(view, search, state->x, state->slot->aux);
	PipeannSourceClose(source);
	return set;
}

/* The code of x; sets code_error. */
static const uint8 *
OwnCode(InsertState *state)
{
	const PipeannPq *pq = &state->view->codes.pq;

	if (state->vector_code == NULL)
	{
		state->vector_code = palloc(pq->nsubvectors);
		state->code_error = PipeannPqEncode(pq, state->query, state->vector_code);
	}
	return state->vector_code;
}

/* A code's error counts as at most this many times the mean error. */
#define MOST_STRAYED 9.0

/*
 * Write a node's code, if there are codes, note its page and, if it is new, the node in the
 * metapage; then follow that in memory.
 */
static void
WriteCode(InsertState *state, uint32 id, bool is_new)
{
	PipeannIndexView *view = state->view;
	bool		has_codes = view->cache != NULL;
	PipeannNodeCode node = {.attributes = state->attributes,.view = view,.mix = true};
	PipeannMetaUpdate update;
	PipeannMeta *meta;

	if (has_codes)
	{
		if (state->attributes != NULL)
			(void) PipeannNodeCodeMake(&node, id);
		(void) PipeannChangeCode(view, id, OwnCode(state), state->attributes == NULL ? NULL :
								 PipeannNodeCodePut, &node);
	}
	PIPEANN_PAUSE("code-not-noted");
	PipeannMetaBegin(view->index, &update);
	meta = update.meta;
	if (has_codes)
		PipeannMetaNoteChange(meta, id / PipeannCodesPerPage(&meta->layout));
	if (is_new)
	{
		/* no other insert gets this number */
		state->nodes = ++meta->nodes;
		meta->inserted++;
	}
	if (is_new && has_codes && meta->code_error > 0)
		meta->strayed += Min(state->code_error / meta->code_error, MOST_STRAYED) - 1;
	PipeannMetaEnd(&update);
	PipeannRefreshView(view);
}

/* Make a code cover the row, too; one that was not written yet then covers everything. */
static void
MergeRow(uint32 id, uint8 *code, void *arg)
{
	InsertState *state = arg;

	PipeannAttributesMerge(state->attributes, state->code, code);
}

/* After a row has joined a node, make the node's code cover it. */
static void
CoverRow(InsertState *state, uint32 id)
{
	PipeannIndexView *view = state->view;
	const PipeannLayout *l = &view->meta.layout;

	if (state->attributes == NULL)
		return;
	PipeannAttributesEncode(state->attributes, id, state->whole, state->code);
	if (view->cache != NULL &&
		PipeannChangeCode(view, id, NULL, MergeRow, state))
	{
		uint32		page = id / PipeannCodesPerPage(l);

		PipeannNoteCodePages(view, &page, 1);
	}
}

/*
 * Whether a node with the row's vector has the vector's code, or one that is as near but for
 * rounding. If not, its insert ended by an error or a crash before the code was written.
 */
static bool
HasOwnCode(InsertState *state, uint32 id)
{
	const PipeannCodes *codes = &state->view->codes;
	const PipeannPq *pq = &codes->pq;
	float	   *decoded;
	float		slack = 1e-5f * PipeannKernel->dot[PIPEANN_FLOAT4] (state->query, state->query,
																   pq->dim);

	if (id >= codes->ncodes)
		return false;
	(void) OwnCode(state);
	decoded = palloc(mul_size(pq->dim, sizeof(float)));
	PipeannPqDecode(pq, PipeannCodeAt(codes, id), decoded);
	return !(PipeannKernel->l2[PIPEANN_FLOAT4] (state->query, decoded, pq->dim) >
			 1.01f * state->code_error + slack);
}

/*
 * Join the node with the row's vector, if one was found and is live. If the
 * node's own insert was interrupted, link and encode it.
 */
static bool
JoinEqual(InsertState *state)
{
	uint32		equal = state->equal;

	if (equal == PIPEANN_INVALID_ID || !JoinNode(state->view, equal, state->row))
		return false;
	CoverRow(state, equal);
	if (state->view->cache != NULL && !HasOwnCode(state, equal))
	{
		LinkSet    *set = FindCandidates(state, NULL);

		set->id = equal;
		PruneCandidates(set, state->slot);
		LinkNode(set, state->slot);
		WriteCode(state, equal, false);
	}
	return true;
}

/* Insert a row with vector x[dim]. Returns whether to check how the index has grown. */
static bool
InsertVector(PipeannIndexView *view, const float *x, double norm,
			 const PipeannRow *row)
{
	InsertState state = {
		.view = view,.x = x,.query = x,.norm = norm,.whole = row
	};
	const PipeannLayout *l = &view->meta.layout;
	LinkSet *set;

	state.row = StoreRow(view, row);
	state.attributes = PipeannAttributesOfView(view);
	if (l->metric == PIPEANN_COSINE)
	{
		float	   *query = palloc(mul_size(PipeannFloats(l->storage, l->dim),
											sizeof(float)));

		PipeannQueryOf(l, x, query);
		state.query = query;
	}
	/* for inner product the metapage keeps the largest norm */
	if (l->metric == PIPEANN_IP && (float) norm > view->meta.max_norm)
	{
		PipeannMetaUpdate update;

		PipeannMetaBegin(view->index, &update);
		update.meta->max_norm = Max(update.meta->max_norm, (float) norm);
		PipeannMetaEnd(&update);
		PipeannRefreshView(view);
	}
	FillSlot(&state);

	/*
	 * By inner product near nodes are wanted, not those of the largest products, which are
	 * always the long vectors. An empty set is as far as can be from every set by Jaccard
	 * distance, even from an equal one.
	 */
	state.near = *l;
	if (l->metric == PIPEANN_IP)
		state.near.metric = PIPEANN_L2;
	else if (l->metric == PIPEANN_JACCARD && norm == 0)
		state.near.metric = PIPEANN_HAMMING;
	set = FindCandidates(&state, EndsAtEqual);
	PIPEANN_PAUSE("insert-searched");
	if (JoinEqual(&state))
		return false;
	if (set == NULL)
		set = FindCandidates(&state, NULL);
	PruneCandidates(set, state.slot);
	if (state.out_of_line)
		state.slot->ext_vec = WriteParts(view, OutOfLine(l, x),
										 PipeannOutOfLineBytes(l, state.slot));
	PIPEANN_PAUSE("insert-out-of-line-written");
	set->id = PipeannPlaceSlot(view, set->roomy_page, state.slot);
	PIPEANN_PAUSE("insert-node-written");
	LinkNode(set, state.slot);
	WriteCode(&state, set->id, true);
	return state.nodes % KEEP_UP_EVERY == 0;
}

static MemoryContext row_context = NULL;
static bool row_context_in_use = false;
static Size row_bytes;

static void
EmptyRow(void *context)
{
	MemoryContextReset(context);
	row_context_in_use = false;
}

/*
 * The memory context for one row, reset when owner is reset or deleted. The
 * backend keeps it, since pages returned to the operating system would have to
 * be mapped and zeroed again for the next row. An insert within an insert, by
 * a function that compares values, gets a context of its own.
 */
static MemoryContext
RowContext(MemoryContext owner, int dim)
{
	Size		wanted = mul_size(dim, ROW_VECTORS * sizeof(float));
	Size		bytes = Min(Max(wanted, LEAST_ROW_BYTES), MOST_ROW_BYTES);
	MemoryContextCallback *callback;

	if (row_context_in_use)
		return owner;
	callback = MemoryContextAlloc(owner, sizeof(MemoryContextCallback));
	if (row_context != NULL && bytes > row_bytes)
	{
		MemoryContextDelete(row_context);
		row_context = NULL;
	}
	if (row_context == NULL)
	{
		row_context = AllocSetContextCreate(TopMemoryContext, "pipeann row",
											bytes, bytes, bytes);
		row_bytes = bytes;
	}
	Assert(MemoryContextIsEmpty(row_context));
	callback->func = EmptyRow;
	callback->arg = row_context;
	MemoryContextRegisterResetCallback(owner, callback);
	row_context_in_use = true;
	return row_context;
}

/*
 * Note that a row cannot be indexed. Scans that see it after its commit read
 * the metapage after this.
 */
static void
NoteLeftOut(Relation index)
{
	PipeannMetaUpdate update;
	PipeannMeta meta;

	PipeannMetaRead(index, &meta);
	if (!(meta.flags & PIPEANN_META_ALL_ROWS))
		return;
	PipeannMetaBegin(index, &update);
	update.meta->flags &= ~PIPEANN_META_ALL_ROWS;
	PipeannMetaEnd(&update);
}

bool
pipeanninsert(Relation index, Datum *values, bool *isnull,
			  ItemPointer heap_tid, Relation heap,
			  IndexUniqueCheck check_unique, bool index_unchanged,
			  IndexInfo *index_info)
{
	PipeannColumns columns = {.vector = PipeannVectorPosition(index)};
	int			dim = PipeannIndexLayoutDim(index);
	MemoryContext context;
	MemoryContext old;
	PipeannIndexView view;
	const PipeannRow *row;
	const float *x;
	double		norm;
	bool		grown = false;

	if (isnull[columns.vector])
	{
		NoteLeftOut(index);
		return false;
	}
	context = AllocSetContextCreate(CurrentMemoryContext, "pipeann insert",
									ALLOCSET_DEFAULT_SIZES);
	old = MemoryContextSwitchTo(context);
	x = PipeannRowElements(PipeannIndexType(index), values[columns.vector], dim);
	norm = PipeannNorm(x, dim);
	columns = PipeannIndexColumns(index);
	row = PipeannFormRow(&columns, values, isnull, heap_tid);
	LockPage(index, PIPEANN_METAPAGE, ShareLock);
	/* the view, and memory for new codes, are in the statement's own context */
	PipeannOpenView(&view, index);
	if (PipeannIsIndexable(view.meta.layout.metric, norm))
	{
		MemoryContextSwitchTo(RowContext(context, dim));
		grown = InsertVector(&view, x, norm, row);
		MemoryContextSwitchTo(context);
	}
	else
		NoteLeftOut(index);
	UnlockPage(index, PIPEANN_METAPAGE, ShareLock);
	if (grown)
		PipeannKeepUp(heap, index);
	MemoryContextSwitchTo(old);
	MemoryContextDelete(context);
	return false;
}
