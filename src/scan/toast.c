/*
 * toast.c
 *		Prefetching the TOAST of the rows that a scan returns next.
 *
 * A vector of more than 2 kB stands in several rows of the TOAST table, and the
 * executor finds them one after the other by that table's index. When it has
 * wanted the vector of one row, it will want those of the others. Their own
 * pages were asked for before (prefetch.c), so they can be read now, and tell
 * where the vectors are.
 */
#include "postgres.h"

#include "access/detoast.h"
#include "access/genam.h"
#include "access/relscan.h"
#include "access/stratnum.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/toast_internals.h"
#include "executor/tuptable.h"
#include "scan/prefetch.h"
#include "storage/bufmgr.h"
#include "utils/fmgroids.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#if PG_VERSION_NUM >= 160000
#include "varatt.h"
#endif

/* What is open while vectors are asked for. */
typedef struct Vectors
{
	IndexScanDesc scan;
	IndexFetchTableData *fetch; /* of the table */
	TupleTableSlot *slot;
	Relation	toast;			/* NULL before the first vector */
	Relation   *indexes;
	int			nindexes;
	IndexScanDesc parts;		/* of the TOAST table's index */
} Vectors;

/* Where the vector of a row is; false if it is not in TOAST or not seen. */
static bool
FindVector(Vectors *vectors, const ItemPointerData *tid,
		   struct varatt_external *where)
{
	AttrNumber	column = PipeannVectorColumn(vectors->scan->indexRelation);
	ItemPointerData at = *tid;
	bool		again = false;
	bool		dead = false;
	bool		isnull = true;
	Datum		value;

	if (!table_index_fetch_tuple(vectors->fetch, &at,
								 vectors->scan->xs_snapshot, vectors->slot,
								 &again, &dead))
		return false;
	value = slot_getattr(vectors->slot, column, &isnull);
	if (isnull || !VARATT_IS_EXTERNAL_ONDISK(DatumGetPointer(value)))
		return false;
	VARATT_EXTERNAL_GET_POINTER(*where, DatumGetPointer(value));
	return true;
}

static void
OpenToast(Vectors *vectors, Oid toast)
{
	int			valid;

	vectors->toast = table_open(toast, AccessShareLock);
	valid = toast_open_indexes(vectors->toast, AccessShareLock,
							   &vectors->indexes, &vectors->nindexes);
	vectors->parts = index_beginscan(vectors->toast, vectors->indexes[valid],
									 vectors->scan->xs_snapshot,
#if PG_VERSION_NUM >= 180000
									 NULL,
#endif
									 1, 0);
}

/* Ask for the pages of a vector's parts. (They are hardly ever on two.) */
static void
AskForVector(Vectors *vectors, const struct varatt_external *where)
{
	BlockNumber last = InvalidBlockNumber;
	ItemPointer part;
	ScanKeyData key;

	if (vectors->toast == NULL)
		OpenToast(vectors, where->va_toastrelid);
	else if (RelationGetRelid(vectors->toast) != where->va_toastrelid)
		return;
	ScanKeyInit(&key, (AttrNumber) 1, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(where->va_valueid));
	index_rescan(vectors->parts, &key, 1, NULL, 0);
	while ((part = index_getnext_tid(vectors->parts,
									 ForwardScanDirection)) != NULL)
	{
		BlockNumber block = ItemPointerGetBlockNumber(part);

		if (block != last)
			(void) PrefetchBuffer(vectors->toast, MAIN_FORKNUM, block);
		last = block;
	}
}

static void
CloseToast(Vectors *vectors)
{
	if (vectors->toast == NULL)
		return;
	index_endscan(vectors->parts);
	toast_close_indexes(vectors->indexes, vectors->nindexes,
						AccessShareLock);
	table_close(vectors->toast, AccessShareLock);
}

static void
AskForVectors(IndexScanDesc scan, PipeannSearch *search,
			  const PipeannResult **results, int n)
{
	Vectors		vectors = {.scan = scan};

	vectors.fetch = table_index_fetch_begin(scan->heapRelation);
	vectors.slot = table_slot_create(scan->heapRelation, NULL);
	for (int i = 0; i < n; i++)
	{
		PipeannRowList list = PipeannSearchRows(search, results[i]);
		struct varatt_external where;

		CHECK_FOR_INTERRUPTS();
		if (list.n > 0 && FindVector(&vectors, &list.rows->tid, &where))
			AskForVector(&vectors, &where);
	}
	CloseToast(&vectors);
	ExecDropSingleTupleTableSlot(vectors.slot);
	table_index_fetch_end(vectors.fetch);
}

/*
 * The vector of the row returned last is wanted from TOAST. Ask for
 * that of the rows whose pages were asked for.
 *
 * Of rows that share a vector the first one's is asked for.
 */
void
PipeannPrefetchVectors(PipeannPrefetch *prefetch, IndexScanDesc scan,
					   PipeannSearch *search)
{
	const PipeannResult *results[PIPEANN_MAX_PREFETCH];
	uint64		taken = prefetch->taken + 1;
	int			known = (int) (Max(prefetch->vectors_until, taken) - taken);
	MemoryContext context;
	MemoryContext old;
	int			n;

	if (prefetch->until <= taken || prefetch->vectors_until >= prefetch->until)
		return;
	n = PipeannSearchNext(search, results, (int) (prefetch->until - taken));
	prefetch->vectors_until = prefetch->until;
	if (n <= known)
		return;
	context = AllocSetContextCreate(CurrentMemoryContext,
									"pipeann vectors ahead",
									ALLOCSET_SMALL_SIZES);
	old = MemoryContextSwitchTo(context);
	AskForVectors(scan, search, results + known, n - known);
	MemoryContextSwitchTo(old);
	MemoryContextDelete(context);
}
