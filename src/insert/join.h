/*
 * join.h
 *		A row that joins the node of its vector; private to insert/.
 */
#ifndef PIPEANN_JOIN_H
#define PIPEANN_JOIN_H

#include "index/index.h"

extern bool PipeannJoinNode(PipeannIndexView *view, uint32 id,
							const PipeannRow *row);

#endif							/* PIPEANN_JOIN_H */
