/*
 * attributes.c
 *		Attribute codes of the nodes of a build, or of a packing, by their rows in
 *		memory.
 */
#include "postgres.h"

#include "build/build.h"

/* Nodes at even distances. */
typedef struct Sampling
{
	const PipeannCollection *c;
	uint32		n;
} Sampling;

static const PipeannRow *
SampledRow(uint32 i, uint32 j, void *arg)
{
	const Sampling *s = arg;
	uint32		node = (uint32) ((uint64) i * s->c->n / s->n);
	uint32		dup = j == 0 ? PIPEANN_INVALID_ID : s->c->dup_heads[node];

	for (uint32 k = 1; k < j && dup != PIPEANN_INVALID_ID; k++)
		dup = s->c->dups[dup].next;
	return j > 0 && dup == PIPEANN_INVALID_ID ? NULL :
		PipeannCollectionRow(s->c, node, dup);
}

void
PipeannChooseWidths(Relation index, uint32 format,
					const PipeannCollection *c, PipeannLayout *l,
					PipeannWidths *widths)
{
	Sampling	s = {.c = c,.n = Min(c->n, PIPEANN_ATTRIBUTE_SAMPLES)};

	if (l->attr_bytes > 0)
		l->attr_bytes =
			PipeannAttributesChoose(PipeannAttributesDescribe(index, format),
									SampledRow, &s, s.n, widths);
}

void
PipeannTrainAttributes(PipeannAttributes *a, const PipeannCollection *c,
					   char *books)
{
	Sampling	s = {.c = c,.n = Min(c->n, PIPEANN_ATTRIBUTE_SAMPLES)};

	PipeannAttributesTrain(a, SampledRow, &s, s.n, books);
}

void
PipeannCollectedAttributes(PipeannAttributes *a, const PipeannCollection *c,
						   uint32 node, uint8 *code)
{
	uint32		dup = c->dup_heads[node];

	PipeannAttributesEncode(a, node,
							PipeannCollectionRow(c, node, PIPEANN_INVALID_ID),
							code);
	for (; dup != PIPEANN_INVALID_ID; dup = c->dups[dup].next)
	{
		uint8		other[PIPEANN_MAX_ATTRIBUTE_BYTES];

		PipeannAttributesEncode(a, node, PipeannCollectionRow(c, node, dup),
								other);
		PipeannAttributesMerge(a, other, code);
	}
}

void
PipeannEncodeAttributes(PipeannAttributes *a, const PipeannLayout *l,
						const PipeannCollection *c, const PipeannNodes *nodes,
						uint32 first, int n, uint8 *out)
{
	uint8		code[PIPEANN_MAX_ATTRIBUTE_BYTES];

	if (a == NULL)
		return;
	for (int i = 0; i < n; i++)
	{
		uint32		node = nodes->node_of_id[first + i];

		if (node == PIPEANN_INVALID_ID)
			continue;
		PipeannCollectedAttributes(a, c, node, code);
		for (uint32 j = 0; j < l->attr_bytes; j++)
			out[PipeannPlaneOffset(l, j) + i] = code[j];
	}
}
