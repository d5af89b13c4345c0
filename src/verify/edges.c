/*
 * edges.c
 *		Neighbour lists, and whether every node can be reached: by any edges,
 *		and by spanning-tree edges alone, as others may be pruned at any time.
 *
 * Edges change during the check. Inserts and VACUUM keep each node reachable
 * at any moment, but a walk that read one page before a change and another one
 * after it may miss a node. So a node that was missed is looked for again,
 * over the pages as they are then. VACUUM takes spanning-tree edges away and
 * later gives every node some; while it runs these edges are not checked.
 */
#include "postgres.h"

#include "verify/verify.h"
#include "base/bits.h"
#include "miscadmin.h"
#include "utils/memutils.h"

/* Log2 of the number of bits that tell a list's ids apart. */
#define LIST_BITS 12

/* All lists, one after the other, if maintenance_work_mem holds them. */
typedef struct Lists
{
	uint32		ids;			/* length of first[] - 1 */
	uint32		next;			/* id of the next list */
	uint64	   *first;			/* [ids + 1] begin of each list in edges[] */
	uint32	   *edges;			/* NULL once there were too many */
	uint64		size;
	uint64		limit;
} Lists;

struct PipeannCheckWalk
{
	Lists		lists;
	uint8	   *wanted;			/* [pages] has nodes reached, not expanded */
	bool		more;			/* there are such pages */
	bool		tree_only;		/* follow only spanning-tree edges */
};

/* Whether an id is twice in a list; compares those that share a bit. */
static bool
HasTwice(const PipeannSlot *slot)
{
	uint8		bits[(1 << LIST_BITS) / 8] = {0};

	for (int i = 0; i < slot->degree; i++)
	{
		uint32		bit = (slot->neighbors[i] * 2654435769U) >> (32 - LIST_BITS);

		if (PipeannHasBit(bits, bit))
			for (int j = 0; j < i; j++)
				if (slot->neighbors[j] == slot->neighbors[i])
					return true;
		PipeannSetBit(bits, bit);
	}
	return false;
}

/*
 * What is wrong with a node's list, or NULL. A dead node's list may lead to
 * slots that VACUUM has freed: VACUUM is yet to free the node.
 */
static const char *
ListProblem(PipeannCheck *check, uint32 id, const PipeannSlot *slot)
{
	if (slot->degree > check->view.meta.layout.max_degree)
		return "has too many neighbours";
	for (int i = 0; i < slot->degree; i++)
		if (slot->neighbors[i] == id)
			return "is its own neighbour";
	if (HasTwice(slot))
		return "has a neighbour twice";
	for (int i = 0; i < slot->degree && PipeannSlotIsLive(slot); i++)
		if (!PipeannCheckIsNodeNow(check, slot->neighbors[i]))
			return psprintf("has a neighbour %u that is not a node",
							slot->neighbors[i]);
	return NULL;
}

/*
 * VACUUM repairs lists before it frees the nodes that they lead to, so a list
 * that looks wrong may have been read before its repair: it is looked at
 * again.
 */
static void
CheckList(PipeannCheck *check, uint32 id, const PipeannSlot *slot)
{
	const char *problem = ListProblem(check, id, slot);
	PipeannSlot *again;

	if (problem == NULL)
		return;
	again = PipeannSlotAlloc(&check->view.meta.layout);
	for (int i = 0; problem != NULL && i < PIPEANN_CHECK_TRIES; i++)
	{
		PipeannCheckPause();
		if (!PipeannCheckReadSlot(check, id, again) ||
			!PipeannSlotIsNode(again))
			problem = NULL;
		else
			problem = ListProblem(check, id, again);
	}
	pfree(again);
	if (problem != NULL)
		PipeannCheckReport(check, id, problem);
}

static void
InitLists(const PipeannCheck *check, Lists *lists)
{
	uint64		budget = (uint64) maintenance_work_mem * 1024 /
		sizeof(uint32);
	uint64		fixed = ((uint64) check->ids + 1) * 3;

	memset(lists, 0, sizeof(*lists));
	lists->ids = check->ids;
	if (fixed >= budget)
		return;
	lists->limit = budget - fixed;
	lists->size = Min(lists->limit, (uint64) check->ids * 8 + 1024);
	lists->first = PipeannAlloc(((Size) check->ids + 1) * sizeof(uint64));
	lists->edges = PipeannAlloc(lists->size * sizeof(uint32));
	lists->first[0] = 0;
}

static void
FreeLists(Lists *lists)
{
	if (lists->edges != NULL)
	{
		pfree(lists->first);
		pfree(lists->edges);
	}
	lists->edges = NULL;
}

/* Keep a list in memory. Nodes come in the order of their ids. */
static void
KeepList(Lists *lists, uint32 id, const uint32 *list, int degree)
{
	uint64		used;

	if (lists->edges == NULL || id >= lists->ids || id < lists->next)
		return;
	for (; lists->next < id; lists->next++)
		lists->first[lists->next + 1] = lists->first[lists->next];
	used = lists->first[id];
	if (used + degree > lists->size)
	{
		if (used + degree > lists->limit)
		{
			FreeLists(lists);
			return;
		}
		lists->size = Min(lists->limit, lists->size * 2 + degree);
		lists->edges = PipeannRealloc(lists->edges,
									  lists->size * sizeof(uint32));
	}
	memcpy(lists->edges + used, list, degree * sizeof(uint32));
	lists->first[id + 1] = used + degree;
	lists->next = id + 1;
}

static void
VisitList(PipeannCheck *check, uint32 id, const PipeannSlot *slot)
{
	if (!PipeannSlotIsNode(slot))
		return;
	CheckList(check, id, slot);
	KeepList(&check->walk->lists, id, slot->neighbors,
			 PipeannSlotDegree(&check->view.meta.layout, slot));
}

static bool
Reach(PipeannCheck *check, uint32 id)
{
	if (id >= check->ids || (check->seen[id] & PIPEANN_SEEN_REACHED))
		return false;
	check->seen[id] |= PIPEANN_SEEN_REACHED;
	return true;
}

/* Walk over lists in memory. */
static void
WalkLists(PipeannCheck *check)
{
	const PipeannCodes *codes = &check->view.codes;
	Lists	   *lists = &check->walk->lists;
	uint32	   *stack = PipeannAlloc(((Size) check->ids + 1) *
									 sizeof(uint32));
	uint32		depth = 0;

	for (; lists->next < lists->ids; lists->next++)
		lists->first[lists->next + 1] = lists->first[lists->next];
	for (uint32 i = 0; i < codes->entry_count; i++)
		if (Reach(check, codes->entry_ids[i]))
			stack[depth++] = codes->entry_ids[i];
	while (depth > 0)
	{
		uint32		id = stack[--depth];

		if (id % 1024 == 0)
			CHECK_FOR_INTERRUPTS();
		if (id >= lists->ids)
			continue;
		for (uint64 at = lists->first[id]; at < lists->first[id + 1]; at++)
			if (Reach(check, lists->edges[at]))
				stack[depth++] = lists->edges[at];
	}
	pfree(stack);
}

static void
ReachOnPage(PipeannCheck *check, uint32 id)
{
	if (!Reach(check, id))
		return;
	check->walk->wanted[PipeannIdPage(&check->view.meta.layout, id)] = 1;
	check->walk->more = true;
}

static void
Expand(PipeannCheck *check, uint32 id, const PipeannSlot *slot)
{
	const PipeannLayout *l = &check->view.meta.layout;
	uint8	   *seen = &check->seen[id];
	int			degree;

	if (!PipeannSlotIsNode(slot) || !(*seen & PIPEANN_SEEN_REACHED) ||
		(*seen & PIPEANN_SEEN_EXPANDED))
		return;
	*seen |= PIPEANN_SEEN_EXPANDED;
	degree = check->walk->tree_only ? PipeannSlotTreeEdges(l, slot) :
		PipeannSlotDegree(l, slot);
	for (int i = 0; i < degree; i++)
		ReachOnPage(check, slot->neighbors[i]);
}

/*
 * Start at the root or, unless tree_only is set, also at the entry graph's
 * nodes.
 */
static void
ReachFirst(PipeannCheck *check)
{
	const PipeannCodes *codes = &check->view.codes;

	if (check->walk->tree_only)
		ReachOnPage(check, check->view.meta.root);
	else
		for (uint32 i = 0; i < codes->entry_count; i++)
			ReachOnPage(check, codes->entry_ids[i]);
}

/*
 * Walk over pages, by sweeps that read those with nodes to expand. Nodes that
 * were reached before are expanded anew.
 */
static void
WalkPages(PipeannCheck *check)
{
	PipeannCheckWalk *state = check->walk;

	state->wanted = PipeannAllocZero(Max(check->pages, 1));
	for (uint32 id = 0; id < check->ids; id++)
	{
		check->seen[id] &= ~PIPEANN_SEEN_EXPANDED;
		if (check->seen[id] & PIPEANN_SEEN_REACHED)
		{
			state->wanted[PipeannIdPage(&check->view.meta.layout, id)] = 1;
			state->more = true;
		}
	}
	ReachFirst(check);
	while (state->more)
	{
		state->more = false;
		PipeannCheckSweep(check, state->wanted, Expand);
	}
	pfree(state->wanted);
}

/*
 * A stable node that was not reached, or INVALID_ID. Other nodes are being
 * inserted, or are left by a crash or an error.
 */
static uint32
FindLost(const PipeannCheck *check)
{
	const uint8 want = PIPEANN_SEEN_NODE | PIPEANN_SEEN_ROWS;
	PipeannSlot *slot = PipeannSlotAlloc(&check->view.meta.layout);
	uint32		lost = PIPEANN_INVALID_ID;

	for (uint32 id = 0; id < check->ids && lost == PIPEANN_INVALID_ID; id++)
	{
		if (id % 65536 == 0)
			CHECK_FOR_INTERRUPTS();
		if ((check->seen[id] & (want | PIPEANN_SEEN_REACHED)) != want)
			continue;
		if (PipeannCheckReadSlot(check, id, slot) &&
			PipeannSlotIsNode(slot) && PipeannCheckIsStable(check, slot))
			lost = id;
	}
	pfree(slot);
	return lost;
}

static bool
IsRepairing(PipeannCheck *check)
{
	PipeannCheckRefresh(check);
	return (check->view.meta.flags & PIPEANN_META_REPAIRING) != 0;
}

/*
 * A node that the walk has not reached, even when it is repeated, or
 * INVALID_ID.
 */
static uint32
FindLostForGood(PipeannCheck *check)
{
	uint32		lost = FindLost(check);

	for (int i = 0; i < PIPEANN_CHECK_TRIES && lost != PIPEANN_INVALID_ID; i++)
	{
		PipeannCheckPause();
		PipeannCheckRefresh(check);
		WalkPages(check);
		lost = FindLost(check);
	}
	return lost;
}

static void
CheckReach(PipeannCheck *check)
{
	uint32		lost;

	if (check->walk->lists.edges != NULL)
	{
		WalkLists(check);
		FreeLists(&check->walk->lists);
	}
	else
		WalkPages(check);
	lost = FindLostForGood(check);
	if (lost != PIPEANN_INVALID_ID)
		PipeannCheckReport(check, lost, "cannot be reached");
}

static void
CheckTreeEdges(PipeannCheck *check)
{
	uint32		lost;

	if (IsRepairing(check))
		return;
	for (uint32 id = 0; id < check->ids; id++)
		check->seen[id] &= ~(PIPEANN_SEEN_REACHED | PIPEANN_SEEN_EXPANDED);
	check->walk->tree_only = true;
	WalkPages(check);
	lost = FindLostForGood(check);
	if (lost != PIPEANN_INVALID_ID && !IsRepairing(check))
		PipeannCheckReport(check, lost,
						   "can be reached, but not over spanning-tree edges");
}

void
PipeannCheckEdges(PipeannCheck *check)
{
	PipeannCheckWalk state;

	memset(&state, 0, sizeof(state));
	check->walk = &state;
	InitLists(check, &state.lists);
	PipeannCheckSweep(check, NULL, VisitList);
	CheckReach(check);
	CheckTreeEdges(check);
	check->walk = NULL;
}
