/*
 * one_message_waves.c
 *		Which servers are asked, and when, if rows are divided among them by cells.
 *
 * First the server is asked that is likely to have the most of the nearest rows.
 * Then a bound on the distance of the last wanted row is known, and all others that
 * together are likely to have pipeann_servers.shard_coverage of the wanted rows are
 * asked at the same time. As long as rows are missing, all are asked.
 *
 * The number of wanted rows that a cell has is estimated by its distance: the
 * farther away the rows are, the more cells may have some. So conditions that few
 * rows meet, and limits, count by what has been found.
 */
#include "postgres.h"

#include <math.h>

#include "access/table.h"
#include "cells/cells.h"
#include "executor/executor.h"
#include "lib/binaryheap.h"
#include "nodes/nodeFuncs.h"
#include "partitioning/partbounds.h"
#include "partitioning/partdesc.h"
#include "queries/one_message.h"
#include "queries/queries.h"
#include "utils/float.h"
#include "utils/rel.h"

/* For more rows all parts are asked at once. */
#define MOST_ROWS	1000

/*
 * A cell's rows count exp(-DECAY * excess / last): excess is how much farther (squared)
 * its centroid is than the nearest one, last the distance of the last wanted row; before
 * that is known, that of the nearest centroid with DECAY_BEFORE.
 */
#define DECAY		16.0
#define DECAY_BEFORE 8.0
/* Most cells are so far that they count for nothing: exp() of minus this. */
#define NEGLIGIBLE	20.0

struct PipeannWaves
{
	const PipeannOneMessage *parts;
	bool		in_turn;		/* one part in each wave */
	ExprState  *vector;
	ExprContext *context;
	int			nparts;
	int			ncells;
	int		   *part_of;		/* [cells] each cell's part, or -1 */
	PipeannNearCell *cells;
	float		nearest;		/* distance of the nearest cell */
	double	   *share;			/* [parts] of the wanted rows */
	Bitmapset  *unknown;		/* parts whose cells are not known */

	/* this search */
	Datum		query;
	bool		all;			/* there is nothing to choose by */
	binaryheap *rows;			/* distances of the nearest ones, farthest first */
	int			wanted;
	Bitmapset  *asked;

	/* all searches */
	int			nasked;
	int			nwaves;
};

static int
FartherFirst(Datum a, Datum b, void *arg)
{
	double		left = DatumGetFloat8(a);
	double		right = DatumGetFloat8(b);

	return left < right ? -1 : left > right;
}

/* Set each cell's part. */
static void
ReadBounds(PipeannWaves *waves)
{
	Relation	table = table_open(waves->parts->table, NoLock);
	PartitionDesc partitions = RelationGetPartitionDesc(table, true);
	PartitionBoundInfo bounds = partitions->boundinfo;
	int		   *part = palloc(partitions->nparts * sizeof(int));

	for (int i = 0; i < partitions->nparts; i++)
	{
		ListCell   *cell;

		part[i] = -1;
		foreach(cell, waves->parts->partitions)
			if (lfirst_oid(cell) == partitions->oids[i])
				part[i] = foreach_current_index(cell);
	}
	for (int i = 0; i < waves->ncells; i++)
		waves->part_of[i] = bounds->default_index < 0 ? -1 :
			part[bounds->default_index];
	for (int i = 0; i < bounds->ndatums; i++)
	{
		int32		number = DatumGetInt32(bounds->datums[i][0]);

		if (number >= 0 && number < waves->ncells)
			waves->part_of[number] = part[bounds->indexes[i]];
	}
	pfree(part);
	table_close(table, NoLock);
}

PipeannWaves *
PipeannWavesBegin(const PipeannOneMessage *parts, CustomScanState *node, bool in_turn)
{
	PipeannWaves *waves;
	ListCell   *cell;
	int			ncells = parts->cells == NULL ? 0 :
		PipeannCellsCount(parts->cells, parts->distance->opno);

	if (ncells == 0)
		return NULL;
	waves = palloc0(sizeof(PipeannWaves));
	waves->parts = parts;
	waves->in_turn = in_turn;
	waves->vector = ExecInitExpr(PipeannQueryVector(parts->distance), &node->ss.ps);
	waves->context = node->ss.ps.ps_ExprContext;
	waves->nparts = list_length(parts->scans);
	waves->ncells = ncells;
	waves->part_of = palloc(ncells * sizeof(int));
	waves->cells = palloc(ncells * sizeof(PipeannNearCell));
	waves->share = palloc0(waves->nparts * sizeof(double));
	waves->rows = binaryheap_allocate(MOST_ROWS, FartherFirst, NULL);
	ReadBounds(waves);
	foreach(cell, parts->partitions)
		if (!OidIsValid(lfirst_oid(cell)))
			waves->unknown = bms_add_member(waves->unknown,
											foreach_current_index(cell));
	return waves;
}

bool
PipeannWavesChoose(int64 limit)
{
	return limit >= 1 && limit <= MOST_ROWS && pipeann_shard_coverage < 1;
}

static void
LookForNear(PipeannWaves *waves)
{
	bool		is_null;
	int			nearest = 0;

	waves->query = ExecEvalExpr(waves->vector, waves->context, &is_null);
	waves->all |= is_null;
	if (waves->all)
		return;
	/* the cells are others since the node began */
	if (!PipeannCellsNear(waves->parts->cells,
								  exprType((Node *) PipeannQueryVector(waves->parts->distance)),
								  waves->query, waves->ncells, waves->cells))
	{
		waves->all = true;
		return;
	}
	for (int i = 1; i < waves->ncells; i++)
		if (waves->cells[i].distance < waves->cells[nearest].distance)
			nearest = i;
	waves->nearest = waves->cells[nearest].distance;
	PipeannCellsNote(waves->parts->cells, waves->ncells, nearest, 0, 0);
}

void
PipeannWavesStart(PipeannWaves *waves, int64 limit)
{
	waves->asked = NULL;
	binaryheap_reset(waves->rows);
	waves->all = !PipeannWavesChoose(limit);
	waves->wanted = waves->all ? 0 : (int) limit;
	LookForNear(waves);
}

/* Note a row. A distance that is NULL or NaN comes after all others. */
void
PipeannWavesRow(PipeannWaves *waves, TupleTableSlot *row)
{
	bool		is_null;
	Datum		distance;

	if (waves->all)
		return;
	distance = slot_getattr(row, waves->parts->column, &is_null);
	if (is_null || isnan(DatumGetFloat8(distance)))
		distance = Float8GetDatum(get_float8_infinity());
	if (waves->rows->bh_size < waves->wanted)
		binaryheap_add(waves->rows, distance);
	else if (DatumGetFloat8(distance) <
			 DatumGetFloat8(binaryheap_first(waves->rows)))
		binaryheap_replace_first(waves->rows, distance);
}

bool
PipeannWavesBound(const PipeannWaves *waves, double *bound)
{
	if (waves->all || waves->rows->bh_size < waves->wanted)
		return false;
	*bound = DatumGetFloat8(binaryheap_first(waves->rows));
	return !isinf(*bound);
}

/* Set the share of the wanted rows that each part is likely to have. */
static void
Weigh(PipeannWaves *waves, double decay)
{
	double		sum = 0;

	memset(waves->share, 0, waves->nparts * sizeof(double));
	for (int i = 0; i < waves->ncells; i++)
	{
		double		farther = waves->cells[i].distance - waves->nearest;
		double		rows;

		if (waves->part_of[i] < 0 || decay * farther > NEGLIGIBLE)
			continue;
		rows = waves->cells[i].rows * (farther > 0 ? exp(-decay * farther) : 1);
		waves->share[waves->part_of[i]] += rows;
		sum += rows;
	}
	for (int i = 0; i < waves->nparts && sum > 0; i++)
		waves->share[i] /= sum;
}

/* The part not yet asked that is likely to have the most rows. */
static int
BestPart(const PipeannWaves *waves, const Bitmapset *left_out)
{
	int			best = -1;

	for (int i = 0; i < waves->nparts; i++)
		if (!bms_is_member(i, left_out) &&
			(best < 0 || waves->share[i] > waves->share[best]))
			best = i;
	return best;
}

/* The part to ask first. At a centroid itself only its cell counts. */
static Bitmapset *
FirstPart(PipeannWaves *waves)
{
	Weigh(waves, waves->nearest > 0 ? DECAY_BEFORE / waves->nearest :
		  get_float8_infinity());
	return bms_make_singleton(BestPart(waves, NULL));
}

/* The other parts that are needed for the coverage, by what is known now. */
static Bitmapset *
OtherParts(PipeannWaves *waves, double bound)
{
	Oid			type = exprType((Node *) PipeannQueryVector(waves->parts->distance));
	double		last = PipeannCellsDistance(waves->parts->cells, type,
												   waves->query, bound);
	Bitmapset  *asked = bms_copy(waves->asked);
	double		sum = 0;
	int			best;

	Weigh(waves, last > 0 ? DECAY / last : get_float8_infinity());
	for (int i = 0; i < waves->nparts; i++)
		sum += bms_is_member(i, asked) ? waves->share[i] : 0;
	while (sum < pipeann_shard_coverage &&
		   (best = BestPart(waves, asked)) >= 0)
	{
		asked = bms_add_member(asked, best);
		sum += waves->share[best];
	}
	return asked;
}

Bitmapset *
PipeannWavesNext(PipeannWaves *waves)
{
	Bitmapset  *all = bms_add_range(NULL, 0, waves->nparts - 1);
	Bitmapset  *next;
	double		bound;

	if (waves->asked == NULL && !waves->all)
		next = FirstPart(waves);
	else if (PipeannWavesBound(waves, &bound))
		next = OtherParts(waves, bound);
	else
		next = bms_copy(all);
	next = bms_difference(bms_add_members(next, waves->unknown), waves->asked);
	if (bms_is_empty(next))
		return NULL;
	if (waves->in_turn)
		next = bms_make_singleton(BestPart(waves, bms_difference(all, next)));
	waves->asked = bms_add_members(waves->asked, next);
	waves->nasked += bms_num_members(next);
	waves->nwaves++;
	if (!waves->all)
		PipeannCellsNote(waves->parts->cells, waves->ncells, -1,
								 bms_num_members(next), 1);
	return next;
}

void
PipeannWavesExplain(const PipeannWaves *waves, ExplainState *es)
{
	ExplainPropertyText("Cells", waves->parts->cells, es);
	if (!es->analyze)
		return;
	ExplainPropertyInteger("Parts Asked", NULL, waves->nasked, es);
	ExplainPropertyInteger("Waves", NULL, waves->nwaves, es);
}
