/*
 * core.c
 *		The library of pipeann itself, beside which this one works.
 */
#include "postgres.h"

#include "fmgr.h"
#include "queries/queries.h"

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
				 errhint("Install both from the same version, and start the server anew.")));
}
