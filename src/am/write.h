/*
 * write.h
 *		Writing a new index's pages.
 */
#ifndef PIPEANN_WRITE_H
#define PIPEANN_WRITE_H

#include "am/am.h"
#include "am/collect.h"

/* The metapage of an index without rows, from its options but for m. */
extern void PipeannMetaInit(PipeannMeta *meta, Relation index,
							PipeannStorage storage, int m);

/*
 * Write all nodes: order[] as PipeannGraphPack() gives it, graph NULL for
 * nodes without edges. Sets nodes->id_of_node, node_of_id, ids, and meta's
 * counts. Not WAL-logged, but for the extent map.
 */
extern void PipeannWriteNodes(Relation index, PipeannMeta *meta,
							  const PipeannCollection *c, PipeannNodes *nodes,
							  PipeannGraph *graph, const uint32 *order);

/* Write block 0. Not WAL-logged. */
extern void PipeannWriteMeta(Relation index, const PipeannMeta *meta);

#endif							/* PIPEANN_WRITE_H */
