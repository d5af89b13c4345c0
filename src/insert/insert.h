/*
 * insert.h
 *		INSERT's callback.
 *
 * This room knows how a row gets its node, code and edges. It must not know how
 * indexes are built, scanned and vacuumed.
 */
#ifndef PIPEANN_INSERT_H
#define PIPEANN_INSERT_H

#include "access/amapi.h"
#include "nodes/execnodes.h"

extern bool pipeanninsert(Relation index, Datum *values, bool *isnull,
						  ItemPointer heap_tid, Relation heap,
						  IndexUniqueCheck check_unique, bool index_unchanged,
						  IndexInfo *index_info);

#endif							/* PIPEANN_INSERT_H */
