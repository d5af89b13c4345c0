/*
 * storage.h
 *		The on-disk format.
 *
 * This room alone knows offsets in pages and slots. It must not know what the
 * pages are used for.
 *
 * Block 0 is the metapage. The file is divided into extents of 1 MB. The first
 * block of each is left empty (in the first extent it is the metapage), so that
 * extents begin where segments of the file do. The other blocks hold pages of one
 * kind, numbered through all extents of that kind (page ordinals). The extent map
 * says which extent holds ordinals n .. n + 126 of a kind, so a node's block and
 * slot are found by arithmetic, and every kind can grow.
 *
 * Every page ends in a checksum of our own over all of it except its LSN and
 * PostgreSQL's checksum, seeded with the block number. Reads that bypass
 * shared_buffers need it even in a cluster with checksums off: it detects a
 * page torn by a concurrent write, a misplaced page, and broken bits.
 */
#ifndef PIPEANN_PAGE_H
#define PIPEANN_PAGE_H

#include "base/base.h"
#include "storage/slot.h"

#include "access/generic_xlog.h"
#include "storage/block.h"
#include "storage/bufmgr.h"
#include "storage/bufpage.h"
#include "storage/itemptr.h"
#include "utils/relcache.h"

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

#define PIPEANN_MAGIC 0x50414E4EU
#define PIPEANN_FORMAT 2
#define PIPEANN_FORMAT_VALUES 3 /* rows have values */
#define PIPEANN_FORMAT_ATTRIBUTES 4 /* nodes have attribute codes, too */
#define PIPEANN_FORMAT_WIDTHS 5 /* the metapage has the codes' widths */
#define PIPEANN_FORMAT_CLASSES 6	/* codes are made by operator classes, where
									 * these compare otherwise than types do */
#define PIPEANN_PAGE_ID 0xFFA7	/* last bytes of a page, for pg_filedump */

#define PIPEANN_METAPAGE 0
#define PIPEANN_EXTENT_BLOCKS ((BlockNumber) (1024 * 1024 / BLCKSZ))
#define PIPEANN_EXTENT_USABLE (PIPEANN_EXTENT_BLOCKS - 1)

/* Page and extent kinds. Stored on disk: never renumber. */
typedef enum PipeannKind
{
	PIPEANN_FREE = 0,			/* extents of a former packing */
	PIPEANN_META = 1,			/* block 0 */
	PIPEANN_NEXT_GRAPH = 2,		/* extents of a packing not yet in use */
	PIPEANN_GRAPH = 3,			/* nodes */
	PIPEANN_CODES = 4,			/* PQ codes, by node id */
	PIPEANN_CODEBOOK = 5,		/* PQ centroids */
	PIPEANN_ENTRY = 6,			/* entry graph */
	PIPEANN_MAP = 7,			/* extent map past the metapage's part */
	PIPEANN_CODES_ODD = 8		/* codes of odd generations */
} PipeannKind;

#define PIPEANN_NUM_KINDS 9

/*
 * Codes, codebook and entry graph are made anew when the index has outgrown
 * them (build/retrain.c): searches use some pages while others are written.
 * So codes of even and odd generations are of different kinds; codebooks and
 * entry graphs, which take few pages, share a kind and differ in their first
 * page.
 */
static inline PipeannKind
PipeannCodesKind(uint32 generation)
{
	return generation % 2 == 0 ? PIPEANN_CODES : PIPEANN_CODES_ODD;
}

typedef struct PipeannPageOpaque
{
	uint32		checksum;
	uint16		kind;
	uint16		page_id;
} PipeannPageOpaque;

#define PipeannPageGetOpaque(page) \
	((PipeannPageOpaque *) PageGetSpecialPointer(page))

#define PIPEANN_CONTENTS_OFFSET MAXALIGN(SizeOfPageHeaderData)
#define PIPEANN_PAYLOAD \
	(BLCKSZ - PIPEANN_CONTENTS_OFFSET - MAXALIGN(sizeof(PipeannPageOpaque)))

#include "storage/codes.h"

/* A page's contents: PIPEANN_PAYLOAD bytes. */
static inline char *
PipeannPagePayload(Page page)
{
	return (char *) page + PIPEANN_CONTENTS_OFFSET;
}

/* Fields of an entry of the extent map. */
#define PIPEANN_MAP_INLINE 1400
#define PIPEANN_MAP_EXTENTS 144
#define PIPEANN_MAP_PER_PAGE (PIPEANN_PAYLOAD / sizeof(uint32))
#define PIPEANN_EXTENT_ENTRY(kind, ordinal) \
	(((uint32) (kind) << 28) | (uint32) (ordinal))
#define PIPEANN_ENTRY_KIND(entry) ((entry) >> 28)
#define PIPEANN_ENTRY_ORDINAL(entry) ((entry) & 0x0FFFFFFF)

/* Length of the ring of code pages changed last, which caches follow. */
#define PIPEANN_CHANGE_RING 256

#define PIPEANN_META_AUTO_STORAGE 0x0001	/* the build chose the storage */
#define PIPEANN_META_HAS_CODES 0x0002	/* codebook, codes, entry graph exist */
#define PIPEANN_META_RETRAINING 0x0010	/* the next generation is being made */
#define PIPEANN_META_REPAIRING 0x0004	/* VACUUM has nodes to remove */
#define PIPEANN_META_HAS_FREE 0x0008	/* the free space map has slots */
#define PIPEANN_META_SIGNED_ZEROS 0x0020	/* no zero has lost its sign */
#define PIPEANN_META_ALL_ROWS 0x0100	/* no row of the table is left out: one
										 * without a vector, or zero for cosine */

/*
 * Where m comes from: the option, or for m = 0 a profile (index/degree.c) or
 * the lack of one. Stored on disk: never renumber.
 */
typedef enum PipeannDegreeReason
{
	PIPEANN_DEGREE_OPTION = 0,
	PIPEANN_DEGREE_PROFILED = 1,
	PIPEANN_DEGREE_FEW_ROWS = 2,
	PIPEANN_DEGREE_NO_PROFILE = 3
} PipeannDegreeReason;

typedef struct PipeannDegree
{
	uint32		reason;
	float		read_us;		/* of a random page */
	float		neighbor_ns;	/* of a code distance */
	float		node_ns;		/* of an exact distance */
	uint32		balanced;		/* degree for which both take as long */
} PipeannDegree;

/*
 * How an index was built, for users. All zeroes if it was made empty, or by a
 * library that did not note it.
 */
#define PIPEANN_BUILD_PHASES 10

typedef struct PipeannBuilt
{
	uint32		processes;
	uint32		ms[PIPEANN_BUILD_PHASES];	/* by phase (build/build.h) */
} PipeannBuilt;

typedef struct PipeannMeta
{
	uint32		magic;
	uint32		format;
	PipeannLayout layout;
	uint16		m;
	uint16		ef_construction;
	uint16		flags;
	uint16		entry_degree;	/* neighbours of an entry graph node */
	float		max_norm;		/* for inner product: of all vectors */
	uint32		entry_count;	/* nodes of the entry graph */
	uint64		build_id;		/* random; tells builds and generations of one
								 * file apart */
	uint32		generation;		/* of codes, codebook and entry graph */
	uint32		entry_first;	/* first page of the entry graph */
	uint32		attempt;		/* retrainings begun */
	uint64		trained_nodes;	/* nodes when this generation was trained */
	float		code_error;		/* mean squared error of its codes then */
	uint32		graph_pages;	/* ids are below this * slots_per_page */
	uint32		code_pages;		/* code pages that were written */
	uint64		nodes;			/* nodes written and not freed */
	uint32		extents;		/* in the extent map */
	uint32		kind_extents[PIPEANN_NUM_KINDS];	/* of each kind */
	uint32		entry_dead;		/* dead nodes that stay in the entry graph */
	uint32		root;			/* node at the root of the spanning tree */
	uint64		entry_changes;	/* changes of the entry graph's ids */
	uint64		changes;		/* changes of code pages since the build */
	uint32		change_ring[PIPEANN_CHANGE_RING];	/* their ordinals */
	uint32		map_extents[PIPEANN_MAP_EXTENTS];	/* extents of kind MAP */
	uint32		map[PIPEANN_MAP_INLINE];
	PipeannDegree degree;		/* how m was chosen */
	uint32		packings;		/* how often the graph was packed anew */
	uint32		reusable;		/* extents of packings before this one may be
								 * used again */
	uint64		free_xid;		/* next full transaction id when the last
								 * packing went out of use */
	uint64		packed_nodes;	/* nodes when the graph was packed or built */
	PipeannBuilt built;
	uint32		removals;		/* odd while VACUUM removes rows; grows */
	PipeannWidths widths;
	double		strayed;		/* of nodes inserted since trained_nodes: sum
								 * of (code error / code_error - 1) */
} PipeannMeta;

StaticAssertDecl(BLCKSZ < 8192 ||
				 sizeof(PipeannMeta) <= BLCKSZ - 32,
				 "metapage does not fit a block");

static inline PipeannMeta *
PipeannPageGetMeta(Page page)
{
	return (PipeannMeta *) PipeannPagePayload(page);
}

/* Extents that a kind has; the number only grows within a layout. */
static inline uint32
PipeannExtentsInUse(const PipeannMeta *meta)
{
	return meta->extents - meta->kind_extents[PIPEANN_FREE];
}

/* Graph pages of an extent. */
static inline uint32
PipeannGraphPagesPerExtent(const PipeannLayout *l)
{
	return PIPEANN_EXTENT_USABLE / l->node_pages;
}

/* Extents that so many pages take. */
static inline uint64
PipeannExtentsOf(uint64 pages, uint32 per_extent)
{
	return (pages + per_extent - 1) / per_extent;
}

/*
 * Blocks of a file of so many extents, the last of which has the end of so many
 * pages of a kind: the file ends with the last page written.
 */
static inline uint64
PipeannBlocksUpTo(uint64 extents, uint64 pages, uint32 per_extent,
				  int page_blocks)
{
	uint64		full = pages > 0 ? (pages - 1) / per_extent : 0;

	return (extents - 1) * PIPEANN_EXTENT_BLOCKS + 1 +
		(pages - full * per_extent) * page_blocks;
}

/*
 * Bytes of an overflow slot's contents. A slot of several blocks uses only its
 * first block, so that each change is to one page.
 */
static inline uint32
PipeannExtBytes(const PipeannLayout *l)
{
	return Min(l->slot_size, (uint32) PIPEANN_PAYLOAD) - PIPEANN_SLOT_HEADER;
}

/* layout.c */

/*
 * Compute the layout. fillfactor is in per cent. row_bytes are wanted for rows
 * with values, 0 if they have none. Errors with ERRCODE_PROGRAM_LIMIT_EXCEEDED
 * if dim is too large.
 */
extern void PipeannLayoutInit(PipeannLayout *l, int dim, PipeannMetric metric,
							  PipeannStorage storage, int m, int pq_bytes,
							  int fillfactor, int row_bytes);

/* Bounds of row_bytes. */
#define PIPEANN_LEAST_ROW_BYTES ((int) (2 * sizeof(PipeannRowApart)))
#define PIPEANN_MOST_ROW_BYTES ((int) (PIPEANN_PAYLOAD / 2))

/* How long the rows with values are that an index has to hold. */
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

/* Overflow slots for rows that do not fit the slots of nodes. */
extern uint64 PipeannLayoutParts(const PipeannLayout *l,
								 const PipeannRowSizes *sizes);

/*
 * The row_bytes with which an index takes the least room: a row that is longer
 * takes slots of its own. There is room for two rows of the average length, so that
 * a new version of a row has room beside the former.
 */
extern int	PipeannLayoutRowBytes(const PipeannLayout *l,
								  const PipeannRowSizes *sizes);

/*
 * Move the payloads of a graph page, read into raw[node_pages blocks],
 * together in place; returns the contiguous payload.
 */
extern char *PipeannUnpackNode(const PipeannLayout *l, char *raw);

/* rows.c: the rows of slots */

/* What stands in the place of a row that is out of line. */
extern PipeannRowApart PipeannRowSetApart(const PipeannRow *row, uint32 first);

/* Bytes of a vector or row in one overflow slot, but for the last one. */
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

/* Rows of an overflow slot; none if that has a part of a vector. */
extern PipeannRowList PipeannExtRows(const PipeannLayout *l,
									 const PipeannSlot *slot);

/* Rows of a slot of either kind. */
extern PipeannRowList PipeannAnyRows(const PipeannLayout *l,
									 const PipeannSlot *slot);

/* Add a row behind the others of a slot; false if it has no room for it. */
extern bool PipeannSlotAddRow(const PipeannLayout *l, PipeannSlot *slot,
							  const PipeannRow *row);

/*
 * Remove the rows for which is_dead() is true, in place. Returns how many went.
 */
typedef bool (*PipeannRowIsDead) (const PipeannRow *row, void *arg);

extern uint32 PipeannSlotRemoveRows(const PipeannLayout *l, PipeannSlot *slot,
									PipeannRowIsDead is_dead, void *arg);

/*
 * How rows are divided among a node's slot and overflow slots, one after the
 * other, when all are known.
 */
typedef struct PipeannRowFill
{
	const PipeannLayout *layout;
	uint32		left;			/* bytes in the slot reached */
	uint32		ext_slots;		/* overflow slots begun */
	uint32		parts;			/* overflow slots for rows out of line */
} PipeannRowFill;

extern void PipeannRowFillBegin(PipeannRowFill *fill, const PipeannLayout *l);

/*
 * The number of the overflow slot for the next row, from 1; 0 for inline. For a
 * long row it is that of what stands in its place.
 */
extern uint32 PipeannRowFillNext(PipeannRowFill *fill, const PipeannRow *row);

/* page.c */

/* 32-bit hash of a page without LSN and pd_checksum, seeded with blkno. */
extern uint32 PipeannPageChecksum(const char *page, BlockNumber blkno);

/* Make an empty page of a kind. */
extern void PipeannPageInit(Page page, PipeannKind kind);

/*
 * Say that the payload is in use up to `used`, and zero the rest, which WAL
 * then leaves out. A page that is not new never becomes less full by this.
 */
extern void PipeannPageFill(Page page, Size used, bool is_new);

/* Set our checksum, as the last change before a page is released. */
extern void PipeannPageSeal(Page page, BlockNumber blkno);

/*
 * Whether a page that was read past shared_buffers is sound: by PostgreSQL's
 * checksum if the cluster has them, ours, and the kind. A page never written
 * (all zero) is valid, too; callers test PageIsNew().
 */
extern bool PipeannPageIsValid(const char *page, BlockNumber blkno,
							   PipeannKind kind);

/* Whether a page's header and kind are right; looks at no checksum. */
extern bool PipeannPageIsKind(const char *page, PipeannKind kind);

/*
 * Errors with ERRCODE_INDEX_CORRUPTED, naming index and block, unless our
 * checksum and the kind are right. For pages in shared_buffers.
 */
extern void PipeannPageCheck(Relation index, Page page, BlockNumber blkno,
							 PipeannKind kind);

/*
 * Read a block through shared_buffers, lock it and check it. A new (all zero)
 * page is an error unless new_ok is set.
 */
extern Buffer PipeannReadBuffer(Relation index, BlockNumber blkno,
								PipeannKind kind, int lockmode, bool new_ok,
								BufferAccessStrategy strategy);

/* meta.c */

/* Make block 0's page for an index without rows. */
extern void PipeannMetaInitPage(Page page, const PipeannMeta *meta);

/* Copy the metapage after checking magic, format, layout and counts. */
extern void PipeannMetaRead(Relation index, PipeannMeta *meta);

/* The metapage's removals as they are now. */
extern uint32 PipeannMetaRemovals(Relation index);

/*
 * Start to change the metapage, which is locked exclusively and registered for
 * WAL. All changes go through update->meta. End writes the record, Abort drops
 * the changes; both release the page.
 */
typedef struct PipeannMetaUpdate
{
	Buffer		buffer;
	GenericXLogState *state;
	PipeannMeta *meta;
} PipeannMetaUpdate;

extern void PipeannMetaBegin(Relation index, PipeannMetaUpdate *update);
extern void PipeannMetaEnd(PipeannMetaUpdate *update);
extern void PipeannMetaAbort(PipeannMetaUpdate *update);

/*
 * Set another random build_id, so that caches of the former one are out of
 * date.
 */
extern void PipeannNewBuildId(PipeannMeta *meta);

/* Note a change of a code page in the ring, inside an update. */
extern void PipeannMetaNoteChange(PipeannMeta *meta, uint32 code_page);

/* extent.c */

/*
 * The extent map in memory of this backend: for each kind, the extent numbers
 * in the order of their ordinals.
 */
typedef struct PipeannExtentMap
{
	uint32		count[PIPEANN_NUM_KINDS];
	uint32	   *extents[PIPEANN_NUM_KINDS];
} PipeannExtentMap;

/*
 * Read the extent map into context. Errors with ERRCODE_INDEX_CORRUPTED if it
 * is not complete.
 */
extern void PipeannExtentMapLoad(Relation index, const PipeannMeta *meta,
								 MemoryContext context,
								 PipeannExtentMap *map);
extern void PipeannExtentMapFree(PipeannExtentMap *map);

/*
 * The block of a page ordinal, or InvalidBlockNumber if the map has no such
 * extent. pages_per_extent is PIPEANN_EXTENT_USABLE, or for graph pages
 * PipeannGraphPagesPerExtent() with unit = node_pages.
 */
static inline BlockNumber
PipeannExtentBlock(const PipeannExtentMap *map, PipeannKind kind,
				   uint32 ordinal, uint32 pages_per_extent, uint32 unit)
{
	uint32		extent = ordinal / pages_per_extent;

	if (extent >= map->count[kind])
		return InvalidBlockNumber;
	return map->extents[kind][extent] * PIPEANN_EXTENT_BLOCKS + 1 +
		(ordinal % pages_per_extent) * unit;
}

/* Ids below this are on pages that the map knows. */
static inline uint32
PipeannGraphIds(const PipeannExtentMap *map, const PipeannLayout *l)
{
	uint64		ids = (uint64) map->count[PIPEANN_GRAPH] *
		PipeannGraphPagesPerExtent(l) * l->slots_per_page;

	return (uint32) Min(ids, PIPEANN_INVALID_ID);
}

/* The first block of a graph page, or InvalidBlockNumber. */
static inline BlockNumber
PipeannGraphBlock(const PipeannExtentMap *map, const PipeannLayout *l,
				  uint32 page)
{
	return PipeannExtentBlock(map, PIPEANN_GRAPH, page,
							  PipeannGraphPagesPerExtent(l), l->node_pages);
}

/* The block of a page of another kind, or InvalidBlockNumber. */
static inline BlockNumber
PipeannPlainBlock(const PipeannExtentMap *map, PipeannKind kind,
				  uint32 ordinal)
{
	return PipeannExtentBlock(map, kind, ordinal, PIPEANN_EXTENT_USABLE, 1);
}

/*
 * Give an extent to a kind, inside a metapage update; returns its number. It
 * is a new one or, for graph pages, one of a former packing that no scan can
 * be in any more. For PIPEANN_GRAPH the caller holds PIPEANN_EXTENT_LOCK. The
 * file grows when the pages are first asked for. Errors if the map is full (32
 * TB). An entry on a map page is WAL-logged with a record of its own, before
 * the metapage that counts it.
 */
extern uint32 PipeannExtentAdd(Relation index, PipeannMeta *meta,
							   PipeannKind kind);

/*
 * Heavyweight page lock for giving out an extent of graph pages to inserts,
 * from the emptying of the extent until the metapage gives it a kind.
 */
#define PIPEANN_EXTENT_LOCK 3

/*
 * Empty the extent that PipeannExtentAdd() would use again, if any. The holder
 * of PIPEANN_EXTENT_LOCK does so before it locks the metapage, since that is
 * read by everybody and this writes many pages.
 */
extern void PipeannExtentEmptyNext(Relation index);

/*
 * Make sure that a block exists (extend the file with empty pages), and return
 * it locked exclusively. The page may be new or initialised.
 */
extern Buffer PipeannGetBlock(Relation index, BlockNumber blkno);

/*
 * Make a block an empty graph page and WAL-log it; not inside updates of other
 * pages than the metapage.
 */
extern void PipeannEmptyBlock(Relation index, BlockNumber blkno);

/* stream.c */

/*
 * Streams: the pages of a kind from `first` on as one run of bytes, for
 * codebook and entry graph.
 */

/* Read length bytes of a stream, from its beginning, to dst. */
extern void PipeannStreamRead(Relation index, const PipeannExtentMap *map,
							  PipeannKind kind, uint32 first, void *dst,
							  Size length);

/*
 * Change word number `at` of a stream as part of a WAL record; returns the
 * page's buffer, to be unlocked when the record is finished.
 */
extern Buffer PipeannStreamPut(Relation index, const PipeannExtentMap *map,
							   PipeannKind kind, uint32 first, uint32 at,
							   uint32 word, GenericXLogState *state);

/*
 * Write a stream of length bytes to pages that have their extents; WAL-logged
 * if wal is set.
 */
extern void PipeannStreamWrite(Relation index, const PipeannExtentMap *map,
							   PipeannKind kind, uint32 first,
							   const void *src, Size length, bool wal);

#endif							/* PIPEANN_PAGE_H */
