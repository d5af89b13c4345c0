/*
 * page.c
 *		Making, sealing and checking pages.
 */
#include "storage/storage.h"

#include "utils/rel.h"

#define NUM_WORDS (BLCKSZ / sizeof(uint64))
#define LANES 8

/*
 * Words between a prefetch and its use. A page just read from disk is in no
 * CPU cache, and this is the first code that reads all of it.
 */
#define AHEAD (16 * LANES)

/* Odd 64-bit constants. */
#define PRIME_1 UINT64CONST(0x9E3779B97F4A7C15)
#define PRIME_2 UINT64CONST(0xC2B2AE3D27D4EB4F)

static inline uint64
Mix(uint64 lane, uint64 word)
{
	lane = (lane ^ word) * PRIME_1;
	return (lane << 31) | (lane >> 33);
}

static inline uint64
WordAt(const char *page, uint32 i)
{
	uint64		word;

	memcpy(&word, page + i * sizeof(uint64), sizeof(uint64));
	return word;
}

/* The word that has pd_checksum in it, with that zeroed. */
static uint64
HeaderWord(const char *page)
{
	PageHeaderData header;

	memcpy(&header, page, SizeOfPageHeaderData);
	header.pd_checksum = 0;
	return WordAt((const char *) &header, 1);
}

/* The last word, with our own checksum zeroed. */
static uint64
OpaqueWord(const char *page)
{
	PipeannPageOpaque opaque;
	uint64		word;

	memcpy(&opaque, page + BLCKSZ - sizeof(opaque), sizeof(opaque));
	opaque.checksum = 0;
	memcpy(&word, &opaque, sizeof(word));
	return word;
}

/*
 * 32-bit hash of a page without LSN and pd_checksum, seeded with blkno.
 *
 * Words are dealt to eight lanes in turn, so that eight multiplications
 * overlap. A step is one-to-one in the lane and in the word, so no change of a
 * single word goes unnoticed.
 */
static uint32
PageChecksum(const char *page, BlockNumber blkno)
{
	uint64		lane[LANES];
	uint64		hash = blkno;

	/* words of which a part is left out are in the first and last rounds */
	lane[0] = Mix(PRIME_2, HeaderWord(page));
	lane[1] = Mix(PRIME_2, OpaqueWord(page));
	for (int i = 2; i < LANES; i++)
		lane[i] = Mix(PRIME_2, WordAt(page, i));
	lane[0] = Mix(lane[0], blkno);

	for (uint32 i = LANES; i < NUM_WORDS - LANES; i += LANES)
	{
		__builtin_prefetch(page + Min(i + AHEAD, NUM_WORDS - 1) *
						   sizeof(uint64));
		lane[0] = Mix(lane[0], WordAt(page, i));
		lane[1] = Mix(lane[1], WordAt(page, i + 1));
		lane[2] = Mix(lane[2], WordAt(page, i + 2));
		lane[3] = Mix(lane[3], WordAt(page, i + 3));
		lane[4] = Mix(lane[4], WordAt(page, i + 4));
		lane[5] = Mix(lane[5], WordAt(page, i + 5));
		lane[6] = Mix(lane[6], WordAt(page, i + 6));
		lane[7] = Mix(lane[7], WordAt(page, i + 7));
	}
	for (uint32 i = NUM_WORDS - LANES; i < NUM_WORDS - 1; i++)
		lane[i % LANES] = Mix(lane[i % LANES], WordAt(page, i));

	for (int i = 0; i < LANES; i++)
	{
		hash = (hash ^ lane[i]) * PRIME_2;
		hash ^= hash >> 29;
	}
	return (uint32) (hash ^ (hash >> 32));
}

/*
 * Make an empty page of a kind, and of a generation or 0.
 *
 * The page has no hole, which generic WAL and log_newpage() would zero, until
 * PipeannPageFill() makes one.
 */
void
PipeannPageInit(Page page, PipeannKind kind, uint32 generation)
{
	PipeannPageOpaque *opaque;

	PageInit(page, BLCKSZ, sizeof(PipeannPageOpaque));
	((PageHeader) page)->pd_lower = ((PageHeader) page)->pd_special;
	((PageHeader) page)->pd_upper = ((PageHeader) page)->pd_special;
	opaque = PipeannPageGetOpaque(page);
	opaque->kind = kind;
	opaque->generation = (uint8) generation;
	opaque->page_id = PIPEANN_PAGE_ID;
}

/* Set our checksum, as the last change before a page is released. */
void
PipeannPageSeal(Page page, BlockNumber blkno)
{
	PipeannPageGetOpaque(page)->checksum =
		PageChecksum((char *) page, blkno);
}

/*
 * Whether a page's header is right, so that it is one of ours.
 *
 * It is compared with constants before it is used to find the special space.
 */
static bool
IsOurs(const char *page)
{
	const PageHeaderData *header = (const PageHeaderData *) page;

	return header->pd_special == BLCKSZ - MAXALIGN(sizeof(PipeannPageOpaque)) &&
		header->pd_lower >= PIPEANN_CONTENTS_OFFSET &&
		header->pd_lower <= header->pd_special &&
		header->pd_upper == header->pd_special &&
		PipeannPageGetOpaque((Page) page)->page_id == PIPEANN_PAGE_ID;
}

/* Whether a page's header and kind are right; looks at no checksum. */
bool
PipeannPageIsKind(const char *page, PipeannKind kind)
{
	return IsOurs(page) && PipeannPageGetOpaque((Page) page)->kind == kind;
}

/* Whether header, kind (0: any) and our checksum are right. */
static bool
OwnChecksIn(const char *page, BlockNumber blkno, PipeannKind kind)
{
	return (kind == 0 ? IsOurs(page) : PipeannPageIsKind(page, kind)) &&
		PipeannPageGetOpaque((Page) page)->checksum == PageChecksum(page, blkno);
}

/*
 * A page is new if all of it is zero: a broken pd_upper alone must not make a
 * page with contents look new.
 */
static bool
PageIsZero(const char *page)
{
	const uint64 *words = (const uint64 *) page;

	if (!PageIsNew((Page) page))
		return false;
	for (Size i = 0; i < NUM_WORDS; i++)
		if (words[i] != 0)
			return false;
	return true;
}

/*
 * Whether a page that was read without shared_buffers is sound: by
 * PostgreSQL's checksum if the cluster has them, ours, and the kind. A page
 * never written (all zero) is valid, too; callers test PageIsNew().
 *
 * Our checksum covers what PostgreSQL's does except the LSN, which searches do
 * not use, so PostgreSQL's need not be computed as well.
 */
bool
PipeannPageIsValid(const char *page, BlockNumber blkno, PipeannKind kind)
{
	return OwnChecksIn(page, blkno, kind) || PageIsZero(page);
}

/* Raise the error that an index is corrupted; `what` says what it has, and follows its name. */
void
PipeannCorrupted(Relation index, const char *what,...)
{
	char		text[256];
	va_list		args;

	va_start(args, what);
	vsnprintf(text, sizeof(text), what, args);
	va_end(args);
	ereport(ERROR,
			(errcode(ERRCODE_INDEX_CORRUPTED),
			 errmsg("index \"%s\" %s", RelationGetRelationName(index), text),
			 errhint("Run REINDEX INDEX \"%s\".",
					 RelationGetRelationName(index))));
}

/*
 * Errors with ERRCODE_INDEX_CORRUPTED, naming index and block, unless our
 * checksum and the kind are right. For pages in shared_buffers.
 */
void
PipeannPageCheck(Relation index, Page page, BlockNumber blkno,
				 PipeannKind kind)
{
	if (!OwnChecksIn((char *) page, blkno, kind))
		PipeannCorrupted(index, "has an invalid page at block %u", blkno);
}

/*
 * Read a block through shared_buffers, lock it and check it. A new (all zero)
 * page is an error unless new_ok is set.
 */
Buffer
PipeannReadBuffer(Relation index, BlockNumber blkno, PipeannKind kind,
				  int lockmode, bool new_ok, BufferAccessStrategy strategy)
{
	Buffer		buffer = ReadBufferExtended(index, MAIN_FORKNUM, blkno,
											RBM_NORMAL, strategy);

	LockBuffer(buffer, lockmode);
	if (!(new_ok && PageIsZero((char *) BufferGetPage(buffer))))
		PipeannPageCheck(index, BufferGetPage(buffer), blkno, kind);
	return buffer;
}
