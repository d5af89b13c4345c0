/*
 * mark.c
 *		Marks that tell relations of queries made by per_partition.c from all others in
 *		a finished plan.
 *
 * What the planner makes of these queries looks like what it makes of others, which
 * may be in the same statement and ask for the same tables. So the range table
 * entries that are made here have a mark. The planner copies entries, and the
 * finished plan has all of them but for the queries below.
 *
 * The mark is the name of a transition table. Relations and queries have none: the
 * parser sets it only in entries of another kind.
 */
#include "postgres.h"

#include "nodes/bitmapset.h"
#include "parser/parsetree.h"
#include "queries/queries.h"

#define MARK "pipeann nearest rows "

void
PipeannMark(RangeTblEntry *entry, int number)
{
	entry->enrname = psprintf(MARK "%d", number);
}

bool
PipeannIsMarked(const RangeTblEntry *entry)
{
	return (entry->rtekind == RTE_RELATION || entry->rtekind == RTE_SUBQUERY) &&
		entry->enrname != NULL &&
		strncmp(entry->enrname, MARK, strlen(MARK)) == 0;
}

/* The entry of the UNION ALL whose rows an Append has, or NULL. */
static const RangeTblEntry *
EntryOf(const Append *append, List *rtable)
{
	int			number;

	return bms_get_singleton_member(append->apprelids, &number) ?
		rt_fetch(number, rtable) : NULL;
}

static bool
IsPruned(const Append *append)
{
#if PG_VERSION_NUM >= 180000
	return append->part_prune_index >= 0;
#else
	return append->part_prune_info != NULL;
#endif
}

bool
PipeannIsOfParts(const Append *append, List *rtable)
{
	const RangeTblEntry *entry = EntryOf(append, rtable);

	return entry != NULL && entry->rtekind == RTE_SUBQUERY &&
		PipeannIsMarked(entry) && !append->plan.parallel_aware &&
		!append->plan.async_capable && append->plan.qual == NIL &&
		append->first_partial_plan == list_length(append->appendplans) &&
		!IsPruned(append);
}

bool
PipeannIsPart(const Plan *plan, List *rtable)
{
	const ForeignScan *scan = (const ForeignScan *) plan;
	const RangeTblEntry *entry;

	if (!IsA(plan, ForeignScan) || scan->operation != CMD_SELECT ||
		scan->resultRelation != 0 || scan->scan.scanrelid == 0 ||
		plan->parallel_aware)
		return false;
	entry = rt_fetch(scan->scan.scanrelid, rtable);
	return entry->rtekind == RTE_RELATION && PipeannIsMarked(entry);
}

bool
PipeannIsPartOf(const Plan *plan, const Append *append, List *rtable)
{
	const RangeTblEntry *query = EntryOf(append, rtable);

	return query != NULL && query->enrname != NULL &&
		PipeannIsPart(plan, rtable) &&
		strcmp(rt_fetch(((const ForeignScan *) plan)->scan.scanrelid,
						rtable)->enrname, query->enrname) == 0;
}
