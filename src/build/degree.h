/*
 * degree.h
 *		m = 0: the degree of the graph by a profile of the machine.
 */
#ifndef PIPEANN_DEGREE_H
#define PIPEANN_DEGREE_H

#include "build/collect.h"

/*
 * Choose m for the vectors collected from a table, at most max_m; base has the
 * layout's other options. Says why in *degree. The default m, or max_m if that
 * is less, where the machine cannot be profiled.
 */
extern int	PipeannChooseM(Relation heap, const PipeannCollection *c,
						   const PipeannLayout *base, int max_m,
						   PipeannDegree *degree);

/* The reason in words. Palloc'd. */
extern char *PipeannDegreeText(const PipeannMeta *meta);

#endif							/* PIPEANN_DEGREE_H */
