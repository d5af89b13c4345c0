/*
 * page.h
 *		Pages, their kinds and checksums; part of storage.h.
 */
#ifndef PIPEANN_PAGE_H
#define PIPEANN_PAGE_H

#include "base/base.h"
#include "storage/slot.h"
#include "storage/block.h"
#include "storage/bufmgr.h"
#include "storage/bufpage.h"
#include "utils/relcache.h"

#define PIPEANN_MAGIC 0x70697065U	/* "pipe" */
#define PIPEANN_FORMAT 2
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
	uint8		generation;		/* of what belongs to one, its lowest bits */
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

/*
 * Say that the payload is in use up to `used`, and zero the rest, which WAL
 * then leaves out. A page that is not new never becomes less full by this.
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
extern bool PipeannPageIsSound(const char *page, BlockNumber blkno);
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

#endif							/* PIPEANN_PAGE_H */
