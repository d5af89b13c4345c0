/*
 * codes.h
 *		The format of code pages, codebooks and histograms of attribute codes; part of
 *		storage.h.
 */
#ifndef PIPEANN_CODE_PAGES_H
#define PIPEANN_CODE_PAGES_H

#include "storage/places.h"

#include "storage/bufpage.h"

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

/* Neighbours that a node has at most in an entry graph. */
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

/* In a run: the first page of the histograms of attribute codes, of the entry graph. */
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

/* Pages of a run with an entry graph of this many nodes. */
static inline uint32
PipeannRunPages(const PipeannLayout *l, uint32 entries)
{
	return PipeannEntryPage(l) + PipeannPagesOf(PipeannEntryGraphBytes(l, entries));
}

#endif							/* PIPEANN_CODE_PAGES_H */
