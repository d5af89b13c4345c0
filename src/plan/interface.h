/*
 * interface.h
 *		The interface of this library for other libraries.
 *
 * It is all that servers/ may know of it, but for types and inline functions of base/ and
 * distance/. The library leaves a pointer to it in a rendezvous variable (fmgr.h) when it is
 * loaded, wherever it was loaded from.
 */
#ifndef PIPEANN_INTERFACE_H
#define PIPEANN_INTERFACE_H

#include "base/base.h"
#include "datatype/timestamp.h"
#include "nodes/extensible.h"
#include "nodes/plannodes.h"
#include "utils/relcache.h"

/* To be counted up with every change of what follows or of what it means, or of PipeannKernels. */
#define PIPEANN_INTERFACE_VERSION	9

/* Whether no more plans are to be visited; may put another one in the place. */
typedef bool (*PipeannPlanVisit) (Plan **place, void *arg);

typedef struct PipeannInterface
{
	int			version;

	/* distances and conversions, as fast as this processor can (distance/distance.h) */
	const struct PipeannKernels *kernels;

	/* the elements of a vector or halfvec; errors if it has other dimensions */
	const float *(*elements) (PipeannType type, Datum value, int dim);

	/* pipeann.rewrite_plans: whether queries and plans may be changed */
	bool		(*rewrites_plans) (void);

	/* whether indexes of ours can be in the order of an operator */
	bool		(*is_distance) (Oid operator);

	/* a node that has this one as its child, and hands up the same columns */
	CustomScan *(*wrap) (Plan *plan, const CustomScanMethods *methods);

	/*
	 * Visit the places of all plans right below a node, or below a PlannedStmt, until
	 * a visit returns true; returns whether one did. For those further down
	 * call it from the visit.
	 */
	bool		(*visit_plans) (void *above, PipeannPlanVisit visit, void *arg);

	/*
	 * Scans of ours below a node that are begun, or begun again, from now on need return
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
