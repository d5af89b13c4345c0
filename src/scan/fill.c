/*
 * fill.c
 *		Limits that scans are to fill.
 *
 * In strict order a row that is found after a farther one was returned is left out.
 * Who has a limit to fill and has handed up nothing yet can have the scan begin
 * anew, and return no row before all are found.
 */
#include "postgres.h"

#include "scan/fill.h"

/*
 * What is offered now, the last one first: while a scan is begun, functions and
 * sub-queries that its query vector or conditions need may run others.
 */
static PipeannFill *offered;

void
PipeannFillOffer(PipeannFill *fill, const List *keys)
{
	fill->keys = keys;
	fill->former = offered;
	offered = fill;
}

/* With all that was offered since and, by an error, is so still. */
void
PipeannFillWithdraw(const PipeannFill *fill)
{
	for (const PipeannFill *other = offered; other != NULL;
		 other = other->former)
		if (other == fill)
		{
			offered = fill->former;
			return;
		}
}

PipeannFill *
PipeannFillOf(const ScanKeyData *keys)
{
	if (keys == NULL)
		return NULL;
	for (PipeannFill *fill = offered; fill != NULL; fill = fill->former)
		if (list_member_ptr(fill->keys, keys))
			return fill;
	return NULL;
}
