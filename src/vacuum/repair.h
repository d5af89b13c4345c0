/*
 * repair.h
 *		What taking dead nodes out of neighbour lists needs in memory; private to
 *		repair.c and new_list.c.
 */
#ifndef PIPEANN_REPAIR_H
#define PIPEANN_REPAIR_H

#include "base/id_set.h"
#include "vacuum/passes.h"

/* Neighbours of dead nodes that are looked at for one list. */
#define MAX_CANDIDATES 256

/* With fewer of them, neighbours of dead neighbours' dead neighbours, too. */
#define FEW_CANDIDATES 8
#define MAX_DEAD 256

/* Of the nearest, so many more than there are places are compared. */
#define SPARE_CANDIDATES 6

typedef struct PipeannRepairCandidate
{
	float		dist;
	uint32		id;
} PipeannRepairCandidate;

typedef struct PipeannRepair
{
	PipeannVacuum *v;
	const PipeannLayout *l;

	/*
	 * Dead nodes of this round, and their lists: a length, how many of them
	 * are of the spanning tree, then ids.
	 */
	uint32		from;
	uint32		to;
	PipeannIdSet offsets;		/* of lists[], by id */
	uint32	   *lists;
	Size		used;
	Size		size;

	PipeannIdSet positions;		/* in the entry graph, of dead nodes there */

	/* one list */
	PipeannIdSet seen;
	uint32	   *dead;			/* [MAX_DEAD] */
	int			ndead;
	PipeannRepairCandidate  *cand;			/* [MAX_CANDIDATES] */
	int			ncand;
	int			dim;			/* of embedded vectors */
	float	   *x;				/* [layout's dim] */
	float	   *self;			/* [dim] */
	float	   *vectors;		/* [2 * max_degree + SPARE][dim] */
	float	   *dists;			/* of these, from the node */
	float	   *table;			/* code distances */
	const uint8 **codes;		/* [MAX_CANDIDATES] */
	float	   *code_dists;
	int			ntree_edges;		/* first ones of the new list */
	uint32	   *fixed;			/* [slots_per_page][2 + max_degree] new lists:
								 * length, spanning-tree edges, ids */
	char	   *page;			/* copy */
} PipeannRepair;

/*
 * Whether a neighbour has to leave a list in this round. Nodes of the entry
 * graph that are dead lead to each other.
 */
static inline bool
PipeannHasToGo(const PipeannRepair *r, uint32 neighbor, bool owner_is_dead)
{
	return neighbor >= r->from && neighbor < r->to &&
		PipeannBitsHas(&r->v->dead, neighbor) &&
		!(owner_is_dead && PipeannBitsHas(&r->v->entry, neighbor));
}

/*
 * A new root becomes the parent of the old one's children.
 */
static inline bool
PipeannIsHeirOfRoot(const PipeannRepair *r, uint32 id)
{
	return id == r->v->view.meta.root &&
		r->v->old_root != PIPEANN_INVALID_ID &&
		PipeannHasToGo(r, r->v->old_root, false);
}

/*
 * The list that a node is to have, to out[max_degree]; returns its length. Its
 * first ntree_edges are edges of the spanning tree.
 */
extern int	PipeannNewList(PipeannRepair *r, uint32 id, const PipeannSlot *slot,
						   uint32 *out);

#endif							/* PIPEANN_REPAIR_H */
