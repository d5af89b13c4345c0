/*
 * am.h
 *		Callbacks of the access method that concern no page; private to am/.
 *
 * This room knows how PostgreSQL calls an access method, and all settings. It
 * must not know how anything is done.
 */
#ifndef PIPEANN_AM_H
#define PIPEANN_AM_H

#include "access/amapi.h"

/* cost.c */
extern void pipeanncostestimate(struct PlannerInfo *root,
								struct IndexPath *path, double loop_count,
								Cost *startup_cost, Cost *total_cost,
								Selectivity *selectivity, double *correlation,
								double *pages);

#endif							/* PIPEANN_AM_H */
