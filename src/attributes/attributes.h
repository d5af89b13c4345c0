/*
 * attributes.h
 *		Attribute codes: small codes of the values of filter columns, by which a
 *		search knows in memory which nodes may match.
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
	int			code_bytes;		/* of its attribute code; 0: by the data */
} PipeannColumnOptions;

/* Row j of node i of the samples to train on, or NULL for none. */
typedef const PipeannRow *(*PipeannRowAt) (uint32 i, uint32 j, void *arg);

/* The filter columns of an index of a format before it has codes. */
extern PipeannAttributes *PipeannAttributesDescribe(Relation index,
													uint32 format);

/* Whether their codes would be others before format 6. */
extern bool PipeannAttributesDiffer(const PipeannAttributes *a);

/* The first n of such values as filter columns of an index that is not there. */
extern PipeannAttributes *PipeannAttributesForesee(TupleDesc values, int n);

/*
 * Set *widths to those of the attribute codes, as the options say or by n samples of
 * rows; if there are none, by the columns' types. Returns the bytes of all.
 */
extern int	PipeannAttributesChoose(PipeannAttributes *a, PipeannRowAt row_at,
									void *arg, uint32 n,
									PipeannWidths *widths);

/*
 * In CurrentMemoryContext; NULL if the layout has no attribute codes. books are
 * PipeannBooksBytes() of a generation, or NULL; they must stay.
 */
extern PipeannAttributes *PipeannAttributesOpen(Relation index, uint32 format,
												const PipeannLayout *l,
												const PipeannWidths *widths,
												const char *books);
extern void PipeannAttributesUseBook(PipeannAttributes *a, const char *books);

/* Make books of n samples, and use them. */
extern void PipeannAttributesTrain(PipeannAttributes *a, PipeannRowAt row_at,
								   void *arg, uint32 n, char *books);

/* Set code to that of a whole row of node id. */
extern void PipeannAttributesEncode(PipeannAttributes *a, uint32 id,
									const PipeannRow *row, uint8 *code);

/* Set code to that of all rows of a node. */
extern void PipeannAttributesOfNode(PipeannAttributes *a,
									const PipeannIndexView *view, uint32 id,
									const PipeannSlot *slot, uint8 *code);

/*
 * The same of what it has now, for a page of codes. Values are compared while no page is
 * locked: that may take long, and call functions of users. Rows may join meanwhile. A
 * row joins first and then has the code cover it, so with the code's page locked it is
 * enough that the rows are still the same: others find the code that is put there.
 */
typedef struct PipeannNodeCode
{
	PipeannAttributes *attributes;
	const PipeannIndexView *view;
	bool		mix;			/* put one that covers everything if the rows have
								 * changed; else none */
	bool		known;
	PipeannSlot *slot;
	uint64		rows;			/* their hash */
	uint8		code[PIPEANN_MAX_ATTRIBUTE_BYTES];
} PipeannNodeCode;

/* False if a node has so many rows that it must not be made. */
extern bool PipeannNodeCodeMake(PipeannNodeCode *node, uint32 id);

/* With the page of the code locked; arg is a PipeannNodeCode. */
extern void PipeannNodeCodePut(uint32 id, uint8 *code, void *arg);

/*
 * Change a node's code so that it covers what has another one, too. One that was
 * not written yet comes to cover everything.
 */
extern void PipeannAttributesMerge(const PipeannAttributes *a,
								   const uint8 *other, uint8 *code);

/* Whether a code may cover more than one row does. */
extern bool PipeannAttributesMayShrink(const PipeannAttributes *a,
									   const uint8 *code);

/* Change a code so that it covers everything. */
extern void PipeannAttributesMix(const PipeannAttributes *a, uint8 *code);

/* Have a new code cover everything where a former one did, if that was written. */
extern void PipeannAttributesKeepMixed(const PipeannAttributes *a,
									   const uint8 *former, uint8 *code);

/* Whether a node's code covers a row's. */
extern bool PipeannAttributesCover(const PipeannAttributes *a,
								   const uint8 *code, const uint8 *row);

/*
 * The codes with which a node may have a matching row; NULL if no condition is on a
 * column that has codes.
 */
extern PipeannCodeFilter *PipeannAttributesFilter(PipeannAttributes *a,
												  const PipeannCondition *conditions,
												  int n);

#endif							/* PIPEANN_ATTRIBUTES_H */
