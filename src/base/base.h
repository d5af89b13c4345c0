/*
 * base.h
 *		What every room needs: PostgreSQL's basic types, memory and errors.
 *
 * This room knows no other room. distance/, pq/, graph/ and search/ compute
 * without a server: compiled with PIPEANN_STANDALONE (unit tests,
 * micro-benchmarks) they get the same names from the C library, where palloc()
 * never returns NULL and an error aborts.
 */
#ifndef PIPEANN_BASE_H
#define PIPEANN_BASE_H

#ifndef PIPEANN_STANDALONE

#include "postgres.h"

#include "miscadmin.h"
#include "storage/itemptr.h"
#include "storage/shmem.h"		/* add_size, mul_size */
#include "utils/memutils.h"

/* Allocations that may exceed 1 GB (MaxAllocSize). */
#define PipeannAlloc(size) MemoryContextAllocHuge(CurrentMemoryContext, (size))
#define PipeannAllocZero(size) \
	MemoryContextAllocExtended(CurrentMemoryContext, (size), \
							   MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO)
#define PipeannRealloc(ptr, size) repalloc_huge((ptr), (size))

/* Allocate in the memory context of ptr until PipeannMemoryLeave(). */
typedef MemoryContext PipeannMemory;
#define PipeannMemoryEnter(ptr) \
	MemoryContextSwitchTo(GetMemoryChunkContext(ptr))
#define PipeannMemoryLeave(former) ((void) MemoryContextSwitchTo(former))

#else							/* PIPEANN_STANDALONE */

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define pg_attribute_always_inline __attribute__((always_inline)) inline

typedef uint8_t uint8;
typedef int8_t int8;
typedef uint16_t uint16;
typedef int16_t int16;
typedef uint32_t uint32;
typedef int32_t int32;
typedef uint64_t uint64;
typedef int64_t int64;
typedef size_t Size;

typedef struct ItemPointerData
{
	uint16		bi_hi;
	uint16		bi_lo;
	uint16		ip_posid;
} ItemPointerData;

#define FLEXIBLE_ARRAY_MEMBER
#define Assert(condition) assert(condition)
#define CHECK_FOR_INTERRUPTS() ((void) 0)
#define Min(x, y) ((x) < (y) ? (x) : (y))
#define Max(x, y) ((x) > (y) ? (x) : (y))
#define lengthof(array) (sizeof(array) / sizeof((array)[0]))
#define PG_UINT16_MAX UINT16_MAX
#define PG_UINT32_MAX UINT32_MAX
#define pg_attribute_unused() __attribute__((unused))
#define pg_noinline __attribute__((noinline))
#define CppConcat(x, y) x##y
#define likely(x) __builtin_expect((x) != 0, 1)
#define unlikely(x) __builtin_expect((x) != 0, 0)

static inline void *
PipeannStandaloneCheck(void *ptr, Size size)
{
	if (ptr == NULL && size > 0)
	{
		fprintf(stderr, "out of memory (%zu bytes)\n", size);
		abort();
	}
	return ptr;
}

#define PipeannAlloc(size) PipeannStandaloneCheck(malloc(size), (size))
#define PipeannAllocZero(size) PipeannStandaloneCheck(calloc(1, (size)), (size))
#define PipeannRealloc(ptr, size) \
	PipeannStandaloneCheck(realloc((ptr), (size)), (size))
typedef const void *PipeannMemory;
#define PipeannMemoryEnter(ptr) ((PipeannMemory) (ptr))
#define PipeannMemoryLeave(former) ((void) (former))
#define palloc(size) PipeannAlloc(size)
#define palloc0(size) PipeannAllocZero(size)
#define pfree(ptr) free(ptr)

static inline Size
mul_size(Size a, Size b)
{
	Size		result;

	if (__builtin_mul_overflow(a, b, &result))
		abort();
	return result;
}

static inline Size
add_size(Size a, Size b)
{
	Size		result;

	if (__builtin_add_overflow(a, b, &result))
		abort();
	return result;
}

#endif							/* PIPEANN_STANDALONE */

/* An array of n elements of a type. */
#define PipeannArray(type, n) \
	((type *) PipeannAlloc(mul_size((n), sizeof(type))))

/*
 * A node's id is its position in the graph: page ordinal * slots a page +
 * slot.
 */
#define PIPEANN_INVALID_ID PG_UINT32_MAX

/* The distance by which an operator class orders (metric.h). On disk: never renumber. */
typedef enum PipeannMetric
{
	PIPEANN_L2 = 1,				/* Euclidean; squared in computations */
	PIPEANN_IP = 2,				/* negative inner product */
	PIPEANN_COSINE = 3,			/* cosine distance */
	PIPEANN_L1 = 4,				/* Manhattan distance */
	PIPEANN_HAMMING = 5,
	PIPEANN_JACCARD = 6,
	PIPEANN_SPARSE_L1 = 7		/* Manhattan distance of sparse vectors (distance/sparse.h) */
} PipeannMetric;

#define PIPEANN_NUM_METRICS 7

/* The type of the indexed column (index/types.h). On disk: never renumber. */
typedef enum PipeannType
{
	PIPEANN_VECTOR = 0,
	PIPEANN_HALFVEC = 1,
	PIPEANN_BIT = 2,
	PIPEANN_SPARSEVEC = 3,
	PIPEANN_SPARSEVEC_L1 = 4	/* a sparsevec, by Manhattan distance */
} PipeannType;

#define PIPEANN_NUM_TYPES 5

/* The storage of a vector's elements. On disk: never renumber. */
typedef enum PipeannStorage
{
	PIPEANN_STORAGE_AUTO = 0,	/* only as an index option, never on disk */
	PIPEANN_FLOAT4 = 1,
	PIPEANN_FLOAT2 = 2,
	PIPEANN_INT8 = 3,
	PIPEANN_UINT8 = 4,
	PIPEANN_SQ12 = 5,			/* scalar quantisation (distance/common.h) */
	PIPEANN_SQ13 = 6,
	PIPEANN_SQ14 = 7,
	PIPEANN_BITS = 8,			/* an element is 0 or 1; the first is a byte's highest bit */
	PIPEANN_SPARSE16 = 9,		/* sparse, with room for this many elements (distance/sparse.h) */
	PIPEANN_SPARSE1000 = 15,
	PIPEANN_ROOTS16 = 16,		/* the same, whose projection is of the elements' roots */
	PIPEANN_ROOTS1000 = 22
} PipeannStorage;

#define PIPEANN_NUM_STORAGE 23

/* The most nonzero elements of a sparse vector: in pgvector's type, and in an index. */
#define PIPEANN_MAX_NONZERO 16000
#define PIPEANN_MAX_INDEXED_NONZERO 1000

/* The dimensions to which sparse vectors are projected, which are the layout's. */
#define PIPEANN_SPARSE_DIM 1024

static inline bool
PipeannIsSparse(PipeannStorage storage)
{
	return storage >= PIPEANN_SPARSE16;
}

/* The most nonzero elements of a sparse storage, and the number of such storages. */
#define PIPEANN_SPARSE_SIZES (PIPEANN_ROOTS16 - PIPEANN_SPARSE16)
static inline int
PipeannSparseRoom(PipeannStorage storage)
{
	return Min(16 << (storage - PIPEANN_SPARSE16) % PIPEANN_SPARSE_SIZES, PIPEANN_MAX_INDEXED_NONZERO);
}

/* Bits of an element in scalar quantisation, 0 for other storages. */
static inline int
PipeannSqBits(PipeannStorage storage)
{
	return storage >= PIPEANN_SQ12 && storage <= PIPEANN_SQ14 ?
		12 + (storage - PIPEANN_SQ12) : 0;
}

/* Whether a storage rounds elements that are not whole numbers. */
static inline bool
PipeannIsRounding(PipeannStorage storage)
{
	return storage == PIPEANN_FLOAT2 || PipeannSqBits(storage) > 0;
}

/* Bytes of an element of a storage that is neither quantised, nor of bits, nor sparse. */
static inline Size
PipeannElementSize(PipeannStorage storage)
{
	switch (storage)
	{
		case PIPEANN_FLOAT4:
			return 4;
		case PIPEANN_FLOAT2:
			return 2;
		default:
			return 1;
	}
}

/*
 * Bytes of a vector. A quantised one has dim elements, in groups of eight, and a
 * scale; a sparse one the number of elements, and room for indices and values.
 */
static inline Size
PipeannVectorBytes(PipeannStorage storage, int dim)
{
	int			bits = PipeannSqBits(storage);

	if (storage == PIPEANN_BITS)
		return (Size) (dim + 7) / 8;
	if (PipeannIsSparse(storage))
		return sizeof(int32) + 2 * sizeof(int32) * PipeannSparseRoom(storage);
	return bits > 0 ? (Size) (dim + 7) / 8 * bits + sizeof(float) :
		dim * PipeannElementSize(storage);
}

/* Bytes of a cache line of the CPUs for which there are kernels. */
#define PIPEANN_CACHE_LINE 64

#endif							/* PIPEANN_BASE_H */
