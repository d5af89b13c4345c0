/*
 * interface.h
 *		The interface of this library for other libraries.
 *
 * servers/ may use nothing else of this library, except types and inline
 * functions of base/ and distance/. The library leaves a pointer to it in a
 * rendezvous variable (fmgr.h) when it is loaded, wherever it was loaded from.
 */
#ifndef PIPEANN_INTERFACE_H
#define PIPEANN_INTERFACE_H

#include "base/base.h"
#include "datatype/timestamp.h"
#include "nodes/extensible.h"
#include "nodes/plannodes.h"
#include "utils/relcache.h"

/* Increment this with every change of the interface or its meaning, or of PipeannKernels. */
#define PIPEANN_INTERFACE_VERSION	10

/* Returns whether to stop visiting; may replace the plan. */
typedef bool (*PipeannPlanVisit) (Plan **place, void *arg);

typedef struct PipeannInterface
{
	int			version;

	/* the fastest kernels for this CPU (distance/distance.h) */
	const struct PipeannKernels *kernels;

	/* the elements of a vector or halfvec; errors if it has other dimensions */
	const float *(*elements) (PipeannType type, Datum value, int dim);

	/* pipeann.rewrite_plans: whether queries and plans may be changed */
	const bool *rewrites_plans;

	/* whether indexes of ours can be in the order of an operator */
	bool		(*is_distance) (Oid operator);

	/* make a node with this one as its child, and the same columns */
	CustomScan *(*wrap) (Plan *plan, const CustomScanMethods *methods);

	/*
	 * Visit the places of all plans right below a node, or below a
	 * PlannedStmt, until a visit returns true; returns whether one did. For
	 * plans further down call it from the visit.
	 */
	bool		(*visit_plans) (void *above, PipeannPlanVisit visit, void *arg);

	/*
	 * Tell our scans below a node that, when they begin or restart, farther
	 * rows need not be returned; infinity: all rows are wanted.
	 */
	void		(*bound_scans) (struct PlanState *node, double most);

	/* where to put the function that asks servers for their parts (scan/scan.h) */
	bytea	   *(**ask_part) (Relation index, uint32 part, const bytea *message,
							  TimestampTz *until);
} PipeannInterface;

/* Name of the rendezvous variable, a const PipeannInterface *; NULL until loaded. */
#define PIPEANN_INTERFACE	"pipeann_interface"

#endif							/* PIPEANN_INTERFACE_H */
