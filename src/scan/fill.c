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

static PipeannFill *offered;
static const List *offered_to;

void
PipeannFillOffer(PipeannFill *fill, const List *keys)
{
	offered = fill;
	offered_to = keys;
}

PipeannFill *
PipeannFillOf(const ScanKeyData *keys)
{
	return keys != NULL && list_member_ptr(offered_to, keys) ? offered : NULL;
}
