/*
 * attributes.c
 *		VACUUM takes out of attribute codes what no row has any more.
 *
 * Codes of slots that are going to be freed are cleared, so that no search looks at
 * them for what their last nodes had. That is done before a slot is free: later an
 * insert may have taken it and written a code. Nodes that lost some of their rows get
 * the code of those that are left, unless that are very many.
 */
#include "postgres.h"

#include "attributes/attributes.h"
#include "base/pause.h"
#include "vacuum/passes.h"

/* Set freed[] to which codes of a page are of slots to be freed; false if none is. */
static bool
FindFreed(const PipeannVacuum *v, uint32 code_page, uint32 per_page,
		  bool *freed)
{
	bool		any = false;

	for (uint32 i = 0; i < per_page; i++)
	{
		uint64		id = (uint64) code_page * per_page + i;

		freed[i] = id < v->ids && PipeannVacuumFreesSlot(v, (uint32) id);
		any |= freed[i];
	}
	return any;
}

/*
 * Clear the codes of slots to be freed, and write anew those of nodes
 * that lost rows; the latter with the maintenance lock, so that codes are not being
 * made anew.
 */
void
PipeannVacuumClearCodes(PipeannVacuum *v)
{
	uint32		per_page = PipeannCodesPerPage(&v->view.meta.layout);
	uint32		pages = v->view.meta.code_pages;
	uint32	   *changed;
	bool	   *freed;
	uint32		n = 0;

	if (!PipeannVacuumHasAttributes(v))
		return;
	changed = palloc(mul_size(Max(pages, 1), sizeof(uint32)));
	freed = palloc(per_page);
	for (uint32 page = 0; page < pages; page++)
	{
		if (!FindFreed(v, page, per_page, freed))
			continue;
		PipeannVacuumDelay();
		PipeannClearAttributes(&v->view, page, freed);
		changed[n++] = page;
	}
	PIPEANN_PAUSE("vacuum-codes-cleared");
	PipeannNoteCodePages(&v->view, changed, n);
	pfree(changed);
	pfree(freed);
}

/* Whether the code of a node in memory may cover more than its rows have. */
static bool
MayShrink(const PipeannVacuum *v, const PipeannAttributes *a, uint32 id)
{
	const PipeannCodes *codes = &v->view.codes;
	uint8		code[PIPEANN_MAX_ATTRIBUTE_BYTES];

	if (id >= codes->ncodes)
		return false;
	for (uint32 i = 0; i < codes->attr_bytes; i++)
		code[i] = *PipeannAttributeAt(codes, id, i);
	return PipeannAttributesMayShrink(a, code);
}

void
PipeannVacuumShrinkCodes(PipeannVacuum *v)
{
	PipeannIndexView *view = &v->view;
	uint32		per_page = PipeannCodesPerPage(&view->meta.layout);
	uint32	   *changed;
	uint32		n = 0;
	PipeannNodeCode node = {.view = view};

	PipeannRefreshView(view);
	if (!PipeannVacuumHasAttributes(v))
		return;
	node.attributes = PipeannAttributesOpen(view->index, view->meta.format,
											&view->meta.layout,
											&view->meta.widths,
											view->cache->books);
	changed = palloc(mul_size(Max(view->meta.code_pages, 1), sizeof(uint32)));
	for (uint32 id = 0; id < v->ids; id++)
	{
		uint32		page = id / per_page;

		if (!PipeannBitsHas(&v->trimmed, id) || !PipeannBitsHas(&v->live, id) ||
			!MayShrink(v, node.attributes, id))
			continue;
		PipeannVacuumDelay();
		if (PipeannNodeCodeMake(&node, id) &&
			PipeannChangeAttributes(view, view->meta.generation, id,
									PipeannNodeCodePut, &node) &&
			(n == 0 || changed[n - 1] != page))
			changed[n++] = page;
	}
	PipeannNoteCodePages(view, changed, n);
	pfree(changed);
}
