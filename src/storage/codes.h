/*
 * codes.h
 *		The format of code pages, codebooks and histograms of attribute codes; part of
 *		storage.h.
 */
#ifndef PIPEANN_CODE_PAGES_H
#define PIPEANN_CODE_PAGES_H

#include "storage/slot.h"

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

/*
 * Codes of a code page. Those of the vectors come first, then the first bytes of
 * all attribute codes, the second bytes, and so on.
 */
static inline uint32
PipeannCodesPerPage(const PipeannLayout *l)
{
	return PIPEANN_PAYLOAD / PipeannCodeBytes(l);
}

/* Code pages for so many ids. */
static inline uint32
PipeannCodePages(const PipeannLayout *l, uint32 ids)
{
	return (ids + PipeannCodesPerPage(l) - 1) / PipeannCodesPerPage(l);
}

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

/* Bytes of the histograms of attribute codes: so many for each byte of a code. */
#define PIPEANN_HISTOGRAM_BYTES 32768

static inline Size
PipeannHistogramsBytes(const PipeannLayout *l)
{
	return (Size) l->attr_bytes * PIPEANN_HISTOGRAM_BYTES;
}

/* The number of pages for so many bytes. */
static inline uint32
PipeannStreamPages(Size length)
{
	return (length + PIPEANN_PAYLOAD - 1) / PIPEANN_PAYLOAD;
}

/* Pages of a generation's codebook and histograms of attribute codes. */
static inline uint32
PipeannCodebookPages(const PipeannLayout *l)
{
	return PipeannStreamPages(PipeannCodebookBytes(l)) +
		PipeannStreamPages(PipeannHistogramsBytes(l));
}

/* The first page of a generation's codebook, and of its histograms. */
static inline uint32
PipeannCodebookFirst(const PipeannLayout *l, uint32 generation)
{
	return generation % 2 * PipeannCodebookPages(l);
}

static inline uint32
PipeannHistogramsFirst(const PipeannLayout *l, uint32 generation)
{
	return PipeannCodebookFirst(l, generation) +
		PipeannStreamPages(PipeannCodebookBytes(l));
}

#endif							/* PIPEANN_CODE_PAGES_H */
