/*
 * order.c
 *		What compares the values of a filter column, and hashes elements of arrays.
 *
 * A condition is decided by the operators of the column's operator class. A type may
 * have another order and equality of its own: citext takes the class of text, whose
 * operators tell "A" from "a". So codes are made by what these operators belong to: a
 * B-tree operator family that has all of them with the same meaning. Where there is
 * none nothing is known of how they order values, and the column has no codes.
 *
 * Before format 6 codes were made by the column's type.
 */
#include "postgres.h"

#include "access/nbtree.h"
#include "access/stratnum.h"
#include "access/transam.h"
#include "attributes/coding.h"
#include "catalog/pg_collation_d.h"
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

/*
 * PostgreSQL's own functions take for equal what has the same bytes, under whatever
 * deterministic collation. So they are called with C, which stays as it is when a
 * collation's order changes. Others may do anything with a collation.
 */
static Oid
CollationFor(Oid function, Oid collation)
{
	return OidIsValid(collation) && function < FirstGenbkiObjectId ?
		C_COLLATION_OID : collation;
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

/*
 * Choose what compares the values of a column, by its type (elements' type of arrays) and
 * operator class. False if it has no codes.
 *
 * False if nothing compares a column's values, or what is equal under its collation need
 * not have the same bytes.
 *
 * Codes of a format before 6 were made by the column's type. If the operator class
 * compares in another way nothing is known by them.
 */
bool
PipeannChooseOrder(PipeannAttributes *a, PipeannAttribute *attribute, Oid type)
{
	Oid			collation = attribute->type->attcollation;
	const PipeannCodec *codec = attribute->codec;
	PipeannOrder by_type = {0};
	PipeannOrder *order = &attribute->order;
	bool		has_type;
	bool		has_class;

	if (OidIsValid(collation) && !get_collation_isdeterministic(collation))
		return false;
	by_type.function = codec->function_of_type(type);
	by_type.collation = OidIsValid(collation) ? C_COLLATION_OID : InvalidOid;
	has_type = OidIsValid(by_type.function);
	*order = by_type;
	attribute->is_known = true;
	if (a->index == NULL)
		return has_type;
	has_class = codec->order_of_class(a->index->rd_opfamily[attribute->position],
									  a->index->rd_opcintype[attribute->position],
									  order);
	if (has_class)
		order->collation = CollationFor(order->function, collation);
	attribute->is_known = has_type == has_class &&
		(!has_class || (by_type.function == order->function &&
						by_type.collation == order->collation));
	a->differs |= !attribute->is_known;
	if (!a->by_class)
		return has_type;
	attribute->is_known = true;
	return has_class;
}
