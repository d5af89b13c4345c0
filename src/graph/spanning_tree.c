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
void
PipeannGraphSpan(PipeannGraph *graph, int most, uint8 *tree_edges)
{
	Tree		t = {.graph = graph,.tree_edges = tree_edges};
	uint32		i;

	memset(tree_edges, 0, graph->n);
	if (graph->n == 0)
		return;
	t.reached = PipeannAllocZero(mul_size(graph->n, sizeof(bool)));
	t.order = PipeannAlloc(mul_size(graph->n, sizeof(uint32)));
	Reach(&t, graph->medoid);
	for (i = 0; i < t.count; i++)
	{
		CHECK_FOR_INTERRUPTS();
		MoveChildrenToFront(&t, t.order[i], most);
	}
	for (i = 0; i < t.count && t.count < graph->n; i++)
	{
		CHECK_FOR_INTERRUPTS();
		MoveChildrenToFront(&t, t.order[i], graph->max_degree);
	}
	pfree(t.reached);
	pfree(t.order);
}
