/*
 * step.c
 *		What a server does for scans of others that have the same index (baton.c), and
 *		which of them to ask.
 */
#include "postgres.h"

#include <math.h>

#include "access/genam.h"
#include "miscadmin.h"
#include "scan/state.h"
#include "utils/snapmgr.h"
#if PG_VERSION_NUM >= 160000
#include "varatt.h"
#endif

/* What this server has not replayed yet it may have in a moment. */
#define MOST_WAIT_MS 10

/*
 * Whether this server has all that who sends a message had. Places in different timelines
 * say nothing, nor do those of two servers that both write: one is a copy of the other from
 * a time ago. What is no message is for others to say.
 */
bool
PipeannStepHasCome(const bytea *message)
{
	PipeannAddress address;

	if (VARSIZE_ANY_EXHDR(message) < sizeof(address))
		return true;
	memcpy(&address, VARDATA_ANY(message), sizeof(address));
	for (int i = 0; i <= MOST_WAIT_MS; i++)
	{
		PipeannPlace here = PipeannCome();

		if (here.timeline != address.timeline || (here.writes && address.writes))
			return false;
		if (here.lsn >= address.lsn)
			return true;
		CHECK_FOR_INTERRUPTS();
		pg_usleep(1000);
	}
	return false;
}

static void
Broken(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_BINARY_REPRESENTATION),
			 errmsg("invalid state of a search")));
}

/* Whether a message is about the index as it is here. */
static bool
Suits(const PipeannAddress *address, const PipeannMeta *meta)
{
	return address->build_id == meta->build_id &&
		address->removals == meta->removals && address->removals % 2 == 0 &&
		address->dim == meta->layout.dim && address->part < meta->parts.n;
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

/* The search of a scan that was begun for a message; NULL if it does not suit. */
static bytea *
Step(PipeannScan *state, const PipeannAddress *address, const PipeannStep *step)
{
	bytea	   *answer;

	if (!Suits(address, &state->view.meta) || state->view.cache == NULL ||
		!state->comparable)
		return NULL;
	if (!PipeannSearchImport(state->search, false, step->message, step->size))
		Broken();
	PipeannSearchStep(state->search);
	if (PipeannMetaRemovals(state->view.index) != address->removals)
		return NULL;
	if (state->replica)
		PipeannCheckPacking(&state->view);
	answer = palloc(VARHDRSZ + sizeof(PipeannAddress) +
					PipeannSearchExportSize(state->search));
	memcpy(VARDATA(answer), address, sizeof(PipeannAddress));
	SET_VARSIZE(answer, VARHDRSZ + sizeof(PipeannAddress) +
				PipeannSearchExport(state->search, true,
									VARDATA(answer) + sizeof(PipeannAddress)));
	return answer;
}

/*
 * Go on with another server's search, as far as it wants pages of the part that it asks
 * for; it has come as far. NULL if this server's index is another one, or has lost rows.
 * Errors if what is given is no message of such a search.
 */
bytea *
PipeannScanStep(Relation table, Relation index, const bytea *message)
{
	const char *from = VARDATA_ANY(message);
	Size		size = VARSIZE_ANY_EXHDR(message);
	PipeannStep step;
	PipeannMeta meta;
	PipeannAddress address;
	IndexScanDesc scan;
	bytea	   *answer;

	if (size < sizeof(address))
		Broken();
	memcpy(&address, from, sizeof(address));
	if (memcmp(address.magic, PIPEANN_ADDRESS_MAGIC, sizeof(address.magic)) != 0 ||
		address.dim > (size - sizeof(address)) / sizeof(float))
		Broken();
	from += sizeof(address);
	step.part = address.part;
	step.message = from + mul_size(address.dim, sizeof(float));
	step.size = size - sizeof(address) - mul_size(address.dim, sizeof(float));
	PipeannMetaRead(index, &meta);
	if (!Suits(&address, &meta) || meta.layout.row_bytes > 0 ||
		PipeannIsSparse(meta.layout.storage))
		return NULL;
	scan = BeginScan(table, index, QueryOf(&meta.layout, from), &step);
	answer = Step(scan->opaque, &address, &step);
	index_endscan(scan);
	return answer;
}

/*
 * The part of an index, from 1, of which some node is near a query, by the entry graph;
 * 0 if there are no parts, or no distances; sparse vectors are not found by the graph.
 */
int
PipeannScanPart(Relation table, Relation index, Datum query)
{
	PipeannStep step = {0};
	IndexScanDesc scan = BeginScan(table, index, query, &step);
	const PipeannScan *state = scan->opaque;
	const PipeannMeta *meta = &state->view.meta;
	uint32		id = meta->parts.n == 0 || state->view.cache == NULL ||
		!state->comparable || PipeannIsSparse(meta->layout.storage) ? PIPEANN_INVALID_ID :
		PipeannSearchNearestEntry(state->search);
	int			part = id == PIPEANN_INVALID_ID ? 0 :
		(int) PipeannPartOfPage(&meta->parts, PipeannIdPage(&meta->layout, id)) + 1;

	index_endscan(scan);
	return part;
}
