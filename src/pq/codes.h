/*
 * codes.h
 *		The codes of an index's nodes in memory, and which of them pass a filter.
 */
#ifndef PIPEANN_CODES_H
#define PIPEANN_CODES_H

#include "base/base.h"

#include "base/id_set.h"
#include "pq/pq.h"

/* The most codes requested from a loader at once, whose addresses stay valid together. */
#define PIPEANN_MOST_GATHERED 512

/* Loads codes that are not in memory. Ids are below ncodes. */
typedef struct PipeannCodeLoader PipeannCodeLoader;
struct PipeannCodeLoader
{
	/* A node's code: in memory, or read. */
	const uint8 *(*code) (PipeannCodeLoader *loader, uint32 id);

	/* Byte number `plane` of its attribute code. */
	const uint8 *(*attribute) (PipeannCodeLoader *loader, uint32 id,
							   uint32 plane);

	/* The codes of n nodes: those that are not in memory are read together. */
	void		(*gather) (PipeannCodeLoader *loader, const uint32 *ids, int n,
						   const uint8 **codes);

	/*
	 * Whether a block's codes are all in memory, until the next call, so that
	 * an attribute's byte of the first node is followed by those of the
	 * others. May read them.
	 */
	bool		(*has_block) (PipeannCodeLoader *loader, uint32 first);

	/* Prefetch for n nodes that will be visited soon. */
	void		(*prefetch) (PipeannCodeLoader *loader, uint32 first, uint32 n);

	uint64		reads;			/* code pages read, from buffers or disk */
	bool		stale;			/* newer codes were found: any node may match */
};

/* The codes of an index, as searches see them. */
typedef struct PipeannCodes
{
	PipeannPq	pq;
	uint32		ncodes;			/* ids below this have codes */
	uint32		attr_bytes;		/* bytes of attribute codes, behind the codes */
	PipeannCodeLoader *loader;	/* NULL: all codes are in memory, in chunks[] */
	uint8	   *const *chunks;
	const volatile uint32 *stores;	/* [2] times that overwriting codes in
									 * memory began and ended; or NULL */
	int			chunk_shift;	/* log2 of the codes in a chunk */
	uint32		entry_count;
	uint32		entry_degree;
	const uint32 *entry_ids;	/* [entry_count] */
	const uint16 *entry_nneighbors; /* [entry_count]; NULL: memory has only the
									 * first entries, without edges */
	const uint32 *entry_neighbors;	/* [entry_count][entry_degree] */
	const uint8 *entry_codes;	/* [entry_count][nsubvectors] */
} PipeannCodes;

/* A node's code, if all are in memory. */
static inline const uint8 *
PipeannCodeInMemory(const PipeannCodes *codes, uint32 id)
{
	return codes->chunks[id >> codes->chunk_shift] +
		PipeannCodeOffset(id & ((1U << codes->chunk_shift) - 1),
						  codes->pq.nsubvectors, codes->attr_bytes);
}

static inline const uint8 *
PipeannCodeAt(const PipeannCodes *codes, uint32 id)
{
	if (likely(codes->loader == NULL))
		return PipeannCodeInMemory(codes, id);
	return codes->loader->code(codes->loader, id);
}

/*
 * Get the codes of n nodes, at most PIPEANN_MOST_GATHERED. Those in memory are
 * prefetched while others are looked up.
 */
static inline void
PipeannGatherCodes(const PipeannCodes *codes, const uint32 *ids, int n,
				   const uint8 **out)
{
	if (codes->loader != NULL)
	{
		codes->loader->gather(codes->loader, ids, n, out);
		return;
	}
	for (int i = 0; i < n; i++)
	{
		out[i] = PipeannCodeInMemory(codes, ids[i]);
		__builtin_prefetch(out[i]);
	}
}

/*
 * Byte number `plane` of a node's attribute code; if in memory, followed by
 * the bytes of the next nodes up to the end of the block.
 */
static inline const uint8 *
PipeannAttributeAt(const PipeannCodes *codes, uint32 id, uint32 plane)
{
	if (unlikely(codes->loader != NULL))
		return codes->loader->attribute(codes->loader, id, plane);
	return codes->chunks[id >> codes->chunk_shift] +
		PipeannAttributeOffset(id & ((1U << codes->chunk_shift) - 1),
							   codes->pq.nsubvectors, codes->attr_bytes, plane);
}

/*
 * The attribute codes with which a node may have a row that matches the
 * conditions of a scan. For a column of one byte: the set of bytes that pass, as
 * 32 bytes with a bit for each. Of two bytes: a range of their value, the first
 * byte being the higher one; or the set of first bytes, and for each of them the
 * set of second bytes. With a range codes also pass of which only the first byte
 * is 0. An array's code is tested byte by byte, as that many columns.
 */
#define PIPEANN_MAX_CODE_COLUMNS 64
#define PIPEANN_MOST_ROWS 8

/* First bytes with which the same second bytes pass. */
typedef struct PipeannCodeRow
{
	uint8		first[32];
	const uint8 *second;
} PipeannCodeRow;

typedef struct PipeannCodeColumn
{
	int			plane;			/* the first byte's number in a code */
	int			width;			/* 1 or 2 bytes */
	uint16		from;			/* of two bytes without `second`: the range */
	uint16		to;
	uint8		first[32];
	const uint8 *second;		/* [256][32], or NULL */

	/* the rows of `second` that differ, except empty ones */
	int			nrows;			/* or -1: too many */
	PipeannCodeRow rows[PIPEANN_MOST_ROWS];

	/*
	 * Columns are tests one after the other. A node has to pass the next one,
	 * too (also), or needs to pass only those that follow (otherwise).
	 */
	bool		also;
	bool		otherwise;
} PipeannCodeColumn;

typedef struct PipeannCodeFilter
{
	int			n;
	double		precision;		/* estimated share of passing nodes that match */
	PipeannCodeColumn columns[PIPEANN_MAX_CODE_COLUMNS];
} PipeannCodeFilter;

/* Whether a column lets node id < ncodes pass. */
static inline bool
PipeannColumnPasses(const PipeannCodes *codes, const PipeannCodeColumn *column,
					uint32 id)
{
	const uint8 *at = PipeannAttributeAt(codes, id, column->plane);
	uint8		byte = *at;
	uint8		next;
	uint32		number;

	if (column->width == 1)
		return PipeannHasBit(column->first, byte);
	next = likely(codes->loader == NULL) ? at[PIPEANN_CODE_BLOCK] :
		*PipeannAttributeAt(codes, id, column->plane + 1);
	if (column->second != NULL)
		return PipeannHasBit(column->second + (Size) byte * 32, next);
	number = (uint32) byte << 8 | next;
	return (number >= column->from && number <= column->to) ||
		(byte == 0 && next != 0);
}

/*
 * Bytes of an attribute code that is overwritten while it is read may belong
 * to two codes. So a code that does not pass counts only if no code was being
 * written at the beginning, or has been since.
 */
static inline uint32
PipeannStoresBegun(const PipeannCodes *codes)
{
	uint32		ended = codes->stores == NULL ? 0 : __atomic_load_n(&codes->stores[1], __ATOMIC_ACQUIRE);
	uint32		begun = codes->stores == NULL ? 0 : __atomic_load_n(&codes->stores[0], __ATOMIC_ACQUIRE);

	return begun == ended ? begun : begun - 1;
}

static inline bool
PipeannAreTorn(const PipeannCodes *codes, uint32 begun)
{
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
	return codes->stores != NULL && codes->stores[0] != begun;
}

/* Whether the code of node id < ncodes lets it pass. */
static inline bool
PipeannCodePasses(const PipeannCodes *codes, const PipeannCodeFilter *filter,
				  uint32 id)
{
	uint32		begun = PipeannStoresBegun(codes);
	bool		any = false;
	bool		all = true;

	for (int i = 0; i < filter->n; i++)
	{
		const PipeannCodeColumn *column = &filter->columns[i];

		all = all && PipeannColumnPasses(codes, column, id);
		if (column->also)
			continue;
		any |= all;
		all = true;
		if (column->otherwise)
			continue;
		if (!any)
			return PipeannAreTorn(codes, begun) ||
				(codes->loader != NULL && codes->loader->stale);
		any = false;
	}
	return true;
}

#define PIPEANN_BLOCK_WORDS (PIPEANN_CODE_BLOCK / 64)

/* filter.c */
extern void PipeannCodeColumnFill(PipeannCodeColumn *column);
extern double PipeannSharePassing(const PipeannCodes *codes,
								  const PipeannCodeFilter *filter);
extern void PipeannPrefetchBlock(const PipeannCodes *codes,
								 const PipeannCodeFilter *filter,
								 uint32 first);

/*
 * Which of the nodes first .. first + n - 1 pass: bit i of mask[] is that of first +
 * i. n is a multiple of 64, and all nodes are in one block; first < ncodes.
 */
extern void PipeannPassing(const PipeannCodes *codes,
						   const PipeannCodeFilter *filter, uint32 first,
						   int n, uint64 *mask);

#endif							/* PIPEANN_CODES_H */
