/*
 * sent_text.c
 *		Parsing what postgres_fdw sends to ask for the nearest rows.
 *
 * It writes queries in one form: keywords in capitals, names quoted unless they are
 * plain, each condition in parentheses. Words within quotes or parentheses are
 * values and names.
 */
#include "postgres.h"

#include "lib/stringinfo.h"
#include "queries/one_message.h"

#define SELECT		"SELECT "
#define FROM		" FROM "
#define WHERE		" WHERE "
#define ORDER_BY	" ORDER BY "
#define NEAREST		" ASC NULLS LAST"
#define LIMIT		" LIMIT "

/* The first occurrence of a word outside of quotes and parentheses, or NULL. */
static const char *
Find(const char *at, const char *word)
{
	char		quote = '\0';
	int			depth = 0;

	for (; *at != '\0'; at++)
	{
		if (quote != '\0')
		{
			if (*at == quote)
				quote = '\0';
			continue;
		}
		if (depth == 0 && strncmp(at, word, strlen(word)) == 0)
			return at;
		if (*at == '\'' || *at == '"')
			quote = *at;
		else if (*at == '(')
			depth++;
		else if (*at == ')')
			depth--;
	}
	return NULL;
}

/* The text before a word, or NULL if the word does not occur; moves *at behind it. */
static const char *
Before(const char **at, const char *word)
{
	const char *found = Find(*at, word);
	const char *start = *at;

	if (found == NULL)
		return NULL;
	*at = found + strlen(word);
	return pnstrdup(start, found - start);
}

static List *
Split(const char *list)
{
	List	   *items = NIL;
	const char *item;

	while ((item = Before(&list, ", ")) != NULL)
		items = lappend(items, unconstify(char *, item));
	return lappend(items, pstrdup(list));
}

bool
PipeannReadText(const char *sql, PipeannSentText *text)
{
	const char *columns;

	if (strncmp(sql, SELECT, strlen(SELECT)) != 0)
		return false;
	sql += strlen(SELECT);
	if ((columns = Before(&sql, FROM)) == NULL ||
		(text->from = Before(&sql, ORDER_BY)) == NULL ||
		(text->distance = Before(&sql, NEAREST LIMIT)) == NULL ||
		Find(text->distance, ", ") != NULL || Find(sql, " ") != NULL)
		return false;
	text->columns = Split(columns);
	text->has_where = Find(text->from, WHERE) != NULL;
	text->limit = sql;
	return true;
}

char *
PipeannWriteText(const PipeannSentText *text, int bound, bool may_be_null)
{
	StringInfoData sql;
	int			place = 0;
	ListCell   *cell;

	initStringInfo(&sql);
	foreach(cell, text->columns)
	{
		appendStringInfo(&sql, "%s%s", cell == list_head(text->columns) ?
						 SELECT : ", ", (const char *) lfirst(cell));
		if (lfirst(cell) == text->distance)
			place = foreach_current_index(cell) + 1;
	}
	appendStringInfo(&sql, FROM "%s", text->from);
	if (bound > 0)
		appendStringInfo(&sql, "%s(%s <= $%d::double precision",
						 text->has_where ? " AND " : WHERE, text->distance, bound);
	if (bound > 0 && may_be_null)
		appendStringInfo(&sql, " OR $%d::double precision IS NULL", bound);
	if (bound > 0)
		appendStringInfoChar(&sql, ')');
	if (place > 0)
		appendStringInfo(&sql, ORDER_BY "%d", place);
	else
		appendStringInfo(&sql, ORDER_BY "%s", text->distance);
	appendStringInfo(&sql, NEAREST LIMIT "%s", text->limit);
	return sql.data;
}
