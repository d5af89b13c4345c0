/*
 * meta.h
 *		The metapage; part of storage.h.
 */
#ifndef PIPEANN_META_H
#define PIPEANN_META_H

#include "storage/page.h"
#include "access/generic_xlog.h"
#include "datatype/timestamp.h"

/* Length of the ring of code pages changed last, which caches follow. */
#define PIPEANN_CHANGE_RING 256

#define PIPEANN_META_AUTO_STORAGE 0x0001	/* the build chose the storage */
#define PIPEANN_META_HAS_CODES 0x0002	/* codebook, codes, entry graph exist */
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

/* How an index was built, for users. All zeroes if it was made empty. */
#define PIPEANN_BUILD_PHASES 10

typedef struct PipeannBuilt
{
	uint32		processes;
	uint32		ms[PIPEANN_BUILD_PHASES];	/* by phase (build/build.h) */
} PipeannBuilt;

/*
 * How long a search's list has to be for a share of the true nearest neighbours
 * (recall/curve.c): while all pages are in memory, and if all are read; for two numbers
 * of neighbours, and the shares that curve.c has. All zeroes if it was never measured.
 */
#define PIPEANN_CURVE_TARGETS 7
#define PIPEANN_CURVE_KS 2
#define PIPEANN_CURVE_MANY 100	/* the most neighbours, or those asked for */

typedef enum PipeannCurvePlace
{
	PIPEANN_CURVE_MEMORY,
	PIPEANN_CURVE_DISK
} PipeannCurvePlace;

#define PIPEANN_CURVE_PLACES 2

typedef struct PipeannCurve
{
	uint32		nodes;			/* in the index when it was measured */
	uint32		changes;		/* the metapage's then, its lower half */
	uint16		queries;		/* that a user gave; 0: vectors of the index */
	uint16		k[PIPEANN_CURVE_KS];
	uint16		list[PIPEANN_CURVE_PLACES][PIPEANN_CURVE_KS][PIPEANN_CURVE_TARGETS];
} PipeannCurve;

typedef struct PipeannMeta
{
	uint32		magic;
	uint32		format;
	PipeannLayout layout;
	uint16		ef_construction;
	uint16		flags;
	float		max_norm;		/* for inner product: of all vectors */
	uint32		entry_count;	/* nodes of the entry graph */
	uint64		build_id;		/* random; tells builds and generations of one
								 * file apart */
	uint32		generation;		/* of codes, codebook and entry graph */
	uint64		trained_nodes;	/* nodes when this generation was trained */
	float		code_error;		/* mean squared error of its codes then */
	uint32		graph_pages;	/* ids are below this * slots_per_page */
	uint32		code_pages;		/* code pages that were written */
	uint64		nodes;			/* nodes written and not freed */
	PipeannPlaces places;
	uint32		entry_dead;		/* dead nodes that stay in the entry graph */
	uint64		entry_changes;	/* changes of the entry graph's ids */
	uint64		changes;		/* changes of code pages since the build */
	uint32		change_ring[PIPEANN_CHANGE_RING];	/* their ordinals */
	PipeannDegree degree;		/* how m was chosen */
	uint64		built_nodes;	/* nodes when the index was built */
	uint64		came;			/* nodes inserted since */
	TimestampTz reindex_after;	/* no automatic REINDEX before, after one that
								 * has failed */
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

/* Whether this library reads the file. */
static inline bool
PipeannIsReadable(const PipeannMeta *meta)
{
	return meta->magic == PIPEANN_MAGIC && meta->format == PIPEANN_FORMAT;
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
extern void PipeannNewBuildId(PipeannMeta *meta);

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

#endif							/* PIPEANN_META_H */
