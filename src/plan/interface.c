/*
 * interface.c
 *		What this library has for others that are loaded beside it.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_amop.h"
#include "fmgr.h"
#include "plan/distance.h"
#include "plan/element.h"
#include "plan/interface.h"
#include "plan/plan.h"
#include "plan/wrapper.h"
#include "utils/catcache.h"
#include "utils/syscache.h"

static bool
RewritesPlans(void)
{
	return pipeann_rewrite_plans;
}

static bool
IsDistance(Oid operator)
{
	CatCList   *entries = SearchSysCacheList1(AMOPOPID,
											  ObjectIdGetDatum(operator));
	bool		ours = false;

	for (int i = 0; i < entries->n_members && !ours; i++)
	{
		Form_pg_amop entry = (Form_pg_amop)
			GETSTRUCT(&entries->members[i]->tuple);

		ours = entry->amoppurpose == AMOP_ORDER && PipeannIsMethod(entry->amopmethod);
	}
	ReleaseSysCacheList(entries);
	return ours;
}

static const PipeannInterface interface = {
	.version = PIPEANN_INTERFACE_VERSION,
	.rewrites_plans = RewritesPlans,
	.rewrite_query = PipeannAskForElements,
	.is_distance = IsDistance,
	.wrap = PipeannWrap
};

/* Let libraries find the interface (interface.h) from now on. */
void
PipeannInterfaceInit(void)
{
	*find_rendezvous_variable(PIPEANN_INTERFACE) =
		unconstify(PipeannInterface *, &interface);
}
