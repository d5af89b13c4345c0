/*
 * write.h
 *		Writing a new index's pages.
 */
#ifndef PIPEANN_WRITE_H
#define PIPEANN_WRITE_H

#include "build/build.h"
#include "build/collect.h"

/* The metapage of an index without rows, from its options but for m. */
extern void PipeannMetaInit(PipeannMeta *meta, Relation index,
							PipeannStorage storage, int m);

/*
 * Give nodes their ids: order[] as PipeannGraphPack() gives it, position p is
 * slot p % fill of page p / fill. Sets nodes->id_of_node, node_of_id, ids.
 */
extern void PipeannAssignIds(const PipeannLayout *l, int fill,
							 PipeannNodes *nodes, const uint32 *order,
							 uint32 ids);

/* Pages that overflow slots take. */
extern uint64 PipeannExtPages(const PipeannLayout *l,
							  const PipeannCollection *c);

/* Give a kind the extents for so many graph pages, inside a metapage update. */
extern void PipeannReserveGraphPages(Relation index, PipeannMeta *meta,
									 PipeannKind kind, const PipeannLayout *l,
									 uint64 pages);

/*
 * Write nodes that have ids to the first node_pages graph pages of a kind of
 * extents, and overflow slots to those behind them. graph is NULL for nodes
 * without edges; its lists get spanning-tree edges first. Not WAL-logged.
 */
extern void PipeannWriteGraph(Relation index, const PipeannLayout *l,
							  const PipeannExtentMap *map, PipeannKind kind,
							  const PipeannCollection *c,
							  const PipeannNodes *nodes, PipeannGraph *graph,
							  uint32 node_pages);

/*
 * Write all nodes of a build in this order, with the layout's fill. Sets
 * nodes->id_of_node, node_of_id, ids, and meta's counts. Not WAL-logged, but
 * for the extent map.
 */
extern void PipeannWriteNodes(Relation index, PipeannMeta *meta,
							  const PipeannCollection *c, PipeannNodes *nodes,
							  PipeannGraph *graph, const uint32 *order);

/* Write block 0. Not WAL-logged. */
extern void PipeannWriteMeta(Relation index, const PipeannMeta *meta);

#endif							/* PIPEANN_WRITE_H */
