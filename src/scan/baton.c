/*
 * baton.c
 *		Scans that other servers with the same index go on with, each of which has its
 *		part of the graph in memory.
 *
 * A server is asked to have come as far as this one at least, in the same packing, and
 * to have removed no row that this one has: then all that its search finds is what a
 * search here would. Rows are fetched here, and their distances computed again.
 */
#include "postgres.h"

#include <math.h>

#include "access/genam.h"
#include "access/parallel.h"
#include "access/xlog.h"
#include "access/xlog_internal.h"
#include "access/xlogrecovery.h"
#include "miscadmin.h"
#include "scan/state.h"
#include "storage/bufmgr.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"
#if PG_VERSION_NUM >= 160000
#include "varatt.h"
#endif

PipeannPartServers pipeann_part_servers;

/*
 * As far as this server has come with what it replays, or writes. What is written next
 * comes behind the header of a page that begins here; replay ends before that.
 */
PipeannPlace
PipeannCome(void)
{
	PipeannPlace place = {.writes = !RecoveryInProgress()};

	if (!place.writes)
	{
		place.lsn = GetXLogReplayRecPtr(&place.timeline);
		return place;
	}
	place.timeline = GetWALInsertionTimeLine();
	place.lsn = GetXLogInsertRecPtr();
	if (XLogSegmentOffset(place.lsn, wal_segment_size) == SizeOfXLogLongPHD)
		place.lsn -= SizeOfXLogLongPHD;
	else if (place.lsn % XLOG_BLCKSZ == SizeOfXLogShortPHD)
		place.lsn -= SizeOfXLogShortPHD;
	return place;
}

/* ---------- the server that a client has asked ---------- */

/*
 * Whether the table has the places of all rows of a node. Others came after the snapshot, or
 * are made up; of the same vector there may be rows that the snapshot sees.
 */
static bool
KnowsRows(const PipeannScan *state, PipeannRowList rows)
{
	const PipeannRow *row = rows.rows;

	for (uint32 i = 0; i < rows.n;
		 i++, row = PipeannRowNext(&state->view.meta.layout, row))
	{
		ItemPointerData tid = row->tid;

		if (!OffsetNumberIsValid(ItemPointerGetOffsetNumberNoCheck(&tid)) ||
			ItemPointerGetBlockNumberNoCheck(&tid) >= state->table_blocks)
			return false;
	}
	return true;
}

/* By how much a distance may differ that another processor has added up. */
static double
Slack(const PipeannScan *state, float dist)
{
	const PipeannMeta *meta = &state->view.meta;
	double		scale = fabs(dist);

	if (meta->layout.metric == PIPEANN_COSINE)
		scale = 1;
	else if (meta->layout.metric == PIPEANN_IP)
		scale = PipeannNorm(state->query, meta->layout.dim) * meta->max_norm;
	return 2 * PIPEANN_ARITHMETIC_ERROR(meta->layout.dim) * scale;
}

/* A result is taken no later than its rows may be next; then these are measured here. */
static void
Doubt(PipeannResult *result, PipeannRowList *rows, void *arg)
{
	const PipeannScan *state = arg;
	float		least = result->dist - Slack(state, result->dist);

	if (!KnowsRows(state, *rows))
		rows->n = rows->bytes = 0;
	if (isfinite(least))
		result->dist = least;
}

/* Whether there is time to ask others; it begins with the first that is asked. */
static bool
HasTime(PipeannScan *state)
{
	TimestampTz now = GetCurrentTimestamp();

	if (state->others_until == 0)
		state->others_until =
			TimestampTzPlusMilliseconds(now, pipeann_part_servers.timeout);
	return now < state->others_until;
}

/* What is sent is the query as it was given, which makes the same of it everywhere. */
static PipeannPassed
PassOn(PipeannSearch *search, uint32 part, void *arg)
{
	PipeannScan *state = arg;
	const PipeannMeta *meta = &state->view.meta;
	Size		query = mul_size(meta->layout.dim, sizeof(float));
	const float *asked = PipeannDatumElements(meta->layout.type,
											  state->scan->orderByData->sk_argument,
											  meta->layout.dim);
	PipeannAddress address = {
		.part = part,.build_id = meta->build_id,.lsn = state->come.lsn,
		.timeline = state->come.timeline,.removals = meta->removals,
		.dim = meta->layout.dim,.writes = state->come.writes
	};
	bytea	   *message;
	bytea	   *answer;
	char	   *to;
	bool		taken;

	if (!HasTime(state))
		return PIPEANN_NOT_PASSED;
	message = palloc(VARHDRSZ + sizeof(address) + query +
					 PipeannSearchExportSize(search));
	to = VARDATA(message);
	memcpy(address.magic, PIPEANN_ADDRESS_MAGIC, sizeof(address.magic));
	memcpy(to, &address, sizeof(address));
	memcpy(to + sizeof(address), asked, query);
	SET_VARSIZE(message, VARHDRSZ + sizeof(address) + query +
				PipeannSearchExport(search, false, to + sizeof(address) + query));
	answer = pipeann_part_servers.ask(state->view.index, part, message,
									  state->others_until);
	taken = answer != NULL &&
		VARSIZE_ANY_EXHDR(answer) >= sizeof(address) &&
		memcmp(VARDATA_ANY(answer), &address, sizeof(address)) == 0 &&
		PipeannSearchImport(search, true, VARDATA_ANY(answer) + sizeof(address),
							VARSIZE_ANY_EXHDR(answer) - sizeof(address));
	pfree(message);
	if (answer != NULL && !taken)
		pipeann_part_servers.leave(part);
	if (answer != NULL)
		pfree(answer);
	return taken ? PIPEANN_PASSED : PIPEANN_NOT_PASSED;
}

/*
 * Whether the rows that a search finds elsewhere are all that this scan needs. Workers would
 * open connections that live as long as they do.
 */
static bool
MayBePassedOn(const PipeannScan *state)
{
	const PipeannScanContext *heeds = &state->heeds;
	Relation	index = state->view.index;
	const PipeannMeta *meta = &state->view.meta;

	return pipeann_part_servers.ask != NULL && !IsParallelWorker() &&
		pipeann_part_servers.names[0] != '\0' && meta->parts.n > 0 &&
		state->view.cache != NULL && state->comparable &&
		state->filter == NULL && state->tid_filter == NULL && state->only == NULL &&
		heeds->bound == NULL && !(heeds->fill != NULL && heeds->fill->whole) &&
		meta->layout.row_bytes == 0 && !PipeannIsSparse(meta->layout.storage) &&
		meta->removals % 2 == 0 &&
		PipeannIsHeap(state->scan->heapRelation) && RelationNeedsWAL(index) &&
		heap_attisnull(index->rd_indextuple, Anum_pg_index_indpred, NULL);
}

/*
 * The parameters of a search in mode baton: it reads the pages of its own part, or
 * else is that of the default mode.
 */
void
PipeannBatonBegin(PipeannScan *state, PipeannSearchParams *params)
{
	if (!MayBePassedOn(state))
		return;
	state->come = PipeannCome();
	state->table_blocks = RelationGetNumberOfBlocks(state->scan->heapRelation);
	params->parts = state->view.meta.parts;
	params->own_part = (uint32) pipeann_part - 1;
	params->pass_on = PassOn;
	params->doubt = Doubt;
	params->pass_on_arg = state;
}

/* ---------- the server that is asked by another one (step.c) ---------- */

static PipeannPassed
PassBack(PipeannSearch *search, uint32 part, void *arg)
{
	(void) search;
	(void) part;
	(void) arg;
	return PIPEANN_PASSES_BACK;
}

/*
 * Whether a message is broken is seen when it is imported. The rows that are dead to all here
 * need not be so to others.
 */
void
PipeannBatonStep(PipeannScan *state, PipeannSearchParams *params)
{
	const PipeannStep *step = state->heeds.step;

	if (step->message == NULL)
		return;
	(void) PipeannSearchTakeParams(step->message, step->size, params);
	params->policy = PipeannPolicies[PIPEANN_BATON];
	params->parts = state->view.meta.parts;
	params->own_part = step->part;
	params->pass_on = PassBack;
	params->killed = NULL;
	params->most_settled = 0;
}
