/*
 * cells.h
 *		Cells: parts of space, by which the rows of a table are divided among servers.
 *
 * A cell is where one centroid is the nearest of all. Centroids have a name: they are
 * the options of a foreign server of the wrapper pipeann_cells, as such servers are
 * owned, dropped and dumped like anything else, and stand before all tables in a dump.
 *
 * This room knows vectors, and where centroids are kept. It must not know an index, a
 * table or its partitions.
 */
#ifndef PIPEANN_CELLS_H
#define PIPEANN_CELLS_H

#include "base/base.h"

#include "fmgr.h"
#include "nodes/nodes.h"

#define PIPEANN_CELLS_WRAPPER "pipeann_cells"

/* The most cells, elements of their centroids, and dimensions of pgvector's types. */
#define PIPEANN_MOST_CELLS 8192
#define PIPEANN_MOST_CELL_ELEMENTS (1 << 24)
#define PIPEANN_MOST_DIM 16000

/* Centroids that kernels compare at once (distance/distance.h). */
#define PIPEANN_CELL_BLOCK 256

/* A cell near a vector. */
typedef struct PipeannNearCell
{
	float		distance;		/* squared, from its centroid, of embedded vectors */
	float		rows;			/* its share of the sample */
} PipeannNearCell;

typedef struct PipeannCells
{
	PipeannMetric metric;
	int			n;
	int			dim;			/* of vectors; embedded ones may have one more */
	float		max_norm;		/* for inner product: of embedded vectors */
	int			exponent;		/* stored centroids are scaled by 2 to this power */

	/*
	 * Blocks of 256, [PipeannCellElements()][256] each (distance.h). Those missing in the
	 * last block are infinitely far.
	 */
	float	   *centroids;
	uint32	   *rows;			/* [n] rows of the sample in each cell */
	double		all_rows;

	/* work space */
	float	   *x;				/* an embedded vector */
	float	   *distance;		/* [blocks][256] */
} PipeannCells;

static inline int
PipeannCellElements(const PipeannCells *cells)
{
	return cells->dim + (cells->metric == PIPEANN_IP);
}

/* cells.c */
extern PipeannMetric PipeannCellsMetric(const char *operator);
extern const char *PipeannCellsOperator(const PipeannCells *cells);
extern PipeannCells *PipeannCellsNew(PipeannMetric metric, int dim, int n);
extern int	PipeannCellsBlocks(const PipeannCells *cells);
extern float *PipeannCellCentroid(const PipeannCells *cells, int cell);
extern void PipeannCellsEmbed(const PipeannCells *cells, const float *v,
							  bool is_query, float *x);
extern void PipeannCellsCopy(const PipeannCells *cells, float *elements,
							 bool back);
extern double PipeannCellDistance(const PipeannCells *cells, int cell,
								  const float *x);
extern int	PipeannCellNearest(const PipeannCells *cells, const float *x);
extern void PipeannCellsDistances(const PipeannCells *cells, const float *x,
								  PipeannNearCell *near);
extern double PipeannCellsSquare(const PipeannCells *cells, const float *v,
								 double distance);

/* kept.c */
extern const PipeannCells *PipeannCellsFind(const char *name, bool missing_ok);
extern char *PipeannCellsRound(PipeannCells *cells);
extern char *PipeannCellsOptions(const PipeannCells *cells,
								 const char *centroids);
extern PipeannType PipeannCellsType(Oid type);
extern Datum pipeann_cell(PG_FUNCTION_ARGS);
extern Datum pipeann_cell_of_halfvec(PG_FUNCTION_ARGS);
extern Node *PipeannCellVector(Node *expr, const char **cells);
extern int	PipeannCellsCount(const char *name, Oid operator);
extern bool PipeannCellsNear(const char *name, Oid type, Datum query, int n,
							 PipeannNearCell *near);
extern double PipeannCellsDistance(const char *name, Oid type, Datum query,
								   double distance);

/* used.c */
typedef struct PipeannCellsUse
{
	int			ncells;
	int64		queries;
	int64		parts;			/* parts that were asked */
	int64		waves;			/* waves in which they were asked */
} PipeannCellsUse;

extern void PipeannCellsPreload(void);
extern void PipeannCellsNote(const char *cells, int ncells, int cell, int nparts,
							 int nwaves);
extern PipeannCellsUse PipeannCellsUsed(const char *cells, uint32 **of_cell);

/* place.c: cells to be divided among servers */
typedef struct PipeannPlaced
{
	int			n;
	int			elements;
	const float *x;				/* [n][elements] centroids */
	const uint32 *rows;			/* [n] of each */
} PipeannPlaced;

extern void PipeannPlace(const PipeannPlaced *cells, int nservers, uint64 seed,
						 int *server);

/* train.c */
extern char *PipeannCellsTrain(PipeannCells *cells, const float *samples,
							   uint32 n, uint64 seed);

#endif							/* PIPEANN_CELLS_H */
