/*
 * baton.c
 *		Scans that ask other servers for ids of near nodes: they have the same
 *		index, and each has its own part of the graph in memory. And what a server
 *		does that is asked.
 */
#include "postgres.h"

#include <math.h>

#include "access/parallel.h"
#include "distance/sparse.h"
#include "io/io.h"
#include "scan/state.h"
#if PG_VERSION_NUM >= 160000
#include "varatt.h"
#endif

bytea	   *(*pipeann_ask_part) (Relation index, uint32 part, const bytea *message,
								 TimestampTz *until);

/* The head of a message. The query follows, then a list's ids. Answers have only ids. */
typedef struct Head
{
	char		magic[4];
	uint32		dim;
	uint64		build_id;		/* of the index to which the ids belong */
	uint32		ef;
	uint32		width;
	uint32		n;				/* number of ids */
	uint32		explored;		/* number of these, at the front, that are explored */
} Head;

#define MAGIC "PBT\2"

/* ---------- the server that a client queries ---------- */

/* The query is sent as the user gave it, so that each server converts it in the same way. */
static bool
PassOn(PipeannSearch *search, uint32 part, void *arg)
{
	PipeannScan *state = arg;
	const PipeannMeta *meta = &state->view.meta;
	PipeannIdList list = PipeannSearchList(search);
	Head		head = {
		.dim = meta->layout.dim,.build_id = meta->build_id,
		.ef = list.length,.width = pipeann_pipeline_width,.n = list.n,
		.explored = list.explored
	};
	StringInfoData message;
	bytea	   *answer;

	memcpy(head.magic, MAGIC, sizeof(head.magic));
	initStringInfo(&message);
	appendStringInfoSpaces(&message, VARHDRSZ);
	appendBinaryStringInfo(&message, (char *) &head, sizeof(head));
	appendBinaryStringInfo(&message, (const char *)
						   PipeannDatumElements(meta->layout.type, state->scan->orderByData->sk_argument,
												meta->layout.dim),
						   mul_size(meta->layout.dim, sizeof(float)));
	appendBinaryStringInfo(&message, (char *) list.ids, mul_size(list.n, sizeof(uint32)));
	SET_VARSIZE(message.data, message.len);
	answer = pipeann_ask_part(state->view.index, part, (bytea *) message.data, &state->until);
	if (answer != NULL)
	{
		PipeannSearchTakeIds(search, VARDATA_ANY(answer),
							 VARSIZE_ANY_EXHDR(answer) / sizeof(uint32));
		pfree(answer);
	}
	pfree(message.data);
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
	if (pipeann_ask_part == NULL || IsParallelWorker() || pipeann_parts == 0 ||
		state->filter != NULL || state->tid_filter != NULL ||
		state->view.cache == NULL || !state->comparable ||
		PipeannIsSparse(state->view.meta.layout.storage) ||
		!RelationNeedsWAL(state->view.index))
		return;
	params->parts = PipeannIndexParts(&state->view.meta);
	params->pass_on = PassOn;
}

/* ---------- the server that another server asks ---------- */

static void
Broken(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_BINARY_REPRESENTATION),
			 errmsg("invalid state of a search")));
}

/* The head of a message; errors if it is not valid. */
static Head
HeadOf(const bytea *message)
{
	Size		size = VARSIZE_ANY_EXHDR(message);
	Head		head;

	if (size < sizeof(head))
		Broken();
	memcpy(&head, VARDATA_ANY(message), sizeof(head));
	if (memcmp(head.magic, MAGIC, sizeof(head.magic)) != 0 ||
		size != sizeof(head) + ((uint64) head.dim + head.n) * sizeof(uint32) ||
		head.explored > head.n ||
		head.ef < 1 || head.ef > 4 * PIPEANN_MOST_LIST || head.width > PIPEANN_MAX_IN_FLIGHT)
		Broken();
	return head;
}

static bool
PassBack(PipeannSearch *search, uint32 part, void *arg)
{
	return false;
}

/* Results are of no use here. */
static float
NoDistance(uint32 id, const PipeannSlot *slot, void *arg)
{
	return INFINITY;
}

/* A search for another server, of which no rows are returned. */
typedef struct Step
{
	PipeannIndexView view;
	PipeannCounters counters;
	PipeannPageSource *source;
	PipeannSearch *search;		/* NULL: the index has no parts or codes, the query no
								 * distances, or the graph does not lead to the nearest */
} Step;

/* Begin it for x[dim] as the column has it, in CurrentMemoryContext. */
static void
BeginStep(Step *step, Relation index, const float *x, int ef, int width)
{
	const PipeannLayout *l = &step->view.meta.layout;
	PipeannSearchParams params;
	float	   *query;

	memset(step, 0, sizeof(Step));
	PipeannOpenView(&step->view, index);
	if (pipeann_parts == 0 || step->view.cache == NULL || PipeannIsSparse(l->storage) ||
		(l->metric == PIPEANN_COSINE && !(PipeannNorm(x, l->dim) > 0)))
		return;
	params = PipeannParamsOf(ef, false);
	params.policy = PipeannPolicies[PIPEANN_BATON];
	params.may_end_early = false;
	params.max_pages = PipeannMaxPages(l);
	params.width = width;
	params.parts = PipeannIndexParts(&step->view.meta);
	params.pass_on = PassBack;
	params.out_of_line_distance = NoDistance;
	query = PipeannArray(float, PipeannFloats(l->storage, l->dim));
	step->source = PipeannViewSource(&step->view, &step->counters);
	step->search = PipeannReuseSearch();
	PipeannQueryOf(l, x, query);
	PipeannSearchBegin(step->search, l, &step->view.codes, step->source, query, &params);
}

/* All pages that were read are of the own part, so one may be brought into shared_buffers. */
static void
EndStep(Step *step)
{
	if (step->search != NULL)
	{
		PipeannStatsAdd(PipeannCacheStats(), step->view.index, &step->counters);
		if (pipeann_hot_pages && step->source->wanted != PIPEANN_INVALID_ID)
			PipeannSourceBringIn(step->source, step->source->wanted);
		PipeannSourceClose(step->source);
	}
	if (step->view.cache != NULL)
		PipeannCacheRelease(step->view.cache);
}

/*
 * Continue another server's search, as long as it wants pages of this server's
 * part; returns the ids in its list then. NULL if this server's index is not the
 * same, or has no codes. Errors if the message is not one of such a search.
 */
bytea *
PipeannScanStep(Relation index, const bytea *message)
{
	Head		head = HeadOf(message);
	const char *query = (const char *) VARDATA_ANY(message) + sizeof(head);
	Size		bytes = mul_size(head.dim, sizeof(float));
	float	   *x = palloc(bytes);
	bytea	   *answer = NULL;
	PipeannMeta meta;
	Step		step;

	PipeannMetaRead(index, &meta);
	if (meta.build_id != head.build_id || meta.layout.dim != head.dim)
		return NULL;
	memcpy(x, query, bytes);
	for (uint32 i = 0; i < head.dim; i++)
		if (!isfinite(x[i]) || (meta.layout.type == PIPEANN_BIT && x[i] != 0 && x[i] != 1))
			Broken();
	BeginStep(&step, index, x, head.ef, head.width);
	if (step.search != NULL)
	{
		PipeannIdList list;

		PipeannSearchStep(step.search, query + bytes, head.n, head.explored);
		list = PipeannSearchList(step.search);
		bytes = mul_size(list.n, sizeof(uint32));
		answer = palloc(VARHDRSZ + bytes);
		SET_VARSIZE(answer, VARHDRSZ + bytes);
		memcpy(VARDATA(answer), list.ids, bytes);
	}
	EndStep(&step);
	return answer;
}

/*
 * The part of an index, from 1, with the node of the entry graph that is nearest to a query; 0
 * if there are no parts or distances, or for sparse vectors, which the graph does not find.
 */
int
PipeannScanPart(Relation index, Datum query)
{
	PipeannMeta meta;
	PipeannIdList list = {0};
	PipeannParts parts;
	int			part = 0;
	Step		step;

	PipeannMetaRead(index, &meta);
	PipeannCheckQuery(index, query);
	BeginStep(&step, index, PipeannDatumElements(meta.layout.type, query, meta.layout.dim),
			  pipeann_ef_search, 0);
	if (step.search != NULL)
	{
		(void) PipeannSearchEnter(step.search);
		list = PipeannSearchList(step.search);
	}
	parts = PipeannIndexParts(&step.view.meta);
	if (list.n > 0)
		part = (int) PipeannPartOfPage(&parts, PipeannIdPage(&step.view.meta.layout,
															 list.ids[0])) + 1;
	EndStep(&step);
	return part;
}
