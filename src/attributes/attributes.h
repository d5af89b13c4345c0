/*
 * attributes.h
 *		Attribute codes: small codes of the values of filter columns, from
 *		which a search knows, in memory, which nodes may match.
 *
 * This room knows values, their order and hashes, and which codes pass a
 * condition. It must not know when codes are written or searched.
 */
#ifndef PIPEANN_ATTRIBUTES_H
#define PIPEANN_ATTRIBUTES_H

#include "access/skey.h"
#include "index/index.h"

/* A condition: a value must satisfy the key's operator with one of arguments. */
typedef struct PipeannCondition
{
	ScanKeyData *key;
	int			number;			/* of the column among the values */
	int			narguments;
	Datum	   *arguments;
} PipeannCondition;

/* How the filter columns of an index are coded. */
typedef struct PipeannAttributes PipeannAttributes;

/* Options of a filter column. */
typedef struct PipeannColumnOptions
{
	int32		vl_len_;		/* varlena header (do not touch directly!) */
	int			code_bytes;		/* width of its attribute code; 0: chosen by the data */
} PipeannColumnOptions;

/* Row j of node i of the samples to train on, or NULL for none. */
typedef const PipeannRow *(*PipeannRowAt) (uint32 i, uint32 j, void *arg);

/*
 * A node's code, computed while no page is locked, and put on its page if the
 * node still has the same rows then (src/README, "attribute codes").
 */
typedef struct PipeannNodeCode
{
	PipeannAttributes *attributes;
	const PipeannIndexView *view;
	bool		mix;			/* if the rows have changed put a code that
								 * covers everything; else none */
	bool		known;
	PipeannSlot *slot;
	uint64		rows;			/* their hash */
	uint8		code[PIPEANN_MAX_ATTRIBUTE_BYTES];
} PipeannNodeCode;

/* attributes.c */
extern PipeannAttributes *PipeannAttributesDescribe(Relation index,
													const PipeannWidths *widths);
extern PipeannAttributes *PipeannAttributesForesee(TupleDesc values, int n);
extern PipeannAttributes *PipeannAttributesOpen(Relation index,
												const PipeannLayout *l,
												const PipeannWidths *widths,
												const char *histograms);
extern void PipeannAttributesUseHistogram(PipeannAttributes *a,
										  const char *histograms);
extern void PipeannAttributesEncode(PipeannAttributes *a, uint32 id,
									const PipeannRow *row, uint8 *code);
extern void PipeannAttributesMerge(const PipeannAttributes *a,
								   const uint8 *other, uint8 *code);
extern bool PipeannAttributesMayShrink(const PipeannAttributes *a,
									   const uint8 *code);
extern bool PipeannAttributesCover(const PipeannAttributes *a,
								   const uint8 *code, const uint8 *row);
extern PipeannCodeFilter *PipeannAttributesFilter(PipeannAttributes *a,
												  const PipeannCondition *conditions,
												  int n);
extern int	PipeannAttributesChoose(PipeannAttributes *a, PipeannRowAt row_at,
									void *arg, uint32 n,
									PipeannWidths *widths);
extern void PipeannAttributesTrain(PipeannAttributes *a, PipeannRowAt row_at,
								   void *arg, uint32 n, char *histograms);
extern void PipeannAttributesOfNode(PipeannAttributes *a,
									const PipeannIndexView *view, uint32 id,
									const PipeannSlot *slot, uint8 *code);
extern bool PipeannNodeCodeMake(PipeannNodeCode *node, uint32 id);
extern void PipeannNodeCodePut(uint32 id, uint8 *code, void *arg);

/* The attributes of an open index, or NULL. */
static inline PipeannAttributes *
PipeannAttributesOfView(const PipeannIndexView *view)
{
	return PipeannAttributesOpen(view->index, &view->meta.layout, &view->meta.widths,
								 view->cache == NULL ? NULL :
								 view->cache->histograms);
}

#endif							/* PIPEANN_ATTRIBUTES_H */
