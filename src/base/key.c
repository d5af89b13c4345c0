/*
 * key.c
 *		Sorting and selecting candidates.
 */
#include "base/base.h"

#include "base/key.h"

/*
 * Sort keys[n] in place, ascending.
 *
 * Shell sort with Ciura's gaps: lists here have tens to a few thousand keys.
 */
void
PipeannKeySort(PipeannKey *keys, int n)
{
	static const int gaps[] = {29524, 9841, 3937, 1750, 701, 301, 132, 57, 23,
	10, 4, 1};
	for (int g = 0; g < (int) lengthof(gaps); g++)
	{
		int			gap = gaps[g];

		for (int i = gap; i < n; i++)
		{
			PipeannKey	key = keys[i];
			int			j = i;

			for (; j >= gap && keys[j - gap] > key; j -= gap)
				keys[j] = keys[j - gap];
			keys[j] = key;
		}
	}
}
