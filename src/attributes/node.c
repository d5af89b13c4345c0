/*
 * node.c
 *		The attribute code of a node, by all of its rows.
 */
#include "postgres.h"

#include "attributes/coding.h"

/* Add what a row has to the code of its node. */
static void
AddRow(PipeannAttributes *a, const PipeannIndexView *view, uint32 id,
	   const PipeannRow *row, uint8 *code, bool *any)
{
	uint8		one[PIPEANN_MAX_ATTRIBUTE_BYTES] = {0};
	PipeannRow *whole = NULL;

	if (PipeannRowIsApart(&view->meta.layout, row))
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

void
PipeannFillNodeAttributes(uint32 id, uint8 *code, void *arg)
{
	const PipeannNodeAttributes *node = arg;
	PipeannSlot *slot = PipeannSlotAlloc(&node->view->meta.layout);

	PipeannSlotCopy(node->view, id, slot);
	PipeannAttributesOfNode(node->attributes, node->view, id, slot, code);
	pfree(slot);
}
