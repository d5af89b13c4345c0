/*
 * foreign_limit.h
 *		Limits of queries for the nearest rows of a foreign table; private to
 *		queries/.
 */
#ifndef PIPEANN_SERVERS_FOREIGN_LIMIT_H
#define PIPEANN_SERVERS_FOREIGN_LIMIT_H

#include "nodes/pathnodes.h"

/*
 * While the paths of a query's final relation are made: if it is for the nearest
 * rows of a foreign table, and the server can be sent the limit, leave no path
 * but the one by which it is.
 */
extern void PipeannSendLimit(PlannerInfo *root, RelOptInfo *input,
							 RelOptInfo *final, void *extra);

#endif							/* PIPEANN_SERVERS_FOREIGN_LIMIT_H */
