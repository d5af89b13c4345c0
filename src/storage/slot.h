/*
 * slot.h
 *		A node's slot in a graph page, and which block the page is. Needs no server, so
 *		that search/ can be tested without one; the rest of the format is in storage.h.
 */
#ifndef PIPEANN_SLOT_H
#define PIPEANN_SLOT_H

#include <math.h>

#include "base/base.h"
#include "base/metric.h"

/*
 * A slot has slot_size bytes: header, max_degree neighbour ids, rows, the vector.
 * "Graph page" means one block, or the node_pages blocks of a slot that is longer
 * than a page's payload, cut at the payload boundary.
 *
 * Overflow slots hold what does not fit (src/README): rows, in a chain from
 * ext_tids; the vector in full, as float4, in one from ext_vec; or a long row
 * (PipeannRowOutOfLine).
 */
#define PIPEANN_SLOT_USED	0x0001
#define PIPEANN_SLOT_EXT	0x0002	/* with USED: overflow data, not a node */
#define PIPEANN_SLOT_OUT_OF_LINE 0x0004	/* exact vector in chain ext_vec */
#define PIPEANN_SLOT_CLOSED 0x0008	/* with EXT: takes no more rows */

typedef struct PipeannSlot
{
	uint16		flags;
	uint16		degree;			/* node: neighbours in use */
	uint16		ntids;			/* rows in this slot */
	union
	{
		uint16		length;		/* EXT of a vector or row: bytes of payload;
								 * out-of-line node, sparse: words of it */
		uint16		error;		/* node that is rounded: see PipeannRounding */
	};
	uint32		ext_tids;		/* next overflow slot, or INVALID_ID */
	union
	{
		uint32		ext_vec;	/* out-of-line node, EXT of a vector or row:
								 * next slot of it */
		uint32		hash;		/* node with an error: see PipeannRounding */
		uint32		number;		/* EXT of rows: falls from slot to slot */
	};
	union
	{
		float		aux;		/* cosine: 1 / |v| */
		uint32		owner;		/* EXT of rows: the node's id */
	};
	uint32		neighbors[FLEXIBLE_ARRAY_MEMBER];
} PipeannSlot;

#define PIPEANN_SLOT_HEADER offsetof(PipeannSlot, neighbors)

/*
 * What a node in half precision (float2), or quantised (sq12 to sq14), stores
 * about its vector before rounding, so that rows come in the order of their
 * own vectors. error bounds the Euclidean distance between that vector and the
 * slot's, plus the error of the vector's products in single precision; it is
 * the upper half of a float, rounded up. 0 means that it is not known: the
 * node is out of line, or has an element beyond half precision. Then the
 * slot's vector counts as the node's. The hash distinguishes vectors that are
 * equal when rounded.
 */
typedef struct PipeannRounding
{
	uint16		error;
	uint32		hash;
} PipeannRounding;

/*
 * A sum of dim products in single precision may err by this part of the
 * product of the norms. (Errors of single operations cancel; the worst case
 * would be dim.)
 */
#define PIPEANN_ARITHMETIC_ERROR(dim) ((16 + sqrt((double) (dim))) / (1 << 23))

/*
 * Offsets and sizes of slots and stripes; computed from the options, stored in
 * the metapage.
 */
typedef struct PipeannLayout
{
	uint16		dim;
	uint16		max_degree;
	uint16		inline_tids;	/* rows of a slot, if they have no values */
	uint16		slots_per_page;
	uint16		fill;			/* slots that a build uses (fillfactor) */
	uint16		node_pages;
	uint16		pq_bytes;		/* of a code, even if there are no codes yet */
	uint8		storage;		/* PipeannStorage */
	uint8		type;			/* PipeannType */
	uint8		metric;			/* PipeannMetric */
	uint8		attr_bytes;		/* bytes of attribute codes, behind a code */
	uint16		row_bytes;		/* room wanted for rows; 0: rows have no values */
	uint32		slot_size;
	uint32		tids_offset;
	uint32		vector_offset;
	uint16		stripe_pages;	/* graph pages of a stripe */
	uint16		stripe_codes;	/* code pages of a stripe */
	uint32		codes_per_page;
} PipeannLayout;

/* Whether vectors are stored with less precision than they had. */
static inline bool
PipeannIsRounded(const PipeannLayout *l)
{
	return PipeannIsRounding(l->storage) &&
		!(l->storage == PIPEANN_FLOAT2 && l->type == PIPEANN_HALFVEC);
}

/* The place of an id. */
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
 * nodes is the contiguous payload of a graph page: that of its single block,
 * or those of several blocks, moved together.
 */
static inline PipeannSlot *
PipeannSlotAt(const PipeannLayout *l, const char *nodes, uint32 slot)
{
	return (PipeannSlot *) (nodes + (Size) slot * l->slot_size);
}

/*
 * Rows are stored one after the other in a slot. All reading and writing of
 * them goes through the functions below and those of storage.h.
 *
 * A row is its TID and, in an index with included columns, their values: then
 * it is an index tuple (access/itup.h), not aligned, with an even number of
 * bytes. A row that is longer than the part for rows of a node's slot is in
 * overflow slots, with a PipeannRowOutOfLine in its place.
 */
typedef struct PipeannRow
{
	ItemPointerData tid;
	uint16		info;			/* only with values: IndexTupleData's t_info */
} PipeannRow;

#define PIPEANN_ROW_SIZE 0x1FFF
#define PIPEANN_ROW_OUT_OF_LINE 0x2000	/* INDEX_AM_RESERVED_BIT */

typedef struct PipeannRowOutOfLine
{
	PipeannRow	row;
	uint16		length;			/* of the row */
	uint16		first[2];		/* the first overflow slot: two halves, as rows
								 * are not aligned */
} PipeannRowOutOfLine;

/* Rows in memory, one after the other. */
typedef struct PipeannRowList
{
	PipeannRow *rows;
	uint32		n;
	uint32		bytes;			/* of all of them */
} PipeannRowList;

/* Bytes that a row takes. */
static inline uint32
PipeannRowSize(const PipeannLayout *l, const PipeannRow *row)
{
	return l->row_bytes == 0 ? sizeof(ItemPointerData) :
		row->info & PIPEANN_ROW_SIZE;
}

static inline PipeannRow *
PipeannRowNext(const PipeannLayout *l, const PipeannRow *row)
{
	return (PipeannRow *) ((char *) row + PipeannRowSize(l, row));
}

/* Bytes for rows in a node's slot. */
static inline uint32
PipeannInlineBytes(const PipeannLayout *l)
{
	return l->row_bytes == 0 ? l->inline_tids * sizeof(ItemPointerData) :
		l->vector_offset - l->tids_offset;
}

/* Whether a row does not fit in the slot of a node, and has to be out of line. */
static inline bool
PipeannRowIsLong(const PipeannLayout *l, const PipeannRow *row)
{
	return l->row_bytes > 0 && PipeannRowSize(l, row) > PipeannInlineBytes(l);
}

/* Whether a row is out of line, in overflow slots. */
static inline bool
PipeannRowIsOutOfLine(const PipeannLayout *l, const PipeannRow *row)
{
	return l->row_bytes > 0 && (row->info & PIPEANN_ROW_OUT_OF_LINE) != 0;
}

/* What takes the place of a row that is out of line. */
static inline PipeannRowOutOfLine
PipeannRowSetOutOfLine(const PipeannRow *row, uint32 first)
{
	return (PipeannRowOutOfLine) {
		.row.tid = row->tid,
		.row.info = sizeof(PipeannRowOutOfLine) | PIPEANN_ROW_OUT_OF_LINE,
		.length = row->info & PIPEANN_ROW_SIZE,
		.first = {first >> 16, first & 0xFFFF}
	};
}

/* The first overflow slot of a row out of line. */
static inline uint32
PipeannRowFirstPart(const PipeannRow *row)
{
	const PipeannRowOutOfLine *out_of_line = (const PipeannRowOutOfLine *) row;

	return (uint32) out_of_line->first[0] << 16 | out_of_line->first[1];
}

/* Bytes of a row, wherever it is stored. */
static inline uint32
PipeannRowLength(const PipeannLayout *l, const PipeannRow *row)
{
	return PipeannRowIsOutOfLine(l, row) ?
		((const PipeannRowOutOfLine *) row)->length : PipeannRowSize(l, row);
}

/* The first n rows of an area of `bytes` bytes, as far as they are sound. */
static inline PipeannRowList
PipeannRowsOf(const PipeannLayout *l, const void *area, uint32 bytes, uint32 n)
{
	PipeannRowList list = {.rows = (PipeannRow *) area};

	if (l->row_bytes == 0)
	{
		list.n = Min(n, bytes / (uint32) sizeof(ItemPointerData));
		list.bytes = list.n * sizeof(ItemPointerData);
		return list;
	}
	while (list.n < n && bytes - list.bytes >= sizeof(PipeannRow))
	{
		const PipeannRow *row = (const PipeannRow *) ((const char *) area +
													  list.bytes);
		uint32		size = PipeannRowSize(l, row);

		if (size % 2 != 0 || size > bytes - list.bytes ||
			size < (PipeannRowIsOutOfLine(l, row) ? sizeof(PipeannRowOutOfLine) :
					sizeof(PipeannRow)))
			break;
		list.bytes += size;
		list.n++;
	}
	return list;
}

/* A node's vector: dim elements of the storage, not aligned. */
static inline void *
PipeannSlotVector(const PipeannLayout *l, const PipeannSlot *slot)
{
	return (char *) slot + l->vector_offset;
}

/* The most bytes that an out-of-line vector has in its chain. */
static inline Size
PipeannMostOutOfLine(const PipeannLayout *l)
{
	return PipeannIsSparse(l->storage) ?
		PipeannVectorBytes(PIPEANN_SPARSE1000, l->dim) : l->dim * sizeof(float);
}

/* The bytes that a node's out-of-line vector has in its chain. */
static inline Size
PipeannOutOfLineBytes(const PipeannLayout *l, const PipeannSlot *slot)
{
	Size		most = PipeannMostOutOfLine(l);

	return PipeannIsSparse(l->storage) ? Min(slot->length * sizeof(float), most) : most;
}

/*
 * Whether a node's code errs much, as the codebook was made for other vectors.
 * A long sparse vector is coded well, by its largest elements.
 */
static inline bool
PipeannIsPoorlyCoded(const PipeannLayout *l, const PipeannSlot *slot)
{
	return (slot->flags & PIPEANN_SLOT_OUT_OF_LINE) && !PipeannIsSparse(l->storage);
}

/* Set error and hash of a node's slot; no hash if the error is not known. */
static inline void
PipeannSlotSetRounding(PipeannSlot *slot, const PipeannRounding *rounding)
{
	slot->error = rounding->error;
	if (rounding->error != 0)
		slot->hash = rounding->hash;
}

/* A node's error (PipeannRounding), 0 if it is not known. */
static inline float
PipeannSlotError(const PipeannLayout *l, const PipeannSlot *slot)
{
	uint32		bits = (uint32) slot->error << 16;
	float		error;

	if (!PipeannIsRounded(l) || (slot->flags & PIPEANN_SLOT_OUT_OF_LINE))
		return 0;
	memcpy(&error, &bits, sizeof(error));
	return error > 0 && isfinite(error) ? error : 0;
}

/* The contents of an overflow slot: rows, or bytes of a vector or row. */
static inline char *
PipeannSlotBody(const PipeannSlot *slot)
{
	return (char *) slot + PIPEANN_SLOT_HEADER;
}

/* Whether a slot holds a node, live or dead. */
static inline bool
PipeannSlotIsNode(const PipeannSlot *slot)
{
	return (slot->flags & (PIPEANN_SLOT_USED | PIPEANN_SLOT_EXT)) ==
		PIPEANN_SLOT_USED;
}

/* Whether a slot holds a node with rows; one without is dead (src/README). */
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

/* Whether a slot is an overflow slot of this node's rows. */
static inline bool
PipeannSlotIsTidsOf(const PipeannSlot *slot, uint32 node)
{
	return (slot->flags & (PIPEANN_SLOT_USED | PIPEANN_SLOT_EXT)) ==
		(PIPEANN_SLOT_USED | PIPEANN_SLOT_EXT) && slot->length == 0 &&
		slot->owner == node;
}

/* Counts from a page, limited to what the format allows. */
static inline int
PipeannSlotDegree(const PipeannLayout *l, const PipeannSlot *slot)
{
	return Min(slot->degree, l->max_degree);
}

/* The rows in a node's slot. */
static inline PipeannRowList
PipeannSlotRows(const PipeannLayout *l, const PipeannSlot *slot)
{
	return PipeannRowsOf(l, (const char *) slot + l->tids_offset,
						 PipeannInlineBytes(l), slot->ntids);
}

/* ---------- which block a page is ---------- */

#ifdef PIPEANN_STANDALONE
#define BlockNumber uint32
#else
#include "storage/block.h"
#endif

/* The most extents, current and former, of an index: each had a codebook and an entry graph. */
#define PIPEANN_EXTENTS 3

/*
 * Extents, in the order in which they were made and are in the file. A new one goes
 * behind all existing pages: a page has the same block as long as the index has it.
 */
typedef struct PipeannExtents
{
	BlockNumber first[PIPEANN_EXTENTS];
	uint32		length[PIPEANN_EXTENTS];	/* blocks; 0: there is no such extent */
	uint32		current;		/* the one that is in use, if there are codes */
} PipeannExtents;

static inline uint32
PipeannStripeLength(const PipeannLayout *l)
{
	return l->stripe_codes + (uint32) l->stripe_pages * l->node_pages;
}

/* The block number in the file, from one that does not count extents. */
static inline BlockNumber
PipeannSkipExtents(const PipeannExtents *extents, BlockNumber block)
{
	for (int i = 0; i < PIPEANN_EXTENTS; i++)
		block += block >= extents->first[i] ? extents->length[i] : 0;
	return block;
}

/* The first block of a graph page. */
static inline BlockNumber
PipeannGraphBlock(const PipeannExtents *extents, const PipeannLayout *l,
				  uint32 page)
{
	uint32		stripe = page / l->stripe_pages;

	return PipeannSkipExtents(extents, 1 + stripe * PipeannStripeLength(l) +
						   page % l->stripe_pages * l->node_pages +
						   (stripe > 0 ? l->stripe_codes : 0));
}

/* The block of a code page. */
static inline BlockNumber
PipeannCodeBlock(const PipeannExtents *extents, const PipeannLayout *l,
				 uint32 code_page)
{
	uint32		stripe = code_page / l->stripe_codes;

	return PipeannSkipExtents(extents, 1 + stripe * PipeannStripeLength(l) +
						   code_page % l->stripe_codes +
						   (stripe > 0 ? 0 : l->stripe_pages * l->node_pages));
}

/* The first block of the extent in use. */
static inline BlockNumber
PipeannExtentBlock(const PipeannExtents *extents)
{
	return extents->first[extents->current];
}

static inline uint32
PipeannCodesPerPage(const PipeannLayout *l)
{
	return l->codes_per_page;
}

/* Code pages for this many ids. */
static inline uint32
PipeannCodePages(const PipeannLayout *l, uint32 ids)
{
	return (uint32) (((uint64) ids + l->codes_per_page - 1) / l->codes_per_page);
}

/* places.c */
extern void PipeannStripesInit(PipeannLayout *l, uint32 page_bytes, uint32 most);
extern uint32 PipeannPageAt(const PipeannExtents *extents,
							const PipeannLayout *l, BlockNumber block);
extern uint64 PipeannBlocksInUse(const PipeannExtents *extents,
								 const PipeannLayout *l, uint32 graph_pages,
								 bool has_codes);
extern uint32 PipeannExtentRoom(const PipeannExtents *extents);
extern void PipeannExtentChoose(PipeannExtents *extents, BlockNumber end,
							uint32 least, uint32 length);

/* ---------- how far a row may be from a query if its vector was rounded ---------- */

typedef struct PipeannBounds
{
	PipeannMetric metric;
	int			dim;
	float		arithmetic;		/* relative error of a distance */
	float		query_norm;		/* for inner products */
	bool		orthogonal;		/* errors are orthogonal to their vectors */
} PipeannBounds;

extern void PipeannBoundsInit(PipeannBounds *bounds,
							  const PipeannLayout *layout,
							  const float *query);
extern void PipeannBoundsOf(const PipeannBounds *bounds, float dist,
							float error, float aux, float *least, float *most);

/* An order key in SQL's units: what the metric's operator gives. */
static inline double
PipeannSqlDistance(PipeannMetric metric, float key)
{
	return PipeannMetrics[metric].distance(key);
}

#endif							/* PIPEANN_SLOT_H */
