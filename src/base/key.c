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
	int			g;

	for (g = 0; g < (int) (sizeof(gaps) / sizeof(gaps[0])); g++)
	{
		int			gap = gaps[g];
		int			i;

		for (i = gap; i < n; i++)
		{
			PipeannKey	key = keys[i];
			int			j = i;

			for (; j >= gap && keys[j - gap] > key; j -= gap)
				keys[j] = keys[j - gap];
			keys[j] = key;
		}
	}
}

/*
 * Move the m smallest of keys[n] to the front, in no particular order.
 *
 * Hoare's quickselect, with a median of three as pivot; keys are distinct.
 */
void
PipeannKeySelect(PipeannKey *keys, int n, int m)
{
	int			left = 0;
	int			right = n - 1;

	if (m >= n)
		return;
	while (left < right)
	{
		PipeannKey	a = keys[left];
		PipeannKey	b = keys[left + (right - left) / 2];
		PipeannKey	c = keys[right];
		PipeannKey	pivot = Max(Min(a, b), Min(Max(a, b), c));
		int			i = left;
		int			j = right;

		while (i <= j)
		{
			while (keys[i] < pivot)
				i++;
			while (keys[j] > pivot)
				j--;
			if (i <= j)
			{
				PipeannKey	swap = keys[i];

				keys[i++] = keys[j];
				keys[j--] = swap;
			}
		}
		if (m <= j)
			right = j;
		else if (m >= i)
			left = i;
		else
			return;
	}
}
