/*
 * handler.c
 *		The access method's handler, and loading of the library.
 */
#include "postgres.h"

#include "access/amapi.h"
#include "access/genam.h"
#include "am/am.h"
#include "build/build.h"
#include "cache/cache.h"
#include "insert/insert.h"
#include "scan/scan.h"
#include "vacuum/vacuum.h"
#include "base/pause.h"
#include "base/planted.h"
#include "commands/vacuum.h"
#include "fmgr.h"
#include "io/io.h"
#include "plan/plan.h"
#include "distance/distance.h"
#include "utils/guc.h"

#if PG_VERSION_NUM >= 180000
PG_MODULE_MAGIC_EXT(.name = "pipeann", .version = "0.1.0");
#else
PG_MODULE_MAGIC;
#endif

PGDLLEXPORT void _PG_init(void);

PG_FUNCTION_INFO_V1(pipeannhandler);
PG_FUNCTION_INFO_V1(pipeann_metric_l2);
PG_FUNCTION_INFO_V1(pipeann_metric_ip);
PG_FUNCTION_INFO_V1(pipeann_metric_cosine);

void
_PG_init(void)
{
	PipeannKernelsInit();
	PipeannOptionsInit();
	PipeannSettingsInit();
	PipeannPauseInit();
	PipeannPlantedInit();
	PipeannCacheInit();
	PipeannIoInit();
	PipeannPlanInit();
	PipeannInterfaceInit();
	MarkGUCPrefixReserved("pipeann");
}

/* Support functions of the operator classes: they return the metric. */
Datum
pipeann_metric_l2(PG_FUNCTION_ARGS)
{
	(void) fcinfo;
	PG_RETURN_INT32(PIPEANN_L2);
}

Datum
pipeann_metric_ip(PG_FUNCTION_ARGS)
{
	(void) fcinfo;
	PG_RETURN_INT32(PIPEANN_IP);
}

Datum
pipeann_metric_cosine(PG_FUNCTION_ARGS)
{
	(void) fcinfo;
	PG_RETURN_INT32(PIPEANN_COSINE);
}

static char *
pipeannbuildphasename(int64 phase)
{
	return unconstify(char *, PipeannPhaseName(phase));
}

/* Whether a column of an index, by its number, is the vector. */
static bool
IsVectorColumn(Oid index_oid, int attno)
{
	Relation	index = index_open(index_oid, AccessShareLock);
	bool		result = PipeannVectorPosition(index) == attno - 1;

	index_close(index, AccessShareLock);
	return result;
}

/* Others than the vector are what conditions are for. */
static bool
pipeannproperty(Oid index_oid, int attno, IndexAMProperty prop,
				const char *propname, bool *res, bool *isnull)
{
	(void) propname;
	(void) isnull;
	if (attno < 1)
		return false;
	if (prop != AMPROP_DISTANCE_ORDERABLE && prop != AMPROP_SEARCH_ARRAY &&
		prop != AMPROP_SEARCH_NULLS)
		return false;
	*res = IsVectorColumn(index_oid, attno) ==
		(prop == AMPROP_DISTANCE_ORDERABLE);
	return true;
}

Datum
pipeannhandler(PG_FUNCTION_ARGS)
{
	IndexAmRoutine *amroutine = makeNode(IndexAmRoutine);

	(void) fcinfo;
	amroutine->amstrategies = PIPEANN_NUM_STRATEGIES;
	amroutine->amsupport = PIPEANN_NUM_PROCS;
	amroutine->amoptsprocnum = PIPEANN_OPTIONS_PROC;
	amroutine->amcanorder = false;
	amroutine->amcanorderbyop = true;
	amroutine->amcanbackward = false;
	amroutine->amcanunique = false;
	amroutine->amcanmulticol = true;
	amroutine->amoptionalkey = true;
	amroutine->amsearcharray = true;
	amroutine->amsearchnulls = true;
	amroutine->amstorage = false;
	amroutine->amclusterable = false;
	amroutine->ampredlocks = false;
	amroutine->amcanparallel = false;
	amroutine->amcaninclude = true;
	amroutine->amusemaintenanceworkmem = true;
	amroutine->amparallelvacuumoptions = VACUUM_OPTION_PARALLEL_BULKDEL |
		VACUUM_OPTION_PARALLEL_COND_CLEANUP;
	amroutine->amkeytype = InvalidOid;
#if PG_VERSION_NUM >= 160000
	amroutine->amsummarizing = false;
#endif
#if PG_VERSION_NUM >= 170000
	amroutine->amcanbuildparallel = true;
	amroutine->aminsertcleanup = NULL;
#endif

	amroutine->ambuild = pipeannbuild;
	amroutine->ambuildempty = pipeannbuildempty;
	amroutine->aminsert = pipeanninsert;
	amroutine->ambulkdelete = pipeannbulkdelete;
	amroutine->amvacuumcleanup = pipeannvacuumcleanup;
	amroutine->amcanreturn = pipeanncanreturn;
	amroutine->amcostestimate = pipeanncostestimate;
	amroutine->amoptions = pipeannoptions;
	amroutine->amproperty = pipeannproperty;
	amroutine->ambuildphasename = pipeannbuildphasename;
	amroutine->amvalidate = pipeannvalidate;
	amroutine->amadjustmembers = NULL;
	amroutine->ambeginscan = pipeannbeginscan;
	amroutine->amrescan = pipeannrescan;
	amroutine->amgettuple = pipeanngettuple;
	amroutine->amgetbitmap = NULL;
	amroutine->amendscan = pipeannendscan;
	amroutine->ammarkpos = NULL;
	amroutine->amrestrpos = NULL;
	amroutine->amestimateparallelscan = NULL;
	amroutine->aminitparallelscan = NULL;
	amroutine->amparallelrescan = NULL;

	PG_RETURN_POINTER(amroutine);
}
