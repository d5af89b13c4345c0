/*
 * storage.h
 *		The on-disk format.
 *
 * This room alone knows offsets in pages and slots. It must not know what the
 * pages are used for. src/README describes the file.
 */
#ifndef PIPEANN_STORAGE_H
#define PIPEANN_STORAGE_H

#include "storage/page.h"

#include "storage/itemptr.h"

/* The identity of a relation's file, under one name for all server versions. */
#if PG_VERSION_NUM >= 160000
#include "storage/relfilelocator.h"
typedef RelFileLocator PipeannLocator;
#define PipeannRelationLocator(relation) ((relation)->rd_locator)
#define PipeannLocatorEquals(a, b) RelFileLocatorEquals(a, b)
#define PipeannLocatorNumber(locator) ((locator).relNumber)
#else
#include "storage/relfilenode.h"
typedef RelFileNode PipeannLocator;
#define PipeannRelationLocator(relation) ((relation)->rd_node)
#define PipeannLocatorEquals(a, b) RelFileNodeEquals(a, b)
#define PipeannLocatorNumber(locator) ((locator).relNode)
#endif

/*
 * Bytes of an overflow slot's contents. A slot of several blocks uses only its
 * first block, so that each change is to one page.
 */
static inline uint32
PipeannExtBytes(const PipeannLayout *l)
{
	return Min(l->slot_size, (uint32) PIPEANN_PAYLOAD) - PIPEANN_SLOT_HEADER;
}

/* Bounds of row_bytes. */
#define PIPEANN_LEAST_ROW_BYTES ((int) (2 * sizeof(PipeannRowOutOfLine)))
#define PIPEANN_MOST_ROW_BYTES ((int) (PIPEANN_PAYLOAD / 2))

/* The lengths of the rows with values of an index, in classes. */
#define PIPEANN_ROW_CLASS 32
#define PIPEANN_ROW_CLASSES (PIPEANN_ROW_SIZE / PIPEANN_ROW_CLASS + 1)

typedef struct PipeannRowSizes
{
	uint64		rows;
	uint64		bytes;
	uint32		count[PIPEANN_ROW_CLASSES]; /* by (size - 1) / ROW_CLASS */
} PipeannRowSizes;

static inline void
PipeannRowSizesAdd(PipeannRowSizes *sizes, uint32 size)
{
	sizes->rows++;
	sizes->bytes += size;
	sizes->count[(size - 1) / PIPEANN_ROW_CLASS]++;
}

/* Bytes of a vector or row in each overflow slot but the last. */
static inline uint32
PipeannPartBytes(const PipeannLayout *l)
{
	return PipeannExtBytes(l) & ~(uint32) 3;
}

static inline uint32
PipeannPartsOf(const PipeannLayout *l, Size bytes)
{
	return (uint32) ((bytes + PipeannPartBytes(l) - 1) / PipeannPartBytes(l));
}

/* Room for the elements of sparse vectors if too few are known to judge. */
#define PIPEANN_SPARSE_UNKNOWN 128

/* Set the length of attribute codes, which the sizes of stripes depend on. */
static inline void
PipeannSetAttributeBytes(PipeannLayout *l, int bytes)
{
	l->attr_bytes = (uint8) bytes;
	PipeannStripesInit(l, PIPEANN_PAYLOAD, PIPEANN_STRIPE_BLOCKS);
}

/* layout.c */
extern void PipeannLayoutInit(PipeannLayout *l, const PipeannLayout *wanted,
							  int fillfactor);
extern uint64 PipeannLayoutParts(const PipeannLayout *l,
								 const PipeannRowSizes *sizes);
extern PipeannStorage PipeannLayoutSparse(PipeannStorage whole,
										  const uint64 *forms, uint64 rows,
										  uint64 *long_bytes);
extern PipeannStorage PipeannLayoutRounding(const PipeannLayout *wanted,
											const PipeannRowSizes *sizes);
extern int	PipeannLayoutRowBytes(const PipeannLayout *l,
								  const PipeannRowSizes *sizes);

/* extent.c */
extern uint32 PipeannCountGraphPages(Relation index, const PipeannLayout *l,
									 const PipeannExtents *extents,
									 uint32 graph_pages);
extern Buffer PipeannGetBlock(Relation index, BlockNumber blkno,
							  ReadBufferMode mode);
extern void PipeannWritePages(Relation index, BlockNumber first,
							  PipeannKind kind, uint32 generation,
							  const void *src, Size length, bool wal);
extern bool PipeannExtentRead(Relation index, BlockNumber first, PipeannKind kind,
							  uint32 generation, void *dst, Size length);
extern Buffer PipeannExtentPut(Relation index, BlockNumber blkno,
							   PipeannKind kind, const void *src, Size length,
							   GenericXLogState *state);

extern bool PipeannSlotAddRow(const PipeannLayout *l, PipeannSlot *slot,
							  const PipeannRow *row);

/* Rows of an overflow slot; none if that has a part of a vector. */
static inline PipeannRowList
PipeannExtRows(const PipeannLayout *l, const PipeannSlot *slot)
{
	return PipeannRowsOf(l, PipeannSlotBody(slot), PipeannExtBytes(l),
						 slot->length > 0 ? 0 : slot->ntids);
}

/* Rows of a slot of either kind. */
static inline PipeannRowList
PipeannAnyRows(const PipeannLayout *l, const PipeannSlot *slot)
{
	return slot->flags & PIPEANN_SLOT_EXT ? PipeannExtRows(l, slot) :
		PipeannSlotRows(l, slot);
}

#endif							/* PIPEANN_STORAGE_H */
