/*
 * functions.c
 *		SQL functions for cells: making them from a sample, and dividing them among
 *		servers.
 */
#include "postgres.h"

#include <float.h>
#include <math.h>

#include "base/random.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_type_d.h"
#include "cells/cells.h"
#include "core/core.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "funcapi.h"
#include "foreign/foreign.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "parser/parse_func.h"
#include "utils/acl.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"

PG_FUNCTION_INFO_V1(pipeann_make_cells);
PG_FUNCTION_INFO_V1(pipeann_place_cells);
PG_FUNCTION_INFO_V1(pipeann_cells_stats);
PG_FUNCTION_INFO_V1(pipeann_cell_distance);
PG_FUNCTION_INFO_V1(pipeann_cell_distance_of_halfvec);

/* Rows of the sample for each cell; more do not help k-means. */
#define ROWS_OF_CELL 128

/* Rows fetched at once. */
#define FETCH 1000

#define SEED UINT64_C(0x63656c6c73)

/* Rows of a query, or a random sample of them if there are too many. */
typedef struct Sample
{
	PipeannMetric metric;
	int			wanted;			/* cells */
	PipeannType type;
	int			dim;			/* 0: no row was seen */
	int			elements;		/* of an embedded vector, room[elements] for each */
	uint64		seen;
	uint32		n;
	uint32		most;
	uint32		room;
	float	   *rows;
	double		square;			/* of the longest vector */
	uint64		random;
	MemoryContext context;
} Sample;

/* Whether a type has cells: the schema of `function` has pipeann_cell() for it. */
static bool
HasCells(Oid function, Oid type)
{
	char	   *schema = get_namespace_name(get_func_namespace(function));
	List	   *name = list_make2(makeString(schema), makeString("pipeann_cell"));
	Oid			arguments[] = {CSTRINGOID, type};

	return OidIsValid(LookupFuncName(name, 2, arguments, true));
}

/* Set what the first row decides. */
static void
Begin(Sample *s, Datum value)
{
	/* both of pgvector's types begin with it */
	const int16 *dim = (const int16 *) VARDATA(PG_DETOAST_DATUM(value));
	Size		bytes;

	s->dim = *dim;
	s->elements = s->dim + (s->metric == PIPEANN_IP);
	if (s->dim > PIPEANN_MOST_DIM ||
		s->wanted > PIPEANN_MOST_CELL_ELEMENTS / s->elements)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("cannot make %d cells of %d dimensions", s->wanted, s->dim)));
	bytes = s->elements * sizeof(float);
	s->most = Max(Min((Size) s->wanted * ROWS_OF_CELL,
					  (Size) maintenance_work_mem * 1024 / bytes),
				  (Size) s->wanted);
	s->room = Min(s->most, FETCH);
	s->rows = MemoryContextAlloc(s->context, s->room * bytes);
}

static void
AddRow(Sample *s, Datum value)
{
	const float *v;
	double		square = 0;
	uint32		at = s->n;

	if (s->dim == 0)
		Begin(s, value);
	v = pipeann_core->elements(s->type, value, s->dim);
	for (int d = 0; d < s->dim; d++)
		square += (double) v[d] * v[d];
	if (!(square < FLT_MAX / 8))
		ereport(ERROR,
				(errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
				 errmsg("cannot make cells of a vector that is so long"),
				 errdetail("Its squared length is %g.", square)));
	s->square = Max(s->square, square);
	s->seen++;
	if (s->n == s->most)
	{
		uint64		other = PipeannRandomNext(&s->random) % s->seen;

		if (other >= s->most)
			return;
		at = (uint32) other;
	}
	else if (s->n++ == s->room)
	{
		s->room = Min((uint64) s->room * 2, s->most);
		s->rows = repalloc_huge(s->rows,
								(Size) s->room * s->elements * sizeof(float));
	}
	memcpy(s->rows + (Size) at * s->elements, v, s->dim * sizeof(float));
}

/* The vectors that a query gives in its only column. */
static void
RunQuery(Sample *s, const char *query, Oid function)
{
	SPIPlanPtr	plan = SPI_prepare(query, 0, NULL);
	Portal		portal;
	MemoryContext row = AllocSetContextCreate(CurrentMemoryContext, "pipeann sample",
											  ALLOCSET_DEFAULT_SIZES);
	Oid			type;

	if (plan == NULL)
		elog(ERROR, "could not prepare a query: %s", SPI_result_code_string(SPI_result));
	portal = SPI_cursor_open(NULL, plan, NULL, NULL, true);
	if (portal->tupDesc == NULL || portal->tupDesc->natts != 1)
		ereport(ERROR,
				(errcode(ERRCODE_DATATYPE_MISMATCH),
				 errmsg("the query must give one column, of vectors")));
	type = TupleDescAttr(portal->tupDesc, 0)->atttypid;
	if (!HasCells(function, type))
		ereport(ERROR,
				(errcode(ERRCODE_DATATYPE_MISMATCH),
				 errmsg("cannot make cells of type %s", format_type_be(type)),
				 errhint("The query must give vectors of type vector or halfvec.")));
	s->type = PipeannCellsType(type);
	do
	{
		SPI_cursor_fetch(portal, true, FETCH);
		for (uint64 i = 0; i < SPI_processed; i++)
		{
			MemoryContext old = MemoryContextSwitchTo(row);
			bool		none;
			Datum		value = SPI_getbinval(SPI_tuptable->vals[i],
											  SPI_tuptable->tupdesc, 1, &none);

			if (!none)
				AddRow(s, value);
			(void) MemoryContextSwitchTo(old);
			MemoryContextReset(row);
		}
		SPI_freetuptable(SPI_tuptable);
	} while (SPI_processed > 0);
	SPI_cursor_close(portal);
}

static void
Execute(const char *command)
{
	int			result = SPI_execute(command, false, 0);

	if (result != SPI_OK_UTILITY)
		elog(ERROR, "could not make a foreign server: %s",
			 SPI_result_code_string(result));
}

/* Make cells of the sample; returns the options of their foreign server. */
static char *
Train(Sample *s)
{
	PipeannCells *cells;
	char	   *centroids;

	if (s->n < (uint32) s->wanted)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("cannot make %d cells of %u vectors", s->wanted, s->n),
				 errhint("A sample should have %d vectors or more for each cell.",
						 ROWS_OF_CELL / 4)));
	cells = PipeannCellsNew(s->metric, s->dim, s->wanted);
	if (s->metric == PIPEANN_IP)
		cells->max_norm = (float) sqrt(s->square);
	for (uint32 i = 0; i < s->n; i++)
	{
		float	   *x = s->rows + (Size) i * s->elements;

		PipeannCellsEmbed(cells, x, false, x);
	}
	centroids = PipeannCellsTrain(cells, s->rows, s->n, SEED);
	return PipeannCellsOptions(cells, centroids);
}

Datum
pipeann_make_cells(PG_FUNCTION_ARGS)
{
	const char *name = quote_identifier(NameStr(*PG_GETARG_NAME(0)));
	char	   *query = text_to_cstring(PG_GETARG_TEXT_PP(1));
	char	   *operator = text_to_cstring(PG_GETARG_TEXT_PP(2));
	Sample		s = {
		.metric = PipeannCellsMetric(operator),.wanted = PG_GETARG_INT32(3),
		.random = SEED,.context = CurrentMemoryContext
	};

	if (s.metric == 0)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot make cells for operator %s", operator),
				 errhint("There are cells for <->, <#> and <=>.")));
	if (s.wanted < 1 || s.wanted > PIPEANN_MOST_CELLS)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("number of cells must be from 1 to %d", PIPEANN_MOST_CELLS)));
	SPI_connect();
	/* first, as it checks rights and whether the name is taken */
	Execute(psprintf("CREATE SERVER %s FOREIGN DATA WRAPPER " PIPEANN_CELLS_WRAPPER, name));
	RunQuery(&s, query, fcinfo->flinfo->fn_oid);
	Execute(psprintf("ALTER SERVER %s OPTIONS (%s)", name, Train(&s)));
	SPI_finish();
	PG_RETURN_VOID();
}

/*
 * Only a role with USAGE of the cells' foreign server may ask for these, as only such a role may
 * make foreign tables of a server. pipeann_cell() is not checked: a partition key is evaluated
 * as the role that writes the table, and its result follows from options that all may read.
 */
static void
CheckUsage(const char *name)
{
	if (!PipeannHasUsage(get_foreign_server_oid(name, false)))
		aclcheck_error(ACLCHECK_NO_PRIV, OBJECT_FOREIGN_SERVER, name);
}

/* The server of each cell, from 0 on. */
static int *
Place(const PipeannCells *cells, int nservers)
{
	int			elements = PipeannCellElements(cells);
	float	   *x = PipeannArray(float, mul_size(cells->n, elements));
	int		   *server = PipeannArray(int, cells->n);
	PipeannPlaced placed = {cells->n, elements, x, cells->rows};

	PipeannCellsCopy(cells, x, false);
	PipeannPlace(&placed, nservers, SEED, server);
	return server;
}

Datum
pipeann_place_cells(PG_FUNCTION_ARGS)
{
	const char *name = NameStr(*PG_GETARG_NAME(0));
	const PipeannCells *cells = PipeannCellsFind(name, false);
	int			nservers = PG_GETARG_INT32(1);
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	Datum	   *of_server = palloc(mul_size(cells->n, sizeof(Datum)));
	const int  *server;

	CheckUsage(name);
	if (nservers < 1 || nservers > cells->n)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("number of servers must be from 1 to %d, the number of cells",
						cells->n)));
	InitMaterializedSRF(fcinfo, 0);
	server = Place(cells, nservers);
	for (int s = 0; s < nservers; s++)
	{
		Datum		values[2] = {Int32GetDatum(s + 1)};
		bool		nulls[2] = {false};
		int			n = 0;

		for (int i = 0; i < cells->n; i++)
			if (server[i] == s)
				of_server[n++] = Int32GetDatum(i);
		values[1] = PointerGetDatum(construct_array(of_server, n, INT4OID, sizeof(int32),
													true, TYPALIGN_INT));
		tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
	}
	return (Datum) 0;
}

/* Queries, parts that these asked, waves, and the queries of each cell; NULL if there are none. */
Datum
pipeann_cells_stats(PG_FUNCTION_ARGS)
{
	const char *name = NameStr(*PG_GETARG_NAME(0));
	uint32	   *of_cell;
	PipeannCellsUse use;
	Datum		values[4];
	bool		nulls[4] = {false};
	Datum	   *counts;
	TupleDesc	desc;

	if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	(void) PipeannCellsFind(name, false);
	if (!has_privs_of_role(GetUserId(), ROLE_PG_READ_ALL_STATS))
		CheckUsage(name);
	use = PipeannCellsUsed(name, &of_cell);
	values[0] = Int64GetDatum(use.queries);
	values[1] = Int64GetDatum(use.parts);
	values[2] = Int64GetDatum(use.waves);
	counts = palloc(mul_size(Max(use.ncells, 1), sizeof(Datum)));
	for (int i = 0; i < use.ncells; i++)
		counts[i] = Int64GetDatum((int64) of_cell[i]);
	values[3] = PointerGetDatum(construct_array(counts, use.ncells, INT8OID, sizeof(int64),
												FLOAT8PASSBYVAL, TYPALIGN_DOUBLE));
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(desc), values, nulls)));
}

/* How far a vector is from its cell's centroid. */
static double
Distance(const char *name, PipeannType type, Datum vector)
{
	const PipeannCells *cells = PipeannCellsFind(name, false);

	PipeannCellsEmbed(cells, pipeann_core->elements(type, vector, cells->dim), false,
					  cells->x);
	return sqrt(PipeannCellDistance(cells, PipeannCellNearest(cells, cells->x), cells->x));
}

Datum
pipeann_cell_distance(PG_FUNCTION_ARGS)
{
	PG_RETURN_FLOAT8(Distance(PG_GETARG_CSTRING(0), PIPEANN_VECTOR,
							  PG_GETARG_DATUM(1)));
}

Datum
pipeann_cell_distance_of_halfvec(PG_FUNCTION_ARGS)
{
	PG_RETURN_FLOAT8(Distance(PG_GETARG_CSTRING(0), PIPEANN_HALFVEC,
							  PG_GETARG_DATUM(1)));
}
