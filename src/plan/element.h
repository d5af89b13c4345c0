/*
 * element.h
 *		Conditions that a column of arrays has an element; private to plan/.
 */
#ifndef PIPEANN_PLAN_ELEMENT_H
#define PIPEANN_PLAN_ELEMENT_H

#include "nodes/parsenodes.h"

extern void PipeannAskForElements(Query *query);

#endif							/* PIPEANN_PLAN_ELEMENT_H */
