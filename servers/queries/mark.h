/*
 * mark.h
 *		Relations of queries that per_partition.c makes, told from all others in a
 *		finished plan; private to queries/.
 */
#ifndef PIPEANN_SERVERS_MARK_H
#define PIPEANN_SERVERS_MARK_H

#include "nodes/parsenodes.h"
#include "nodes/plannodes.h"

/* Mark an entry as made for the query of this number. */
extern void PipeannMark(RangeTblEntry *entry, int number);
extern bool PipeannIsMarked(const RangeTblEntry *entry);

/*
 * Whether an Append has the rows of all parts of a query, and nothing else; they
 * are in no order.
 */
extern bool PipeannIsOfParts(const Append *append, List *rtable);

/* Whether a node only scans the relation of a part, and that a foreign table. */
extern bool PipeannIsPart(const Plan *plan, List *rtable);

/* Whether that is a part of the query whose parts the Append has. */
extern bool PipeannIsPartOf(const Plan *plan, const Append *append,
							List *rtable);

#endif							/* PIPEANN_SERVERS_MARK_H */
