/*
 * near.h
 *		A cell near a vector; part of cells.h, and of plan/interface.h.
 */
#ifndef PIPEANN_CELLS_NEAR_H
#define PIPEANN_CELLS_NEAR_H

typedef struct PipeannNearCell
{
	float		distance;		/* squared, from its centroid, of embedded vectors */
	float		rows;			/* its share of the rows that cells were made of */
} PipeannNearCell;

#endif							/* PIPEANN_CELLS_NEAR_H */
