/*
 * equal_codes.c
 *		Where the nodes are that a search cannot tell apart by their codes.
 *
 * A row that is updated in another column joins the node of its vector, at which its
 * search ends. Where very many nodes have the same few codes (vectors of one direction,
 * by cosine; a dense heap far from all else), a search meets a few of them by chance,
 * and each update would make a node of its own. PostgreSQL says that the vector is
 * the one that the row had, so a search that has not found its node has missed it.
 * When that has happened a few times the backend reads the nodes of these codes once
 * and keeps a hash of each vector: later rows go straight to their node.
 *
 * It is a hint. Whoever takes a node from it compares the vectors.
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "insert/equal_codes.h"
#include "miscadmin.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"

/* So many times vectors are missed before nodes are read: */
#define FIRST_MISSES 8
#define MORE_MISSES 2			/* of other codes */
#define MISSES_IN_VAIN 1024		/* after nodes were read in vain */

/*
 * Codes are equal that are as far from the vector but for this part of its length.
 * Bytes alone do not tell: centroids may be as near as others, of which a build may
 * have chosen another one.
 */
#define EQUAL_PART 1e-5

/* Nodes kept, 16 bytes and a little more for each. */
#define MOST_NODES 65536

typedef struct EqualNode
{
	uint32		hash;			/* of the vector; the key */
	uint32		id;
} EqualNode;

/* Of the index of the backend in which vectors were missed last. */
static struct
{
	uint64		build_id;		/* 0: of none */
	int			misses;			/* left until nodes are read */
	HTAB	   *nodes;			/* EqualNode, or NULL */
} known;

/* Of a vector that was rounded the slot has the hash. */
static uint32
HashOf(const PipeannLayout *l, const PipeannSlot *slot)
{
	uint32		hash = hash_bytes((const unsigned char *) PipeannSlotVector(l, slot),
								  l->dim * PipeannElementSize(l->storage));

	return PipeannSlotError(l, slot) == 0 ? hash :
		hash_combine(hash, slot->hash);
}

static void
Forget(void)
{
	if (known.nodes != NULL)
		hash_destroy(known.nodes);
	known.nodes = NULL;
	known.build_id = 0;
}

static void
KnowIndex(const PipeannIndexView *view)
{
	if (known.build_id == view->meta.build_id)
		return;
	Forget();
	known.build_id = view->meta.build_id;
	known.misses = FIRST_MISSES;
}

uint32
PipeannEqualCodesFind(const PipeannIndexView *view, const PipeannSlot *slot)
{
	const PipeannLayout *l = &view->meta.layout;
	const EqualNode *node;
	uint32		hash;

	if (known.nodes == NULL || known.build_id != view->meta.build_id)
		return PIPEANN_INVALID_ID;
	hash = HashOf(l, slot);
	node = hash_search(known.nodes, &hash, HASH_FIND, NULL);
	return node == NULL ? PIPEANN_INVALID_ID : node->id;
}

static bool
IsFull(void)
{
	return hash_get_num_entries(known.nodes) >= MOST_NODES;
}

/* Returns whether it was not there. */
static bool
Add(const PipeannLayout *l, uint32 id, const PipeannSlot *slot)
{
	uint32		hash = HashOf(l, slot);
	bool		found;
	EqualNode  *node;

	if (IsFull())
		return false;
	node = hash_search(known.nodes, &hash, HASH_ENTER, &found);
	node->id = id;
	return !found;
}

static float
DistanceOf(const float *table, const uint8 *code, int nsubvectors)
{
	float		sum = 0;

	for (int i = 0; i < nsubvectors; i++)
		sum += table[(Size) i * PIPEANN_CENTROIDS + code[i]];
	return sum;
}

/*
 * Note the live nodes whose codes are equal to that of x. Returns how many were not
 * known.
 */
static uint64
AddNodes(const PipeannIndexView *view, const float *x)
{
	const PipeannLayout *l = &view->meta.layout;
	const PipeannCodes *codes = &view->codes;
	const PipeannPq *pq = &codes->pq;
	double		part = EQUAL_PART * PipeannNorm(x, l->dim);
	float	   *table = palloc(mul_size((Size) pq->nsubvectors *
									PIPEANN_CENTROIDS, sizeof(float)));
	uint8	   *own = palloc(pq->nsubvectors);
	char	   *nodes = palloc((Size) l->node_pages * PIPEANN_PAYLOAD);
	uint32		copied = PIPEANN_INVALID_ID;	/* the page in nodes */
	uint32		pages = PipeannViewPages(view);
	uint32		ids = Min(codes->ncodes, pages * l->slots_per_page);
	uint64		added = 0;
	float		most;

	PipeannPqTable(pq, PIPEANN_L2, x, table);
	PipeannPqEncode(pq, x, own);
	most = DistanceOf(table, own, pq->nsubvectors) + part * part;
	for (uint32 id = 0; id < ids && !IsFull(); id++)
	{
		const PipeannSlot *slot;

		if (id % PIPEANN_CODE_BLOCK == 0)
			CHECK_FOR_INTERRUPTS();
		if (DistanceOf(table, PipeannCodeAt(codes, id),
					   pq->nsubvectors) > most)
			continue;
		if (copied != PipeannIdPage(l, id) &&
			!PipeannGraphPageCopy(view, PipeannIdPage(l, id), nodes))
			continue;
		copied = PipeannIdPage(l, id);
		slot = PipeannSlotAt(l, nodes, PipeannIdSlot(l, id));
		if (PipeannSlotIsLive(slot) && Add(l, id, slot))
			added++;
	}
	pfree(nodes);
	pfree(own);
	pfree(table);
	return added;
}

void
PipeannEqualCodesMissed(const PipeannIndexView *view, const float *x)
{
	if (view->cache == NULL)
		return;
	KnowIndex(view);
	if (--known.misses > 0)
		return;
	if (known.nodes == NULL)
	{
		HASHCTL		control = {
			.keysize = sizeof(uint32),.entrysize = sizeof(EqualNode)
		};

		known.nodes = hash_create("pipeann nodes of equal codes", 1024,
								  &control, HASH_ELEM | HASH_BLOBS);
	}
	known.misses = MISSES_IN_VAIN;
	if (AddNodes(view, x) > 0)
		known.misses = MORE_MISSES;
}

void
PipeannEqualCodesAdd(const PipeannIndexView *view, uint32 id,
					 const PipeannSlot *slot)
{
	if (known.nodes != NULL && known.build_id == view->meta.build_id)
		(void) Add(&view->meta.layout, id, slot);
}
