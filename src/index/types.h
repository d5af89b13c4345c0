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
		int32		bits;		/* of a PIPEANN_BIT */
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
extern void PipeannValueSet(PipeannType type, const float *x, int dim,
							void *value);

/* Bytes of a value that is not compressed. */
static inline Size
PipeannValueBytes(PipeannType type, int dim)
{
	return offsetof(PipeannValue, elements) +
		PipeannVectorBytes(PipeannTypes[type].storage, dim);
}

#endif							/* PIPEANN_INDEX_TYPES_H */
