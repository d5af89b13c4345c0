/*
 * build.c
 *		CREATE INDEX: scan the table, build the graph in memory, pack it into
 *		pages, write them once.
 *
 * Nothing is WAL-logged while pages are written; the finished file is logged
 * as a whole. A crash before that leaves a file that no committed transaction
 * knows.
 */
#include "postgres.h"

#include "access/tableam.h"
#include "access/xloginsert.h"
#include "build/build.h"
#include "catalog/index.h"
#include "commands/progress.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "storage/lmgr.h"
#include "utils/rel.h"

#define BUILD_SEED UINT64CONST(0x76616d616e61)

typedef struct BuildState
{
	Relation	heap;
	Relation	index;
	IndexInfo  *index_info;
	PipeannCollection collection;
	PipeannMeta meta;
	PipeannGraphParams params;
	int			m;
	double		rows;			/* indexed so far */
	MemoryContext context;		/* of the collection */
	MemoryContext row_context;	/* reset for each row */
} BuildState;

static void
StartPhase(int phase, int64 total)
{
	const int	columns[] = {
		PROGRESS_CREATEIDX_SUBPHASE,
		PROGRESS_CREATEIDX_TUPLES_TOTAL,
		PROGRESS_CREATEIDX_TUPLES_DONE
	};
	const int64 values[] = {phase, total, 0};

	pgstat_progress_update_multi_param(3, columns, values);
}

static void
ShowProgress(uint32 done, void *arg)
{
	(void) arg;
	pgstat_progress_update_param(PROGRESS_CREATEIDX_TUPLES_DONE, done);
}

/*
 * The build is in memory even beyond maintenance_work_mem. Tell the user while
 * there is time to cancel.
 */
static void
NoticeMemory(BuildState *state)
{
	PipeannCollection *c = &state->collection;
	Size		limit = (Size) maintenance_work_mem * 1024;
	Size		need;

	if (c->noticed)
		return;
	need = add_size(PipeannCollectionMemory(c),
					PipeannGraphMemory(c->n, &state->params));
	if (need <= limit)
		return;
	c->noticed = true;
	ereport(NOTICE,
			(errmsg("pipeann index build needs more than maintenance_work_mem after %u vectors",
					c->n),
			 errdetail("The graph is built in memory as a whole; it will take about %zu kB for each 1000 vectors.",
					   need / Max(c->n / 1000, 1) / 1024),
			 errhint("Increase maintenance_work_mem, or cancel if the machine does not have the memory.")));
}

static void
AddRow(Relation index, ItemPointer tid, Datum *values, bool *isnull,
	   bool tuple_is_alive, void *arg)
{
	BuildState *state = arg;
	MemoryContext old;
	const float *x;
	double		norm;

	(void) index;
	(void) tuple_is_alive;
	if (isnull[0])
		return;
	if (state->collection.lost)
	{
		CHECK_FOR_INTERRUPTS();
		return;
	}
	old = MemoryContextSwitchTo(state->row_context);
	x = PipeannDatumElements(values[0], state->meta.layout.dim);
	norm = PipeannNorm(x, state->meta.layout.dim);
	MemoryContextSwitchTo(state->context);
	if (PipeannIsIndexable(state->meta.layout.metric, norm))
	{
		(void) PipeannCollectionAdd(&state->collection, x, norm, NULL,
									tid);
		state->rows++;
		pgstat_progress_update_param(PROGRESS_CREATEIDX_TUPLES_DONE,
									 (int64) state->rows);
		if (state->collection.n % 1024 == 0)
			NoticeMemory(state);
	}
	MemoryContextSwitchTo(old);
	MemoryContextReset(state->row_context);
}

/* Make the checks that can be made before the work starts. */
static void
InitBuild(BuildState *state, Relation heap, Relation index,
		  IndexInfo *index_info)
{
	const PipeannOptions *options = PipeannGetOptions(index);
	PipeannMetric metric = PipeannIndexMetric(index);
	int			dim = PipeannIndexDimensions(index);

	memset(state, 0, sizeof(*state));
	state->m = options->m == PIPEANN_AUTO_M ?
		Min(PIPEANN_DEFAULT_M, options->ef_construction / 2) : options->m;
	if (options->ef_construction < 2 * state->m)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("ef_construction must be greater than or equal to 2 * m")));
	state->heap = heap;
	state->index = index;
	state->index_info = index_info;
	state->context = CurrentMemoryContext;
	state->row_context = AllocSetContextCreate(CurrentMemoryContext,
											   "pipeann build row",
											   ALLOCSET_DEFAULT_SIZES);
	PipeannCollectionInit(&state->collection, dim, metric, options->storage,
						  true);
	PipeannMetaInit(&state->meta, index, state->collection.storage, state->m);
	state->params.max_degree = state->meta.layout.max_degree;
	state->params.ef_construction = options->ef_construction;
	state->params.alpha = PIPEANN_ALPHA;
	state->params.seed = BUILD_SEED;
}

static double
ScanOnce(BuildState *state)
{
	double		total = Max(state->heap->rd_rel->reltuples, 0);

	StartPhase(PIPEANN_PHASE_SCAN, (int64) total);
	return table_index_build_scan(state->heap, state->index,
								  state->index_info, true, true, AddRow, state,
								  NULL);
}

/*
 * If half precision turned out unfit when vectors had been rounded to it, scan
 * the table again to have them exact.
 */
static double
ScanTable(BuildState *state)
{
	PipeannCollection *c = &state->collection;
	double		rows = ScanOnce(state);

	if (c->lost)
	{
		int			dim = c->dim;
		PipeannMetric metric = c->metric;

		PipeannCollectionFree(c);
		PipeannCollectionInit(c, dim, metric, PIPEANN_STORAGE_AUTO, false);
		state->rows = 0;
		rows = ScanOnce(state);
	}
	PipeannCollectionFinish(c);
	return rows;
}

/* Build the graph and decide on the order of nodes in pages. */
static PipeannGraph *
BuildGraph(BuildState *state, const PipeannVectors *vectors, uint32 *order)
{
	PipeannGraph *graph;

	NoticeMemory(state);
	StartPhase(PIPEANN_PHASE_GRAPH, vectors->n);
	graph = PipeannGraphBuild(vectors, &state->params, ShowProgress, NULL);
	StartPhase(PIPEANN_PHASE_PACK, vectors->n);
	PipeannGraphPack(graph, vectors, state->meta.layout.fill, order,
					 ShowProgress, NULL);
	return graph;
}

/* A single node has no edges, so there is nothing to pack. */
static void
KeepOrder(uint32 n, uint32 *order)
{
	for (uint32 i = 0; i < n; i++)
		order[i] = i;
}

/* For m = 0, now that the vectors and their storage are known. */
static void
ChooseDegree(BuildState *state)
{
	const PipeannOptions *options = PipeannGetOptions(state->index);
	PipeannMeta *meta = &state->meta;
	PipeannDegree degree;

	if (options->m != PIPEANN_AUTO_M)
		return;
	state->m = PipeannChooseM(state->heap, &state->collection, &meta->layout,
							  Min(options->ef_construction / 2,
								  PIPEANN_MAX_M), &degree);
	PipeannMetaInit(meta, state->index, state->collection.storage, state->m);
	meta->degree = degree;
	state->params.max_degree = meta->layout.max_degree;
}

static void
WriteIndex(BuildState *state)
{
	PipeannCollection *c = &state->collection;
	PipeannNodes nodes;
	PipeannGraph *graph = NULL;
	uint32	   *order = PipeannAlloc(mul_size(Max(c->n, 1), sizeof(uint32)));
	PipeannMeta *meta = &state->meta;

	/* storage and degree were not known before */
	PipeannMetaInit(meta, state->index, c->storage, state->m);
	ChooseDegree(state);
	if (c->auto_storage)
		meta->flags |= PIPEANN_META_AUTO_STORAGE;
	meta->max_norm = (float) c->max_norm;

	PipeannCollectionVectors(c, &nodes.vectors);
	if (c->n > 1)
		graph = BuildGraph(state, &nodes.vectors, order);
	else
		KeepOrder(c->n, order);

	StartPhase(PIPEANN_PHASE_WRITE, c->n);
	PipeannWriteNodes(state->index, meta, c, &nodes, graph, order);
	pfree(order);
	if (graph != NULL)
		PipeannGraphFree(graph);
	if (c->n >= PIPEANN_MIN_CODED_NODES)
	{
		PipeannExtentMap map;

		PipeannCodingReserve(state->index, meta, meta->generation, nodes.ids);
		PipeannExtentMapLoad(state->index, meta, CurrentMemoryContext, &map);
		PipeannCodingWrite(state->index, meta, &map, &nodes);
		PipeannExtentMapFree(&map);
	}
	PipeannFreeReserve(state->index, meta->extents);
	PipeannWriteMeta(state->index, meta);
}

IndexBuildResult *
pipeannbuild(Relation heap, Relation index, IndexInfo *index_info)
{
	IndexBuildResult *result = palloc(sizeof(IndexBuildResult));
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext,
												  "pipeann build",
												  ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);
	BuildState	state;

	if (RelationGetNumberOfBlocks(index) != 0)
		elog(ERROR, "index \"%s\" already contains data",
			 RelationGetRelationName(index));
	PipeannCacheForget(index);

	InitBuild(&state, heap, index, index_info);
	result->heap_tuples = ScanTable(&state);
	WriteIndex(&state);
	result->index_tuples = state.rows;

	if (RelationNeedsWAL(index))
	{
		StartPhase(PIPEANN_PHASE_WAL, 0);
		log_newpage_range(index, MAIN_FORKNUM, 0,
						  RelationGetNumberOfBlocks(index), true);
	}
	MemoryContextSwitchTo(old);
	MemoryContextDelete(context);
	return result;
}

/* Write the init fork of an unlogged index. */
void
pipeannbuildempty(Relation index)
{
	PipeannMeta *meta = palloc0(sizeof(PipeannMeta));
	const PipeannOptions *options = PipeannGetOptions(index);
	Buffer		buffer;

	PipeannMetaInit(meta, index, options->storage == PIPEANN_STORAGE_AUTO ?
					PIPEANN_FLOAT4 : options->storage,
					options->m == PIPEANN_AUTO_M ?
					Min(PIPEANN_DEFAULT_M, options->ef_construction / 2) :
					options->m);
	if (options->m == PIPEANN_AUTO_M)
		meta->degree.reason = PIPEANN_DEGREE_FEW_ROWS;
	if (options->storage == PIPEANN_STORAGE_AUTO)
		meta->flags |= PIPEANN_META_AUTO_STORAGE;
	LockRelationForExtension(index, ExclusiveLock);
	buffer = ReadBufferExtended(index, INIT_FORKNUM, P_NEW, RBM_NORMAL, NULL);
	UnlockRelationForExtension(index, ExclusiveLock);
	LockBuffer(buffer, BUFFER_LOCK_EXCLUSIVE);
	START_CRIT_SECTION();
	PipeannMetaInitPage(BufferGetPage(buffer), meta);
	MarkBufferDirty(buffer);
	log_newpage_buffer(buffer, true);
	END_CRIT_SECTION();
	UnlockReleaseBuffer(buffer);
	pfree(meta);
}
