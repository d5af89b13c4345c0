/*
 * info.c
 *		SQL functions that report on an index and on searches.
 */
#include "postgres.h"

#include "access/relation.h"
#include "base/metric.h"
#include "scan/scan.h"
#include "build/build.h"
#include "catalog/index.h"
#include "catalog/pg_authid.h"
#include "fmgr.h"
#include "funcapi.h"
#include "io/io.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/rel.h"
#include "utils/syscache.h"
#include "utils/tuplestore.h"

PG_FUNCTION_INFO_V1(pipeann_index_info);
PG_FUNCTION_INFO_V1(pipeann_last_search);
PG_FUNCTION_INFO_V1(pipeann_stats);

static const char *const storage_names[] = {
	[PIPEANN_FLOAT4] = "float4", [PIPEANN_FLOAT2] = "float2",
	[PIPEANN_INT8] = "int8", [PIPEANN_UINT8] = "uint8",
	[PIPEANN_SQ12] = "sq12", [PIPEANN_SQ13] = "sq13", [PIPEANN_SQ14] = "sq14",
	[PIPEANN_BITS] = "bits"
};

static const char *const place_names[] = {
	[PIPEANN_CACHE_SHARED] = "shared",
	[PIPEANN_CACHE_DYNAMIC] = "dynamic",
	[PIPEANN_CACHE_PRIVATE] = "private"
};

static TupleDesc
ResultDesc(FunctionCallInfo fcinfo)
{
	TupleDesc	desc;

	if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	return BlessTupleDesc(desc);
}

/* Where m comes from. */
static char *
DegreeText(const PipeannMeta *meta)
{
	const PipeannDegree *d = &meta->degree;

	switch (d->reason)
	{
		case PIPEANN_DEGREE_OPTION:
			return pstrdup(meta->layout.max_degree == 2 * PIPEANN_DEFAULT_M ?
						   "default" : "option m");
		case PIPEANN_DEGREE_PROFILED:
			return psprintf("profile: a read takes %.1f us, a code distance %.1f ns, an exact one %.1f ns: up to %u neighbors balance a read; with %d a page holds %d",
							d->read_us, d->neighbor_ns, d->node_ns,
							d->balanced, meta->layout.max_degree,
							meta->layout.slots_per_page);
		case PIPEANN_DEGREE_FEW_ROWS:
			return pstrdup("default: too few rows for a profile when the index was built");
		default:
			return pstrdup("default: pages could not be read for a profile");
	}
}

/* Seconds of each phase of a build, as jsonb. */
static Datum
BuildPhases(const PipeannBuilt *built)
{
	StringInfoData json;

	initStringInfo(&json);
	appendStringInfoChar(&json, '{');
	for (int phase = 0; phase < PIPEANN_BUILD_PHASES; phase++)
		if (built->ms[phase] > 0)
			appendStringInfo(&json, "%s\"%s\": %u.%03u",
							 json.len > 1 ? ", " : "", PipeannPhaseName(phase),
							 built->ms[phase] / 1000, built->ms[phase] % 1000);
	appendStringInfoChar(&json, '}');
	return DirectFunctionCall1(jsonb_in, CStringGetDatum(json.data));
}

/* Bytes that an index's cache has in memory, or would take. */
static int64
MemoryBytes(const PipeannIndexView *view)
{
	if (view->cache != NULL)
		return (int64) PipeannCacheBytes(view->cache);
	return (view->meta.flags & PIPEANN_META_HAS_CODES) == 0 ? 0 :
		(int64) PipeannCacheMemory(&view->meta);
}

/* Graph pages that are in the buffers in which they were seen last. */
static int64
CountResident(const PipeannIndexView *view)
{
	int64		count = 0;

	for (uint32 page = 0; page < view->meta.graph_pages; page++)
	{
		pg_atomic_uint32 *seen = PipeannPageLastSeen(PipeannViewSeen(view), page);

		count += seen != NULL &&
			PipeannBufferHas(view->index, PipeannViewBlock(view, page),
							 (Buffer) (pg_atomic_read_u32(seen) & ~PIPEANN_SEEN_SOUND));
	}
	return count;
}

/* pipeann_index_info(regclass): one row about an index. Loads nothing. */
Datum
pipeann_index_info(PG_FUNCTION_ARGS)
{
	Relation	index = PipeannOpenIndex(PG_GETARG_OID(0));
	TupleDesc	desc = ResultDesc(fcinfo);
	PipeannIndexView view;
	const PipeannMeta *meta = &view.meta;
	Datum		values[29];
	bool		nulls[29] = {0};
	Size		codes;
	bool		direct;
	int			n = 0;

	PipeannPeekView(&view, index);
	codes = (meta->flags & PIPEANN_META_HAS_CODES) == 0 ? 0 :
		PipeannCodesBytes(&meta->layout, meta->graph_pages);
	values[n++] = Int32GetDatum(PIPEANN_FORMAT);
	values[n++] = Int32GetDatum(PipeannIndexDimensions(index));
	values[n++] = CStringGetTextDatum(PipeannMetrics[meta->layout.metric].name);
	values[n++] = CStringGetTextDatum(PipeannIsSparse(meta->layout.storage) ?
									  psprintf("sparse%d", PipeannSparseRoom(meta->layout.storage)) :
									  storage_names[meta->layout.storage]);
	values[n++] = Int32GetDatum(meta->layout.max_degree / 2);
	values[n++] = Int32GetDatum(PipeannIndexOptions(index)->ef_construction);
	values[n++] = Int32GetDatum(meta->layout.pq_bytes);
	values[n++] = Int64GetDatum((int64) meta->nodes);
	values[n++] = Int64GetDatum(meta->graph_pages);
	values[n++] = Int32GetDatum(meta->layout.slots_per_page);
	values[n++] = Int32GetDatum(meta->layout.node_pages);
	values[n++] = BoolGetDatum((meta->flags & PIPEANN_META_HAS_CODES) != 0);
	nulls[n] = view.cache == NULL;
	values[n++] = view.cache == NULL ? (Datum) 0 :
		CStringGetTextDatum(place_names[view.cache->place]);
	values[n++] = Int64GetDatum(MemoryBytes(&view));
	values[n++] = Int64GetDatum((int64) codes);
	values[n++] = Int64GetDatum(view.cache == NULL ? 0 :
								(int64) Min(PipeannCacheCodesInMemory(view.cache, meta), codes));
	values[n++] = CStringGetTextDatum(PipeannIoInUse(&direct));
	values[n++] = BoolGetDatum(direct);
	values[n++] = Int64GetDatum((int64) RelationGetNumberOfBlocks(index) *
								BLCKSZ);
	values[n++] = Int32GetDatum((int32) PipeannGeneration(meta));
	values[n++] = Int64GetDatum((int64) meta->trained_nodes);
	values[n++] = BoolGetDatum(PipeannIsOutgrown(meta));
	values[n++] = BoolGetDatum((meta->flags & PIPEANN_META_REPAIRING) != 0);
	values[n++] = CStringGetTextDatum(DegreeText(meta));
	values[n++] = Int64GetDatum(CountResident(&view));
	nulls[n] = nulls[n + 1] = meta->built.processes == 0;
	values[n++] = Int32GetDatum((int32) meta->built.processes);
	values[n++] = BuildPhases(&meta->built);
	values[n++] = Int32GetDatum(meta->layout.row_bytes == 0 ? 0 :
								(int) PipeannInlineBytes(&meta->layout));
	values[n++] = Int32GetDatum(meta->layout.attr_bytes);
	if (view.cache != NULL)
		PipeannCacheRelease(view.cache);
	relation_close(index, AccessShareLock);
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(desc, values, nulls)));
}

/*
 * Fill values[] with the counters as columns, for both functions; returns how
 * many.
 */
static int
CounterColumns(const PipeannCounters *c, Datum *values)
{
	int			n = 0;

	values[n++] = Int64GetDatum((int64) c->nodes_explored);
	values[n++] = Int64GetDatum((int64) c->code_distances);
	values[n++] = Int64GetDatum((int64) c->exact_distances);
	values[n++] = Int64GetDatum((int64) c->page_hits);
	values[n++] = Int64GetDatum((int64) c->page_reads);
	values[n++] = Int64GetDatum((int64) c->code_page_reads);
	values[n++] = Float8GetDatum(c->page_reads == 0 ? 0 :
								 (double) c->in_flight_sum / c->page_reads);
	values[n++] = Int64GetDatum((int64) c->in_flight_peak);
	values[n++] = Int64GetDatum((int64) c->rounds);
	values[n++] = Int64GetDatum((int64) c->wait_us);
	values[n++] = Int64GetDatum((int64) c->retries);
	values[n++] = Int64GetDatum((int64) c->rows_out_of_order);
	return n;
}

/* pipeann_last_search(): the counters of this session's last index scan. */
Datum
pipeann_last_search(PG_FUNCTION_ARGS)
{
	TupleDesc	desc = ResultDesc(fcinfo);
	Datum		values[14];
	bool		nulls[14] = {0};
	int			n = 1;

	values[0] = CStringGetTextDatum(PipeannPolicies[PipeannLastMode]->name);
	n += CounterColumns(&PipeannLastCounters, values + n);
	values[n] = Int64GetDatum((int64) PipeannLastCounters.code_scans);
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(desc, values, nulls)));
}

/*
 * Whether counters are those of an existing index, and the user may see them:
 * because of SELECT on its table, or pg_read_all_stats. Counters of dropped
 * indexes stay until others need their place.
 */
static bool
IsShown(const PipeannIndexStats *stats)
{
	HeapTuple	index = SearchSysCache1(RELOID, ObjectIdGetDatum(stats->relid));
	Oid			table = HeapTupleIsValid(index) ?
		IndexGetRelation(stats->relid, true) : InvalidOid;
	bool		shown = OidIsValid(table) &&
		((Form_pg_class) GETSTRUCT(index))->relfilenode == stats->file &&
		(has_privs_of_role(GetUserId(), ROLE_PG_READ_ALL_STATS) ||
		 pg_class_aclcheck(table, GetUserId(), ACL_SELECT) == ACLCHECK_OK);

	if (HeapTupleIsValid(index))
		ReleaseSysCache(index);
	return shown;
}

/* pipeann_stats(): sums of counters for each index of the current database. */
Datum
pipeann_stats(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	PipeannIndexStats *stats;
	int			n;

	InitMaterializedSRF(fcinfo, 0);
	n = PipeannStatsCollect(PipeannCacheStats(), &stats);
	for (int i = 0; i < n; i++)
	{
		Datum		values[14];
		bool		nulls[14] = {0};

		if (!IsShown(&stats[i]))
			continue;
		values[0] = ObjectIdGetDatum(stats[i].relid);
		values[1] = Int64GetDatum((int64) stats[i].scans);
		(void) CounterColumns(&stats[i].counters, values + 2);
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values,
							 nulls);
	}
	return (Datum) 0;
}
