/*
 * build.c
 *		CREATE INDEX: scan the table, build the graph, pack it into pages,
 *		write them once; and an estimate of what that takes.
 *
 * All processes of the team run BuildProgram(). What only one may do the
 * leader does, while the others wait.
 *
 * Nothing is WAL-logged while pages are written; the finished file is logged as a whole.
 * A crash before that leaves a file that no committed transaction knows.
 */
#include "postgres.h"

#include "access/tableam.h"
#include "access/xloginsert.h"
#include "base/metric.h"
#include "base/parallel.h"
#include "base/pause.h"
#include "build/internal.h"
#include "catalog/index.h"
#include "catalog/pg_type_d.h"
#include "commands/progress.h"
#include "distance/sparse.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "recall/recall.h"
#include "storage/lmgr.h"
#include "storage/proc.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"

/* ---------- options and columns ---------- */

/* Errors if options exclude each other. */
static void
CheckOptions(const PipeannOptions *options)
{
	if (options->ef_construction < 2 * PipeannInitialM(options))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("ef_construction must be greater than or equal to 2 * m")));
}

/* Errors if the key columns are not one vector and a few others. */
static void
CheckColumns(Relation index)
{
	int			n = IndexRelationGetNumberOfKeyAttributes(index);

	for (int i = PipeannVectorPosition(index) + 1; i < n; i++)
		if (PipeannTypeOf(index->rd_opcintype[i]) != PIPEANN_NUM_TYPES)
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("pipeann index \"%s\" has more than one vector among its key columns",
							RelationGetRelationName(index)),
					 errhint("Make an index for each.")));
	if (n - 1 > PIPEANN_MAX_FILTER_COLUMNS)
		ereport(ERROR,
				(errcode(ERRCODE_TOO_MANY_COLUMNS),
				 errmsg("cannot use more than %d key columns besides the vector in a pipeann index",
						PIPEANN_MAX_FILTER_COLUMNS)));
	/* its operators take bit varying for bit, but its values vary in length */
	if (TupleDescAttr(RelationGetDescr(index),
					  PipeannVectorPosition(index))->atttypid == VARBITOID)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("type not supported for pipeann index"),
				 errhint("Cast it to a bit of a length in the index expression.")));
}

/* ---------- phases ---------- */

/* Phases, as numbered in pg_stat_progress_create_index and the metapage. */
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

typedef struct BuildState
{
	PipeannParallel *parallel;
	PipeannTeam *team;
	Relation	heap;
	Relation	index;
	PipeannMeta *decided;		/* shared: the leader's version of the metapage */
	PipeannSpool spool;
	PipeannNodes nodes;
	PipeannMeta meta;
	PipeannGraphParams params;
	int			m;

	PipeannBuilt built;			/* the leader's */

	/* progress of the phase, as the leader reports it */
	int			phase;			/* 0: none */
	instr_time	phase_start;
	uint32		first_step;		/* of the team in this phase */
	uint32		steps;			/* of the team in the whole phase */
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

/* Log and record how long the phase has taken. */
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
 * Begin a phase over a number of tuples, which takes the team a number of steps. Only
 * the leader's progress is reported.
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
 * Each step counts as an equal part of the phase. Small arrays may take a step
 * more than was expected.
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

/* The layout that an index's columns and options ask for. */
static PipeannLayout
IndexLayout(Relation index)
{
	return (PipeannLayout) {
		.dim = PipeannIndexLayoutDim(index),.type = PipeannIndexType(index),
		.metric = PipeannIndexMetric(index),
		.storage = PipeannStorageOf(PipeannIndexType(index), PipeannIndexOptions(index)->storage)
	};
}

/* Each member scans a part of the table. */
static void
ScanTable(BuildState *state)
{
	PipeannParallel *p = state->parallel;
	TableScanDesc scan = table_beginscan_parallel(state->heap, p->scan);

	StartPhase(state, PHASE_SCAN,
			   (uint64) Max(state->heap->rd_rel->reltuples, 0), 1);
	PipeannSpoolInit(state->team, &state->spool, PipeannIndexColumns(state->index),
					 IndexLayout(state->index), p->nblocks);
	state->spool.stats.heap_tuples =
		table_index_build_scan(state->heap, state->index, p->index_info, true,
							   PipeannTeamLeads(state->team), AddRow, state,
							   scan);
	state->spool.stats.broken_hot_chain = p->index_info->ii_BrokenHotChain;
	PipeannSpoolFinish(state->team, &state->spool);
	/* the server looks at the leader's index_info when the index is built */
	p->index_info->ii_BrokenHotChain = state->spool.stats.broken_hot_chain;
	p->heap_tuples = state->spool.stats.heap_tuples;
	p->index_tuples = (double) state->spool.stats.rows;
}

/*
 * A guess at the memory that the whole build needs, before storage and number
 * of nodes are known.
 */
static Size
MemoryForRows(const BuildState *state)
{
	const PipeannSpool *s = &state->spool;
	PipeannStorage storage = PipeannIsSparse(s->whole) ||
		s->wanted == s->whole ? s->wanted : s->stats.fits[PIPEANN_UINT8] ? PIPEANN_UINT8 :
		s->stats.fits[PIPEANN_FLOAT2] ? PIPEANN_FLOAT2 : PIPEANN_FLOAT4;
	PipeannVectors v = {
		.dim = s->dim,.storage = storage,.metric = s->metric
	};
	PipeannGraphParams params = state->params;
	Size		row = PipeannVectorBytes(storage, v.dim) +
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
 * Make nodes of the rows, numbered so that near ones have near numbers, and free the
 * spool and the rows. Returns the first partition of the nodes.
 */
static PipeannClusters *
MakeNodes(BuildState *state)
{
	PipeannTeam *team = state->team;
	PipeannRows rows;
	PipeannVectors like = {
		.n = (uint32) state->spool.stats.rows,.dim = state->spool.dim,
		.storage = state->spool.whole,.metric = state->spool.metric
	};
	Size		reduced;

	(void) PipeannReduceMemory(&like, &reduced);
	StartPhase(state, PHASE_LOAD, state->spool.stats.rows,
			   reduced > 0 ? 3 + PIPEANN_REDUCE_STEPS : 3);
	state->parallel->shares.short_of =
		!PipeannTeamFits(team, MemoryForRows(state));
	state->spool.rounding =
		PipeannLayoutRounding(&state->meta.layout, &state->spool.stats.sizes);
	PipeannRowsLoad(team, &state->spool, &rows);
	return PipeannRowsToNodes(team, &rows, &state->nodes);
}

/* ---------- the metapage ---------- */

/* Errors if the user's storage does not suit the vectors: some storages rotate them. */
static void
CheckStorage(PipeannStorage storage, PipeannType type, int dim,
			 PipeannMetric metric)
{
	int			bits = PipeannSqBits(storage);

	if (PipeannTypes[type].one_storage && storage != PIPEANN_STORAGE_AUTO)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("storage of type %s cannot be chosen",
						PipeannTypes[type].name)));
	if (bits > 0 && metric == PIPEANN_L1)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("storage \"sq%d\" does not support Manhattan distance", bits)));
	if (bits > 0 && !PipeannSqSuits(dim))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("storage \"sq%d\" does not support vectors of %d dimensions",
						bits, dim),
				 errdetail("It needs a multiple of 16 from %d to %d.",
						   PIPEANN_SQ_MIN_DIM, PIPEANN_SQ_MAX_DIM)));
}

/* The layout for rows with values of these sizes; NULL: they have no values. */
static void
MakeLayout(PipeannLayout *l, PipeannLayout wanted,
		   const PipeannOptions *options, const PipeannRowSizes *sizes)
{
	wanted.pq_bytes = options->pq_bytes;
	PipeannLayoutInit(l, &wanted, options->fillfactor);
	if (sizes == NULL)
		return;
	wanted.row_bytes = PipeannLayoutRowBytes(l, sizes);
	PipeannLayoutInit(l, &wanted, options->fillfactor);
}

/* Without rows: take one of the size to be expected by the columns' types. */
static void
ExpectRows(PipeannRowSizes *sizes, TupleDesc values)
{
	Size		size = sizeof(IndexTupleData);

	if (values == NULL || sizes->rows > 0)
		return;
	for (int i = 0; i < values->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(values, i);

		size = att_align_nominal(size, att->attalign);
		size += att->attlen > 0 ? att->attlen :
			get_typavgwidth(att->atttypid, att->atttypmod);
	}
	PipeannRowSizesAdd(sizes, (uint32) Min(size, (Size) PIPEANN_ROW_SIZE));
}

/*
 * Set up the metapage of an empty index by its options, except m. sizes are
 * those of the rows with values that it will have, or NULL.
 */
static void
MetaInit(PipeannMeta *meta, Relation index, PipeannStorage storage, int m,
		 PipeannRowSizes *sizes)
{
	const PipeannOptions *options = PipeannIndexOptions(index);
	bool		has_values = PipeannIndexHasValues(index);
	PipeannLayout *l = &meta->layout;
	PipeannLayout wanted = IndexLayout(index);

	if (!PipeannIsMetricOf(wanted.metric, wanted.type))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_OBJECT_DEFINITION),
				 errmsg("an index on %s cannot be by %s distance",
						PipeannTypes[wanted.type].name,
						PipeannMetrics[wanted.metric].name)));
	CheckStorage(options->storage, wanted.type, wanted.dim, wanted.metric);
	memset(meta, 0, sizeof(*meta));
	meta->magic = PIPEANN_MAGIC;
	if (!pg_strong_random(&meta->build_id, sizeof(meta->build_id)))
		ereport(ERROR,
				(errcode(ERRCODE_INTERNAL_ERROR),
				 errmsg("could not generate a random number")));
	meta->build_id &= ~PIPEANN_GENERATIONS;
	ExpectRows(sizes, PipeannIndexColumns(index).values);
	wanted.storage = storage;
	wanted.max_degree = 2 * m;
	MakeLayout(l, wanted, options, has_values ? sizes : NULL);
	if (has_values)
		PipeannSetAttributeBytes(l, PipeannAttributesChoose(PipeannAttributesDescribe(index, NULL),
															NULL, NULL, 0, &meta->widths));
	if (PipeannIsSparse(storage))
		meta->flags |= PIPEANN_META_AUTO_STORAGE;
}

/* ---------- graph ---------- */

/* Give the other members the leader's metapage. */
static void
ShareMeta(BuildState *state)
{
	if (PipeannTeamLeads(state->team))
		*state->decided = state->meta;
	PipeannTeamMeet(state->team);
	state->meta = *state->decided;
}

static void
DecideLayout(BuildState *state)
{
	const PipeannVectors *v = &state->nodes.vectors;
	PipeannMeta *meta = &state->meta;

	if (PipeannTeamLeads(state->team))
	{
		const PipeannOptions *options = PipeannIndexOptions(state->index);
		PipeannDegree degree;

		MetaInit(meta, state->index, v->storage, state->m,
				 &state->spool.stats.sizes);
		if (options->m == PIPEANN_AUTO_M)
		{
			state->m = PipeannChooseM(state->heap, v->data, v->n, &meta->layout,
									  Min(options->ef_construction / 2,
										  PIPEANN_MAX_M), &degree);
			MetaInit(meta, state->index, v->storage, state->m,
					 &state->spool.stats.sizes);
			meta->degree = degree;
		}
		PipeannChooseWidths(state->index, &state->nodes, &meta->layout,
							&meta->widths);
		if (state->spool.wanted == PIPEANN_STORAGE_AUTO)
			meta->flags |= PIPEANN_META_AUTO_STORAGE;
		if (!state->spool.stats.left_out)
			meta->flags |= PIPEANN_META_ALL_ROWS;
		meta->max_norm = v->max_norm;
	}
	ShareMeta(state);
	state->params.max_degree = meta->layout.max_degree;
}

/*
 * The leader decides which node goes to which slot; all members write pages. A
 * single node has no edges, so there is nothing to pack: order is zeroed.
 */
static void
PackAndWrite(BuildState *state, PipeannGraph *graph)
{
	PipeannNodes *nodes = &state->nodes;
	uint32		n = nodes->vectors.n;
	uint32	   *order = PipeannTeamArray(state->team, uint32, n);

	if (PipeannTeamLeads(state->team))
	{
		StartPhase(state, PHASE_PACK, n, 1);
		if (graph != NULL)
			PipeannGraphPack(graph, &nodes->near, state->meta.layout.fill, order,
							 state->team);
		PipeannReserveNodes(&state->meta, nodes);
	}
	ShareMeta(state);
	StartPhase(state, PHASE_WRITE, n, 1);
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
	PipeannCoding *coding;

	if (n < PIPEANN_MIN_CODED_NODES)
		return;
	StartPhase(state, PHASE_TRAIN, n,
			   PIPEANN_CODE_STEPS(PipeannCodePages(&meta->layout, nodes->ids)));
	coding = PipeannMakeCodes(team, state->index, meta, nodes);
	StartPhase(state, PHASE_ENTRY, PipeannEntryCount(n), PIPEANN_ENTRY_STEPS);
	PipeannMakeEntries(team, coding, nodes, meta);
}

/* ---------- the whole ---------- */

/*
 * Memory for all nodes, and the largest of: a second copy of the nodes in the order
 * of their clusters; what the graph is made from; and its lists with samples for the
 * codebook. What phases really take differs from this by a few per cent.
 */
static Size
MemoryOnePass(const PipeannMeta *meta, const PipeannGraphParams *params,
			  double values)
{
	const PipeannLayout *l = &meta->layout;
	uint32		n = (uint32) meta->nodes;
	uint32		ids = meta->graph_pages * l->slots_per_page;
	Size		node = PipeannVectorBytes(l->storage, l->dim) + sizeof(ItemPointerData) +
		(PipeannIsRounded(l) ? sizeof(PipeannRounding) : 0) + PipeannClusterMemory() +
		3 * sizeof(uint32);
	PipeannVectors vectors = PipeannVectorsLike(l, n);
	Size		most = PipeannGraphMemory(n, params, &vectors);
	Size		reduced;

	(void) PipeannReduceMemory(&vectors, &reduced);
	node += reduced;
	most = Max(most, mul_size(n, node));
	if (meta->flags & PIPEANN_META_HAS_CODES)
		most = Max(most, add_size(mul_size(n, (l->max_degree + 2) * sizeof(uint32)),
								  PipeannCodingMemory(l, n, ids)));
	/* rows with values and their places stay from beginning to end */
	if (values > 0)
		node += (Size) values + 2 * sizeof(uint64);
	return add_size(mul_size(n, node), most);
}

/*
 * The leader's last steps. The metapage records how long the phases took, so
 * it is written and logged after them.
 */
static void
FinishIndex(BuildState *state)
{
	Relation	index = state->index;
	const PipeannShares *shares = &state->parallel->shares;
	const PipeannRowSizes *sizes = &state->spool.stats.sizes;
	Size		needed = MemoryOnePass(&state->meta, &state->params,
									   (double) sizes->bytes / Max(sizes->rows, 1));
	Buffer		buffer;

	PipeannFreeReserve(index, &state->meta);
	if (RelationNeedsWAL(index))
	{
		StartPhase(state, PHASE_WAL, 0, 1);
		log_newpage_range(index, MAIN_FORKNUM, PIPEANN_METAPAGE + 1,
						  RelationGetNumberOfBlocks(index), true);
	}
	EndPhase(state);
	state->built.processes = state->team->members;
	state->meta.built = state->built;
	buffer = PipeannGetBlock(index, PIPEANN_METAPAGE, RBM_NORMAL);
	PipeannMetaInitPage(BufferGetPage(buffer), &state->meta);
	MarkBufferDirty(buffer);
	UnlockReleaseBuffer(buffer);
	if (RelationNeedsWAL(index))
		log_newpage_range(index, MAIN_FORKNUM, PIPEANN_METAPAGE,
						  PIPEANN_METAPAGE + 1, true);
	if (state->meta.flags & PIPEANN_META_HAS_CODES)
		PipeannCacheWarn(index, &state->meta);
	if (PipeannIndexOptions(index)->pq_bytes > state->meta.layout.pq_bytes)
		ereport(NOTICE,
				(errmsg("codes have %d bytes, as vectors have no more elements",
						state->meta.layout.pq_bytes)));
	if (shares->noticed && needed > shares->limit)
		ereport(NOTICE,
				(errmsg("a build without temporary files takes %zu MB of maintenance_work_mem",
						needed / (1024 * 1024) + 1)));
}

/* What each member of the team does. */
static void
BuildProgram(PipeannParallel *p)
{
	PipeannClusters *clusters;
	PipeannGraph *graph = NULL;
	BuildState	state;
	const PipeannOptions *options = PipeannIndexOptions(p->index);
	uint32		n;

	memset(&state, 0, sizeof(state));
	state.parallel = p;
	state.team = &p->team;
	state.heap = p->heap;
	state.index = p->index;
	state.m = PipeannInitialM(options);
	state.params.ef_construction = options->ef_construction;
	state.params.seed = PIPEANN_BUILD_SEED;
	if (PipeannTeamLeads(state.team))
	{
		state.team->progress = ShowProgress;
		state.team->progress_arg = &state;
	}
	state.decided = PipeannTeamAlloc(state.team, sizeof(PipeannMeta));
	MetaInit(&state.meta, state.index, PIPEANN_FLOAT4, state.m,
			 &state.spool.stats.sizes);
	ScanTable(&state);
	/*
	 * No row is read from here on, which may take hours: let VACUUM remove
	 * what was deleted since, as it may while another VACUUM goes on. With
	 * CONCURRENTLY this is all that the transaction does.
	 */
	if (p->index_info->ii_Concurrent)
		PipeannSetStatus(PROC_IN_VACUUM, 0);
	if (PipeannTeamLeads(state.team))
		PIPEANN_PAUSE("build-scanned");
	clusters = MakeNodes(&state);
	DecideLayout(&state);
	n = state.nodes.vectors.n;
	if (n > 1)
	{
		StartPhase(&state, PHASE_GRAPH, n, PIPEANN_GRAPH_STEPS);
		graph = PipeannGraphBuild(state.team, &state.nodes.near, clusters,
								  &state.params);
	}
	PipeannClustersFree(state.team, clusters);
	PackAndWrite(&state, graph);
	MakeCodes(&state);
	if (graph != NULL)
		PipeannGraphFree(state.team, graph);
	if (PipeannTeamLeads(state.team))
		FinishIndex(&state);
	if (PipeannCurveIsStale(&state.meta))
	{
		PipeannCurveOfOwn(state.team, state.index);
		PipeannCacheForget(state.index);	/* it may never be searched */
	}
	state.team->progress = NULL;
	if (p->index_info->ii_Concurrent)
		PipeannSetStatus(0, PROC_IN_VACUUM);
}

/* Main function of a parallel worker, which the server finds by its name. */
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

	/* check what can be checked before the work starts */
	CheckColumns(index);
	CheckOptions(PipeannIndexOptions(index));
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
	const PipeannOptions *options = PipeannIndexOptions(index);
	PipeannStorage storage = IndexLayout(index).storage;
	PipeannRowSizes no_rows = {0};
	Buffer		buffer;

	CheckColumns(index);
	MetaInit(meta, index, PipeannIsSparse(storage) ? PipeannSparseFor(storage, PIPEANN_SPARSE_UNKNOWN) :
			 storage != PIPEANN_STORAGE_AUTO ? storage :
			 PipeannTypes[PipeannIndexType(index)].storage,
			 PipeannInitialM(options), &no_rows);
	if (options->m == PIPEANN_AUTO_M)
		meta->degree.reason = PIPEANN_DEGREE_FEW_ROWS;
	if (storage == PIPEANN_STORAGE_AUTO)
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

/* ---------- what a build will take, before it is begun ---------- */

/*
 * All vectors are assumed to be different, so an estimate is too high rather
 * than too low.
 */

/* Statistics of the sample. */
typedef struct Sampled
{
	PipeannStorage storage;
	double		spool_row;		/* bytes of a row in the spool */
	double		values;			/* bytes of a row with values */
	PipeannRowSizes sizes;		/* sizes of rows with values */
} Sampled;

/*
 * The sample goes through the spool as rows will, so that the same rules
 * apply. An index on few rows stores floats, as does one on none.
 */
static Sampled
TakeSample(const PipeannBuildInput *in)
{
	PipeannTeam *team = PipeannTeamAlone();
	int			columns = 1 + (in->values != NULL ? in->values->natts : 0);
	PipeannColumns sampled_columns = {.vector = 0,.values = in->values};
	Sampled		sampled;
	PipeannSpool spool;
	PipeannRows rows;

	PipeannSpoolInit(team, &spool, sampled_columns, (PipeannLayout) {
			  .dim = in->dim,.type = in->type,.metric = PIPEANN_L2,
			  .storage = PipeannStorageOf(in->type, in->options->storage)
			  }, 1);
	for (int i = 0; i < in->nsample; i++)
	{
		ItemPointerData tid;

		CHECK_FOR_INTERRUPTS();
		ItemPointerSet(&tid, 0, i + 1);
		(void) PipeannSpoolAdd(&spool, in->sample + i * columns,
							   in->nulls + i * columns, &tid);
	}
	PipeannSpoolFinish(team, &spool);
	spool.rounding = PipeannLayoutRounding(&(PipeannLayout) {
		.dim = in->dim,
		.max_degree = 2 * PipeannInitialM(in->options),
		.row_bytes = in->values != NULL
	}, &spool.stats.sizes);
	PipeannRowsLoad(team, &spool, &rows);
	sampled.storage = rows.vectors.storage;
	sampled.spool_row = spool.stats.rows == 0 ? 0 :
		(double) spool.stats.bytes / spool.stats.rows;
	sampled.sizes = spool.stats.sizes;
	ExpectRows(&sampled.sizes, in->values);
	sampled.values = in->values == NULL ? 0 :
		(double) sampled.sizes.bytes / sampled.sizes.rows;
	return sampled;
}

/* A row of the sample in the form of an index's rows. */
static const PipeannRow *
SampledRow(uint32 i, uint32 j, void *arg)
{
	const PipeannBuildInput *in = arg;
	PipeannColumns columns = {.vector = 0,.values = in->values};
	int			n = 1 + in->values->natts;
	ItemPointerData tid;

	if (j > 0)
		return NULL;
	ItemPointerSet(&tid, 0, i + 1);
	return PipeannFormRow(&columns, in->sample + i * n, in->nulls + i * n,
						  &tid);
}

/* The fields of the metapage on which sizes depend. */
static void
ForeseeMeta(const PipeannBuildInput *in, const Sampled *sampled,
			PipeannMeta *meta)
{
	const PipeannOptions *options = in->options;
	PipeannLayout *l = &meta->layout;
	double		parts = 0;		/* overflow slots of a row, for parts of long ones */
	uint64		pages;

	memset(meta, 0, sizeof(*meta));
	MakeLayout(l, (PipeannLayout) {
			   .dim = in->dim,.type = in->type,.metric = PIPEANN_L2,
			   .storage = sampled->storage,.max_degree = 2 * PipeannInitialM(options)
			   }, options, in->values != NULL ? &sampled->sizes : NULL);
	if (in->nfilter > 0)
		PipeannSetAttributeBytes(l,
								 PipeannAttributesChoose(PipeannAttributesForesee(in->values,
																				  in->nfilter),
														 SampledRow,
														 unconstify(PipeannBuildInput *, in),
														 in->nsample, &meta->widths));
	if (sampled->sizes.rows > 0)
		parts = (double) PipeannLayoutParts(l, &sampled->sizes) /
			sampled->sizes.rows;
	pages = (in->rows + l->fill - 1) / l->fill +
		(uint64) (in->rows * parts / l->slots_per_page);
	if (in->rows >= PG_UINT32_MAX / 4 ||
		pages * l->slots_per_page >= PIPEANN_INVALID_ID)
		PipeannTooManyRows();
	meta->nodes = in->rows;
	meta->graph_pages = (uint32) pages;
	if (meta->nodes < PIPEANN_MIN_CODED_NODES)
		return;
	meta->flags |= PIPEANN_META_HAS_CODES;
	meta->entry_count = PipeannEntryCount((uint32) meta->nodes);
	PipeannExtentChoose(&meta->extents, PIPEANN_METAPAGE + 1, 0,
						PipeannExtentPages(l, meta->entry_count));
}

/* Errors like the build if the options do not suit the column. */
void
PipeannEstimateBuild(const PipeannBuildInput *in,
					 PipeannBuildEstimate *estimate)
{
	PipeannMeta *meta = palloc(sizeof(PipeannMeta));
	Size		limit = (Size) maintenance_work_mem * 1024;
	PipeannGraphParams params;
	Sampled		sampled;

	CheckOptions(in->options);
	CheckStorage(in->options->storage, in->type, in->dim, PIPEANN_L2);
	sampled = TakeSample(in);
	ForeseeMeta(in, &sampled, meta);
	memset(estimate, 0, sizeof(*estimate));
	params = (PipeannGraphParams) {
		.max_degree = meta->layout.max_degree,
		.ef_construction = in->options->ef_construction
	};
	estimate->memory_one_pass = MemoryOnePass(meta, &params, sampled.values);
	estimate->temp_bytes = (uint64) (in->rows * sampled.spool_row);
	if (estimate->memory_one_pass > limit)
		estimate->temp_bytes += estimate->memory_one_pass - limit +
			PipeannGraphShardFiles((uint32) meta->nodes, &params);
	estimate->index_bytes = BLCKSZ *
		PipeannBlocksInUse(&meta->extents, &meta->layout, meta->graph_pages,
						   (meta->flags & PIPEANN_META_HAS_CODES) != 0);
	if (meta->flags & PIPEANN_META_HAS_CODES)
	{
		estimate->code_bytes = PipeannCacheMemory(meta);
		estimate->shared_memory = PipeannMegabytes(estimate->code_bytes) * 1024 * 1024;
	}
	pfree(meta);
}
