/*
 * types.h
 *		The types of columns that can be indexed, and options of indexes; part of index.h.
 *
 * A type is an entry of PipeannTypes[], an operator class for each metric, and
 * a number in base.h. Everything else looks at the entry.
 */
#ifndef PIPEANN_INDEX_TYPES_H
#define PIPEANN_INDEX_TYPES_H

#include "storage/slot.h"
#include "utils/relcache.h"

typedef struct PipeannTypeInfo
{
	const char *name;			/* of pgvector's type */
	PipeannStorage storage;		/* of a value's elements, which is exact */
	int			max_dim;
	bool		one_storage;	/* the type has no other */
} PipeannTypeInfo;

/* A value in memory. */
typedef struct PipeannValue
{
	int32		vl_len_;
	union
	{
		struct
		{
			int16		dim;
			int16		unused;
		};
		int32		bits;		/* of a PIPEANN_BIT; dimensions of a sparse one */
	};
	char		elements[FLEXIBLE_ARRAY_MEMBER];
} PipeannValue;

extern const PipeannTypeInfo PipeannTypes[PIPEANN_NUM_TYPES];

/* vector.c */
extern PipeannType PipeannTypeOf(Oid type);
extern int	PipeannVectorPosition(Relation index);
extern PipeannType PipeannIndexType(Relation index);
extern int	PipeannTypmodDimensions(PipeannType type, int32 typmod);
extern const PipeannValue *PipeannDatumValue(PipeannType type, Datum datum, int dim);
extern const float *PipeannDatumElements(PipeannType type, Datum datum,
										 int dim);
extern const float *PipeannRowElements(PipeannType type, Datum value,
									   int dim);
extern void PipeannCheckQuery(Relation index, Datum value);

/* The wanted storage, or the only one that the type has. */
static inline PipeannStorage
PipeannStorageOf(PipeannType type, int wanted)
{
	return PipeannTypes[type].one_storage ? PipeannTypes[type].storage :
		(PipeannStorage) wanted;
}

static inline bool
PipeannIsOfSparse(PipeannType type)
{
	return PipeannIsSparse(PipeannTypes[type].storage);
}

/* The dimensions of an index's layout, by those of its column. */
static inline int
PipeannLayoutDimensions(PipeannType type, int dim)
{
	return PipeannIsOfSparse(type) ? PIPEANN_SPARSE_DIM : dim;
}

/* Bytes of a value that is not compressed, nor sparse. */
static inline Size
PipeannValueBytes(PipeannType type, int dim)
{
	return offsetof(PipeannValue, elements) +
		PipeannVectorBytes(PipeannTypes[type].storage, dim);
}

/* ---------- options, and support functions and strategies ---------- */

/* The only support function of operator classes: options of a column for conditions. */
#define PIPEANN_OPTIONS_PROC 1

/*
 * Strategies of operators: the distance of a vector column is its PipeannMetric, from
 * PIPEANN_L2 to PIPEANN_JACCARD; then come the conditions of the other key columns. In
 * catalogs: never renumber.
 */
#define PIPEANN_LESS_STRATEGY 7
#define PIPEANN_LESS_EQUAL_STRATEGY 8
#define PIPEANN_EQUAL_STRATEGY 9
#define PIPEANN_GREATER_EQUAL_STRATEGY 10
#define PIPEANN_GREATER_STRATEGY 11
#define PIPEANN_OVERLAPS_STRATEGY 12
#define PIPEANN_CONTAINS_STRATEGY 13
#define PIPEANN_NUM_STRATEGIES 13

/* Key columns besides the vector. */
#define PIPEANN_MAX_FILTER_COLUMNS PIPEANN_MOST_CODED

/* Index options. */
#define PIPEANN_DEFAULT_M 16
#define PIPEANN_MIN_M 2
#define PIPEANN_AUTO_M 0		/* by a profile: build/degree.c */
#define PIPEANN_MAX_M 100
#define PIPEANN_DEFAULT_EF_CONSTRUCTION 100
#define PIPEANN_MIN_EF_CONSTRUCTION 4
#define PIPEANN_MAX_EF_CONSTRUCTION 1000
#define PIPEANN_DEFAULT_FILLFACTOR 100
#define PIPEANN_MIN_FILLFACTOR 10
#define PIPEANN_MAX_DIM 16000	/* of pgvector's types vector and halfvec */
#define PIPEANN_MAX_SPARSE_DIM 1000000000	/* of sparsevec */
#define PIPEANN_MAX_BITS 64000	/* of bit, as pgvector's indexes have it */

typedef struct PipeannOptions
{
	int32		vl_len_;		/* varlena header (do not touch directly!) */
	int			m;
	int			ef_construction;
	int			pq_bytes;		/* 0: by the number of dimensions */
	int			storage;		/* PipeannStorage */
	int			fillfactor;
} PipeannOptions;

/* The option m, or what a build for m = 0 begins with. */
static inline int
PipeannInitialM(const PipeannOptions *options)
{
	return options->m == PIPEANN_AUTO_M ?
		Min(PIPEANN_DEFAULT_M, options->ef_construction / 2) : options->m;
}

#endif							/* PIPEANN_INDEX_TYPES_H */
