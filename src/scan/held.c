/*
 * held.c
 *		Results held back until no nearer one can come.
 *
 * Of a rounded vector only bounds of its distance are known. In a plain index
 * scan the executor computes the distance of a row whose order is in doubt, and
 * holds it back. Where it does not (start.c, HoldsRowsBack()) the scan itself
 * does.
 *
 * Where thousands of nodes are nearer to each other than half precision can
 * tell, a LIMIT must not have all of them read: PIPEANN_MOST_HELD at a time are.
 */
#include "postgres.h"

#include "scan/only.h"
#include "scan/order.h"

struct PipeannHeld
{
	pairingheap *heap;
	int			n;
};

/* The heap's first is the nearest; ties are broken as in the search. */
static int
Compare(const pairingheap_node *a, const pairingheap_node *b, void *arg)
{
	const PipeannResult *x =
		&pairingheap_const_container(PipeannHeldResult, node, a)->result;
	const PipeannResult *y =
		&pairingheap_const_container(PipeannHeldResult, node, b)->result;

	(void) arg;
	if (x->dist != y->dist)
		return x->dist < y->dist ? 1 : -1;
	return x->id < y->id ? 1 : -1;
}

PipeannHeld *
PipeannHeldBegin(void)
{
	PipeannHeld *held = palloc(sizeof(PipeannHeld));

	held->heap = pairingheap_allocate(Compare, NULL);
	held->n = 0;
	return held;
}

/* Hold a result with its rows, at its exact distance. */
void
PipeannHeldAdd(PipeannHeld *held, const PipeannResult *result,
			   PipeannRowList rows, float dist)
{
	PipeannHeldResult *added = palloc(offsetof(PipeannHeldResult, rows) +
									  rows.bytes);

	added->result = *result;
	added->result.dist = added->result.most = dist;
	memcpy(added->rows, rows.rows, rows.bytes);
	pairingheap_add(held->heap, &added->node);
	held->n++;
}

bool
PipeannHeldIsEmpty(const PipeannHeld *held)
{
	return held->n == 0;
}

/*
 * Take the nearest held result, if no other result can come before it. `next` is
 * the least distance that a result may have which is not held, or infinity. NULL if
 * there is no such held result.
 */
PipeannHeldResult *
PipeannHeldTake(PipeannHeld *held, float next)
{
	PipeannHeldResult *first;

	if (held->n == 0)
		return NULL;
	first = pairingheap_container(PipeannHeldResult, node,
								  pairingheap_first(held->heap));
	if (first->result.dist > next && held->n < PIPEANN_MOST_HELD)
		return NULL;
	(void) pairingheap_remove_first(held->heap);
	held->n--;
	return first;
}
