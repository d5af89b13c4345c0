/*
 * key.c
 *		Sorting candidates.
 */
#include "base/key.h"

/* PipeannKeySort(keys, n) sorts in place, ascending. */
#define ST_SORT PipeannKeySort
#define ST_ELEMENT_TYPE PipeannKey
#define ST_COMPARE(a, b) (*(a) < *(b) ? -1 : *(a) > *(b))
#define ST_SCOPE
#define ST_DEFINE
#include "lib/sort_template.h"
