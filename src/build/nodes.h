/*
 * nodes.h
 *		The nodes of an index in memory, and their pages; private to build/.
 */
#ifndef PIPEANN_BUILD_NODES_H
#define PIPEANN_BUILD_NODES_H

#include "attributes/attributes.h"
#include "build/build.h"
#include "graph/graph.h"

/* A row of a vector that is not its first one. */
typedef struct PipeannDuplicate
{
	ItemPointerData tid;
	uint32		next;			/* in dups[], or PIPEANN_INVALID_ID */
} PipeannDuplicate;

/* Nodes have numbers in memory and ids on disk. No two have the same vector. */
typedef struct PipeannNodes
{
	PipeannVectors vectors;		/* by number */
	PipeannRounding *roundings; /* [n] for half precision, else NULL */
	ItemPointerData *tids;		/* [n] the first row of each */
	uint32	   *dup_heads;		/* [n] the others, in dups[] */
	PipeannDuplicate *dups;
	uint32		ndups;

	/* if rows have values: whole rows, one after the other */
	char	   *values;			/* or NULL */
	uint64	   *values_at;		/* [n] the first row of each */
	uint64	   *dup_values_at;	/* [ndups] */

	uint32	   *id_of_node;		/* [n] */
	uint32	   *node_of_id;		/* [ids], INVALID_ID if there is no node */
	uint32		ids;
} PipeannNodes;

/*
 * The first row of a node, or that of number dup in dups[] if it is not
 * INVALID_ID.
 */
static inline const PipeannRow *
PipeannNodeRow(const PipeannNodes *nodes, uint32 node, uint32 dup)
{
	if (nodes->values != NULL)
		return (const PipeannRow *)
			(nodes->values + (dup == PIPEANN_INVALID_ID ?
							  nodes->values_at[node] :
							  nodes->dup_values_at[dup]));
	return (const PipeannRow *) (dup == PIPEANN_INVALID_ID ?
								 &nodes->tids[node] : &nodes->dups[dup].tid);
}

/* packing.c */
extern void PipeannReserveNodes(Relation index, PipeannMeta *meta,
								const PipeannNodes *nodes);
extern void PipeannWriteNodes(PipeannTeam *team, Relation index,
							  PipeannMeta *meta, PipeannNodes *nodes,
							  PipeannGraph *graph, const uint32 *order);

#endif							/* PIPEANN_BUILD_NODES_H */
