/*
 * index.h
 *		One open index in use: its view (metapage, cache), its
 *		slots, its overflow chains, and the vectors of its column.
 *
 * This room knows how to open an index and how to read and write its slots. It
 * must not know what scans, inserts and VACUUM do with them.
 */
#ifndef PIPEANN_INDEX_H
#define PIPEANN_INDEX_H

#include "base/base.h"

#include "access/genam.h"
#include "cache/cache.h"
#include "index/types.h"
#include "index/view.h"
#include "search/search.h"
#include "storage/storage.h"
#include "utils/rel.h"

/*
 * Heavyweight page lock for retraining: exclusive to retrain, shared by VACUUM
 * and pipeann_check().
 */
#define PIPEANN_MAINTENANCE_LOCK 1

/* An index with fewer nodes has no codes: a search reads the whole index. */
#define PIPEANN_MIN_CODED_NODES 4096

/* columns.c: an index's columns: a vector, and others whose values rows have */
typedef struct PipeannColumns
{
	int			vector;			/* the vector's position */
	TupleDesc	values;			/* the others: filter columns, which are keys,
								 * and included ones; NULL if there are none */
} PipeannColumns;

/* The position among all columns of the values' column i, and the reverse. */
static inline int
PipeannValuePosition(const PipeannColumns *columns, int i)
{
	return i < columns->vector ? i : i + 1;
}

static inline int
PipeannValueNumber(const PipeannColumns *columns, int position)
{
	return position < columns->vector ? position : position - 1;
}

/* A walk along the rows of a node. */
typedef struct PipeannChain
{
	uint32		owner;			/* the node */
	uint32		next;			/* slot to read, or INVALID_ID at the end */
	uint32		slot;			/* read last, or INVALID_ID at the end */
	uint32		number;			/* number of that slot, or of the one before */
	bool		begun;
	uint64		steps;			/* to detect a cycle */
	int			rewinds;
} PipeannChain;

/* view.c */
extern void PipeannSetStatus(uint8 set, uint8 clear);
extern bool PipeannKeepInsertsOut(Relation index);
extern void PipeannLetInsertsIn(Relation index, bool cancellable);
extern PipeannSearch *PipeannReuseSearch(void);

/* vector.c */
extern PipeannMetric PipeannIndexMetric(Relation index);
/* Shorter vectors have the aux of those of this length, the largest finite number. */
#define PIPEANN_LEAST_NORM (1.0 / FLT_MAX)
extern double PipeannNorm(const float *x, int dim);
extern float PipeannAux(PipeannMetric metric, double norm, float max_norm);
extern void PipeannQueryOf(const PipeannLayout *l, const float *x, float *to);
extern void PipeannRound(const float *x, double norm, const void *form,
						 PipeannStorage storage, int dim,
						 PipeannRounding *rounding);
extern bool PipeannIsStorable(const float *x, double norm,
							  PipeannStorage storage, int dim);
extern bool PipeannIsOutOfLine(const PipeannMeta *meta, const float *x,
							   double norm);
extern float PipeannWholeDistance(const PipeannLayout *l, const float *query,
								  const float *x, float aux);
extern uint32 PipeannHashOf(PipeannStorage storage, const float *x, int dim);

/* columns.c */
extern PipeannColumns PipeannIndexColumns(Relation index);
extern void PipeannWithoutVector(const PipeannColumns *columns,
								 const Datum *all, const bool *all_null,
								 Datum *values, bool *isnull);
extern PipeannRow *PipeannFormRow(const PipeannColumns *columns,
								  const Datum *values, const bool *isnull,
								  const ItemPointerData *tid);
extern bool PipeannDeformRow(TupleDesc desc, int n, const PipeannRow *row,
							 char *tuple, Datum *values, bool *isnull);

/* chain.c */
extern Buffer PipeannReadSlot(const PipeannIndexView *view, uint32 id,
							  BufferAccessStrategy strategy,
							  PipeannSlot **slot);
extern PipeannRowList PipeannChainRead(const PipeannIndexView *view,
									   PipeannChain *chain, void *copy);
extern bool PipeannChainVector(const PipeannIndexView *view, uint32 id,
							   const PipeannSlot *node, float *x);
extern PipeannRow *PipeannReadRow(const PipeannIndexView *view,
								  const PipeannRow *row, bool removable);

/* Begin a walk at slot `first` of the node's chain, or INVALID_ID. */
static inline void
PipeannChainBegin(PipeannChain *chain, uint32 owner, uint32 first)
{
	memset(chain, 0, sizeof(*chain));
	chain->owner = owner;
	chain->next = first;
}

static inline bool
PipeannIndexHasValues(Relation index)
{
	return IndexRelationGetNumberOfAttributes(index) > 1;
}

/* The vector's column in the table, or InvalidAttrNumber for an expression. */
static inline AttrNumber
PipeannVectorColumn(Relation index)
{
	return index->rd_index->indkey.values[PipeannVectorPosition(index)];
}

/*
 * The embedding of graph/graph.h: floats, of which there is one more for inner product, or
 * bits. The graph's measure is their squared Euclidean distance, or the index's own.
 */
static inline int
PipeannEmbeddedDim(PipeannMetric metric, int dim)
{
	return metric == PIPEANN_IP ? dim + 1 : dim;
}

static inline Size
PipeannEmbeddedBytes(const PipeannLayout *l)
{
	return l->storage == PIPEANN_BITS ? PipeannVectorBytes(PIPEANN_BITS, l->dim) :
		mul_size(PipeannEmbeddedDim(l->metric, l->dim), sizeof(float));
}

/*
 * Whether a vector of this norm can be indexed: for cosine it must not be
 * zero.
 */
static inline bool
PipeannIsIndexable(PipeannMetric metric, double norm)
{
	return metric != PIPEANN_COSINE || norm > 0;
}

/* The storage in which whole vectors are compared: floats, except for bits and sparse vectors. */
static inline PipeannStorage
PipeannWholeForm(const PipeannLayout *l)
{
	if (l->storage == PIPEANN_BITS)
		return PIPEANN_BITS;
	return PipeannIsSparse(l->storage) ? PipeannTypes[l->type].storage : PIPEANN_FLOAT4;
}

static inline const PipeannOptions *
PipeannIndexOptions(Relation index)
{
	static const PipeannOptions without = {
		.m = PIPEANN_DEFAULT_M,
		.ef_construction = PIPEANN_DEFAULT_EF_CONSTRUCTION,
		.storage = PIPEANN_STORAGE_AUTO,
		.fillfactor = PIPEANN_DEFAULT_FILLFACTOR,
	};

	return index->rd_options != NULL ? (const PipeannOptions *) index->rd_options : &without;
}

/* Dimensions of the indexed column. Errors if it declares none. */
static inline int
PipeannIndexDimensions(Relation index)
{
	int			position = PipeannVectorPosition(index);

	return PipeannTypmodDimensions(PipeannIndexType(index),
								   TupleDescAttr(RelationGetDescr(index),
												 position)->atttypmod);
}

/* The dimensions of an index's layout. */
static inline int
PipeannIndexLayoutDim(Relation index)
{
	return PipeannLayoutDimensions(PipeannIndexType(index),
								   PipeannIndexDimensions(index));
}

#endif							/* PIPEANN_INDEX_H */
