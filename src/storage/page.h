/*
 * page.h
 *		Pages, their kinds and contents; part of storage.h.
 */
#ifndef PIPEANN_PAGE_H
#define PIPEANN_PAGE_H

#include "base/base.h"
#include "access/generic_xlog.h"
#include "datatype/timestamp.h"
#include "storage/block.h"
#include "storage/bufmgr.h"
#include "storage/bufpage.h"
#include "storage/slot.h"
#include "utils/relcache.h"

#define PIPEANN_FORMAT 4
#define PIPEANN_MAGIC (0x70697000U | PIPEANN_FORMAT)	/* "pip" */
#define PIPEANN_PAGE_ID 0xFFA7	/* last bytes of a page, for pg_filedump */

#define PIPEANN_METAPAGE 0

/* The most blocks of a stripe: 512 kB. */
#define PIPEANN_STRIPE_BLOCKS (512 * 1024 / BLCKSZ)

/* Page kinds. Stored on disk: never renumber. */
typedef enum PipeannKind
{
	PIPEANN_META = 1,			/* block 0 */
	PIPEANN_GRAPH = 3,			/* nodes */
	PIPEANN_CODES = 4,			/* PQ codes, by node id */
	PIPEANN_CODEBOOK = 5,		/* PQ centroids, histograms of attribute codes */
	PIPEANN_ENTRY = 6			/* entry graph */
} PipeannKind;

typedef struct PipeannPageOpaque
{
	uint32		checksum;
	uint8		kind;
	uint8		generation;		/* lowest bits, of a page that belongs to one */
	uint16		page_id;
} PipeannPageOpaque;

#define PipeannPageGetOpaque(page) \
	((PipeannPageOpaque *) PageGetSpecialPointer(page))

#define PIPEANN_CONTENTS_OFFSET MAXALIGN(SizeOfPageHeaderData)
#define PIPEANN_PAYLOAD \
	(BLCKSZ - PIPEANN_CONTENTS_OFFSET - MAXALIGN(sizeof(PipeannPageOpaque)))

/* A page's contents: PIPEANN_PAYLOAD bytes. */
static inline char *
PipeannPagePayload(Page page)
{
	return (char *) page + PIPEANN_CONTENTS_OFFSET;
}

/*
 * Mark the payload as used up to `used`, and zero the rest, which WAL then
 * leaves out. A page that is not new never becomes less full.
 */
static inline void
PipeannPageFill(Page page, Size used, bool is_new)
{
	PageHeader	header = (PageHeader) page;
	Size		lower = PIPEANN_CONTENTS_OFFSET + used;

	Assert(lower <= header->pd_special);
	if (is_new || header->pd_lower < lower)
		header->pd_lower = lower;
}

/* Whether a page of codes, codebook or entry graph is of this generation. */
static inline bool
PipeannPageIsOf(Page page, uint32 generation)
{
	return PipeannPageGetOpaque(page)->generation == (uint8) generation;
}

/* page.c */
extern void PipeannPageInit(Page page, PipeannKind kind, uint32 generation);
extern void PipeannPageSeal(Page page, BlockNumber blkno);
extern bool PipeannPageIsValid(const char *page, BlockNumber blkno,
							   PipeannKind kind);
extern bool PipeannPageIsKind(const char *page, PipeannKind kind);
extern void PipeannCorrupted(Relation index, const char *what,...)
			__attribute__((format(printf, 2, 3)));
extern void PipeannPageCheck(Relation index, Page page, BlockNumber blkno,
							 PipeannKind kind);
extern Buffer PipeannReadBuffer(Relation index, BlockNumber blkno,
								PipeannKind kind, int lockmode, bool new_ok,
								BufferAccessStrategy strategy);

/* ---------- code pages, codebooks and histograms of attribute codes ---------- */

/* The most columns that have attribute codes, and bytes of one and of all. */
#define PIPEANN_MOST_CODED 8
#define PIPEANN_MOST_WIDTH 8
#define PIPEANN_MAX_ATTRIBUTE_BYTES (PIPEANN_MOST_CODED * PIPEANN_MOST_WIDTH)

/* Bytes of each column's attribute code. */
typedef struct PipeannWidths
{
	uint8		of[PIPEANN_MOST_CODED];
} PipeannWidths;

/* Bytes of a node's codes: that of its vector, and behind it its attributes'. */
static inline uint32
PipeannCodeBytes(const PipeannLayout *l)
{
	return (uint32) l->pq_bytes + l->attr_bytes;
}

/* Bytes of the codes of all nodes that graph pages have room for. */
static inline Size
PipeannCodesBytes(const PipeannLayout *l, uint32 graph_pages)
{
	return mul_size((Size) graph_pages * l->slots_per_page, PipeannCodeBytes(l));
}

/*
 * On a code page the codes of vectors come first, then the first bytes of all attribute
 * codes, the second bytes, and so on.
 */

/* Where the bytes number `plane` of all attribute codes begin. */
static inline Size
PipeannPlaneOffset(const PipeannLayout *l, uint32 plane)
{
	return (Size) PipeannCodesPerPage(l) * (l->pq_bytes + plane);
}

/* Copy code number `at`, uint8[PipeannCodeBytes()], to or from a code page. */
static inline void
PipeannCodePut(const PipeannLayout *l, char *payload, uint32 at,
			   const uint8 *code)
{
	memcpy(payload + (Size) at * l->pq_bytes, code, l->pq_bytes);
	for (uint32 i = 0; i < l->attr_bytes; i++)
		payload[PipeannPlaneOffset(l, i) + at] = code[l->pq_bytes + i];
}

static inline void
PipeannCodeGet(const PipeannLayout *l, const char *payload, uint32 at,
			   uint8 *code)
{
	memcpy(code, payload + (Size) at * l->pq_bytes, l->pq_bytes);
	for (uint32 i = 0; i < l->attr_bytes; i++)
		code[l->pq_bytes + i] = payload[PipeannPlaneOffset(l, i) + at];
}

/* Bytes of the codebook, float[dim * 256]. */
static inline Size
PipeannCodebookBytes(const PipeannLayout *l)
{
	return mul_size(l->dim, 256 * sizeof(float));
}

/* Bytes of the histogram of each byte of an attribute code. */
#define PIPEANN_HISTOGRAM_BYTES 32768

static inline Size
PipeannHistogramsBytes(const PipeannLayout *l)
{
	return (Size) l->attr_bytes * PIPEANN_HISTOGRAM_BYTES;
}

/* The number of pages for length bytes. */
static inline uint32
PipeannPagesOf(Size length)
{
	return (uint32) ((length + PIPEANN_PAYLOAD - 1) / PIPEANN_PAYLOAD);
}

/* The most neighbours that a node has in an entry graph. */
#define PIPEANN_ENTRY_DEGREE 16

/*
 * The entry graph's serialised form: uint32 ids[count], uint16 nneighbors[count], padded
 * to 4 bytes, uint32 neighbors[count][PIPEANN_ENTRY_DEGREE], uint8 codes[count][pq_bytes].
 */
static inline Size
PipeannEntryCodesOffset(uint32 count)
{
	return add_size(add_size(mul_size(count, sizeof(uint32)),
							 mul_size((count + 1) / 2, sizeof(uint32))),
					mul_size(count, PIPEANN_ENTRY_DEGREE * sizeof(uint32)));
}

static inline Size
PipeannEntryGraphBytes(const PipeannLayout *l, uint32 count)
{
	return add_size(PipeannEntryCodesOffset(count), mul_size(count, l->pq_bytes));
}

/*
 * The first nodes of an entry graph are spread over space, so that a search
 * can begin among them as long as memory has no others.
 */
#define PIPEANN_FIRST_ENTRIES 4096

/* In an extent: the first page of the histograms of attribute codes, of the entry graph. */
static inline uint32
PipeannHistogramsPage(const PipeannLayout *l)
{
	return PipeannPagesOf(PipeannCodebookBytes(l));
}

static inline uint32
PipeannEntryPage(const PipeannLayout *l)
{
	return PipeannHistogramsPage(l) + PipeannPagesOf(PipeannHistogramsBytes(l));
}

/* Pages of an extent with an entry graph of this many nodes. */
static inline uint32
PipeannExtentPages(const PipeannLayout *l, uint32 entries)
{
	return PipeannEntryPage(l) + PipeannPagesOf(PipeannEntryGraphBytes(l, entries));
}

/* ---------- the metapage ---------- */

/* The bits of a build_id that count generations. */
#define PIPEANN_GENERATIONS UINT64CONST(0xFFFF)

/* Length of the ring of the code pages that were changed last, by which caches follow. */
#define PIPEANN_CHANGE_RING 256

#define PIPEANN_META_AUTO_STORAGE 0x0001	/* the build chose the storage */
#define PIPEANN_META_HAS_CODES 0x0002	/* codebook, codes, entry graph exist */
#define PIPEANN_META_REPAIRING 0x0004	/* VACUUM has nodes to remove */
#define PIPEANN_META_HAS_FREE 0x0008	/* the free space map has slots */
#define PIPEANN_META_ALL_ROWS 0x0100	/* no row of the table is left out: one
										 * without a vector, or zero for cosine */

/*
 * Where m comes from: the option, or for m = 0 a profile (build/degree.c) or
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
	uint32		balanced;		/* degree at which both take the same time */
} PipeannDegree;

/* How an index was built, for users. All zeroes if it was created empty. */
#define PIPEANN_BUILD_PHASES 10

typedef struct PipeannBuilt
{
	uint32		processes;
	uint32		ms[PIPEANN_BUILD_PHASES];	/* by phase (build/build.c) */
} PipeannBuilt;

/*
 * How long a search's list has to be for a share of the true nearest
 * neighbours (recall/curve.c), for two numbers of neighbours, at the shares
 * listed in curve.c. All zeroes if it was never measured.
 */
#define PIPEANN_CURVE_TARGETS 7
#define PIPEANN_CURVE_KS 2
#define PIPEANN_CURVE_MANY 100	/* the second number of neighbours is at least this */

typedef struct PipeannCurve
{
	uint32		nodes;			/* in the index when it was measured */
	uint32		changes;		/* lower half of the metapage's changes at that time */
	uint16		queries;		/* queries that a user gave; 0: vectors of the index */
	uint16		k[PIPEANN_CURVE_KS];
	uint16		list[PIPEANN_CURVE_KS][PIPEANN_CURVE_TARGETS];
} PipeannCurve;

typedef struct PipeannMeta
{
	uint32		magic;			/* another one for each format */
	PipeannLayout layout;
	uint16		flags;
	float		max_norm;		/* for inner product: of all vectors */
	uint32		entry_count;	/* nodes of the entry graph */
	uint64		build_id;		/* random, but for a count of the generations
								 * after the build: PipeannGeneration() */
	uint64		trained_nodes;	/* nodes when the index was built, or when codes
								 * were made later, if those were more */
	float		code_error;		/* mean squared error of codes then */
	uint32		graph_pages;	/* ids are below this * slots_per_page */
	uint32		code_pages;		/* number of code pages written */
	uint64		nodes;			/* nodes written and not freed */
	PipeannExtents extents;
	uint32		entries_shared; /* of the entry graph: those with the node of another */
	uint64		entry_changes;	/* changes of the entry graph's ids */
	uint64		changes;		/* changes of code pages since the build */
	uint32		change_ring[PIPEANN_CHANGE_RING];	/* their ordinals */
	PipeannDegree degree;		/* how m was chosen */
	uint64		inserted;		/* nodes inserted since the build */
	TimestampTz reindex_after;	/* no automatic REINDEX before this time,
								 * after one failed */
	PipeannBuilt built;
	uint32		removals;		/* odd while VACUUM removes rows; grows */
	PipeannWidths widths;
	double		strayed;		/* of nodes inserted since trained_nodes: sum
								 * of (code error / code_error - 1) */
	PipeannCurve curve;
} PipeannMeta;

StaticAssertDecl(BLCKSZ < 8192 ||
				 sizeof(PipeannMeta) <= BLCKSZ - 32,
				 "metapage does not fit a block");

static inline PipeannMeta *
PipeannPageGetMeta(Page page)
{
	return (PipeannMeta *) PipeannPagePayload(page);
}

/* How often codes, codebook and entry graph were made again. Pages bear the lowest bits. */
static inline uint32
PipeannGeneration(const PipeannMeta *meta)
{
	return (uint32) (meta->build_id & PIPEANN_GENERATIONS);
}

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

/* meta.c */
extern void PipeannMetaRead(Relation index, PipeannMeta *meta);
extern uint32 PipeannMetaRemovals(Relation index);
extern void PipeannMetaBegin(Relation index, PipeannMetaUpdate *update);
extern void PipeannMetaEnd(PipeannMetaUpdate *update);

static inline void
PipeannMetaAbort(PipeannMetaUpdate *update)
{
	GenericXLogAbort(update->state);
	UnlockReleaseBuffer(update->buffer);
}

/* Make block 0's page for an index without rows. */
static inline void
PipeannMetaInitPage(Page page, const PipeannMeta *meta)
{
	PipeannPageInit(page, PIPEANN_META, 0);
	PipeannPageFill(page, sizeof(PipeannMeta), true);
	memcpy(PipeannPageGetMeta(page), meta, sizeof(PipeannMeta));
	PipeannPageSeal(page, PIPEANN_METAPAGE);
}

/* Note a change of a code page in the ring, inside an update. */
static inline void
PipeannMetaNoteChange(PipeannMeta *meta, uint32 code_page)
{
	meta->change_ring[meta->changes % PIPEANN_CHANGE_RING] = code_page;
	meta->changes++;
	meta->code_pages = Max(meta->code_pages, code_page + 1);
}

#endif							/* PIPEANN_PAGE_H */
