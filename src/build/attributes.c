/*
 * attributes.c
 *		Attribute codes of nodes by their rows in memory.
 */
#include "postgres.h"

#include "build/nodes.h"

/* Samples to train on. */
#define MOST_SAMPLES 30000

/* Nodes at even distances. */
PipeannNodeSampling
PipeannSampleNodes(const PipeannNodes *nodes)
{
	return (PipeannNodeSampling) {nodes, Min(nodes->vectors.n, MOST_SAMPLES)};
}

/* Row j of sampled node i, or NULL. */
const PipeannRow *
PipeannSampledNodeRow(uint32 i, uint32 j, void *arg)
{
	const PipeannNodeSampling *s = arg;
	uint32		node = (uint32) ((uint64) i * s->nodes->vectors.n / s->n);
	uint32		dup = j == 0 ? PIPEANN_INVALID_ID : s->nodes->dup_heads[node];

	for (uint32 k = 1; k < j && dup != PIPEANN_INVALID_ID; k++)
		dup = s->nodes->dups[dup].next;
	return j > 0 && dup == PIPEANN_INVALID_ID ? NULL :
		PipeannNodeRow(s->nodes, node, dup);
}

/* The widths of attribute codes. */
void
PipeannChooseWidths(Relation index, uint32 format,
					const PipeannNodes *nodes, PipeannLayout *l,
					PipeannWidths *widths)
{
	PipeannNodeSampling s = PipeannSampleNodes(nodes);

	if (l->attr_bytes > 0)
		l->attr_bytes =
			PipeannAttributesChoose(PipeannAttributesDescribe(index, format,
																  NULL),
									PipeannSampledNodeRow, &s, s.n, widths);
}

/* The attribute code of one node, of all its rows. */
void
PipeannNodeAttributes(PipeannAttributes *a, const PipeannNodes *nodes,
					  uint32 node, uint8 *code)
{
	uint32		dup = nodes->dup_heads[node];

	PipeannAttributesEncode(a, node,
							PipeannNodeRow(nodes, node, PIPEANN_INVALID_ID),
							code);
	for (; dup != PIPEANN_INVALID_ID; dup = nodes->dups[dup].next)
	{
		uint8		other[PIPEANN_MAX_ATTRIBUTE_BYTES];

		PipeannAttributesEncode(a, node, PipeannNodeRow(nodes, node, dup),
								other);
		PipeannAttributesMerge(a, other, code);
	}
}

/* Put those of ids first .. first + n - 1 in a code page; nothing if a is NULL. */
void
PipeannEncodeAttributes(PipeannAttributes *a, const PipeannLayout *l,
						const PipeannNodes *nodes, uint32 first, int n,
						uint8 *out)
{
	uint8		code[PIPEANN_MAX_ATTRIBUTE_BYTES];

	if (a == NULL)
		return;
	for (int i = 0; i < n; i++)
	{
		uint32		node = nodes->node_of_id[first + i];

		if (node == PIPEANN_INVALID_ID)
			continue;
		PipeannNodeAttributes(a, nodes, node, code);
		for (uint32 j = 0; j < l->attr_bytes; j++)
			out[PipeannPlaneOffset(l, j) + i] = code[j];
	}
}
