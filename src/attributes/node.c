/*
 * node.c
 *		The attribute code of a node, by all of its rows.
 */
#include "postgres.h"

#include "attributes/coding.h"
#include "base/pause.h"
#include "common/hashfn.h"

/*
 * A node with more overflow slots has no code made for it: of so many rows hardly one is
 * the only one with a value, and they are read with a page locked.
 */
#define MOST_OVERFLOW_SLOTS 8

/* Add what a row has to the code of its node. */
static void
AddRow(PipeannAttributes *a, const PipeannIndexView *view, uint32 id,
	   const PipeannRow *row, uint8 *code, bool *any)
{
	uint8		one[PIPEANN_MAX_ATTRIBUTE_BYTES] = {0};
	PipeannRow *whole = NULL;

	if (PipeannRowIsOutOfLine(&view->meta.layout, row))
	{
		whole = PipeannTryReadRow(view, row);
		if (whole == NULL)
			return;				/* VACUUM has removed it */
		row = whole;
	}
	PipeannAttributesEncode(a, id, row, one);
	if (*any)
		PipeannAttributesMerge(a, one, code);
	else
		memcpy(code, one, a->bytes);
	*any = true;
	if (whole != NULL)
		pfree(whole);
}

static void
AddRows(PipeannAttributes *a, const PipeannIndexView *view, uint32 id,
		PipeannRowList list, uint8 *code, bool *any)
{
	const PipeannRow *row = list.rows;

	for (uint32 i = 0; i < list.n;
		 i++, row = PipeannRowNext(&view->meta.layout, row))
		AddRow(a, view, id, row, code, any);
}

/* Set code to that of all rows of a node. */
void
PipeannAttributesOfNode(PipeannAttributes *a, const PipeannIndexView *view,
						uint32 id, const PipeannSlot *slot, uint8 *code)
{
	const PipeannLayout *l = &view->meta.layout;
	bool		any = false;
	PipeannChain chain;
	void	   *copy;

	memset(code, 0, a->bytes);
	AddRows(a, view, id, PipeannSlotRows(l, slot), code, &any);
	if (slot->ext_tids == PIPEANN_INVALID_ID)
		return;
	copy = palloc(PipeannExtBytes(l));
	PipeannChainBegin(&chain, id, slot->ext_tids);
	while (chain.next != PIPEANN_INVALID_ID)
		AddRows(a, view, id, PipeannChainRead(view, &chain, copy), code, &any);
	pfree(copy);
}

static uint64
AddToHash(PipeannRowList list, uint64 hash)
{
	return hash_bytes_extended((const unsigned char *) list.rows,
							   (int) list.bytes, hash);
}

/* The hash of a node's rows, which it sets slot to. False if there are too many. */
static bool
HashRows(const PipeannIndexView *view, uint32 id, PipeannSlot *slot,
		 uint64 *hash)
{
	const PipeannLayout *l = &view->meta.layout;
	PipeannChain chain;
	void	   *copy;
	int			slots = 0;

	PipeannSlotCopy(view, id, slot);
	*hash = AddToHash(PipeannSlotRows(l, slot), slot->ext_tids);
	if (slot->ext_tids == PIPEANN_INVALID_ID)
		return true;
	copy = palloc(PipeannExtBytes(l));
	PipeannChainBegin(&chain, id, slot->ext_tids);
	while (chain.next != PIPEANN_INVALID_ID && slots++ < MOST_OVERFLOW_SLOTS)
		*hash = AddToHash(PipeannChainRead(view, &chain, copy), *hash);
	pfree(copy);
	return chain.next == PIPEANN_INVALID_ID;
}

/* False if a node has so many rows that it must not be made. */
bool
PipeannNodeCodeMake(PipeannNodeCode *node, uint32 id)
{
	if (node->slot == NULL)
		node->slot = PipeannSlotAlloc(&node->view->meta.layout);
	node->known = HashRows(node->view, id, node->slot, &node->rows);
	if (node->known)
		PipeannAttributesOfNode(node->attributes, node->view, id, node->slot,
								node->code);
	PIPEANN_PAUSE("node-code-made");
	return node->known;
}

/* With the page of the code locked; arg is a PipeannNodeCode. */
void
PipeannNodeCodePut(uint32 id, uint8 *code, void *arg)
{
	const PipeannNodeCode *node = arg;
	uint64		rows;

	if (node->known && HashRows(node->view, id, node->slot, &rows) &&
		rows == node->rows)
		memcpy(code, node->code, node->attributes->bytes);
	else if (node->mix)
		PipeannAttributesMix(node->attributes, code);
}
