/*
 * handler.c
 *		The access method's options, settings, validator, costs and handler, and loading
 *		of the library.
 *
 * This room knows how PostgreSQL calls an access method, and all settings. It
 * must not know how other rooms work.
 */
#include "postgres.h"

#include <limits.h>
#include <math.h>

#include "access/amapi.h"
#include "access/amvalidate.h"
#include "access/genam.h"
#include "access/htup_details.h"
#include "access/reloptions.h"
#include "attributes/attributes.h"
#include "base/pause.h"
#include "build/build.h"
#include "cache/cache.h"
#include "catalog/pg_amop.h"
#include "catalog/pg_amproc.h"
#include "catalog/pg_opclass.h"
#include "catalog/pg_type.h"
#include "commands/vacuum.h"
#include "distance/distance.h"
#include "fmgr.h"
#include "index/index.h"
#include "insert/insert.h"
#include "io/io.h"
#include "nodes/pathnodes.h"
#include "optimizer/cost.h"
#include "optimizer/optimizer.h"
#include "plan/plan.h"
#include "scan/scan.h"
#include "search/search.h"
#include "utils/guc.h"
#include "utils/regproc.h"
#include "utils/rel.h"
#include "utils/selfuncs.h"
#include "utils/spccache.h"
#include "utils/syscache.h"
#include "vacuum/vacuum.h"

/* Index options (WITH), and those of filter columns. */

PG_FUNCTION_INFO_V1(pipeann_column_options);

static relopt_kind pipeann_relopt_kind;

static relopt_enum_elt_def storage_values[] = {
	{"auto", PIPEANN_STORAGE_AUTO},
	{"float4", PIPEANN_FLOAT4},
	{"float2", PIPEANN_FLOAT2},
	{"sq12", PIPEANN_SQ12},
	{"sq13", PIPEANN_SQ13},
	{"sq14", PIPEANN_SQ14},
	{"int8", PIPEANN_INT8},
	{"uint8", PIPEANN_UINT8},
	{(const char *) NULL}
};

static void
OptionsInit(void)
{
	pipeann_relopt_kind = add_reloption_kind();
	add_int_reloption(pipeann_relopt_kind, "m",
					  "A node has at most 2 * m neighbours, 0 for auto",
					  PIPEANN_DEFAULT_M, PIPEANN_AUTO_M, PIPEANN_MAX_M,
					  AccessExclusiveLock);
	add_int_reloption(pipeann_relopt_kind, "ef_construction",
					  "Length of the candidate list while building",
					  PIPEANN_DEFAULT_EF_CONSTRUCTION,
					  PIPEANN_MIN_EF_CONSTRUCTION,
					  PIPEANN_MAX_EF_CONSTRUCTION, AccessExclusiveLock);
	add_int_reloption(pipeann_relopt_kind, "pq_bytes",
					  "Bytes of a code in memory per vector, 0 for auto",
					  0, 0, PIPEANN_MAX_PQ_BYTES, AccessExclusiveLock);
	add_enum_reloption(pipeann_relopt_kind, "storage",
					   "How elements are stored", storage_values,
					   PIPEANN_STORAGE_AUTO,
					   "Valid values are \"auto\", \"float4\", \"float2\", \"sq12\", \"sq13\", \"sq14\", \"int8\" and \"uint8\".",
					   AccessExclusiveLock);

	/*
	 * PostgreSQL looks up the lock for ALTER TABLE or ALTER INDEX by the
	 * option's name, whatever the relation is, and takes the strongest. Our
	 * options must not make the locks for tables and other indexes stronger.
	 */
	add_int_reloption(pipeann_relopt_kind, "fillfactor",
					  "Percentage of a page that a build fills",
					  PIPEANN_DEFAULT_FILLFACTOR, PIPEANN_MIN_FILLFACTOR, 100,
					  ShareUpdateExclusiveLock);
}

/* Add a hint about option names: those of other access methods, such as lists, are often tried. */
static void
NameOptions(void *arg)
{
	if (geterrcode() == ERRCODE_INVALID_PARAMETER_VALUE)
		errhint("Options of a pipeann index are m, ef_construction, pq_bytes, storage and fillfactor.");
}

static bytea *
pipeannoptions(Datum reloptions, bool validate)
{
	static const relopt_parse_elt table[] = {
		{"m", RELOPT_TYPE_INT, offsetof(PipeannOptions, m)},
		{"ef_construction", RELOPT_TYPE_INT,
		offsetof(PipeannOptions, ef_construction)},
		{"pq_bytes", RELOPT_TYPE_INT, offsetof(PipeannOptions, pq_bytes)},
		{"storage", RELOPT_TYPE_ENUM, offsetof(PipeannOptions, storage)},
		{"fillfactor", RELOPT_TYPE_INT, offsetof(PipeannOptions, fillfactor)},
	};

	ErrorContextCallback names = {error_context_stack, NameOptions, NULL};
	PipeannOptions *options;

	error_context_stack = &names;
	options = (PipeannOptions *)
		build_reloptions(reloptions, validate, pipeann_relopt_kind,
						 sizeof(PipeannOptions), table, lengthof(table));
	error_context_stack = names.previous;

	/* 0 means that the build chooses; the option's bounds have to allow it */
	if (validate && options != NULL && options->m != PIPEANN_AUTO_M &&
		options->m < PIPEANN_MIN_M)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("value %d out of bounds for option \"m\"",
						options->m),
				 errdetail("Valid values are between \"%d\" and \"%d\", and \"%d\" for auto.",
						   PIPEANN_MIN_M, PIPEANN_MAX_M, PIPEANN_AUTO_M)));
	return (bytea *) options;
}

/* Support function of the operator classes of filter columns. */
Datum
pipeann_column_options(PG_FUNCTION_ARGS)
{
	local_relopts *options = (local_relopts *) PG_GETARG_POINTER(0);

	init_local_reloptions(options, sizeof(PipeannColumnOptions));
	add_local_int_reloption(options, "code_bytes",
							"Bytes of an attribute code in memory, 0 for auto",
							0, 0, PIPEANN_MOST_WIDTH,
							offsetof(PipeannColumnOptions, code_bytes));
	PG_RETURN_VOID();
}

/* The settings (GUCs) of scans and I/O. */

static const struct config_enum_entry iterative_scan_values[] = {
	{"off", PIPEANN_ITERATIVE_OFF, false},
	{"relaxed_order", PIPEANN_ITERATIVE_RELAXED, false},
	{"strict_order", PIPEANN_ITERATIVE_STRICT, false},
	{NULL, 0, false}
};

static const struct config_enum_entry search_mode_values[] = {
	{"best_first", PIPEANN_BEST_FIRST, false},
	{"pipe", PIPEANN_PIPE, false},
	{"stale", PIPEANN_STALE, false},
	{"look_ahead", PIPEANN_LOOK_AHEAD, false},
	{"baton", PIPEANN_BATON, false},
	{NULL, 0, false}
};

static const struct config_enum_entry io_method_values[] = {
	{"auto", PIPEANN_IO_AUTO, false},
	{"io_uring", PIPEANN_IO_URING, false},
	{"pread", PIPEANN_IO_PREAD, false},
	{NULL, 0, false}
};

/* Settings needed only for comparisons are hidden from users. */
#define HIDDEN (GUC_NO_SHOW_ALL | GUC_EXPLAIN)

/* Settings for comparisons. */
static void
InitComparisonSettings(void)
{
	DefineCustomEnumVariable("pipeann.search_mode",
							 "How a search decides what to read when.",
							 "pipe reads ahead of what is explored (PipeANN); look_ahead explores what is in memory first (LAANN); baton has other servers explore what they have in memory (BatANN); stale overlaps each round with the next (FlashANNS); best_first reads in rounds (DiskANN).",
							 &pipeann_search_mode, PIPEANN_DEFAULT_MODE,
							 search_mode_values, PGC_USERSET, HIDDEN,
							 NULL, NULL, NULL);
	DefineCustomIntVariable("pipeann.parts",
							"How many servers keep a part of each index in memory.",
							"A part is a range of the graph's pages. Zero: none.",
							&pipeann_parts, 0, 0, PIPEANN_MOST_PARTS,
							PGC_USERSET, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("pipeann.part",
							"The part of indexes that this server keeps in memory.",
							"Searches bring no other pages into shared_buffers, nor does pipeann_prewarm; and in mode baton they have other servers read them. Zero: none.",
							&pipeann_part, 0, 0, PIPEANN_MOST_PARTS,
							PGC_USERSET, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("pipeann.pipeline_width",
							"Most page reads of a search in flight at once.",
							"0 is each mode's own: up to 32 for pipe, 8 for best_first, stale and baton, 5 and bursts of a quarter of ef_search for look_ahead.",
							&pipeann_pipeline_width, 0, 0,
							PIPEANN_MAX_IN_FLIGHT, PGC_USERSET, HIDDEN,
							NULL, NULL, NULL);
}

static void
InitSearchSettings(void)
{
	DefineCustomIntVariable("pipeann.ef_search",
							"Length of the candidate list of a search.",
							"More finds more of the true nearest neighbours and takes longer.",
							&pipeann_ef_search, PIPEANN_DEFAULT_EF_SEARCH, 1,
							PIPEANN_MOST_LIST, PGC_USERSET, GUC_EXPLAIN, NULL,
							NULL, NULL);
	DefineCustomRealVariable("pipeann.target_recall",
							 "Share of the true nearest neighbours that a search is to find.",
							 "The list is then as long as the index's curve says for it, and ef_search only counts where an index has none. Zero: ef_search.",
							 &pipeann_target_recall, 0, 0,
							 PIPEANN_MOST_TARGET, PGC_USERSET,
							 GUC_EXPLAIN, NULL, NULL, NULL);
	DefineCustomEnumVariable("pipeann.iterative_scan",
							 "Whether a search goes on when more rows are asked for than it has found.",
							 "strict_order returns rows in exact order of distance; relaxed_order also returns those found too late for that.",
							 &pipeann_iterative_scan, PIPEANN_ITERATIVE_STRICT,
							 iterative_scan_values, PGC_USERSET, GUC_EXPLAIN,
							 NULL, NULL, NULL);
	DefineCustomIntVariable("pipeann.max_scan_tuples",
							"Rows after which a search does not go on any more.",
							NULL, &pipeann_max_scan_tuples, 20000, 1, INT_MAX,
							PGC_USERSET, GUC_EXPLAIN, NULL, NULL, NULL);
	DefineCustomRealVariable("pipeann.scan_mem_multiplier",
							 "Memory for the pages that a search keeps at hand, as a multiple of work_mem.",
							 "Past it pages are read again when needed; no rows are lost.",
							 &pipeann_scan_mem_multiplier, 1, 1, 1000,
							 PGC_USERSET, GUC_EXPLAIN, NULL, NULL, NULL);
}

/* The validator of operator classes. */

/* Report what is wrong with an operator class or its family; returns false. */
static bool
Reject(Form_pg_opclass opclass, const char *what)
{
	ereport(INFO,
			(errcode(ERRCODE_INVALID_OBJECT_DEFINITION),
			 errmsg("operator class \"%s\" of access method pipeann has %s",
					NameStr(opclass->opcname), what)));
	return false;
}

static bool
IsValidProc(Form_pg_amproc proc)
{
	return proc->amprocnum == PIPEANN_OPTIONS_PROC && proc->amproclefttype == proc->amprocrighttype &&
		check_amoptsproc_signature(proc->amproc);
}

/* A distance is an ordering operator, all others are conditions. */
static bool
IsValidOperator(Form_pg_amop oper)
{
	bool		is_distance = oper->amopstrategy < PIPEANN_LESS_STRATEGY;

	return oper->amopstrategy >= 1 && oper->amopstrategy <= PIPEANN_NUM_STRATEGIES &&
		oper->amoppurpose == (is_distance ? AMOP_ORDER : AMOP_SEARCH) &&
		(!is_distance || opfamily_can_sort_type(oper->amopsortfamily, FLOAT8OID)) &&
		check_amop_signature(oper->amopopr, is_distance ? FLOAT8OID : BOOLOID,
							 oper->amoplefttype, oper->amoprighttype);
}

/*
 * An operator class for vectors needs its own distance, which has its metric;
 * another one has conditions, and no metric.
 */
static bool
pipeannvalidate(Oid opclassoid)
{
	HeapTuple	tuple = SearchSysCache1(CLAOID, ObjectIdGetDatum(opclassoid));
	Form_pg_opclass opclass;
	CatCList   *procs;
	CatCList   *operators;
	Oid			type;
	int			distances = 0;
	int			conditions = 0;
	bool		result = true;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for operator class %u", opclassoid);
	opclass = (Form_pg_opclass) GETSTRUCT(tuple);
	type = opclass->opcintype;
	procs = SearchSysCacheList1(AMPROCNUM, ObjectIdGetDatum(opclass->opcfamily));
	operators = SearchSysCacheList1(AMOPSTRATEGY, ObjectIdGetDatum(opclass->opcfamily));
	for (int i = 0; i < procs->n_members; i++)
	{
		Form_pg_amproc proc = (Form_pg_amproc) GETSTRUCT(&procs->members[i]->tuple);

		if (!IsValidProc(proc))
			result = Reject(opclass, psprintf("invalid support function %s of number %d",
											  format_procedure(proc->amproc), proc->amprocnum));
	}
	for (int i = 0; i < operators->n_members; i++)
	{
		Form_pg_amop oper = (Form_pg_amop) GETSTRUCT(&operators->members[i]->tuple);

		if (!IsValidOperator(oper))
			result = Reject(opclass, psprintf("invalid operator %s for strategy %d",
											  format_operator(oper->amopopr), oper->amopstrategy));
		if (oper->amoplefttype == type && oper->amoprighttype == type)
			(*(oper->amopstrategy < PIPEANN_LESS_STRATEGY ? &distances : &conditions))++;
	}
	ReleaseCatCacheList(procs);
	ReleaseCatCacheList(operators);
	if (PipeannTypeOf(type) == PIPEANN_NUM_TYPES ? distances > 0 || conditions == 0 :
		distances != 1 || conditions > 0)
		result = Reject(opclass, psprintf("%d distances and %d conditions", distances, conditions));
	ReleaseSysCache(tuple);
	return result;
}

/* Estimating the cost of a scan for the planner. */

/* Code pages read for each node explored; few, as near nodes have codes near each other. */
#define CODE_PAGES_OF_NODE 7

/* Overlapping reads cost this many times less than sequential ones. */
#define OVERLAP 4.0

/* What a scan with conditions does before it goes through codes, in operators. */
#define CODE_SCAN_START 19000

/*
 * Less than PostgreSQL's own, so that a scan of ours is used when other plans
 * are disabled. It is a cost in PostgreSQL 18, too: counted as a disabled node
 * it would tie with disabled plans, and costs would decide.
 */
#define DISABLE_COST 1.0e9

#define REFUSED_COST 1.0e100

/* Rows without a vector are not in the index, but a condition may want them. */
static bool
WantsNullVector(const struct IndexPath *path)
{
	ListCell   *cell;

	foreach(cell, path->indexclauses)
	{
		const IndexClause *clause = lfirst_node(IndexClause, cell);
		const Expr *expr = clause->rinfo->clause;

		if (IsA(expr, NullTest) &&
			((const NullTest *) expr)->nulltesttype == IS_NULL &&
			linitial_int(path->indexorderbycols) == clause->indexcol)
			return true;
	}
	return false;
}

/* What a scan costs, by the number of rows in the index. */
typedef struct Estimate
{
	double		rows;			/* rows of the index */
	double		matching;		/* rows that meet the index's conditions */
	double		reached;		/* matching rows within the distance that ends the scan */
	double		returned;		/* reached rows that meet all other conditions */
	double		wanted;			/* returned rows that a limit wants, or all */
	int			list;			/* length of the search's list */
	int			conditions;
	bool		sparse;			/* sparse vectors, which are searched by code scans */
	double		page_cost;		/* cost of a page of the index */
	double		row_cost;		/* cost of a page of the table for a row */
	double		absent;			/* share of codes for which there is no memory */
	double		code_pages;		/* code pages without memory */
} Estimate;

static double
NodeCost(double page_cost)
{
	return page_cost + PIPEANN_DEFAULT_M * 2 * cpu_operator_cost;
}

/* The cost of exploring the graph, with a list longer by nodes that do not match. */
static double
WalkCost(const Estimate *e)
{
	double		length = Min(e->list *
							 PipeannListStretch(e->matching / e->rows,
												e->list), e->rows);

	return length * NodeCost(e->page_cost / OVERLAP) +
		Min(length * CODE_PAGES_OF_NODE * e->absent, e->code_pages) * e->page_cost / OVERLAP;
}

/* The cost of scanning attribute codes, the codes of matching nodes, and a few pages. */
static double
CodeScanCost(const Estimate *e)
{
	double		reads = Min(e->matching, e->sparse ? pipeann_ef_search * PIPEANN_SPARSE_READ :
							PIPEANN_EARLY_RESULTS * 2);

	return cpu_operator_cost *
		(CODE_SCAN_START + PipeannCodeScanCost(e->rows, e->conditions,
											   e->matching / e->rows)) +
		reads * e->page_cost / OVERLAP + e->code_pages * seq_page_cost;
}

/*
 * Each row found before the search has to go on costs a page of the table,
 * several of which are prefetched together. Each row beyond them costs a page
 * of the table and one of the index. Returns the cost of all rows at the rate
 * of those wanted.
 */
static double
AllRowsCost(const Estimate *e)
{
	double		looked_at = e->wanted * e->reached / e->returned;
	double		first = Min(e->list / PIPEANN_STRICT_PART, looked_at);
	double		cost;

	cost = first * e->row_cost / OVERLAP +
		(looked_at - first) * (e->row_cost + NodeCost(e->page_cost));
	return cost * e->reached / looked_at + e->reached * cpu_index_tuple_cost;
}

/* What cost_index() will add for the table's pages, which is counted here already. */
static double
TableCost(struct PlannerInfo *root, const struct IndexPath *path,
		  double matching, double page_cost)
{
	const RelOptInfo *table = path->indexinfo->rel;

	if (path->path.pathtype == T_IndexOnlyScan)
		return 0;
	return Max(page_cost * (1 - index_pages_fetched(matching, table->pages,
													path->indexinfo->pages,
													root) / matching), 0);
}

/*
 * Set what depends on the index itself: the list, and the codes for which
 * there is no memory. A hypothetical index cannot be asked. What is in memory
 * at this moment is not considered: plans would depend on earlier searches.
 */
static void
AskIndex(const IndexOptInfo *info, Estimate *e)
{
	double		room = (double) pipeann_shared_memory * 1024 * 1024;
	bool		fits = (double) info->pages * BLCKSZ <= room;
	Relation	index = pipeann_target_recall == 0 && fits ? NULL :
		RelationIdGetRelation(info->indexoid);
	PipeannMeta meta;
	double		codes;

	e->list = pipeann_ef_search;
	if (!RelationIsValid(index))
		return;
	PipeannMetaRead(index, &meta);
	if (pipeann_target_recall != 0)
		e->list = PipeannScanParams(&meta, e->wanted).ef;
	codes = (meta.flags & PIPEANN_META_HAS_CODES) == 0 ? 0 :
		(double) PipeannCodesBytes(&meta.layout, meta.graph_pages);
	if (codes > room)
	{
		e->absent = 1 - room / codes;
		e->code_pages = (codes - room) / BLCKSZ;
	}
	RelationClose(index);
}

static Estimate
EstimateOf(struct PlannerInfo *root, const struct IndexPath *path,
		   Selectivity selectivity)
{
	const RelOptInfo *table = path->indexinfo->rel;
	Estimate	e = {.conditions = list_length(path->indexclauses)};
	PipeannType type = PipeannTypeOf(path->indexinfo->opcintype[linitial_int(path->indexorderbycols)]);
	double		table_page_cost;

	get_tablespace_page_costs(path->indexinfo->reltablespace, &e.page_cost,
							  NULL);
	get_tablespace_page_costs(table->reltablespace, &table_page_cost, NULL);
	e.rows = Max(path->indexinfo->tuples, 1);
	e.matching = Max(e.rows * selectivity, 1);
	e.reached = Max(e.matching * PipeannShareReached(root, path), 1);
	e.returned = Min(Max(table->rows, 1), e.reached);
	e.sparse = type != PIPEANN_NUM_TYPES && PipeannIsOfSparse(type);
	e.wanted = PipeannWantedRows(root, e.returned);
	AskIndex(path->indexinfo, &e);
	e.row_cost = TableCost(root, path, e.reached, table_page_cost);
	return e;
}

/*
 * A scan without ORDER BY distance cannot be run, nor one in the order of two,
 * nor one for rows that are not in the index. So it costs more than anything
 * else, but not infinity: a limit takes a share of a difference of costs, and
 * NaN compares as equal to anything.
 *
 * Before the first row a search reads about as many pages as it explores
 * nodes, which are ef_search, or more if some do not match; or it scans the
 * codes of matching nodes. Page-mates and pages in shared_buffers save some
 * reads, and OVERLAP accounts for reads in flight.
 */
static void
pipeanncostestimate(struct PlannerInfo *root, struct IndexPath *path,
					double loop_count, Cost *startup_cost, Cost *total_cost,
					Selectivity *selectivity, double *correlation,
					double *pages)
{
	double		all_pages = Max(path->indexinfo->pages, 1);
	GenericCosts costs = {0};
	Estimate	e;

	if (list_length(path->indexorderbys) != 1 || WantsNullVector(path))
	{
		*startup_cost = *total_cost = REFUSED_COST;
		*selectivity = *correlation = *pages = 0;
#if PG_VERSION_NUM >= 180000
		path->path.disabled_nodes = 2;
#endif
		return;
	}

	genericcostestimate(root, path, loop_count, &costs);
	e = EstimateOf(root, path, costs.indexSelectivity);
	if (e.rows < PIPEANN_MIN_CODED_NODES)
	{
		/* an index without codes is read as a whole, in order */
		*startup_cost = Max(path->indexinfo->pages, 1) * seq_page_cost + e.rows * cpu_operator_cost;
		*total_cost = *startup_cost + e.matching * cpu_index_tuple_cost;
	}
	else
	{
		*startup_cost = e.sparse ? CodeScanCost(&e) : WalkCost(&e);
		if (e.conditions > 0)
			*startup_cost = Min(*startup_cost, CodeScanCost(&e));
		*total_cost = *startup_cost + AllRowsCost(&e);
	}
	PipeannTakeOffVectors(root, path->indexinfo, e.returned, startup_cost,
						  total_cost);
	/* a scan that may leave out wanted rows: only if nothing else is possible */
	if (!PipeannWantsFew(root, e.returned))
	{
		*startup_cost += DISABLE_COST;
		*total_cost += DISABLE_COST;
	}
	*selectivity = costs.indexSelectivity * e.reached / e.matching;
	*correlation = 0;
	*pages = Min(Min(e.list, e.matching), all_pages);
}

/* Loading, and the handler. */

#if PG_VERSION_NUM >= 180000
PG_MODULE_MAGIC_EXT(.name = "pipeann", .version = PIPEANN_VERSION);
#else
PG_MODULE_MAGIC;
#endif

PGDLLEXPORT void _PG_init(void);

PG_FUNCTION_INFO_V1(pipeannhandler);

void
_PG_init(void)
{
	PipeannKernelsInit();
	OptionsInit();
	InitSearchSettings();
	DefineCustomBoolVariable("pipeann.auto_reindex",
							 "Rebuild indexes that have outgrown themselves, by REINDEX INDEX CONCURRENTLY in a background worker.",
							 "Tables with autovacuum_enabled = off are left out.",
							 &pipeann_auto_reindex, true, PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomBoolVariable("pipeann.rewrite_plans",
							 "Change queries for the nearest rows and their plans so that they cost less.",
							 "Distances that only order the rows are left out; with the library pipeann_servers, servers of foreign partitions are asked at the same time, each for a limited number of rows.",
							 &pipeann_rewrite_plans, true, PGC_USERSET,
							 GUC_EXPLAIN, NULL, NULL, NULL);
	DefineCustomBoolVariable("pipeann.bitmap_scan",
							 "Search among the rows that other indexes find by conditions, where that costs less.",
							 NULL, &pipeann_bitmap_scan, true, PGC_USERSET,
							 GUC_EXPLAIN, NULL, NULL, NULL);
	InitComparisonSettings();
	DefineCustomIntVariable("pipeann.prefetch_rows",
							"Rows whose table pages are asked for at once, ahead of being read.",
							"0 leaves them to be read one by one, as effective_io_concurrency = 0 does.",
							&pipeann_prefetch_rows, 10, 0,
							PIPEANN_MAX_PREFETCH, PGC_USERSET, GUC_EXPLAIN,
							NULL, NULL, NULL);
	DefineCustomBoolVariable("pipeann.hot_pages",
							 "Whether pages that searches read often come to stay in shared_buffers.",
							 "A search brings in one page that it read, at most. Off: all reads go past shared_buffers.",
							 &pipeann_hot_pages, true, PGC_USERSET, GUC_EXPLAIN,
							 NULL, NULL, NULL);
	DefineCustomEnumVariable("pipeann.io_method",
							 "How index pages that are not in shared_buffers are read.",
							 "auto and io_uring fall back to pread where io_uring is not allowed.",
							 &pipeann_io_method, PIPEANN_IO_AUTO,
							 io_method_values, PGC_USERSET, GUC_EXPLAIN, NULL,
							 NULL, NULL);
	DefineCustomBoolVariable("pipeann.direct_io",
							 "Read past the operating system's page cache.",
							 "Falls back to buffered reads where the file system refuses it.",
							 &pipeann_direct_io, true, PGC_USERSET,
							 GUC_EXPLAIN, NULL, NULL, NULL);
	PipeannPauseInit();
	PipeannPlantedInit();
	PipeannCacheInit();
	PipeannIoInit();
	PipeannPlanInit();
	MarkGUCPrefixReserved("pipeann");
}

static char *
pipeannbuildphasename(int64 phase)
{
	return unconstify(char *, PipeannPhaseName(phase));
}

/*
 * Whether an index-only scan can return a column: none if the vector is an
 * expression, or the only column.
 */
static bool
pipeanncanreturn(Relation index, int attno)
{
	return PipeannIndexHasValues(index) &&
		PipeannVectorColumn(index) != InvalidAttrNumber;
}

/* Columns other than the vector support conditions. */
static bool
pipeannproperty(Oid index_oid, int attno, IndexAMProperty prop,
				const char *propname, bool *res, bool *isnull)
{
	Relation	index;

	if (attno < 1)
		return false;
	if (prop != AMPROP_DISTANCE_ORDERABLE && prop != AMPROP_SEARCH_ARRAY &&
		prop != AMPROP_SEARCH_NULLS)
		return false;
	index = index_open(index_oid, AccessShareLock);
	*res = (PipeannVectorPosition(index) == attno - 1) ==
		(prop == AMPROP_DISTANCE_ORDERABLE);
	index_close(index, AccessShareLock);
	return true;
}

Datum
pipeannhandler(PG_FUNCTION_ARGS)
{
	IndexAmRoutine *amroutine = makeNode(IndexAmRoutine);

	/* everything not set here is false, or absent */
	amroutine->amstrategies = PIPEANN_NUM_STRATEGIES;
	amroutine->amsupport = PIPEANN_OPTIONS_PROC;
	amroutine->amoptsprocnum = PIPEANN_OPTIONS_PROC;
	amroutine->amcanorderbyop = true;
	amroutine->amcanmulticol = true;
	amroutine->amoptionalkey = true;
	amroutine->amsearcharray = true;
	amroutine->amsearchnulls = true;
	amroutine->amcaninclude = true;
	amroutine->amusemaintenanceworkmem = true;
	amroutine->amparallelvacuumoptions = VACUUM_OPTION_PARALLEL_BULKDEL |
		VACUUM_OPTION_PARALLEL_COND_CLEANUP;
#if PG_VERSION_NUM >= 170000
	amroutine->amcanbuildparallel = true;
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
	amroutine->ambeginscan = pipeannbeginscan;
	amroutine->amrescan = pipeannrescan;
	amroutine->amgettuple = pipeanngettuple;
	amroutine->amendscan = pipeannendscan;
	PG_RETURN_POINTER(amroutine);
}
