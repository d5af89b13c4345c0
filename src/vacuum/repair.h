/*
 * repair.h
 *		Memory for taking dead nodes out of neighbour lists; private to repair.c
 *		and new_list.c.
 */
#ifndef PIPEANN_REPAIR_H
#define PIPEANN_REPAIR_H

#include "base/id_set.h"
#include "vacuum/passes.h"

/* Candidates for one list: neighbours of its dead nodes. */
#define MAX_CANDIDATES 256

/* With fewer candidates, take those of dead nodes at second hand, too. */
#define FEW_CANDIDATES 8
#define MAX_DEAD 256

/* The nearest candidates compared for a list exceed its free places by this. */
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
	 * The dead nodes of this round, ids from .. to - 1, and their lists:
	 * length, number of spanning-tree edges, ids.
	 */
	uint32		from;
	uint32		to;
	PipeannIdSet offsets;		/* of lists[], by id */
	uint32	   *lists;
	Size		used;
	Size		size;

	PipeannIdSet positions;		/* dead nodes' positions in the entry graph */

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
	float	   *dists;			/* distances of vectors[] from the node */
	float	   *table;			/* code distances */
	const uint8 **codes;		/* [MAX_CANDIDATES] */
	float	   *code_dists;
	int			ntree_edges;	/* of the new list; they come first */
	uint32	   *fixed;			/* [slots_per_page][2 + max_degree] new lists:
								 * length, spanning-tree edges, ids */
	char	   *page;			/* copy of the page being repaired */
} PipeannRepair;

/*
 * Whether a neighbour has to leave a list in this round. Dead nodes of the
 * entry graph keep their edges to each other.
 */
static inline bool
PipeannHasToGo(const PipeannRepair *r, uint32 neighbor, bool owner_is_dead)
{
	return neighbor >= r->from && neighbor < r->to &&
		PipeannBitsHas(&r->v->dead, neighbor) &&
		!(owner_is_dead && PipeannBitsHas(&r->v->entry, neighbor));
}

/* Whether a node is the new root: it inherits the old one's children. */
static inline bool
PipeannIsHeirOfRoot(const PipeannRepair *r, uint32 id)
{
	return id == r->v->view.meta.root &&
		r->v->old_root != PIPEANN_INVALID_ID &&
		PipeannHasToGo(r, r->v->old_root, false);
}

/* new_list.c */
extern int	PipeannNewList(PipeannRepair *r, uint32 id, const PipeannSlot *slot,
						   uint32 *out);

#endif							/* PIPEANN_REPAIR_H */
