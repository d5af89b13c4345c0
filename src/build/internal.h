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
#include "storage/buffile.h"

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
	PipeannVectors near;		/* what the graph is built from: vectors, or reduced ones */
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

static inline void
PipeannTooManyRows(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
			 errmsg("too many rows for a pipeann index")));
}

/* packing.c */
/* Seed of clusters and graphs: a constant, so that they depend only on the rows. */
#define PIPEANN_BUILD_SEED UINT64CONST(0x76616d616e61)

extern void PipeannReserveNodes(PipeannMeta *meta, const PipeannNodes *nodes);
extern void PipeannWriteNodes(PipeannTeam *team, Relation index,
							  PipeannMeta *meta, PipeannNodes *nodes,
							  PipeannGraph *graph, const uint32 *order);

/* ---------- rows.c: a table's rows, and nodes made of them ---------- */

/* Statistics of all rows, or of those that one process scanned. */
typedef struct PipeannSpoolStats
{
	uint64		rows;			/* in the spool */
	uint64		bytes;			/* bytes of these rows */
	double		heap_tuples;	/* scanned */
	bool		broken_hot_chain;	/* as ii_BrokenHotChain */
	bool		left_out;		/* a row cannot be indexed */
	bool		fits[PIPEANN_NUM_STORAGE];	/* a storage suits all vectors */
	double		max_norm;
	PipeannRowSizes sizes;		/* if rows have values */
	uint64		forms[PIPEANN_NUM_STORAGE]; /* vectors by their form */
} PipeannSpoolStats;

/*
 * The spool of a table: its rows in temporary files, in which each member has those that it
 * has scanned.
 */
typedef struct PipeannSpool
{
	int			dim;
	PipeannType type;			/* of the vector */
	PipeannMetric metric;		/* by which vectors are embedded */
	PipeannStorage wanted;		/* PIPEANN_STORAGE_AUTO too */
	PipeannStorage whole;		/* represents any vector of the type exactly */
	PipeannStorage rounding;	/* for vectors for which half precision is enough */
	PipeannSpoolStats stats;	/* of this process; of all, when finished */
	uint64		long_bytes;		/* of sparse vectors longer than wanted has room for */
	PipeannColumns columns;		/* of the index */
	BufFile    *file;			/* this process's */
	uint32	   *starts;			/* [nblocks + 1] number of rows before each heap block */
	uint64	   *bytes;			/* [nblocks + 1] bytes of those rows, if they have values */
	BlockNumber nblocks;
	char	   *scratch;		/* one vector */
	PipeannRow *row;			/* one row with values */
	MemoryContext row_context;	/* reset for each row */
} PipeannSpool;

typedef struct PipeannRows
{
	PipeannVectors vectors;		/* of all rows, in the storage chosen */
	PipeannVectors near;		/* what the graph is built from: vectors, or reduced ones */
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

extern void PipeannSpoolInit(PipeannTeam *team, PipeannSpool *s, PipeannColumns columns,
							 PipeannLayout wanted, BlockNumber nblocks);
extern bool PipeannSpoolAdd(PipeannSpool *s, Datum *values, bool *isnull,
							const ItemPointerData *tid);
extern void PipeannSpoolFinish(PipeannTeam *team, PipeannSpool *s);
extern void PipeannRowsLoad(PipeannTeam *team, PipeannSpool *s, PipeannRows *rows);
extern PipeannClusters *PipeannRowsToNodes(PipeannTeam *team, PipeannRows *rows,
										   PipeannNodes *nodes);

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

/* Memory that a build expects members to share. */
extern Size PipeannCodingMemory(const PipeannLayout *l, uint32 nodes,
								uint32 ids);

/* Pages of codes that a build has in memory at a time. */
#define PIPEANN_CODE_BATCH 2048

/* Steps of the team: samples, subvectors compared, subvectors, batches of pages. */
#define PIPEANN_CODE_STEPS(code_pages) (3 + ((code_pages) - 1) / PIPEANN_CODE_BATCH + 1)
#define PIPEANN_ENTRY_STEPS (PIPEANN_GRAPH_STEPS + 3)

/* degree.c */
extern int	PipeannChooseM(Relation heap, const char *vectors, uint32 n,
						   const PipeannLayout *base, int max_m,
						   PipeannDegree *degree);

#endif							/* PIPEANN_BUILD_INTERNAL_H */
