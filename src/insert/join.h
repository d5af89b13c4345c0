/*
 * join.h
 *		A row that joins the node of its vector; private to insert/.
 */
#ifndef PIPEANN_JOIN_H
#define PIPEANN_JOIN_H

#include "index/index.h"

/*
 * Add a row to node id, inline if there is room, else in an overflow slot.
 * False if the node has died meanwhile.
 */
extern bool PipeannJoinNode(PipeannIndexView *view, uint32 id,
							const PipeannRow *row);

#endif							/* PIPEANN_JOIN_H */
