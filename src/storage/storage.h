/*
 * storage.h
 *		The on-disk format. Nothing outside page/ knows an offset.
 *
 * Block 0 is the metapage. The file is divided into extents of 1 MB; the first
 * block of each is left empty (in the first it is the metapage), so that
 * extents begin where segments do; the others hold pages of one kind, numbered
 * in order through all extents of that kind (page ordinals). The extent map
 * says which extent holds ordinals n .. n + 126 of a kind, so node id -> block
 * and slot is arithmetic, and any part can grow.
 *
 * Every page ends in a checksum of our own over all of it but its LSN and
 * PostgreSQL's checksum, seeded with the block number. Reads that bypass
 * shared_buffers need it even where the cluster has no checksums: it catches a
 * page torn by a concurrent write, a misplaced page, and rotten bits.
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
#define PIPEANN_PAGE_ID 0xFFA7	/* last bytes of a page, for pg_filedump */

#define PIPEANN_METAPAGE 0
#define PIPEANN_EXTENT_BLOCKS ((BlockNumber) (1024 * 1024 / BLCKSZ))
#define PIPEANN_EXTENT_USABLE (PIPEANN_EXTENT_BLOCKS - 1)

/* Page and extent kinds. Stored on disk: never renumber. */
typedef enum PipeannKind
{
	PIPEANN_FREE = 0,			/* extents of a former packing */
	PIPEANN_META = 1,			/* block 0 */
	PIPEANN_NEXT_GRAPH = 2,		/* extents of a new packing, until it is in use */
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
 * them (retrain/retrain.c): searches use some pages while others are written. Codes
 * of even and odd generations are of different kinds; codebooks and entry
 * graphs share their kind's pages, which are few, and differ in the first one.
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

static inline char *
PipeannPagePayload(Page page)
{
	return (char *) page + PIPEANN_CONTENTS_OFFSET;
}

/* Parts of the extent map. */
#define PIPEANN_MAP_INLINE 1400
#define PIPEANN_MAP_EXTENTS 144
#define PIPEANN_MAP_PER_PAGE (PIPEANN_PAYLOAD / sizeof(uint32))
#define PIPEANN_EXTENT_ENTRY(kind, ordinal) \
	(((uint32) (kind) << 28) | (uint32) (ordinal))
#define PIPEANN_ENTRY_KIND(entry) ((entry) >> 28)
#define PIPEANN_ENTRY_ORDINAL(entry) ((entry) & 0x0FFFFFFF)

/* Code pages changed last, by which copies in memory follow. */
#define PIPEANN_CHANGE_RING 256

#define PIPEANN_META_AUTO_STORAGE 0x0001	/* storage was chosen by us */
#define PIPEANN_META_HAS_CODES 0x0002	/* codebook, codes, entry graph */
#define PIPEANN_META_RETRAINING 0x0010	/* the next generation is being written */
#define PIPEANN_META_REPAIRING 0x0004	/* VACUUM has nodes to take out */
#define PIPEANN_META_HAS_FREE 0x0008	/* the free space map knows of slots */

/*
 * Where m comes from: the option, or for m = 0 what a profile found (see
 * build/degree.c), or that there was none. On disk: never renumber.
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
	float		read_us;		/* a page at random */
	float		neighbor_ns;	/* a code distance */
	float		node_ns;		/* an exact distance */
	uint32		balanced;		/* degree whose distances take a read's time */
} PipeannDegree;

typedef struct PipeannMeta
{
	uint32		magic;
	uint32		format;
	PipeannLayout layout;
	uint16		m;
	uint16		ef_construction;
	uint16		flags;
	uint16		entry_degree;	/* neighbours of an entry graph node */
	float		max_norm;		/* IP: M */
	uint32		entry_count;	/* nodes of the entry graph */
	uint64		build_id;		/* random; tells builds and generations of one
								 * file apart */
	uint32		generation;		/* of codes, codebook and entry graph */
	uint32		entry_first;	/* page of kind ENTRY where that begins */
	uint32		attempt;		/* how often a next one was begun */
	uint64		trained_nodes;	/* when this one was */
	float		code_error;		/* mean squared error of its codes then */
	uint32		graph_pages;	/* ids run from 0 to this * slots_per_page */
	uint32		code_pages;		/* code pages written; those after may miss */
	uint64		nodes;			/* nodes written and not freed */
	uint32		extents;		/* in the extent map */
	uint32		kind_extents[PIPEANN_NUM_KINDS];	/* of each kind */
	uint32		entry_dead;		/* dead nodes of the entry graph, kept */
	uint32		root;			/* node from where spanning-tree edges lead on */
	uint64		entry_changes;	/* times that its ids were changed */
	uint64		changes;		/* code pages changed since the build */
	uint32		change_ring[PIPEANN_CHANGE_RING];	/* their ordinals */
	uint32		map_extents[PIPEANN_MAP_EXTENTS];	/* extents of kind MAP */
	uint32		map[PIPEANN_MAP_INLINE];
	PipeannDegree degree;		/* why m is what it is */
	uint32		packings;		/* times that the graph was packed anew */
	uint32		reusable;		/* extents of packings before this one are used
								 * again */
	uint64		free_xid;		/* full transaction id when the last went out of
								 * use */
	uint64		packed_nodes;		/* nodes then, or when it was built */
} PipeannMeta;

StaticAssertDecl(BLCKSZ < 8192 ||
				 sizeof(PipeannMeta) <= BLCKSZ - 32,
				 "metapage does not fit a block");

static inline PipeannMeta *
PipeannPageGetMeta(Page page)
{
	return (PipeannMeta *) PipeannPagePayload(page);
}

/* Extents that have been given to a kind: within a layout they only get more. */
static inline uint32
PipeannExtentsInUse(const PipeannMeta *meta)
{
	return meta->extents - meta->kind_extents[PIPEANN_FREE];
}

/* Graph pages an extent holds. */
static inline uint32
PipeannGraphPagesPerExtent(const PipeannLayout *l)
{
	return PIPEANN_EXTENT_USABLE / l->node_pages;
}

static inline uint32
PipeannCodesPerPage(const PipeannLayout *l)
{
	return PIPEANN_PAYLOAD / l->pq_bytes;
}

/*
 * Bytes of an overflow slot's body, and the TIDs it takes. A slot of several
 * blocks uses its first block only, so that every change to it is to one page.
 */
static inline uint32
PipeannExtBytes(const PipeannLayout *l)
{
	return Min(l->slot_size, (uint32) PIPEANN_PAYLOAD) - PIPEANN_SLOT_HEADER;
}

static inline uint32
PipeannExtTids(const PipeannLayout *l)
{
	return PipeannExtBytes(l) / sizeof(ItemPointerData);
}

/* Bytes of the codebook, float[dim * 256]. */
static inline Size
PipeannCodebookBytes(const PipeannLayout *l)
{
	return mul_size(l->dim, 256 * sizeof(float));
}

/* layout.c */

/*
 * Compute the layout. Errors with ERRCODE_PROGRAM_LIMIT_EXCEEDED when dim is
 * over what vector allows. fillfactor in per cent.
 */
extern void PipeannLayoutInit(PipeannLayout *l, int dim, PipeannMetric metric,
							  PipeannStorage storage, int m, int pq_bytes,
							  int fillfactor);

/*
 * The contiguous payload of a graph page read into raw (node_pages blocks):
 * moves the payloads together in place when there are several blocks.
 */
extern char *PipeannUnpackNode(const PipeannLayout *l, char *raw);

/* page.c */

/* 32-bit hash of a page, LSN and pd_checksum left out; blkno is the seed. */
extern uint32 PipeannPageChecksum(const char *page, BlockNumber blkno);

/* Make an empty page of a kind. */
extern void PipeannPageInit(Page page, PipeannKind kind);

/*
 * Tell that the payload is in use up to here, and zero behind: WAL leaves that
 * out. A page that is new is told to be no fuller.
 */
extern void PipeannPageFill(Page page, Size used, bool is_new);

/* Set our checksum: last thing before a changed page is let go of. */
extern void PipeannPageSeal(Page page, BlockNumber blkno);

/*
 * Whether a page read past shared_buffers may be believed: PostgreSQL's
 * checksum where the cluster has them, ours, and the kind. A page never
 * written (all zero) is valid too; callers test PageIsNew().
 */
extern bool PipeannPageIsValid(const char *page, BlockNumber blkno,
							   PipeannKind kind);

/* Whether a page's header is right and its kind is this: no checksum. */
extern bool PipeannPageIsKind(const char *page, PipeannKind kind);

/*
 * Error with ERRCODE_INDEX_CORRUPTED naming index and block unless our
 * checksum and kind are right. For pages in shared_buffers.
 */
extern void PipeannPageCheck(Relation index, Page page, BlockNumber blkno,
							 PipeannKind kind);

/*
 * Read a block through shared_buffers, lock it and check it. A new (all zero)
 * page is an error unless new_ok.
 */
extern Buffer PipeannReadBuffer(Relation index, BlockNumber blkno,
								PipeannKind kind, int lockmode, bool new_ok,
								BufferAccessStrategy strategy);

/* meta.c */

/* Fill block 0's page for an index without rows. */
extern void PipeannMetaInitPage(Page page, const PipeannMeta *meta);

/* Copy the metapage, checked: magic, format, layout, counts. */
extern void PipeannMetaRead(Relation index, PipeannMeta *meta);

/*
 * Start changing the metapage: locked exclusively, registered for WAL.
 * Everything but the locking goes through the returned pointer.
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

/* Draw another build_id: caches made by the former one are out of date. */
extern void PipeannNewBuildId(PipeannMeta *meta);

/* Note a change of a code page in the ring (inside an update). */
extern void PipeannMetaNoteChange(PipeannMeta *meta, uint32 code_page);

/* extent.c */

/*
 * The extent map of an index in memory: for each kind, the extent numbers in
 * ordinal order. Backend-local, in the given context.
 */
typedef struct PipeannExtentMap
{
	uint32		count[PIPEANN_NUM_KINDS];
	uint32	   *extents[PIPEANN_NUM_KINDS];
} PipeannExtentMap;

extern void PipeannExtentMapLoad(Relation index, const PipeannMeta *meta,
								 MemoryContext context,
								 PipeannExtentMap *map);
extern void PipeannExtentMapFree(PipeannExtentMap *map);

/*
 * Block of a page ordinal, or InvalidBlockNumber where the map has no such
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

/* Ids that the map has graph extents for: no page of a higher one is known. */
static inline uint32
PipeannGraphIds(const PipeannExtentMap *map, const PipeannLayout *l)
{
	uint64		ids = (uint64) map->count[PIPEANN_GRAPH] *
		PipeannGraphPagesPerExtent(l) * l->slots_per_page;

	return (uint32) Min(ids, PIPEANN_INVALID_ID);
}

static inline BlockNumber
PipeannGraphBlock(const PipeannExtentMap *map, const PipeannLayout *l,
				  uint32 page)
{
	return PipeannExtentBlock(map, PIPEANN_GRAPH, page,
							  PipeannGraphPagesPerExtent(l), l->node_pages);
}

static inline BlockNumber
PipeannPlainBlock(const PipeannExtentMap *map, PipeannKind kind,
				  uint32 ordinal)
{
	return PipeannExtentBlock(map, kind, ordinal, PIPEANN_EXTENT_USABLE, 1);
}

/*
 * Give an extent to a kind, inside a metapage update: the next one, or for graph
 * pages one of a former packing that no scan can be in any more. Who wants one for
 * PIPEANN_GRAPH holds PIPEANN_EXTENT_LOCK. Returns its number. The file grows when its pages are first asked for. Errors when the
 * map is full (32 TB). A map entry that stands on a map page is WAL-logged
 * with a record of its own, before the metapage that counts it.
 */
extern uint32 PipeannExtentAdd(Relation index, PipeannMeta *meta,
							   PipeannKind kind);

/*
 * Heavyweight page lock of whoever gives out an extent of graph pages to inserts:
 * from when it empties the extent until the metapage says whose it is.
 */
#define PIPEANN_EXTENT_LOCK 3

/*
 * Empty the extent that PipeannExtentAdd() would use again, if there is one, before
 * the metapage is locked: it is many pages to write, and everybody reads the
 * metapage. For the holder of PIPEANN_EXTENT_LOCK.
 */
extern void PipeannExtentEmptyNext(Relation index);

/*
 * Make sure that a block exists (extend the file with empty pages), then
 * return it exclusively locked. The page may be new or initialised.
 */
extern Buffer PipeannGetBlock(Relation index, BlockNumber blkno);

/*
 * Make a block an empty graph page and WAL-log it, inside no update of another
 * page but the metapage.
 */
extern void PipeannEmptyBlock(Relation index, BlockNumber blkno);

/* stream.c */

/*
 * A kind's pages from `first` on as one run of bytes: codebook and entry graph.
 * Pages written must have their extents; WAL-logged when wal is true.
 */
static inline uint32
PipeannStreamPages(Size length)
{
	return (length + PIPEANN_PAYLOAD - 1) / PIPEANN_PAYLOAD;
}

/* Where a generation's codebook begins. */
static inline uint32
PipeannCodebookFirst(const PipeannLayout *l, uint32 generation)
{
	return generation % 2 * PipeannStreamPages(PipeannCodebookBytes(l));
}

extern void PipeannStreamRead(Relation index, const PipeannExtentMap *map,
							  PipeannKind kind, uint32 first, void *dst,
							  Size length);

/*
 * Change one of a stream's words, number `at` from the beginning, as part of a
 * WAL record; returns the page's buffer, locked until that is finished.
 */
extern Buffer PipeannStreamPut(Relation index, const PipeannExtentMap *map,
							   PipeannKind kind, uint32 first, uint32 at,
							   uint32 word, GenericXLogState *state);
extern void PipeannStreamWrite(Relation index, const PipeannExtentMap *map,
							   PipeannKind kind, uint32 first,
							   const void *src, Size length, bool wal);

#endif							/* PIPEANN_PAGE_H */
