/*
 * one_message.h
 *		The node that asks servers in one message; private to queries/.
 */
#ifndef PIPEANN_SERVERS_ONE_MESSAGE_H
#define PIPEANN_SERVERS_ONE_MESSAGE_H

#include "commands/explain.h"
#if PG_VERSION_NUM >= 180000
#include "commands/explain_format.h"
#include "commands/explain_state.h"
#endif
#include "nodes/execnodes.h"
#include "nodes/extensible.h"
#include "nodes/plannodes.h"

/*
 * The text of a scan of postgres_fdw's that asks for the nearest rows:
 * SELECT columns FROM ... [WHERE ...] ORDER BY distance ASC NULLS LAST LIMIT limit.
 */
typedef struct PipeannSentText
{
	List	   *columns;		/* char * */
	const char *from;			/* with conditions, after " FROM " */
	const char *distance;
	const char *limit;
	bool		has_where;
} PipeannSentText;

/* sent_text.c: take a text apart; false if it does not look like this. */
extern bool PipeannReadText(const char *sql, PipeannSentText *text);

/*
 * Write the text again. If bound is not 0, with the condition that no row is farther than
 * parameter $bound, which holds for all rows if it may be, and is, NULL.
 */
extern char *PipeannWriteText(const PipeannSentText *text, int bound,
							  bool may_be_null);

/*
 * one_message_scans.c: what the node has in its custom_private, and how it gets
 * there.
 */
typedef struct PipeannOneMessage
{
	List	   *scans;			/* of the Append's plans: ForeignScan of those that
								 * are sent, NULL of others */
	List	   *bounded;		/* String: their texts with a largest distance; or NIL */
	Expr	   *limit;			/* rows wanted of each part; NULL if not known */
	OpExpr	   *distance;		/* distance of one of the scans; NULL if not known */
	int			column;			/* of the distance in the rows of all */

	/* if rows are divided among the parts by cells */
	const char *cells;			/* or NULL */
	Oid			table;
	List	   *partitions;		/* Oid of each part, 0 if it is not known */

	/*
	 * and parts take turns: the scans as their wrapper has them, with a largest
	 * distance, which is a parameter of the executor's
	 */
	List	   *turns;
	int			bound;
} PipeannOneMessage;

extern List *PipeannDescribeScans(const Append *append, PlannedStmt *stmt);
extern void PipeannOneMessageOf(const CustomScan *node,
								PipeannOneMessage *parts);

/* The vector that distances are from. */
extern Expr *PipeannQueryVector(const OpExpr *distance);

/* one_message_cells.c: find whether rows are divided by cells. */
extern void PipeannFindCells(PipeannOneMessage *parts, const Append *append,
							 List *rtable);

/* one_message_waves.c: in which order parts are asked. */
typedef struct PipeannWaves PipeannWaves;

/* Whether some parts may be left out for this many rows, -1 if not known. */
extern bool PipeannWavesChoose(int64 limit);

/* NULL if there is nothing to choose by. in_turn: one part in each wave. */
extern PipeannWaves *PipeannWavesBegin(const PipeannOneMessage *parts,
									   CustomScanState *node, bool in_turn);

/* A search begins that wants this many rows, or an unknown number (-1). */
extern void PipeannWavesStart(PipeannWaves *waves, int64 limit);
extern void PipeannWavesRow(PipeannWaves *waves, TupleTableSlot *row);

/*
 * The parts to ask next, NULL if there are none; and the distance beyond which their rows
 * are not wanted, if that is known.
 */
extern Bitmapset *PipeannWavesNext(PipeannWaves *waves);
extern bool PipeannWavesBound(const PipeannWaves *waves, double *bound);
extern void PipeannWavesExplain(const PipeannWaves *waves, ExplainState *es);

#endif							/* PIPEANN_SERVERS_ONE_MESSAGE_H */
