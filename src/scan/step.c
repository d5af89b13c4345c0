/*
 * step.c
 *		What a server does for scans of other servers that have the same index
 *		(baton.c), and which server to ask.
 */
#include "postgres.h"

#include <math.h>

#include "access/genam.h"
#include "scan/state.h"
#include "utils/snapmgr.h"
#if PG_VERSION_NUM >= 160000
#include "varatt.h"
#endif

static void
Broken(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_BINARY_REPRESENTATION),
			 errmsg("invalid state of a search")));
}

/* The head of a message; errors if it is not valid. */
static PipeannBatonHead
HeadOf(const bytea *message)
{
	Size		size = VARSIZE_ANY_EXHDR(message);
	PipeannBatonHead head;

	if (size < sizeof(head))
		Broken();
	memcpy(&head, VARDATA_ANY(message), sizeof(head));
	if (memcmp(head.magic, PIPEANN_BATON_MAGIC, sizeof(head.magic)) != 0 ||
		size != sizeof(head) + ((uint64) head.dim + head.n) * sizeof(uint32) ||
		head.explored > head.n ||
		head.ef < 1 || head.ef > 4 * PIPEANN_MOST_LIST || head.width > PIPEANN_MAX_IN_FLIGHT)
		Broken();
	return head;
}

/* The query of a message, as a value of the index's column. */
static Datum
QueryOf(const PipeannLayout *l, const char *from)
{
	Size		bytes = mul_size(l->dim, sizeof(float));
	float	   *x = palloc(bytes);
	void	   *value = palloc0(PipeannValueBytes(l->type, l->dim));

	memcpy(x, from, bytes);
	for (int i = 0; i < (int) l->dim; i++)
		if (!isfinite(x[i]) || (l->type == PIPEANN_BIT && x[i] != 0 && x[i] != 1))
			Broken();
	PipeannValueSet(l->type, x, l->dim, value);
	return PointerGetDatum(value);
}

/* Begin a scan for a query. */
static IndexScanDesc
BeginScan(Relation table, Relation index, Datum query, PipeannStep *step)
{
	PipeannScanContext heeds = {.step = step};
	IndexScanDesc scan;
	ScanKeyData key;

	memset(&key, 0, sizeof(key));
	key.sk_attno = PipeannVectorPosition(index) + 1;
	key.sk_argument = query;
	PIPEANN_SCAN_CONTEXT(&key) = &heeds;
	scan = index_beginscan(table, index, GetActiveSnapshot(),
#if PG_VERSION_NUM >= 180000
						   NULL,
#endif
						   0, 1);
	index_rescan(scan, NULL, 0, &key, 1);
	PipeannScanStart(scan);
	return scan;
}

/*
 * Continue another server's search, as long as it wants pages of this server's
 * part; returns the ids in its list then. NULL if this server's index is not the
 * same, or has no codes. Errors if the message is not one of such a search.
 */
bytea *
PipeannScanStep(Relation table, Relation index, const bytea *message)
{
	PipeannBatonHead head = HeadOf(message);
	const char *query = (const char *) VARDATA_ANY(message) + sizeof(head);
	PipeannStep step = {head.ef, head.width};
	bytea	   *answer = NULL;
	const PipeannScan *state;
	IndexScanDesc scan;
	PipeannMeta meta;

	PipeannMetaRead(index, &meta);
	if (meta.build_id != head.build_id || meta.layout.dim != head.dim ||
		pipeann_parts == 0 || PipeannIsSparse(meta.layout.storage))
		return NULL;
	scan = BeginScan(table, index, QueryOf(&meta.layout, query), &step);
	state = scan->opaque;
	if (state->view.cache != NULL && state->comparable)
	{
		PipeannIdList list;
		Size		bytes;

		PipeannSearchStep(state->search, query + mul_size(head.dim, sizeof(float)),
						  head.n, head.explored);
		list = PipeannSearchList(state->search);
		bytes = mul_size(list.n, sizeof(uint32));
		answer = palloc(VARHDRSZ + bytes);
		SET_VARSIZE(answer, VARHDRSZ + bytes);
		memcpy(VARDATA(answer), list.ids, bytes);
	}
	index_endscan(scan);
	return answer;
}

/*
 * The part of an index, from 1, with the node of the entry graph that is nearest to a query; 0
 * if there are no parts or distances, or for sparse vectors, which the graph does not find.
 */
int
PipeannScanPart(Relation table, Relation index, Datum query)
{
	PipeannStep step = {0};
	IndexScanDesc scan = BeginScan(table, index, query, &step);
	const PipeannScan *state = scan->opaque;
	const PipeannMeta *meta = &state->view.meta;
	PipeannParts parts = PipeannIndexParts(meta);
	uint32		id = parts.n == 0 || state->view.cache == NULL || !state->comparable ||
		PipeannIsSparse(meta->layout.storage) ? PIPEANN_INVALID_ID :
		PipeannSearchNearestEntry(state->search);
	int			part = id == PIPEANN_INVALID_ID ? 0 :
		(int) PipeannPartOfPage(&parts, PipeannIdPage(&meta->layout, id)) + 1;

	index_endscan(scan);
	return part;
}
