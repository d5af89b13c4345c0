/*
 * spanning_tree.c
 *		The edges that must stay: a tree that leads from the medoid to every
 *		node.
 *
 * Edges change when rows come and go. As long as the tree's edges stay,
 * pruning the others cuts no node off.
 */
#include "base/base.h"

#include "graph/graph.h"

typedef struct Tree
{
	PipeannGraph *graph;
	uint8	   *tree_edges;		/* [n] */
	bool	   *reached;		/* [n] */
	uint32	   *order;			/* [n] in which nodes were reached */
	uint32		count;
} Tree;

static void
Reach(Tree *t, uint32 node)
{
	t->reached[node] = true;
	t->order[t->count++] = node;
}

/*
 * Move neighbours that are not reached yet, `most` children in all, to the
 * front of a node's list.
 */
static void
MoveChildrenToFront(Tree *t, uint32 node, int most)
{
	uint32	   *list = PipeannNeighbors(t->graph, node);
	int			i;

	for (i = t->tree_edges[node]; i < t->graph->degree[node] &&
		 t->tree_edges[node] < most; i++)
	{
		uint32		neighbor = list[i];

		if (t->reached[neighbor])
			continue;
		list[i] = list[t->tree_edges[node]];
		list[t->tree_edges[node]++] = neighbor;
		Reach(t, neighbor);
	}
}

/*
 * Breadth first, so that the tree is shallow. A second round allows lists to
 * have more than `most` spanning-tree edges, if nodes are left.
 */
static void
Span(Tree *t, int most)
{
	uint32		i;

	Reach(t, t->graph->medoid);
	for (i = 0; i < t->count; i++)
	{
		CHECK_FOR_INTERRUPTS();
		MoveChildrenToFront(t, t->order[i], most);
	}
	for (i = 0; i < t->count && t->count < t->graph->n; i++)
	{
		CHECK_FOR_INTERRUPTS();
		MoveChildrenToFront(t, t->order[i], t->graph->max_degree);
	}
}

/*
 * Mark a spanning tree of edges from the medoid to every node: moves the
 * tree's edges to the front of each list and sets tree_edges[n] to their
 * numbers, at most `most` unless it takes more to reach every node. All members
 * call, with tree_edges shared.
 */
void
PipeannGraphSpan(PipeannTeam *team, PipeannGraph *graph, int most,
				 uint8 *tree_edges)
{
	Tree		t = {.graph = graph,.tree_edges = tree_edges};

	t.reached = PipeannTeamAllocWork(team, mul_size(graph->n, sizeof(bool)));
	t.order = PipeannTeamAlloc(team, mul_size(graph->n, sizeof(uint32)));
	if (PipeannTeamLeads(team) && graph->n > 0)
	{
		memset(tree_edges, 0, graph->n);
		Span(&t, most);
	}
	PipeannTeamMeet(team);
	PipeannTeamFree(team, t.reached);
	PipeannTeamFree(team, t.order);
}
