/*
 * core.c
 *		The library of pipeann itself, which this one works with, and rights on servers.
 */
#include "postgres.h"

#include "catalog/pg_foreign_server.h"
#include "core/core.h"
#include "fmgr.h"
#include "utils/acl.h"

const PipeannInterface *pipeann_core;

void
PipeannFindCore(void)
{
	void	  **found = find_rendezvous_variable(PIPEANN_INTERFACE);

	if (*found == NULL)
		load_file("$libdir/pipeann", false);
	pipeann_core = *found;
	if (pipeann_core == NULL ||
		pipeann_core->version != PIPEANN_INTERFACE_VERSION)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("library \"pipeann_servers\" does not fit library \"pipeann\""),
				 errhint("Install both from the same version, and restart the server.")));
}

bool
PipeannHasUsage(Oid server)
{
#if PG_VERSION_NUM >= 160000
	return object_aclcheck(ForeignServerRelationId, server, GetUserId(),
						   ACL_USAGE) == ACLCHECK_OK;
#else
	return pg_foreign_server_aclcheck(server, GetUserId(), ACL_USAGE) == ACLCHECK_OK;
#endif
}
