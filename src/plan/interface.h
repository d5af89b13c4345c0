/*
 * interface.h
 *		What this library has for others that are loaded beside it.
 *
 * It is all that servers/ may know of it. The library leaves a pointer to it in a
 * rendezvous variable (fmgr.h) when it is loaded, wherever it was loaded from.
 */
#ifndef PIPEANN_INTERFACE_H
#define PIPEANN_INTERFACE_H

#include "cells/near.h"
#include "datatype/timestamp.h"
#include "nodes/extensible.h"
#include "nodes/plannodes.h"
#include "utils/relcache.h"

/* To be counted on with every change of what follows, or of what it means. */
#define PIPEANN_INTERFACE_VERSION	8

/* Whether no more plans are to be visited; may put another one in the place. */
typedef bool (*PipeannPlanVisit) (Plan **place, void *arg);

typedef struct PipeannInterface
{
	int			version;

	/* pipeann.rewrite_plans: whether queries and plans may be changed */
	bool		(*rewrites_plans) (void);

	/* whether indexes of ours can be in the order of an operator */
	bool		(*is_distance) (Oid operator);

	/* a node that has this one as its child, and hands up the same columns */
	CustomScan *(*wrap) (Plan *plan, const CustomScanMethods *methods);

	/*
	 * Visit the places of all plans right below a node, or below a PlannedStmt, until
	 * a visit returns true; returns whether one did. Who wants those further down
	 * calls it from the visit.
	 */
	bool		(*visit_plans) (void *above, PipeannPlanVisit visit, void *arg);

	/*
	 * The vector of an expression that is pipeann_cell(name, vector), and the cells'
	 * name; or NULL.
	 */
	Node	   *(*cell_vector) (Node *expr, const char **cells);

	/*
	 * How many cells of that name there are, if what is near by the operator, one of
	 * ours, is in near cells; or 0.
	 */
	int			(*count_cells) (const char *cells, Oid operator);

	/*
	 * All n cells, by their numbers, with their distances from a query, a vector or
	 * halfvec. False if there are not n any more. Errors if cells are gone.
	 */
	bool		(*near_cells) (const char *cells, Oid type, Datum query, int n,
							   PipeannNearCell *near);

	/* What is a distance by the operator, squared as those of cells are. */
	double		(*cell_distance) (const char *cells, Oid type, Datum query,
								  double distance);

	/*
	 * Count so many parts asked and waves; of a query that begins its nearest cell, or -1.
	 */
	void		(*note_cells) (const char *cells, int ncells, int cell, int nparts,
							   int nwaves);

	/*
	 * Scans of ours below a node that are begun, or begun anew, from now on need return
	 * no row that is farther; infinity: all.
	 */
	void		(*bound_scans) (struct PlanState *node, double most);

	/* what asks servers for their parts is to be put there (scan/scan.h) */
	bytea	   *(**ask_part) (Relation index, uint32 part, const bytea *message,
							  TimestampTz *until);
} PipeannInterface;

/* Of the variable, which is a const PipeannInterface *, NULL before. */
#define PIPEANN_INTERFACE	"pipeann_interface"

#endif							/* PIPEANN_INTERFACE_H */
