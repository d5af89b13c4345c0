/*
 * codec.c
 *		What both codecs use: orders of values by operators, tests of bytes of a code, and
 *		how to say that a histogram is broken.
 *
 * A condition is decided by the operators of the column's operator class. A type may
 * have another order and equality of its own: citext takes the class of text, whose
 * operators tell "A" from "a". So codes are made by what these operators belong to: a
 * B-tree operator family that has all of them with the same meaning. Where there is
 * none nothing is known of how they order values, and the column has no codes.
 */
#include "postgres.h"

#include "access/nbtree.h"
#include "access/stratnum.h"
#include "attributes/coding.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/syscache.h"

StaticAssertDecl(PIPEANN_LESS_STRATEGY - BTLessStrategyNumber ==
				 PIPEANN_GREATER_STRATEGY - BTGreaterStrategyNumber,
				 "strategies are not in the order of B-trees");

/* The strategy that an operator of ours has in a B-tree family. */
static int
BtreeStrategy(int strategy)
{
	return strategy - PIPEANN_LESS_STRATEGY + BTLessStrategyNumber;
}

/* Whether an operator is that of our strategy in the order. */
bool
PipeannOrderHas(const PipeannOrder *order, Oid operator, int strategy)
{
	return !OidIsValid(order->family) ||
		get_op_opfamily_strategy(operator, order->family) ==
		BtreeStrategy(strategy);
}

/* Whether all operators of a class on a type mean in a B-tree family what they do here. */
static bool
HasOperatorsOf(const PipeannOrder *order, Oid family, Oid type)
{
	for (int i = PIPEANN_LESS_STRATEGY; i <= PIPEANN_GREATER_STRATEGY; i++)
	{
		Oid			operator = get_opfamily_member(family, type, type, i);

		if (OidIsValid(operator) && !PipeannOrderHas(order, operator, i))
			return false;
	}
	return true;
}

static bool
OrderOfOperators(Oid family, Oid type, PipeannOrder *order)
{
	Oid			equal = get_opfamily_member(family, type, type,
											PIPEANN_EQUAL_STRATEGY);
	List	   *families;
	ListCell   *cell;
	Oid			left;
	Oid			right;

	order->function = InvalidOid;
	if (!OidIsValid(equal))
		return false;
	op_input_types(equal, &left, &right);
	families = get_mergejoin_opfamilies(equal);
	foreach(cell, families)
	{
		order->family = lfirst_oid(cell);
		order->function = get_opfamily_proc(order->family, left, right,
											BTORDER_PROC);
		if (OidIsValid(order->function) && HasOperatorsOf(order, family, type))
			break;
		order->function = InvalidOid;
	}
	list_free(families);
	return OidIsValid(order->function);
}

/* Those found last, until operators or support functions of families change. */
typedef struct Found
{
	Oid			family;			/* invalid: none */
	Oid			type;
	PipeannOrder order;
} Found;

static Found last_found[8];

static void
ForgetLastFound(Datum arg, int cache, uint32 hash)
{
	(void) arg;
	(void) cache;
	(void) hash;
	memset(last_found, 0, sizeof(last_found));
}

/*
 * The order by the operators of a B-tree family; false if they belong to none.
 *
 * Each scan with filter columns asks, and to look into families takes a while.
 */
bool
PipeannOrderOfFamily(Oid family, Oid type, PipeannOrder *order)
{
	static bool is_told = false;
	Found	   *found = &last_found[family % lengthof(last_found)];

	if (!is_told)
	{
		CacheRegisterSyscacheCallback(AMOPOPID, ForgetLastFound, (Datum) 0);
		CacheRegisterSyscacheCallback(AMPROCNUM, ForgetLastFound, (Datum) 0);
		is_told = true;
	}
	if (found->family != family || found->type != type)
	{
		if (!OrderOfOperators(family, type, order))
			return false;
		found->order = *order;
		found->type = type;
		found->family = family;
	}
	*order = found->order;
	return true;
}

/* ---------- tests ---------- */

/* Report a broken histogram. */
void
PipeannBrokenHistogram(const PipeannAttributes *a)
{
	ereport(ERROR,
			(errcode(ERRCODE_INDEX_CORRUPTED),
			 errmsg("index \"%s\" has an invalid histogram of attribute codes",
					RelationGetRelationName(a->index)),
			 errhint("Run REINDEX INDEX \"%s\".",
					 RelationGetRelationName(a->index))));
}

/* Add a test of a byte of the code; its set of values is empty. */
PipeannCodeColumn *
PipeannAddTest(PipeannCodeFilter *filter, const PipeannAttribute *attribute,
			   int byte)
{
	PipeannCodeColumn *column = &filter->columns[filter->n++];

	memset(column, 0, sizeof(*column));
	column->plane = attribute->plane + byte;
	column->width = 1;
	return column;
}

/*
 * Add tests of [width] bits from a byte on as an alternative: all away, or all there.
 */
void
PipeannAddAlternative(PipeannCodeFilter *filter,
					  const PipeannAttribute *attribute, int from,
					  const uint8 *bits, int width, bool away)
{
	PipeannCodeColumn *column = NULL;

	for (int i = 0; i < width; i++)
	{
		if (bits[i] == 0)
			continue;
		column = PipeannAddTest(filter, attribute, from + i);
		PipeannLetPass(column, away ? bits[i] : 0, away ? 0 : bits[i]);
		column->also = true;
	}
	if (column != NULL)
	{
		column->also = false;
		column->otherwise = true;
	}
}
