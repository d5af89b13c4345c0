/*
 * types.h
 *		The types of columns that can be indexed; part of index.h.
 *
 * A type is a row of PipeannTypes[], an operator class for each metric, and its number
 * in base.h. All else asks the row.
 */
#ifndef PIPEANN_INDEX_TYPES_H
#define PIPEANN_INDEX_TYPES_H

#include "base/base.h"

#include "utils/relcache.h"

typedef struct PipeannTypeInfo
{
	const char *name;			/* of pgvector's type */
	PipeannStorage storage;		/* of a value's elements: it loses nothing */
	int			max_dim;
	bool		one_storage;	/* there is no other for it */
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

/* types.c */
extern PipeannType PipeannTypeByProc(Oid proc);
extern PipeannType PipeannIndexType(Relation index);
extern int	PipeannTypmodDimensions(PipeannType type, int32 typmod);
extern const float *PipeannDatumElements(PipeannType type, Datum value,
										 int dim);
extern const float *PipeannRowElements(PipeannType type, Datum value,
									   int dim);
extern void PipeannCheckQuery(Relation index, Datum value);
extern struct varlena *PipeannSparseValue(const float *x, int dim);
extern void PipeannValueSet(PipeannType type, const float *x, int dim,
							void *value);

/* The storage that is asked for, or the only one that the type has. */
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

#endif							/* PIPEANN_INDEX_TYPES_H */
