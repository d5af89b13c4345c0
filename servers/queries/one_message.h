/*
 * one_message.h
 *		The node that asks servers in one message; private to queries/.
 */
#ifndef PIPEANN_SERVERS_ONE_MESSAGE_H
#define PIPEANN_SERVERS_ONE_MESSAGE_H

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

/* sent_text.c: false if it does not look like this. */
extern bool PipeannReadText(const char *sql, PipeannSentText *text);

/*
 * The text again, with the condition that no row is farther than $bound, if that is
 * not 0.
 */
extern char *PipeannWriteText(const PipeannSentText *text, int bound);

/*
 * one_message_scans.c: what the node has in its custom_private, and how it gets
 * there.
 */
typedef struct PipeannOneMessage
{
	List	   *scans;			/* of the Append's plans: ForeignScan of those that
								 * are sent, NULL of others */
	Oid			vector;			/* type of the vector that distances are from */
	Expr	   *limit;			/* rows wanted of each part, NULL: not known */
} PipeannOneMessage;

extern List *PipeannDescribeScans(const Append *append, List *rtable);
extern void PipeannOneMessageOf(const CustomScan *node,
								PipeannOneMessage *parts);

#endif							/* PIPEANN_SERVERS_ONE_MESSAGE_H */
