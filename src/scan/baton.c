/*
 * baton.c
 *		Scans that ask other servers for ids of near nodes: they have the same
 *		index, and each has its own part of the graph in memory.
 */
#include "postgres.h"

#include "access/parallel.h"
#include "miscadmin.h"
#include "scan/state.h"
#if PG_VERSION_NUM >= 160000
#include "varatt.h"
#endif

bytea	   *(*pipeann_ask_part) (Relation index, uint32 part, const bytea *message,
								 TimestampTz *until);

/* ---------- the server that a client queries ---------- */

/* The argument of a search's callback. */
typedef struct Baton
{
	PipeannScan *state;
	TimestampTz until;			/* how long to wait for other servers, or 0 */
} Baton;

/* The query is sent as the user gave it, so that each server converts it in the same way. */
static bool
PassOn(PipeannSearch *search, uint32 part, void *arg)
{
	Baton	   *baton = arg;
	const PipeannScan *state = baton->state;
	const PipeannMeta *meta = &state->view.meta;
	PipeannIdList list = PipeannSearchList(search);
	Size		query = mul_size(meta->layout.dim, sizeof(float));
	PipeannBatonHead head = {
		.dim = meta->layout.dim,.build_id = meta->build_id,.ef = list.length,
		.width = pipeann_pipeline_width,.n = list.n,.explored = list.explored
	};
	Size		ids = mul_size(list.n, sizeof(uint32));
	Size		size = VARHDRSZ + sizeof(head) + query + ids;
	bytea	   *message = palloc(size);
	char	   *to = VARDATA(message);
	bytea	   *answer;

	memcpy(head.magic, PIPEANN_BATON_MAGIC, sizeof(head.magic));
	SET_VARSIZE(message, size);
	memcpy(to, &head, sizeof(head));
	memcpy(to + sizeof(head),
		   PipeannDatumElements(meta->layout.type,
								state->scan->orderByData->sk_argument,
								meta->layout.dim), query);
	memcpy(to + sizeof(head) + query, list.ids, ids);
	answer = pipeann_ask_part(state->view.index, part, message, &baton->until);
	if (answer != NULL)
	{
		PipeannSearchTakeIds(search, VARDATA_ANY(answer),
							 VARSIZE_ANY_EXHDR(answer) / sizeof(uint32));
		pfree(answer);
	}
	pfree(message);
	pfree(list.ids);
	return true;
}

/*
 * Set the parameters of a search in mode baton, or in the default mode if that cannot be used.
 * Workers would open connections only for their lifetime; other servers do not know conditions.
 */
void
PipeannBatonBegin(PipeannScan *state, PipeannSearchParams *params)
{
	Baton	   *baton;

	if (pipeann_ask_part == NULL || IsParallelWorker() || pipeann_parts == 0 ||
		state->filter != NULL || state->tid_filter != NULL ||
		state->view.cache == NULL || !state->comparable ||
		PipeannIsSparse(state->view.meta.layout.storage) ||
		!RelationNeedsWAL(state->view.index))
		return;
	params->parts = PipeannIndexParts(&state->view.meta);
	params->own_part = (uint32) pipeann_part - 1;
	params->pass_on = PassOn;
	params->pass_on_arg = baton = palloc0(sizeof(Baton));
	baton->state = state;
}

/* ---------- the server that another server asks (step.c) ---------- */

static bool
PassBack(PipeannSearch *search, uint32 part, void *arg)
{
	(void) search;
	(void) part;
	(void) arg;
	return false;
}

/* The parameters of a search for another server. */
void
PipeannBatonStep(PipeannScan *state, PipeannSearchParams *params)
{
	const PipeannStep *step = state->heeds.step;

	if (step->ef == 0)
		return;
	params->policy = PipeannPolicies[PIPEANN_BATON];
	params->ef = step->ef;
	params->min_list = 0;
	params->may_end_early = false;
	params->width = step->width;
	params->parts = PipeannIndexParts(&state->view.meta);
	params->own_part = (uint32) pipeann_part - 1;
	params->pass_on = PassBack;
	params->most_settled = 0;
}
