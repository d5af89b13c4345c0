/*
 * build.c
 *		CREATE INDEX: scan the table, build the graph, pack it into pages, write
 *		them once.
 *
 * All processes of the team run BuildProgram(). What one does alone the
 * leader does, while the others wait.
 *
 * Nothing is WAL-logged while pages are written; the finished file is logged
 * as a whole. A crash before that leaves a file that no committed transaction
 * knows.
 */
#include "postgres.h"

#include "access/tableam.h"
#include "access/xloginsert.h"
#include "base/parallel.h"
#include "build/build.h"
#include "build/coding.h"
#include "build/rows.h"
#include "catalog/index.h"
#include "commands/progress.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "storage/lmgr.h"
#include "utils/rel.h"

/* Phases, as pg_stat_progress_create_index and the metapage have them. */
#define PHASE_SCAN 2
#define PHASE_TRAIN 3
#define PHASE_GRAPH 4
#define PHASE_PACK 5
#define PHASE_WRITE 6
#define PHASE_WAL 7
#define PHASE_ENTRY 8
#define PHASE_LOAD 9

StaticAssertDecl(PHASE_LOAD < PIPEANN_BUILD_PHASES,
				 "a phase has no place in the metapage");

#define BUILD_SEED UINT64CONST(0x76616d616e61)

/* What the leader decides and the others need to know. */
typedef struct Decisions
{
	PipeannMeta meta;
	uint32		ids;
} Decisions;

typedef struct BuildState
{
	PipeannParallel *parallel;
	PipeannTeam *team;
	Relation	heap;
	Relation	index;
	Decisions  *decisions;		/* shared */
	PipeannSpool spool;
	PipeannNodes nodes;
	PipeannMeta meta;
	PipeannGraphParams params;
	int			m;

	PipeannBuilt built;			/* the leader's */

	/* progress of the leader's phase */
	int			phase;			/* 0: none */
	instr_time	phase_start;
	uint32		first_step;		/* of the team in this phase */
	uint32		steps;			/* that it has */
	uint64		total;
	uint64		shown;
} BuildState;

static const char *const phase_names[PIPEANN_BUILD_PHASES] = {
	[PROGRESS_CREATEIDX_SUBPHASE_INITIALIZE] = "initializing",
	[PHASE_SCAN] = "scanning table",
	[PHASE_LOAD] = "grouping vectors",
	[PHASE_TRAIN] = "training codes",
	[PHASE_GRAPH] = "building graph",
	[PHASE_PACK] = "packing pages",
	[PHASE_WRITE] = "writing pages",
	[PHASE_ENTRY] = "building entry graph",
	[PHASE_WAL] = "writing WAL"
};

const char *
PipeannPhaseName(int64 phase)
{
	return phase >= 0 && phase < PIPEANN_BUILD_PHASES ? phase_names[phase] :
		NULL;
}

/* Log and keep how long the present phase has taken. */
static void
EndPhase(BuildState *state)
{
	instr_time	now;

	if (state->phase == 0)
		return;
	INSTR_TIME_SET_CURRENT(now);
	INSTR_TIME_SUBTRACT(now, state->phase_start);
	ereport(DEBUG1,
			(errmsg_internal("pipeann index \"%s\": %s took %.3f s",
							 RelationGetRelationName(state->index),
							 PipeannPhaseName(state->phase),
							 INSTR_TIME_GET_DOUBLE(now))));
	state->built.ms[state->phase] = (uint32) INSTR_TIME_GET_MILLISEC(now);
	state->phase = 0;
}

/*
 * Begin a phase over so many tuples, which takes the team so many steps. Only
 * the leader's progress is seen.
 */
static void
StartPhase(BuildState *state, int phase, uint64 total, uint32 steps)
{
	const int	columns[] = {
		PROGRESS_CREATEIDX_SUBPHASE,
		PROGRESS_CREATEIDX_TUPLES_TOTAL,
		PROGRESS_CREATEIDX_TUPLES_DONE
	};
	const int64 values[] = {phase, (int64) total, 0};

	if (!PipeannTeamLeads(state->team))
		return;
	EndPhase(state);
	pgstat_progress_update_multi_param(3, columns, values);
	state->phase = phase;
	INSTR_TIME_SET_CURRENT(state->phase_start);
	state->first_step = state->team->steps;
	state->steps = Max(steps, 1);
	state->total = total;
	state->shown = 0;
}

/*
 * Each step is an equal part of the phase. There may be a step more than was
 * expected, of small arrays.
 */
static void
ShowProgress(uint64 done, uint64 n, void *arg)
{
	BuildState *state = arg;
	uint32		step = state->team->steps - state->first_step;
	double		part = n > 0 ? (double) done / n : 1;

	/* what the leader does alone is not a step of the team */
	step = Min(Max(step, 1), state->steps) - 1;
	state->shown = Max(state->shown, (uint64) ((step + part) / state->steps *
											   state->total));
	pgstat_progress_update_param(PROGRESS_CREATEIDX_TUPLES_DONE,
								 (int64) state->shown);
}

/* ---------- rows ---------- */

static void
AddRow(Relation index, ItemPointer tid, Datum *values, bool *isnull,
	   bool tuple_is_alive, void *arg)
{
	BuildState *state = arg;

	(void) index;
	(void) tuple_is_alive;
	if (isnull[state->spool.columns.vector] ||
		!PipeannSpoolAdd(&state->spool, values, isnull, tid))
	{
		state->spool.stats.left_out = true;
		return;
	}
	if (PipeannTeamLeads(state->team))
		pgstat_progress_update_param(PROGRESS_CREATEIDX_TUPLES_DONE,
									 (int64) state->spool.stats.rows);
}

/* Each member scans a part of the table. */
static void
ScanTable(BuildState *state)
{
	PipeannParallel *p = state->parallel;
	TableScanDesc scan = table_beginscan_parallel(state->heap, p->scan);

	StartPhase(state, PHASE_SCAN,
			   (uint64) Max(state->heap->rd_rel->reltuples, 0), 1);
	PipeannSpoolInit(state->team, &state->spool,
					 PipeannIndexColumns(state->index),
					 PipeannIndexDimensions(state->index),
					 PipeannIndexMetric(state->index),
					 PipeannGetOptions(state->index)->storage, p->nblocks);
	state->spool.stats.heap_tuples =
		table_index_build_scan(state->heap, state->index, p->index_info, true,
							   PipeannTeamLeads(state->team), AddRow, state,
							   scan);
	state->spool.stats.broken_hot_chain = p->index_info->ii_BrokenHotChain;
	PipeannSpoolFinish(state->team, &state->spool);
	/* the server looks at the leader's when the index is built */
	p->index_info->ii_BrokenHotChain = state->spool.stats.broken_hot_chain;
	p->heap_tuples = state->spool.stats.heap_tuples;
	p->index_tuples = (double) state->spool.stats.rows;
}

/*
 * A guess at the memory that all of the build needs, before storage and number
 * of nodes are known.
 */
static Size
MemoryForRows(const BuildState *state)
{
	const PipeannSpool *s = &state->spool;
	PipeannStorage storage = s->stats.fits[PIPEANN_UINT8] ? PIPEANN_UINT8 :
		s->stats.fits[PIPEANN_FLOAT2] ? PIPEANN_FLOAT2 : PIPEANN_FLOAT4;
	PipeannVectors v = {
		.dim = s->source.dim,.metric = s->source.metric
	};
	PipeannGraphParams params = state->params;
	Size		row = v.dim * PipeannElementSize(storage) +
		sizeof(ItemPointerData) + sizeof(PipeannRounding) +
		2 * sizeof(uint32);

	params.max_degree = state->meta.layout.max_degree;
	if (s->columns.values != NULL)
		row += 2 * sizeof(uint64);
	return add_size(add_size(mul_size(s->stats.rows, row),
							 s->stats.sizes.bytes),
					PipeannGraphMemory((uint32) s->stats.rows, &params, &v));
}

/*
 * Rows become nodes, with numbers by which near ones follow one another; the spool
 * and what was known of rows goes. Returns the first partition of the nodes.
 */
static PipeannClusters *
MakeNodes(BuildState *state)
{
	PipeannTeam *team = state->team;
	PipeannClusters *clusters;
	PipeannRows rows;

	StartPhase(state, PHASE_LOAD, state->spool.stats.rows, 3);
	state->parallel->shares.short_of =
		!PipeannTeamFits(team, MemoryForRows(state));
	PipeannRowsLoad(team, &state->spool.source, &rows);
	PipeannSpoolFree(team, &state->spool);
	clusters = PipeannClustersNew(team, &rows.vectors, rows.again, BUILD_SEED,
								  rows.number);
	PipeannRowsToNodes(team, &rows, &state->nodes);
	PipeannRowsFree(team, &rows);
	return clusters;
}

/* ---------- the metapage ---------- */

/* The bytes wanted for rows with values. */
static int
RowBytes(Relation index, const PipeannLayout *l, const PipeannRowSizes *sizes)
{
	PipeannRowSizes *expected;

	if (!PipeannIndexHasValues(index))
		return 0;
	if (sizes != NULL && sizes->rows > 0)
		return PipeannLayoutRowBytes(l, sizes);
	expected = palloc0(sizeof(PipeannRowSizes));
	PipeannRowSizesAdd(expected,
					   PipeannExpectedRowBytes(PipeannIndexColumns(index).values));
	return PipeannLayoutRowBytes(l, expected);
}

/*
 * The metapage of an empty index by its options, except for m. sizes are those
 * of rows with values that it will have; NULL: as their types let expect.
 */
static void
MetaInit(PipeannMeta *meta, Relation index, PipeannStorage storage, int m,
		 const PipeannRowSizes *sizes)
{
	const PipeannOptions *options = PipeannGetOptions(index);
	PipeannLayout wanted = {
		.dim = PipeannIndexDimensions(index),
		.metric = PipeannIndexMetric(index),
		.storage = storage,
		.max_degree = 2 * m,
		.pq_bytes = options->pq_bytes
	};
	PipeannLayout *l = &meta->layout;
	PipeannAttributes *attributes;

	memset(meta, 0, sizeof(*meta));
	meta->magic = PIPEANN_MAGIC;
	meta->format = PIPEANN_FORMAT;
	PipeannLayoutInit(l, &wanted, options->fillfactor);
	if (PipeannIndexHasValues(index))
	{
		meta->format = PIPEANN_FORMAT_VALUES;
		wanted.row_bytes = RowBytes(index, l, sizes);
		PipeannLayoutInit(l, &wanted, options->fillfactor);
		attributes = PipeannAttributesDescribe(index, PIPEANN_FORMAT_CLASSES,
											   NULL);
		l->attr_bytes = PipeannAttributesChoose(attributes, NULL, NULL, 0,
												&meta->widths);
		if (l->attr_bytes > 0)
			meta->format = PipeannAttributesDiffer(attributes) ?
				PIPEANN_FORMAT_CLASSES : PIPEANN_FORMAT_ATTRIBUTES;
	}
	if (options->storage != PIPEANN_INT8 && options->storage != PIPEANN_UINT8)
		meta->flags |= PIPEANN_META_SIGNED_ZEROS;
	meta->m = m;
	meta->ef_construction = options->ef_construction;
	PipeannNewBuildId(meta);

	/* the first extent holds graph pages behind the metapage */
	meta->extents = 1;
	meta->kind_extents[PIPEANN_GRAPH] = 1;
	meta->map[0] = PIPEANN_EXTENT_ENTRY(PIPEANN_GRAPH, 0);
}

/* Write block 0. Not WAL-logged. */
static void
WriteMeta(Relation index, const PipeannMeta *meta)
{
	Buffer		buffer = PipeannGetBlock(index, PIPEANN_METAPAGE);

	PipeannMetaInitPage(BufferGetPage(buffer), meta);
	MarkBufferDirty(buffer);
	UnlockReleaseBuffer(buffer);
}

/* ---------- graph ---------- */

/* For m = 0, now that the vectors and their storage are known. */
static void
ChooseDegree(BuildState *state)
{
	const PipeannOptions *options = PipeannGetOptions(state->index);
	const PipeannVectors *v = &state->nodes.vectors;
	PipeannMeta *meta = &state->meta;
	PipeannDegree degree;

	if (options->m != PIPEANN_AUTO_M)
		return;
	state->m = PipeannChooseM(state->heap, v->data, v->n, &meta->layout,
							  Min(options->ef_construction / 2,
								  PIPEANN_MAX_M), &degree);
	MetaInit(meta, state->index, v->storage, state->m,
					&state->spool.stats.sizes);
	meta->degree = degree;
}

/* The others get the metapage as the leader has it now. */
static void
ShareMeta(BuildState *state)
{
	if (PipeannTeamLeads(state->team))
		state->decisions->meta = state->meta;
	PipeannTeamMeet(state->team);
	state->meta = state->decisions->meta;
}

static void
DecideLayout(BuildState *state)
{
	const PipeannVectors *v = &state->nodes.vectors;
	PipeannMeta *meta = &state->meta;

	if (PipeannTeamLeads(state->team))
	{
		MetaInit(meta, state->index, v->storage, state->m,
						&state->spool.stats.sizes);
		ChooseDegree(state);
		PipeannChooseWidths(state->index, meta->format, &state->nodes,
							&meta->layout, &meta->widths);
		if (state->spool.source.wanted == PIPEANN_STORAGE_AUTO)
			meta->flags |= PIPEANN_META_AUTO_STORAGE;
		if (!state->spool.stats.left_out)
			meta->flags |= PIPEANN_META_ALL_ROWS;
		if (state->spool.stats.negative_zeros &&
			(v->storage == PIPEANN_INT8 || v->storage == PIPEANN_UINT8))
			meta->flags &= ~PIPEANN_META_SIGNED_ZEROS;
		meta->max_norm = v->max_norm;
	}
	ShareMeta(state);
	state->params.max_degree = meta->layout.max_degree;
}

static PipeannGraph *
BuildGraph(BuildState *state, const PipeannClusters *clusters)
{
	if (state->nodes.vectors.n < 2)
		return NULL;
	StartPhase(state, PHASE_GRAPH, state->nodes.vectors.n,
			   PIPEANN_GRAPH_STEPS);
	return PipeannGraphBuild(state->team, &state->nodes.vectors, clusters,
							 &state->params);
}

/*
 * The leader decides on the order of nodes in pages; all write these. A single node
 * has no edges, so there is nothing to pack: order is zeroed.
 */
static void
PackAndWrite(BuildState *state, PipeannGraph *graph)
{
	PipeannNodes *nodes = &state->nodes;
	uint32		n = nodes->vectors.n;
	uint32	   *order = PipeannTeamAlloc(state->team,
										 mul_size(n, sizeof(uint32)));

	if (PipeannTeamLeads(state->team))
	{
		StartPhase(state, PHASE_PACK, n, 1);
		if (graph != NULL)
			PipeannGraphPack(graph, &nodes->vectors,
							 state->meta.layout.fill, order, state->team);
		state->decisions->ids = PipeannReserveNodes(state->index,
													&state->meta, nodes);
	}
	ShareMeta(state);
	StartPhase(state, PHASE_WRITE, n, 1);
	PipeannNodesInit(state->team, nodes, state->decisions->ids);
	PipeannWriteNodes(state->team, state->index, &state->meta, nodes, graph,
					  order);
	PipeannTeamFree(state->team, order);
}

/* The first generation of codes. */
static void
MakeCodes(BuildState *state)
{
	PipeannTeam *team = state->team;
	PipeannMeta *meta = &state->meta;
	const PipeannNodes *nodes = &state->nodes;
	uint32		n = nodes->vectors.n;
	PipeannExtentMap map = {0};
	PipeannCoding coding;

	if (n < PIPEANN_MIN_CODED_NODES)
		return;
	PipeannCodingBegin(&coding, state->index, meta, &meta->layout,
					   meta->generation);
	coding.wal = false;
	if (PipeannTeamLeads(team))
	{
		PipeannCodingReserve(&coding, meta, nodes->ids);
		PipeannExtentMapLoad(state->index, meta, CurrentMemoryContext, &map);
	}
	StartPhase(state, PHASE_TRAIN, n,
			   PipeannCodeSteps(&meta->layout, nodes->ids));
	PipeannCodingTrainOn(team, &coding, nodes);
	if (PipeannTeamLeads(team))
		PipeannCodebookWrite(&coding, &map);
	PipeannCodesWrite(team, &coding, &map, nodes);
	StartPhase(state, PHASE_ENTRY, PipeannEntryCount(n), PIPEANN_ENTRY_STEPS);
	PipeannEntriesWrite(team, &coding, meta, &map, nodes, meta->root);
	PipeannCodingPublish(&coding, meta, n);
	PipeannCodingFree(team, &coding);
	if (PipeannTeamLeads(team))
		PipeannExtentMapFree(&map);
}

/* ---------- the whole ---------- */

static void
InitBuild(BuildState *state, PipeannParallel *p)
{
	const PipeannOptions *options = PipeannGetOptions(p->index);

	memset(state, 0, sizeof(*state));
	state->parallel = p;
	state->team = &p->team;
	state->heap = p->heap;
	state->index = p->index;
	state->m = PipeannInitialM(options);
	state->params.ef_construction = options->ef_construction;
	state->params.alpha = PIPEANN_ALPHA;
	state->params.seed = BUILD_SEED;
	if (PipeannTeamLeads(state->team))
	{
		state->team->progress = ShowProgress;
		state->team->progress_arg = state;
	}
	state->decisions = PipeannTeamAlloc(state->team, sizeof(Decisions));
	MetaInit(&state->meta, state->index, PIPEANN_FLOAT4, state->m, NULL);
}

/*
 * The leader's last steps. The metapage tells how long all others took, so it
 * is written and logged when they are done.
 */
static void
FinishIndex(BuildState *state)
{
	Relation	index = state->index;

	PipeannFreeReserve(index, state->meta.extents);
	if (RelationNeedsWAL(index))
	{
		StartPhase(state, PHASE_WAL, 0, 1);
		log_newpage_range(index, MAIN_FORKNUM, PIPEANN_METAPAGE + 1,
						  RelationGetNumberOfBlocks(index), true);
	}
	EndPhase(state);
	state->built.processes = state->team->members;
	state->meta.built = state->built;
	WriteMeta(index, &state->meta);
	if (RelationNeedsWAL(index))
		log_newpage_range(index, MAIN_FORKNUM, PIPEANN_METAPAGE,
						  PIPEANN_METAPAGE + 1, true);
	if (state->meta.flags & PIPEANN_META_HAS_CODES)
		PipeannCacheWarn(index, &state->meta);
}

/* What each member of the team does. */
static void
BuildProgram(PipeannParallel *p)
{
	PipeannClusters *clusters;
	PipeannGraph *graph;
	BuildState	state;

	InitBuild(&state, p);
	ScanTable(&state);
	clusters = MakeNodes(&state);
	DecideLayout(&state);
	graph = BuildGraph(&state, clusters);
	PipeannClustersFree(state.team, clusters);
	PackAndWrite(&state, graph);
	if (graph != NULL)
		PipeannGraphFree(state.team, graph);
	MakeCodes(&state);
	if (PipeannTeamLeads(state.team))
		FinishIndex(&state);
	state.team->progress = NULL;
}

/* What a parallel worker does; the server finds it by its name. */
void
PipeannParallelWorker(dsm_segment *seg, shm_toc *toc)
{
	PipeannParallel *p = palloc(sizeof(PipeannParallel));

	PipeannParallelJoin(p, seg, toc);
	BuildProgram(p);
	PipeannParallelLeave(p);
}

IndexBuildResult *
pipeannbuild(Relation heap, Relation index, IndexInfo *index_info)
{
	IndexBuildResult *result = palloc(sizeof(IndexBuildResult));
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext,
												  "pipeann build",
												  ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);
	PipeannParallel *p = palloc(sizeof(PipeannParallel));

	if (RelationGetNumberOfBlocks(index) != 0)
		elog(ERROR, "index \"%s\" already contains data",
			 RelationGetRelationName(index));
	PipeannCacheForget(index);

	/* what can be checked before the work starts */
	PipeannCheckColumns(index);
	PipeannCheckOptions(PipeannGetOptions(index));
	(void) PipeannIndexMetric(index);
	(void) PipeannIndexDimensions(index);
	PipeannParallelBegin(p, heap, index, index_info);
	BuildProgram(p);
	PipeannParallelEnd(p);
	result->heap_tuples = p->heap_tuples;
	result->index_tuples = p->index_tuples;

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

	PipeannCheckColumns(index);
	MetaInit(meta, index, options->storage == PIPEANN_STORAGE_AUTO ?
					PIPEANN_FLOAT4 : options->storage,
					PipeannInitialM(options), NULL);
	if (options->m == PIPEANN_AUTO_M)
		meta->degree.reason = PIPEANN_DEGREE_FEW_ROWS;
	if (options->storage == PIPEANN_STORAGE_AUTO)
		meta->flags |= PIPEANN_META_AUTO_STORAGE;
	meta->flags |= PIPEANN_META_ALL_ROWS;
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
