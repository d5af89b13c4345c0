/*
 * pq_scan.h
 *		The loop of code distances, in plain C, which each kernel set inlines;
 *		private to distance/.
 *
 * Gathers cost more than loads on most processors, or save little. Rows of
 * smaller numbers cost a conversion, or round the distances by which
 * candidates are ordered. So rows are floats, and the time that remains is
 * that of memory. Hence
 *
 * - codes are prefetched PQ_PREFETCH ahead, with all their cache lines;
 * - four codes are summed side by side, so that four chains of additions are
 *   in flight, and a code is read four bytes at a time;
 * - long codes are scanned in blocks of PQ_BLOCK bytes for all neighbours, so
 *   that the block's rows of the table (32 KB) stay in the first-level cache.
 */
#ifndef PIPEANN_PQ_SCAN_H
#define PIPEANN_PQ_SCAN_H

#include "distance/common.h"

#define PQ_ROW 256				/* floats of a table's row, one per centroid */
#define PQ_BLOCK 32				/* bytes of a block */
#define PQ_PREFETCH 24			/* codes between a prefetch and its use */

/* Prefetch every cache line of a code; it may start anywhere in a line. */
ALWAYS_INLINE void
PqPrefetch(const uint8 *code, int nsubvectors)
{
	for (int i = 0; i < nsubvectors - 1; i += PIPEANN_CACHE_LINE)
		__builtin_prefetch(code + i);
	__builtin_prefetch(code + nsubvectors - 1);
}

ALWAYS_INLINE uint32
PqLoad4(const uint8 *code)
{
	uint32		word;

	memcpy(&word, code, sizeof(word));
	return word;
}

/* Byte i of a code that PqLoad4() has read. */
ALWAYS_INLINE uint32
PqByte(uint32 word, int i)
{
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
	return (word >> (8 * i)) & 0xff;
#else
	return (word >> (24 - 8 * i)) & 0xff;
#endif
}

/*
 * Add to out, for four codes, the table's entries for bytes from `first` on.
 */
ALWAYS_INLINE void
PqSumFour(const float *table, const uint8 *const *codes, int first,
		  int nsubvectors, float *out)
{
	const uint8 *c0 = codes[0] + first;
	const uint8 *c1 = codes[1] + first;
	const uint8 *c2 = codes[2] + first;
	const uint8 *c3 = codes[3] + first;
	float		s0 = out[0];
	float		s1 = out[1];
	float		s2 = out[2];
	float		s3 = out[3];
	int			i = 0;

	for (; i + 4 <= nsubvectors; i += 4)
	{
		uint32		w0 = PqLoad4(c0 + i);
		uint32		w1 = PqLoad4(c1 + i);
		uint32		w2 = PqLoad4(c2 + i);
		uint32		w3 = PqLoad4(c3 + i);

		UNROLL(4)
		for (int k = 0; k < 4; k++)
		{
			const float *row = table + (i + k) * PQ_ROW;

			s0 += row[PqByte(w0, k)];
			s1 += row[PqByte(w1, k)];
			s2 += row[PqByte(w2, k)];
			s3 += row[PqByte(w3, k)];
		}
	}
	for (; i < nsubvectors; i++)
	{
		const float *row = table + i * PQ_ROW;

		s0 += row[c0[i]];
		s1 += row[c1[i]];
		s2 += row[c2[i]];
		s3 += row[c3[i]];
	}

	out[0] = s0;
	out[1] = s1;
	out[2] = s2;
	out[3] = s3;
}

/* The same for one code: the same order of additions, so the same result. */
ALWAYS_INLINE void
PqSumOne(const float *table, const uint8 *code, int nsubvectors, float *out)
{
	float		sum = *out;

	for (int i = 0; i < nsubvectors; i++)
		sum += table[i * PQ_ROW + code[i]];
	*out = sum;
}

ALWAYS_INLINE void
PqScanBody(const float *table, int nsubvectors, const uint8 *const *codes,
		   int n, float *out)
{
	int			ahead = Min(n, PQ_PREFETCH);

	for (int i = 0; i < ahead; i++)
		PqPrefetch(codes[i], nsubvectors);
	for (int i = 0; i < n; i++)
		out[i] = 0.0f;

	for (int first = 0; first < nsubvectors; first += PQ_BLOCK)
	{
		const float *rows = table + (Size) first * PQ_ROW;
		int			len = Min(PQ_BLOCK, nsubvectors - first);
		int			i = 0;

		for (; i + 4 <= n; i += 4)
		{
			/* the first block prefetches the codes, for all blocks */
			if (first == 0)
				for (; ahead < n && ahead < i + 4 + PQ_PREFETCH; ahead++)
					PqPrefetch(codes[ahead], nsubvectors);
			PqSumFour(rows, codes + i, first, len, out + i);
		}
		for (; i < n; i++)
			PqSumOne(rows, codes[i] + first, len, out + i);
	}
}

#endif							/* PIPEANN_PQ_SCAN_H */
