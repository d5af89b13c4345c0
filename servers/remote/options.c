/*
 * options.c
 *		The options with which a server is connected to, and which users may connect.
 *
 * The rules are postgres_fdw's. If an option is not known here, or asks for more
 * than a connection, postgres_fdw's connection has to be used.
 */
#include "postgres.h"

#include "commands/defrem.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "remote/connection.h"
#include "utils/guc.h"

/* Options of postgres_fdw that do not concern our connections. */
static const char *const passed_over[] = {
	"analyze_sampling", "async_capable", "batch_size", "extensions",
	"fdw_startup_cost", "fdw_tuple_cost", "fetch_size", "parallel_abort",
	"parallel_commit", "password_required", "truncatable", "updatable",
	"use_remote_estimate"
};

static bool
IsPassedOver(const char *name)
{
	for (size_t i = 0; i < lengthof(passed_over); i++)
		if (strcmp(name, passed_over[i]) == 0)
			return true;
	return false;
}

/*
 * Whether an option is libpq's, and neither one that postgres_fdw sets nor for delegated
 * credentials.
 */
static bool
IsOfLibrary(const PQconninfoOption *known, const char *name)
{
	if (strcmp(name, "gssdelegation") == 0)
		return false;
	for (; known->keyword != NULL; known++)
		if (strcmp(known->keyword, name) == 0)
			return strchr(known->dispchar, 'D') == NULL;
	return false;
}

static bool
AddOptions(const List *given, const PQconninfoOption *known,
		   ConnectOptions *options, int *n)
{
	ListCell   *cell;

	foreach(cell, given)
	{
		DefElem    *option = lfirst_node(DefElem, cell);

		if (strcmp(option->defname, "keep_connections") == 0)
		{
			if (!defGetBoolean(option))
				return false;
			continue;
		}
		if (IsPassedOver(option->defname))
			continue;
		if (!IsOfLibrary(known, option->defname))
			return false;
		if (strcmp(option->defname, "connect_timeout") == 0)
			options->timeout = Max(atoi(defGetString(option)), 0);
		options->keywords[*n] = option->defname;
		options->values[(*n)++] = defGetString(option);
	}
	return true;
}

static bool
NeedsPassword(const UserMapping *user)
{
	ListCell   *cell;

	if (superuser_arg(user->userid))
		return false;
	foreach(cell, user->options)
	{
		DefElem    *option = lfirst_node(DefElem, cell);

		if (strcmp(option->defname, "password_required") == 0)
			return defGetBoolean(option);
	}
	return true;
}

static bool
HasPassword(const ConnectOptions *options)
{
	for (int i = 0; options->keywords[i] != NULL; i++)
		if (strcmp(options->keywords[i], "password") == 0 &&
			options->values[i][0] != '\0')
			return true;
	return false;
}

/* Without a password a user would connect as the server's operating system user. */
bool
PipeannMayUse(const UserMapping *user, bool used_password)
{
	return used_password || !NeedsPassword(user);
}

bool
PipeannConnectOptions(const ForeignServer *server, const UserMapping *user,
					  ConnectOptions *options)
{
	int			most = list_length(server->options) +
		list_length(user->options) + 3;
	const char *name = GetConfigOption("postgres_fdw.application_name", true,
									   false);
	PQconninfoOption *known;
	int			n = 0;
	bool		fit;

	if (name != NULL && name[0] != '\0')
		return false;
	options->timeout = 0;
	options->keywords = palloc0(most * sizeof(char *));
	options->values = palloc0(most * sizeof(char *));
	known = PQconndefaults();
	if (known == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_FDW_OUT_OF_MEMORY),
				 errmsg("out of memory")));
	fit = AddOptions(server->options, known, options, &n) &&
		AddOptions(user->options, known, options, &n);
	PQconninfoFree(known);
	options->keywords[n] = "fallback_application_name";
	options->values[n++] = "pipeann";
	options->keywords[n] = "client_encoding";
	options->values[n++] = GetDatabaseEncodingName();
	return fit && PipeannMayUse(user, HasPassword(options));
}
