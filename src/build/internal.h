/*
 * internal.h
 *		Rows, from whatever source, nodes made from them, and codes; private to build/.
 */
#ifndef PIPEANN_BUILD_INTERNAL_H
#define PIPEANN_BUILD_INTERNAL_H

#include "attributes/attributes.h"
#include "base/metric.h"
#include "build/build.h"
#include "graph/graph.h"
#include "port/atomics.h"

/* ---------- nodes in memory ---------- */

/* Vectors of a layout, without data yet. */
static inline PipeannVectors
PipeannVectorsLike(const PipeannLayout *l, uint32 n)
{
	return (PipeannVectors) {
		.n = n,.dim = l->dim,.storage = l->storage,
		.metric = PipeannMetrics[l->metric].graph
	};
}

/* A row of a vector other than its first one. */
typedef struct PipeannDuplicate
{
	ItemPointerData tid;
	uint32		next;			/* in dups[], or PIPEANN_INVALID_ID */
} PipeannDuplicate;

/*
 * Sparse vectors that are longer than the storage has room for: their forms, one after
 * the other.
 */
typedef struct PipeannLong
{
	char	   *forms;			/* or NULL: there are none */
	uint64	   *at;				/* [n] PIPEANN_NOT_LONG if it is not there */
} PipeannLong;

#define PIPEANN_NOT_LONG PG_UINT64_MAX

/* Nodes have numbers in memory and ids on disk. No two have the same vector. */
typedef struct PipeannNodes
{
	PipeannVectors vectors;		/* by number */
	PipeannVectors near;		/* the same, or reduced: the graph is built from these */
	PipeannRounding *roundings; /* [n] if the storage rounds, else NULL */
	PipeannLong longer;
	ItemPointerData *tids;		/* [n] the first row of each */
	uint32	   *dup_heads;		/* [n] the others, in dups[] */
	PipeannDuplicate *dups;
	uint32		ndups;

	/* if rows have values: whole rows, one after the other */
	char	   *values;			/* or NULL */
	uint64	   *values_at;		/* [n] the first row of each */
	uint64	   *dup_values_at;	/* [ndups] */

	uint32	   *id_of_node;		/* [n] */
	uint32	   *node_of_id;		/* [ids], INVALID_ID if there is no node */
	uint32		ids;
} PipeannNodes;

/*
 * The first row of a node, or that of number dup in dups[] if it is not
 * INVALID_ID.
 */
static inline const PipeannRow *
PipeannNodeRow(const PipeannNodes *nodes, uint32 node, uint32 dup)
{
	if (nodes->values != NULL)
		return (const PipeannRow *)
			(nodes->values + (dup == PIPEANN_INVALID_ID ?
							  nodes->values_at[node] :
							  nodes->dup_values_at[dup]));
	return (const PipeannRow *) (dup == PIPEANN_INVALID_ID ?
								 &nodes->tids[node] : &nodes->dups[dup].tid);
}

/* A node's long vector, or NULL. */
static inline const char *
PipeannNodeLong(const PipeannNodes *nodes, uint32 node)
{
	return nodes->longer.forms == NULL || nodes->longer.at[node] == PIPEANN_NOT_LONG ?
		NULL : nodes->longer.forms + nodes->longer.at[node];
}

/* packing.c */
/* Seed of clusters and graphs: a constant, so that they depend only on the rows. */
#define PIPEANN_BUILD_SEED UINT64CONST(0x76616d616e61)

extern void PipeannReserveNodes(PipeannMeta *meta, const PipeannNodes *nodes);
extern void PipeannWriteNodes(PipeannTeam *team, Relation index,
							  PipeannMeta *meta, PipeannNodes *nodes,
							  PipeannGraph *graph, const uint32 *order);

/* ---------- sources of rows ---------- */

typedef struct PipeannSourceRow
{
	uint32		number;			/* its vector's number among all */
	double		norm;
	ItemPointerData tid;
	const PipeannRow *row;		/* with values, or NULL */
	uint64		at;				/* bytes of the rows with values before it */
} PipeannSourceRow;

typedef void (*PipeannTakeRow) (const PipeannSourceRow *row, const float *x,
								void *arg);

/* The spool of a table (build.c), which can be read again; each member reads a part. */
typedef struct PipeannRowSource PipeannRowSource;

struct PipeannRowSource
{
	int			dim;
	PipeannMetric metric;		/* by which vectors are embedded */
	PipeannStorage wanted;		/* PIPEANN_STORAGE_AUTO too */
	PipeannStorage whole;		/* represents any vector of the column's type exactly */
	PipeannStorage rounding;	/* for vectors for which half precision is enough */
	uint32		n;				/* vectors */
	bool		fits[PIPEANN_NUM_STORAGE];	/* a storage suits all vectors */
	double		max_norm;
	bool		has_values;
	uint64		value_bytes;
	uint64		long_bytes;		/* of sparse vectors longer than wanted has room for */
	void		(*read) (PipeannRowSource *source, PipeannTakeRow take,
						 void *arg);
};

/* ---------- rows.c: rows in the order of their source ---------- */

typedef struct PipeannRows
{
	PipeannVectors vectors;		/* of all rows, in the storage chosen */
	PipeannVectors near;		/* the same, or reduced: the graph is built from these */
	PipeannRounding *roundings; /* [n] if the storage rounds or cuts, else NULL */
	PipeannLong longer;
	pg_atomic_uint64 *long_bytes;	/* of the long ones, so far */
	ItemPointerData *tids;		/* [n] */
	char	   *values;			/* rows with values, or NULL if they have none */
	uint64	   *values_at;		/* [n] */
	uint32	   *hash;			/* [n] of the stored vector */
	uint8	   *again;			/* [n] equal to an earlier row */
	uint32	   *number;			/* [n] the first such row; later the node */
	uint32		distinct;		/* rows that are not */
} PipeannRows;

extern void PipeannRowsLoad(PipeannTeam *team, PipeannRowSource *source,
							PipeannRows *rows);
extern void PipeannRowsReduce(PipeannTeam *team, PipeannRows *rows);
extern void PipeannRowsToNodes(PipeannTeam *team, const PipeannRows *rows,
							   PipeannNodes *nodes);
extern void PipeannRowsFree(PipeannTeam *team, PipeannRows *rows);

/* ---------- the codes of one generation, and its entry graph ---------- */

typedef struct PipeannCoding PipeannCoding;

/*
 * The entry graph has a tenth of the nodes, with few edges: 7 bytes of memory for
 * each row besides its code. A search then begins near its goal and reads fewer
 * pages than with PipeANN's 1 % of the nodes, with 32 edges each (PipeANN 4.2.2).
 */
#define PIPEANN_ENTRY_FRACTION 10
#define PIPEANN_MIN_ENTRY 256

/* The number of nodes of an entry graph for an index of this many. */
static inline uint32
PipeannEntryCount(uint32 nodes)
{
	return Max(nodes / PIPEANN_ENTRY_FRACTION, Min(nodes, PIPEANN_MIN_ENTRY));
}

/* coding.c */
extern void PipeannChooseWidths(Relation index,
								const PipeannNodes *nodes, PipeannLayout *l,
								PipeannWidths *widths);
extern PipeannCoding *PipeannMakeCodes(PipeannTeam *team, Relation index,
									   const PipeannMeta *meta, const PipeannNodes *nodes);
extern void PipeannMakeEntries(PipeannTeam *team, PipeannCoding *k, const PipeannNodes *nodes,
							   PipeannMeta *meta);

/* For a build's plan: bytes that members share, and steps of the team. */
extern Size PipeannCodingMemory(const PipeannLayout *l, uint32 nodes,
								uint32 ids);
extern uint32 PipeannCodeSteps(const PipeannLayout *l, uint32 ids);

#define PIPEANN_ENTRY_STEPS (PIPEANN_GRAPH_STEPS + 3)

/* degree.c */
extern int	PipeannChooseM(Relation heap, const char *vectors, uint32 n,
						   const PipeannLayout *base, int max_m,
						   PipeannDegree *degree);

#endif							/* PIPEANN_BUILD_INTERNAL_H */
