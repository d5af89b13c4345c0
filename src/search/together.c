/*
 * together.c
 *		Searches of several indexes for one query.
 *
 * Distances of codes can be compared from one index to the other, as they are all
 * of the same vectors' space and err alike. So the candidates of all searches make
 * one list, of the length that the list of one search would have, and a search
 * explores those of its own that are in it, and a few. Searches that have found where they
 * begin before the first one is run know at once which of them are near. The list
 * only gets nearer.
 */
#include "search/together.h"

#define MERGED_AT_ONCE 16

/* Merge sorted distances into the list; the farthest of all fall out. */
static void
Merge(PipeannTogether *together, const float *fresh, int n)
{
	float	   *codes = together->codes;
	int			old = together->ncodes;
	int			to = Min(old + n, together->most);

	together->ncodes = to;
	for (int over = old + n - to; over > 0; over--)
	{
		if (old > 0 && codes[old - 1] > fresh[n - 1])
			old--;
		else
			n--;
	}
	while (n > 0)
	{
		if (old > 0 && codes[old - 1] > fresh[n - 1])
			codes[--to] = codes[--old];
		else
			codes[--to] = fresh[--n];
	}
}

/*
 * Candidates were found whose codes are at these distances.
 *
 * Most are too far. Of the others a few are sorted, and then merged at once.
 */
void
PipeannTogetherNote(PipeannTogether *together, const float *dists, int n)
{
	float		fresh[MERGED_AT_ONCE];
	int			nfresh = 0;

	for (int i = 0; i < n; i++)
	{
		int			at = nfresh;

		if (together->ncodes == together->most &&
			(together->most == 0 ||
			 !(dists[i] < together->codes[together->most - 1])))
			continue;
		for (; at > 0 && fresh[at - 1] > dists[i]; at--)
			fresh[at] = fresh[at - 1];
		fresh[at] = dists[i];
		if (++nfresh < MERGED_AT_ONCE)
			continue;
		Merge(together, fresh, nfresh);
		nfresh = 0;
	}
	if (nfresh > 0)
		Merge(together, fresh, nfresh);
}

static bool
HaveSameTable(const PipeannSearch *a, const PipeannSearch *b)
{
	const PipeannPq *p = &a->codes->pq;
	const PipeannPq *q = &b->codes->pq;

	return p->key == q->key && p->key != 0 && p->dim == q->dim &&
		p->nsubvectors == q->nsubvectors &&
		a->layout->metric == b->layout->metric &&
		memcmp(a->query, b->query, mul_size(p->dim, sizeof(float))) == 0;
}

/*
 * Make the table of the distances of codes, or have that of another search: of
 * one together with this one, for the same query and codebook. As long as one of
 * them is run none of them begins anew.
 */
void
PipeannMakeTable(PipeannSearch *search)
{
	PipeannTogether *together = search->params.together;
	PipeannSearch *other = together == NULL ? NULL : together->tabled;

	if (search->table != NULL)
		return;					/* it has walked, and scans codes now */
	while (other != NULL && !HaveSameTable(other, search))
		other = other->also_tabled;
	if (other != NULL)
	{
		search->table = other->table;
		return;
	}
	PipeannPqTable(&search->codes->pq, search->layout->metric, search->query,
				   search->own_table);
	search->table = search->own_table;
	if (together == NULL)
		return;
	search->also_tabled = together->tabled;
	together->tabled = search;
}
