/*
 * slot.h
 *		A node's slot in a graph page. Server-free, so that search/ can be
 *		tested without one; the rest of the format is in page.h.
 */
#ifndef PIPEANN_NODE_H
#define PIPEANN_NODE_H

#include "base/base.h"

#include <math.h>

/*
 * Nodes. A slot is slot_size bytes: header, max_degree neighbour ids,
 * inline_tids heap TIDs, the vector. Slots stand slots_per_page to a page; a
 * slot longer than a page's payload takes node_pages consecutive blocks of one
 * extent (slots_per_page is 1), cut at the payload boundary. "Graph page"
 * means that unit: one block, or node_pages blocks.
 *
 * Where a node's TIDs do not fit, ext_tids leads to a slot that holds nothing
 * but TIDs (PIPEANN_SLOT_EXT), chained by its own ext_tids. A vector that the
 * element storage is not meant for (bytes: that they do not hold without loss,
 * halves: that is beyond their range) is rounded in place and stands in full, as
 * float4, in a chain of such slots from ext_vec (PIPEANN_SLOT_OUT_OF_LINE).
 *
 * Slots of a TID chain know their node and are numbered, each new first one
 * higher than the one before: a scan that finds the next slot gone takes the
 * chain up again where it was (index/chain.c). One that VACUUM has emptied is
 * closed: it takes no more TIDs, leaves the chain, and is free then.
 */
#define PIPEANN_SLOT_USED	0x0001
#define PIPEANN_SLOT_EXT	0x0002	/* with USED: overflow data, not a node */
#define PIPEANN_SLOT_OUT_OF_LINE	0x0004	/* exact vector in the ext_vec chain */
#define PIPEANN_SLOT_CLOSED 0x0008	/* with EXT: takes no more TIDs */

typedef struct PipeannSlot
{
	uint16		flags;
	uint8		degree;			/* node: neighbours in use */
	uint8		tree_edges;			/* node: of them, edges that must stay */
	uint16		ntids;			/* node: inline TIDs in use; EXT: TIDs */
	union
	{
		uint16		length;		/* EXT of a vector: bytes of payload */
		uint16		error;		/* node of float2: see PipeannRounding */
	};
	uint32		ext_tids;		/* next overflow slot, or INVALID_ID */
	union
	{
		uint32		ext_vec;	/* out-of-line node, EXT of a vector: next of the
								 * vector's */
		uint32		hash;		/* node with an error: see PipeannRounding */
		uint32		number;		/* EXT of TIDs: in its chain, falling */
	};
	union
	{
		float		aux;		/* cosine: 1 / |v| */
		uint32		owner;		/* EXT of TIDs: the node's id */
	};
	uint32		neighbors[FLEXIBLE_ARRAY_MEMBER];
} PipeannSlot;

#define PIPEANN_SLOT_HEADER offsetof(PipeannSlot, neighbors)

/*
 * What a node of halves (float2) knows of its vector before that was rounded, so
 * that rows come in the order of their own vectors. The error is how far in
 * Euclidean distance the vector may be from the one in the slot, and its products
 * in single precision from what they should be: the upper half of a float, rounded
 * up. 0: not known (a node of an index that kept none, an out-of-line one, one with an
 * element beyond halves); such a node is taken for what is in its slot. The hash
 * tells vectors that are rounded to the same one apart.
 */
typedef struct PipeannRounding
{
	uint16		error;
	uint32		hash;
} PipeannRounding;

/*
 * Sums of dim products of single precision may be off by so much of the product
 * of the norms. (Errors of single operations cancel: at worst it is dim.)
 */
#define PIPEANN_ARITHMETIC_ERROR(dim) ((16 + sqrt((double) (dim))) / (1 << 23))

/* Where things are in a slot; computed from the options, kept in the meta. */
typedef struct PipeannLayout
{
	uint16		dim;
	uint16		max_degree;
	uint16		inline_tids;
	uint16		slots_per_page;
	uint16		fill;			/* slots that a build uses (fillfactor) */
	uint16		node_pages;
	uint16		pq_bytes;		/* planned, also while there are no codes */
	uint16		storage;		/* PipeannStorage */
	uint16		metric;			/* PipeannMetric */
	uint16		unused;
	uint32		slot_size;
	uint32		tids_offset;
	uint32		vector_offset;
} PipeannLayout;

/* Arithmetic over the layout. */
static inline uint32
PipeannIdPage(const PipeannLayout *l, uint32 id)
{
	return id / l->slots_per_page;
}

static inline uint32
PipeannIdSlot(const PipeannLayout *l, uint32 id)
{
	return id % l->slots_per_page;
}

/*
 * nodes is the contiguous payload of a graph page: for one block the page's
 * own, for several what PipeannUnpackNode() made of them.
 */
static inline PipeannSlot *
PipeannSlotAt(const PipeannLayout *l, const char *nodes, uint32 slot)
{
	return (PipeannSlot *) (nodes + (Size) slot * l->slot_size);
}

static inline ItemPointerData *
PipeannSlotTids(const PipeannLayout *l, const PipeannSlot *slot)
{
	return (ItemPointerData *) ((char *) slot + l->tids_offset);
}

static inline void *
PipeannSlotVector(const PipeannLayout *l, const PipeannSlot *slot)
{
	return (char *) slot + l->vector_offset;
}

/* Of one whose error is not known nothing is kept. */
static inline void
PipeannSlotSetRounding(PipeannSlot *slot, const PipeannRounding *rounding)
{
	slot->error = rounding->error;
	if (rounding->error != 0)
		slot->hash = rounding->hash;
}

/* A node's error (PipeannRounding), 0 when it is not known. */
static inline float
PipeannSlotError(const PipeannLayout *l, const PipeannSlot *slot)
{
	uint32		bits = (uint32) slot->error << 16;
	float		error;

	if (l->storage != PIPEANN_FLOAT2 || (slot->flags & PIPEANN_SLOT_OUT_OF_LINE))
		return 0;
	memcpy(&error, &bits, sizeof(error));
	return error > 0 && isfinite(error) ? error : 0;
}

/* An overflow slot's body: TIDs, or bytes of a float4 vector. */
static inline char *
PipeannSlotBody(const PipeannSlot *slot)
{
	return (char *) slot + PIPEANN_SLOT_HEADER;
}

static inline bool
PipeannSlotIsNode(const PipeannSlot *slot)
{
	return (slot->flags & (PIPEANN_SLOT_USED | PIPEANN_SLOT_EXT)) ==
		PIPEANN_SLOT_USED;
}

/*
 * A node whose last row was removed is dead: nothing brings it back, and
 * VACUUM frees its slot once no list leads to it.
 */
static inline bool
PipeannSlotIsLive(const PipeannSlot *slot)
{
	return PipeannSlotIsNode(slot) &&
		(slot->ntids > 0 || slot->ext_tids != PIPEANN_INVALID_ID);
}

static inline bool
PipeannSlotIsDead(const PipeannSlot *slot)
{
	return PipeannSlotIsNode(slot) && !PipeannSlotIsLive(slot);
}

/* An overflow slot of a node's TIDs. */
static inline bool
PipeannSlotIsTidsOf(const PipeannSlot *slot, uint32 node)
{
	return (slot->flags & (PIPEANN_SLOT_USED | PIPEANN_SLOT_EXT)) ==
		(PIPEANN_SLOT_USED | PIPEANN_SLOT_EXT) && slot->length == 0 &&
		slot->owner == node;
}

/* Counts from a page, clamped to what the format allows. */
static inline int
PipeannSlotDegree(const PipeannLayout *l, const PipeannSlot *slot)
{
	return Min(slot->degree, l->max_degree);
}

static inline int
PipeannSlotTreeEdges(const PipeannLayout *l, const PipeannSlot *slot)
{
	return Min(slot->tree_edges, PipeannSlotDegree(l, slot));
}

/*
 * Spanning-tree edges that a list takes while another may: it needs room for others.
 */
static inline int
PipeannWantedTreeEdges(const PipeannLayout *l)
{
	return l->max_degree / 2;
}

static inline int
PipeannSlotInlineTids(const PipeannLayout *l, const PipeannSlot *slot)
{
	return Min(slot->ntids, l->inline_tids);
}

#endif							/* PIPEANN_NODE_H */
