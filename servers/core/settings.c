/*
 * settings.c
 *		The settings of the library (GUCs).
 */
#include "postgres.h"

#include "core/core.h"
#include "utils/guc.h"
#include "utils/varlena.h"

double		pipeann_shard_coverage;
char	   *pipeann_part_servers;
int			pipeann_part_timeout;

static bool
CheckPartServers(char **value, void **extra, GucSource source)
{
	List	   *names;

	if (SplitIdentifierString(pstrdup(*value), ',', &names))
		return true;
	GUC_check_errdetail("List syntax is invalid.");
	return false;
}

void
PipeannSettingsInit(void)
{
	DefineCustomRealVariable("pipeann_servers.shard_coverage",
							 "Share of the nearest rows that is expected of the servers asked, where rows are divided by cells.",
							 "Others are asked if fewer rows than wanted are found. 1 asks all servers.",
							 &pipeann_shard_coverage, 0.97, 0, 1, PGC_USERSET,
							 GUC_EXPLAIN, NULL, NULL, NULL);
	DefineCustomStringVariable("pipeann_servers.part_servers",
							   "Foreign servers that have the same indexes, each with a part in memory.",
							   "The first has part 1. In mode baton they go on with searches that want pages of their part.",
							   &pipeann_part_servers, "", PGC_SUSET,
							   GUC_LIST_INPUT, CheckPartServers, NULL, NULL);
	DefineCustomIntVariable("pipeann_servers.part_timeout",
							"How long a search waits for other servers, all their answers together.",
							"After that it goes on alone.",
							&pipeann_part_timeout, 1000, 1, 60000,
							PGC_USERSET, GUC_UNIT_MS, NULL, NULL, NULL);
	MarkGUCPrefixReserved("pipeann_servers");
}
