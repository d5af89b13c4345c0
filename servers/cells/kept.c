/*
 * kept.c
 *		Storing centroids; pipeann_cell().
 *
 * A backend reads centroids once, and again when their foreign server is another one
 * or another version, for example after it was dropped and made again.
 */
#include "postgres.h"

#include <math.h>

#include "access/htup_details.h"
#include "access/reloptions.h"
#include "catalog/pg_foreign_data_wrapper.h"
#include "catalog/pg_foreign_server.h"
#include "catalog/pg_type.h"
#include "cells/cells.h"
#include "commands/defrem.h"
#include "common/base64.h"
#include "core/core.h"
#include "distance/distance.h"
#include "lib/stringinfo.h"
#include "nodes/primnodes.h"
#include "port/pg_bswap.h"
#include "utils/builtins.h"
#include "utils/hsearch.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/syscache.h"

PG_FUNCTION_INFO_V1(pipeann_cell);
PG_FUNCTION_INFO_V1(pipeann_cell_of_halfvec);

/* The largest element is below two to this, which half precision can hold. */
#define HALF_EXPONENT 15

/* Cells in memory. */
typedef struct Kept
{
	NameData	name;			/* must be first */
	uint64		seen;			/* value of changes at the last look */
	Oid			server;
	TransactionId xmin;			/* with tid: version of the server's row */
	ItemPointerData tid;
	MemoryContext context;
	PipeannCells *cells;		/* NULL: not loaded */
} Kept;

static HTAB *kept;

/* How often foreign servers were changed, made or dropped. */
static uint64 changes;

/* ---------- as options ---------- */

/* Set centroids from half precision; elements is work space. False if some are infinite. */
static bool
SetHalves(PipeannCells *cells, const uint16 *halves, float *elements)
{
	int			n = cells->n * PipeannCellElements(cells);
	bool		finite = true;

	pipeann_core->kernels->to_float[PIPEANN_FLOAT2] (halves, n, elements);
	for (int i = 0; i < n; i++)
	{
		elements[i] = ldexpf(elements[i], cells->exponent);
		finite &= isfinite(elements[i]) != 0;
	}
	PipeannCellsCopy(cells, elements, true);
	return finite;
}

/*
 * Returns the centroids in half precision, in base64, and rounds them to that. They are
 * scaled by a power of two, so that the largest element fits.
 */
char *
PipeannCellsRound(PipeannCells *cells)
{
	int			n = cells->n * PipeannCellElements(cells);
	float	   *elements = palloc_extended(mul_size(n, sizeof(float)), MCXT_ALLOC_HUGE);
	uint16	   *halves = palloc(mul_size(n, sizeof(uint16)));
	int			bytes = n * sizeof(uint16);
	int			room = pg_b64_enc_len(bytes);
	char	   *text = palloc(room + 1);
	float		most = 0;

	PipeannCellsCopy(cells, elements, false);
	for (int i = 0; i < n; i++)
		most = Max(most, fabsf(elements[i]));
	(void) frexpf(most, &cells->exponent);
	cells->exponent -= HALF_EXPONENT;
	for (int i = 0; i < n; i++)
		elements[i] = ldexpf(elements[i], -cells->exponent);
	pipeann_core->kernels->to_half(elements, n, halves);
	(void) SetHalves(cells, halves, elements);
	for (int i = 0; i < n; i++)
		halves[i] = pg_hton16(halves[i]);
	text[pg_b64_encode((void *) halves, bytes, text, room)] = '\0';
	pfree(elements);
	pfree(halves);
	return text;
}

/* The options of the cells' foreign server; `centroids` is PipeannCellsRound()'s result. */
char *
PipeannCellsOptions(const PipeannCells *cells, const char *centroids)
{
	StringInfoData options;

	initStringInfo(&options);
	appendStringInfo(&options, "operator '%s', dimensions '%d', exponent '%d', ",
					 PipeannCellsOperator(cells), cells->dim, cells->exponent);
	if (cells->metric == PIPEANN_IP)
		appendStringInfo(&options, "max_norm '%.9g', ", cells->max_norm);
	appendStringInfoString(&options, "rows '");
	for (int i = 0; i < cells->n; i++)
		appendStringInfo(&options, i == 0 ? "%u" : " %u", cells->rows[i]);
	appendStringInfo(&options, "', centroids '%s'", centroids);
	return options.data;
}

static void
Broken(const char *name)
{
	ereport(ERROR,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 errmsg("options of foreign server \"%s\" are none that pipeann_make_cells() makes",
					name)));
}

static const char *
Option(List *options, const char *option, const char *name)
{
	ListCell   *cell;

	foreach(cell, options)
	{
		DefElem    *element = lfirst(cell);

		if (strcmp(element->defname, option) == 0)
			return defGetString(element);
	}
	Broken(name);
	return NULL;
}

/* Read the rows of each cell, unless rows is NULL; returns the number of cells. */
static int
ReadRows(const char *text, uint32 *rows)
{
	int			n = 0;

	while (*text != '\0' && n <= PIPEANN_MOST_CELLS)
	{
		char	   *end;
		unsigned long count = strtoul(text, &end, 10);

		if (end == text)
			return 0;
		if (rows != NULL)
			rows[n] = (uint32) count;
		n++;
		text = end;
	}
	return n;
}

static bool
DecodeCentroids(PipeannCells *cells, const char *text)
{
	int			n = cells->n * PipeannCellElements(cells);
	int			room = pg_b64_dec_len(strlen(text));
	uint16	   *halves = palloc(Max(room, 1));
	float	   *elements = palloc_extended(mul_size(n, sizeof(float)), MCXT_ALLOC_HUGE);
	int			bytes = pg_b64_decode(text, strlen(text), (void *) halves, room);
	bool		finite;

	if (bytes != n * (int) sizeof(uint16))
		return false;
	for (int i = 0; i < n; i++)
		halves[i] = pg_ntoh16(halves[i]);
	finite = SetHalves(cells, halves, elements);
	pfree(halves);
	pfree(elements);
	return finite;
}

/* The cells of a server's options. */
static PipeannCells *
Read(List *options, const char *name)
{
	PipeannMetric metric = PipeannCellsMetric(Option(options, "operator", name));
	int			dim = atoi(Option(options, "dimensions", name));
	const char *rows = Option(options, "rows", name);
	int			n = ReadRows(rows, NULL);
	PipeannCells *cells;

	if (metric == 0 || dim < 1 || dim > PIPEANN_MOST_DIM || n < 1 ||
		n > PIPEANN_MOST_CELLS || n > PIPEANN_MOST_CELL_ELEMENTS / (dim + 1))
		Broken(name);
	cells = PipeannCellsNew(metric, dim, n);
	(void) ReadRows(rows, cells->rows);
	for (int i = 0; i < n; i++)
		cells->all_rows += cells->rows[i];
	cells->exponent = atoi(Option(options, "exponent", name));
	if (metric == PIPEANN_IP)
		cells->max_norm = strtof(Option(options, "max_norm", name), NULL);
	if (!(cells->all_rows > 0) || !isfinite(cells->max_norm) ||
		!DecodeCentroids(cells, Option(options, "centroids", name)))
		Broken(name);
	return cells;
}

/* ---------- in memory ---------- */

static void
Forget(Kept *entry)
{
	if (entry->context != NULL)
		MemoryContextDelete(entry->context);
	entry->context = NULL;
	entry->cells = NULL;
}

static void
CountChange(Datum arg, int cache, uint32 hash)
{
	changes++;
}

static bool
IsOurs(HeapTuple server)
{
	Oid			wrapper = ((Form_pg_foreign_server) GETSTRUCT(server))->srvfdw;
	HeapTuple	tuple = SearchSysCache1(FOREIGNDATAWRAPPEROID,
										ObjectIdGetDatum(wrapper));
	bool		ours;

	if (!HeapTupleIsValid(tuple))
		return false;
	ours = strcmp(NameStr(((Form_pg_foreign_data_wrapper) GETSTRUCT(tuple))->fdwname),
				  PIPEANN_CELLS_WRAPPER) == 0;
	ReleaseSysCache(tuple);
	return ours;
}

/* Read what a server keeps. */
static void
Load(Kept *entry, HeapTuple server)
{
	MemoryContext work = AllocSetContextCreate(CurrentMemoryContext,
											   "pipeann cells' options",
											   ALLOCSET_DEFAULT_SIZES);
	MemoryContext own = AllocSetContextCreate(work, "pipeann cells",
											  ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(work);
	bool		none;
	Datum		options = SysCacheGetAttr(FOREIGNSERVEROID, server,
										  Anum_pg_foreign_server_srvoptions, &none);
	List	   *list = none ? NIL : untransformRelOptions(options);

	(void) MemoryContextSwitchTo(own);
	entry->cells = Read(list, NameStr(entry->name));
	(void) MemoryContextSwitchTo(old);
	MemoryContextSetParent(own, CacheMemoryContext);
	entry->context = own;
	MemoryContextDelete(work);
}

/* The entry of a name, truncated as names are. It is never removed. */
static Kept *
Entry(const char *name)
{
	HASHCTL		control = {.keysize = NAMEDATALEN,.entrysize = sizeof(Kept)};
	Kept	   *entry;
	bool		found;

	if (kept == NULL)
	{
		control.hcxt = CacheMemoryContext;
		kept = hash_create("pipeann cells", 8, &control,
						   HASH_ELEM | HASH_STRINGS | HASH_CONTEXT);
		CacheRegisterSyscacheCallback(FOREIGNSERVEROID, CountChange, (Datum) 0);
	}
	entry = hash_search(kept, name, HASH_ENTER, &found);
	if (!found)
		memset((char *) entry + NAMEDATALEN, 0, sizeof(Kept) - NAMEDATALEN);
	return entry;
}

/* Find cells by name, valid until the next call; NULL if there are none and missing_ok. */
const PipeannCells *
PipeannCellsFind(const char *name, bool missing_ok)
{
	Kept	   *entry = Entry(name);
	uint64		seen = changes;	/* later changes lead to another look */
	HeapTuple	server;

	if (likely(entry->seen == seen && entry->cells != NULL))
		return entry->cells;
	server = SearchSysCache1(FOREIGNSERVERNAME, NameGetDatum(&entry->name));
	if (!HeapTupleIsValid(server) || !IsOurs(server))
	{
		Forget(entry);
		if (HeapTupleIsValid(server))
			ReleaseSysCache(server);
		if (missing_ok)
			return NULL;
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("cells \"%s\" do not exist", name),
				 errhint("pipeann_make_cells() makes them.")));
	}
	if (entry->cells == NULL ||
		entry->xmin != HeapTupleHeaderGetRawXmin(server->t_data) ||
		!ItemPointerEquals(&entry->tid, &server->t_self))
	{
		Forget(entry);
		Load(entry, server);
		entry->xmin = HeapTupleHeaderGetRawXmin(server->t_data);
		entry->tid = server->t_self;
	}
	entry->seen = seen;
	ReleaseSysCache(server);
	return entry->cells;
}

/* ---------- pipeann_cell() ---------- */

/* The type of vectors that have cells, by its name: an operator or function was found for it. */
PipeannType
PipeannCellsType(Oid type)
{
	HeapTuple	tuple = SearchSysCache1(TYPEOID, ObjectIdGetDatum(type));
	bool		half = HeapTupleIsValid(tuple) &&
		strcmp(NameStr(((Form_pg_type) GETSTRUCT(tuple))->typname), "halfvec") == 0;

	if (HeapTupleIsValid(tuple))
		ReleaseSysCache(tuple);
	return half ? PIPEANN_HALFVEC : PIPEANN_VECTOR;
}

static int
CellOf(const char *name, PipeannType type, Datum vector)
{
	const PipeannCells *cells = PipeannCellsFind(name, false);
	const float *v = pipeann_core->elements(type, vector, cells->dim);

	PipeannCellsEmbed(cells, v, false, cells->x);
	return PipeannCellNearest(cells, cells->x);
}

Datum
pipeann_cell(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT32(CellOf(PG_GETARG_CSTRING(0), PIPEANN_VECTOR,
						   PG_GETARG_DATUM(1)));
}

Datum
pipeann_cell_of_halfvec(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT32(CellOf(PG_GETARG_CSTRING(0), PIPEANN_HALFVEC,
						   PG_GETARG_DATUM(1)));
}

/* Whether a function is pipeann_cell(). */
static bool
IsCell(Oid function)
{
	char	   *name = get_func_name(function);
	FmgrInfo	info;

	/* no library is loaded for a look at another one */
	if (name == NULL || strcmp(name, "pipeann_cell") != 0)
		return false;
	fmgr_info(function, &info);
	return info.fn_addr == pipeann_cell || info.fn_addr == pipeann_cell_of_halfvec;
}

/* ---------- for plans ---------- */

/* The vector of an expression that is pipeann_cell(), and the name of the cells; or NULL. */
Node *
PipeannCellVector(Node *expr, const char **cells)
{
	const FuncExpr *call = (const FuncExpr *) expr;
	const Const *name;

	if (!IsA(expr, FuncExpr) || list_length(call->args) != 2)
		return NULL;
	name = linitial(call->args);
	if (!IsA(name, Const) || name->constisnull || !IsCell(call->funcid))
		return NULL;
	*cells = pstrdup(DatumGetCString(name->constvalue));
	return lsecond(call->args);
}

/* The number of cells with this name, 0 if there are none for this operator. */
int
PipeannCellsCount(const char *name, Oid operator)
{
	const PipeannCells *cells = PipeannCellsFind(name, true);
	const char *order = get_opname(operator);

	return cells != NULL && order != NULL &&
		PipeannCellsMetric(order) == cells->metric ? cells->n : 0;
}

/*
 * Set near[n] to all cells, with their distances from a query. False if there are not n
 * any more.
 */
bool
PipeannCellsNear(const char *name, Oid type, Datum query, int n,
				 PipeannNearCell *near)
{
	const PipeannCells *cells = PipeannCellsFind(name, false);

	if (cells->n != n)
		return false;
	PipeannCellsEmbed(cells, pipeann_core->elements(PipeannCellsType(type), query, cells->dim),
					  true, cells->x);
	PipeannCellsDistances(cells, cells->x, near);
	return true;
}

/* The squared distance of embedded vectors for a row's distance by the operator. */
double
PipeannCellsDistance(const char *name, Oid type, Datum query, double distance)
{
	const PipeannCells *cells = PipeannCellsFind(name, false);

	return PipeannCellsSquare(cells,
							  pipeann_core->elements(PipeannCellsType(type), query,
												   cells->dim), distance);
}
