/*
 * layout.c
 *		The layout: offsets in a slot, and slots on a page. Adding a row to a slot.
 */
#include "storage/storage.h"

#include <float.h>

#include "distance/sparse.h"
#include "pq/pq.h"

/* The fewest heap TIDs that a slot has room for: versions of one row. */
#define MIN_INLINE_TIDS 3

/*
 * Narrower vectors are quantised only if the user says so: graphs of wider
 * ones may be built from reduced forms (graph/reduce.c).
 */
#define MIN_AUTO_SQ_DIM 512

/*
 * Compute the layout for the dim, type, metric, storage, max_degree, pq_bytes
 * (0: by dim) and row_bytes of `wanted`, which may be the layout itself.
 * fillfactor is a percentage.
 */
void
PipeannLayoutInit(PipeannLayout *l, const PipeannLayout *wanted,
				  int fillfactor)
{
	PipeannLayout w = *wanted;
	uint32		vector_size = INTALIGN(PipeannVectorBytes(w.storage, w.dim));
	uint32		min_size;

	memset(l, 0, sizeof(*l));
	l->dim = w.dim;
	l->metric = w.metric;
	l->storage = w.storage;
	l->type = w.type;
	l->max_degree = w.max_degree;
	l->row_bytes = w.row_bytes;
	l->pq_bytes = w.pq_bytes > 0 ? Min(w.pq_bytes, w.dim) :
		PipeannPqAutoBytes(w.storage, w.dim);
	l->pq_bytes = Min(l->pq_bytes, PIPEANN_PAYLOAD - PIPEANN_MAX_ATTRIBUTE_BYTES);

	l->tids_offset = PIPEANN_SLOT_HEADER + l->max_degree * sizeof(uint32);
	min_size = INTALIGN(l->tids_offset +
						(l->row_bytes > 0 ? l->row_bytes :
						 MIN_INLINE_TIDS * sizeof(ItemPointerData))) + vector_size;
	if (min_size <= PIPEANN_PAYLOAD)
	{
		l->node_pages = 1;
		l->slots_per_page = PIPEANN_PAYLOAD / min_size;
		l->slot_size = (PIPEANN_PAYLOAD / l->slots_per_page) & ~3;
	}
	else
	{
		l->node_pages = (min_size + PIPEANN_PAYLOAD - 1) / PIPEANN_PAYLOAD;
		l->slots_per_page = 1;
		l->slot_size = min_size;
	}
	l->fill = Max(1, l->slots_per_page * fillfactor / 100);
	/* what is left of the page is room for more rows */
	l->vector_offset = l->node_pages > 1 ? min_size - vector_size :
		l->slot_size - vector_size;
	if (l->row_bytes == 0)
		l->inline_tids = Min((l->vector_offset - l->tids_offset) /
							 sizeof(ItemPointerData), 32);
	PipeannSetAttributeBytes(l, 0);
}

/* Overflow slots for rows that do not fit in the slots of nodes. */
uint64
PipeannLayoutParts(const PipeannLayout *l, const PipeannRowSizes *sizes)
{
	uint64		parts = 0;

	for (uint32 i = 0; i < PIPEANN_ROW_CLASSES; i++)
	{
		uint32		size = (i + 1) * PIPEANN_ROW_CLASS;

		if (size > PipeannInlineBytes(l))
			parts += (uint64) sizes->count[i] * PipeannPartsOf(l, size);
	}
	return parts;
}

/* Blocks for all rows, each a node, with row_bytes for rows in a slot. */
static double
BlocksWith(const PipeannLayout *base, int row_bytes,
		   const PipeannRowSizes *sizes)
{
	PipeannLayout l = *base;

	l.row_bytes = row_bytes;
	PipeannLayoutInit(&l, &l, 100);
	return (double) (sizes->rows + PipeannLayoutParts(&l, sizes)) *
		l.node_pages / l.slots_per_page;
}

/*
 * The row_bytes with which an index is smallest: a longer row takes slots of
 * its own. It has room for two rows of average length, so that a row and its
 * next version fit.
 */
int
PipeannLayoutRowBytes(const PipeannLayout *l, const PipeannRowSizes *sizes)
{
	int			least = sizes->rows == 0 ? 0 :
		(int) (2 * sizes->bytes / sizes->rows);
	int			best = 0;
	double		blocks = DBL_MAX;

	least = Min(Max(least, PIPEANN_LEAST_ROW_BYTES), PIPEANN_MOST_ROW_BYTES);
	for (int bytes = least; bytes <= PIPEANN_MOST_ROW_BYTES;
		 bytes += PIPEANN_ROW_CLASS)
	{
		double		now = BlocksWith(l, bytes, sizes);

		if (now < blocks)
		{
			blocks = now;
			best = bytes;
		}
	}
	return best;
}

/* Nodes on a page of an index with this storage. */
static double
NodesWith(const PipeannLayout *wanted, PipeannStorage storage,
		  const PipeannRowSizes *sizes)
{
	PipeannLayout l = *wanted;

	l.storage = storage;
	if (l.row_bytes > 0 && sizes != NULL)
		l.row_bytes = PipeannLayoutRowBytes(&l, sizes);
	PipeannLayoutInit(&l, &l, 100);
	return (double) l.slots_per_page / l.node_pages;
}

/*
 * The storage for vectors that are rounded, where dim, metric, max_degree and
 * row_bytes are as wanted (for rows of these sizes, unless NULL): half
 * precision, or scalar quantisation if with 12 bits a page holds a quarter
 * more nodes; then with the most bits with which it holds as many.
 */
PipeannStorage
PipeannLayoutRounding(const PipeannLayout *wanted, const PipeannRowSizes *sizes)
{
	PipeannStorage storage = PIPEANN_SQ14;
	double		most;

	if (wanted->dim < MIN_AUTO_SQ_DIM || !PipeannSqSuits(wanted->dim) ||
		wanted->metric == PIPEANN_L1)
		return PIPEANN_FLOAT2;
	most = NodesWith(wanted, PIPEANN_SQ12, sizes);
	if (most < 1.25 * NodesWith(wanted, PIPEANN_FLOAT2, sizes))
		return PIPEANN_FLOAT2;
	while (NodesWith(wanted, storage, sizes) < most)
		storage--;
	return storage;
}

/*
 * The smallest storage, up to `whole`, with room for all but one in MOST_LONG
 * of `rows` sparse vectors, of which forms[s] need storage s. A few rows may
 * not be typical of those to come. Sets *long_bytes to the most bytes that the
 * vectors without room may take.
 */
#define MOST_LONG 20
#define SPARSE_JUDGED 1000

PipeannStorage
PipeannLayoutSparse(PipeannStorage whole, const uint64 *forms, uint64 rows,
					uint64 *long_bytes)
{
	PipeannStorage storage = PipeannSparseFor(whole, rows < SPARSE_JUDGED ?
											  PIPEANN_SPARSE_UNKNOWN : 0);
	uint64		longer = 0;

	for (PipeannStorage s = storage + 1; s <= whole; s++)
		longer += forms[s];
	while (longer > rows / MOST_LONG)
		longer -= forms[++storage];
	*long_bytes = 0;
	for (PipeannStorage s = storage + 1; s <= whole; s++)
		*long_bytes += forms[s] * PipeannVectorBytes(s, PIPEANN_SPARSE_DIM);
	return storage;
}

/* Add a row behind the others of a slot; false if it has no room for it. */
bool
PipeannSlotAddRow(const PipeannLayout *l, PipeannSlot *slot,
				  const PipeannRow *row)
{
	PipeannRowList list = PipeannAnyRows(l, slot);
	uint32		size = PipeannRowSize(l, row);
	uint32		room = slot->flags & PIPEANN_SLOT_EXT ? PipeannExtBytes(l) :
		PipeannInlineBytes(l);

	if (list.n < slot->ntids || list.bytes + size > room)
		return false;
	memcpy((char *) list.rows + list.bytes, row, size);
	slot->ntids++;
	return true;
}
