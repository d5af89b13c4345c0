/*
 * validate.c
 *		The validator of operator classes.
 */
#include "postgres.h"

#include "access/amvalidate.h"
#include "access/htup_details.h"
#include "am/am.h"
#include "index/index.h"
#include "catalog/pg_amop.h"
#include "catalog/pg_amproc.h"
#include "catalog/pg_opclass.h"
#include "catalog/pg_opfamily.h"
#include "catalog/pg_type.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/regproc.h"
#include "utils/syscache.h"

static bool
ValidateProc(const char *opfamily, Form_pg_amproc proc)
{
	if (proc->amproclefttype != proc->amprocrighttype)
	{
		ereport(INFO,
				(errcode(ERRCODE_INVALID_OBJECT_DEFINITION),
				 errmsg("operator family \"%s\" of access method %s contains support function %s with different left and right input types",
						opfamily, "pipeann",
						format_procedure(proc->amproc))));
		return false;
	}
	if (proc->amprocnum != PIPEANN_METRIC_PROC &&
		proc->amprocnum != PIPEANN_OPTIONS_PROC)
	{
		ereport(INFO,
				(errcode(ERRCODE_INVALID_OBJECT_DEFINITION),
				 errmsg("operator family \"%s\" of access method %s contains function %s with invalid support number %d",
						opfamily, "pipeann", format_procedure(proc->amproc),
						proc->amprocnum)));
		return false;
	}
	if (proc->amprocnum == PIPEANN_OPTIONS_PROC ?
		!check_amoptsproc_signature(proc->amproc) :
		!check_amproc_signature(proc->amproc, INT4OID, true, 0, 0))
	{
		ereport(INFO,
				(errcode(ERRCODE_INVALID_OBJECT_DEFINITION),
				 errmsg("operator family \"%s\" of access method %s contains function %s with wrong signature for support number %d",
						opfamily, "pipeann", format_procedure(proc->amproc),
						proc->amprocnum)));
		return false;
	}
	return true;
}

static bool
IsValidOrdering(Form_pg_amop oper)
{
	return oper->amoppurpose == AMOP_ORDER &&
		opfamily_can_sort_type(oper->amopsortfamily, FLOAT8OID);
}

/* A distance orders, all other operators are conditions. */
static bool
ValidateOperator(const char *opfamily, Form_pg_amop oper)
{
	bool		is_distance = oper->amopstrategy == PIPEANN_DISTANCE_STRATEGY;

	if (oper->amopstrategy < 1 || oper->amopstrategy > PIPEANN_NUM_STRATEGIES)
	{
		ereport(INFO,
				(errcode(ERRCODE_INVALID_OBJECT_DEFINITION),
				 errmsg("operator family \"%s\" of access method %s contains operator %s with invalid strategy number %d",
						opfamily, "pipeann", format_operator(oper->amopopr),
						oper->amopstrategy)));
		return false;
	}
	if (is_distance ? !IsValidOrdering(oper) :
		oper->amoppurpose != AMOP_SEARCH)
	{
		ereport(INFO,
				(errcode(ERRCODE_INVALID_OBJECT_DEFINITION),
				 errmsg("operator family \"%s\" of access method %s contains invalid ORDER BY specification for operator %s",
						opfamily, "pipeann", format_operator(oper->amopopr))));
		return false;
	}
	if (!check_amop_signature(oper->amopopr,
							  is_distance ? FLOAT8OID : BOOLOID,
							  oper->amoplefttype, oper->amoprighttype))
	{
		ereport(INFO,
				(errcode(ERRCODE_INVALID_OBJECT_DEFINITION),
				 errmsg("operator family \"%s\" of access method %s contains operator %s with wrong signature",
						opfamily, "pipeann", format_operator(oper->amopopr))));
		return false;
	}
	return true;
}

static bool
ValidateMembers(Oid opfamily, const char *name)
{
	CatCList   *procs = SearchSysCacheList1(AMPROCNUM,
											ObjectIdGetDatum(opfamily));
	CatCList   *operators = SearchSysCacheList1(AMOPSTRATEGY,
												ObjectIdGetDatum(opfamily));
	bool		result = true;

	for (int i = 0; i < procs->n_members; i++)
		if (!ValidateProc(name, (Form_pg_amproc)
						  GETSTRUCT(&procs->members[i]->tuple)))
			result = false;
	for (int i = 0; i < operators->n_members; i++)
		if (!ValidateOperator(name, (Form_pg_amop)
							  GETSTRUCT(&operators->members[i]->tuple)))
			result = false;
	ReleaseCatCacheList(procs);
	ReleaseCatCacheList(operators);
	return result;
}

/* Whether the family has any operator of this kind for the type alone. */
static bool
HasOperator(Oid opfamily, Oid intype, bool distance)
{
	for (int i = 1; i <= PIPEANN_NUM_STRATEGIES; i++)
		if ((i == PIPEANN_DISTANCE_STRATEGY) == distance &&
			OidIsValid(get_opfamily_member(opfamily, intype, intype, i)))
			return true;
	return false;
}

/*
 * An operator class of a vector needs its own metric function and distance
 * operator; another one has conditions, and no metric.
 */
static bool
ValidateComplete(Oid opfamily, Oid intype, const char *opclass)
{
	bool		is_vector =
		OidIsValid(get_opfamily_proc(opfamily, intype, intype,
									 PIPEANN_METRIC_PROC));

	if (HasOperator(opfamily, intype, is_vector) &&
		!HasOperator(opfamily, intype, !is_vector))
		return true;
	ereport(INFO,
			(errcode(ERRCODE_INVALID_OBJECT_DEFINITION),
			 errmsg("operator class \"%s\" of access method %s is missing its support function or its operator",
					opclass, "pipeann")));
	return false;
}

static char *
FamilyName(Oid opfamily)
{
	HeapTuple	tuple = SearchSysCache1(OPFAMILYOID,
										ObjectIdGetDatum(opfamily));
	char	   *name;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for operator family %u", opfamily);
	name = pstrdup(NameStr(((Form_pg_opfamily) GETSTRUCT(tuple))->opfname));
	ReleaseSysCache(tuple);
	return name;
}

bool
pipeannvalidate(Oid opclassoid)
{
	HeapTuple	tuple = SearchSysCache1(CLAOID, ObjectIdGetDatum(opclassoid));
	Form_pg_opclass opclass;
	char	   *family;
	bool		result;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for operator class %u", opclassoid);
	opclass = (Form_pg_opclass) GETSTRUCT(tuple);
	family = FamilyName(opclass->opcfamily);
	result = ValidateMembers(opclass->opcfamily, family);
	if (!ValidateComplete(opclass->opcfamily, opclass->opcintype,
						  NameStr(opclass->opcname)))
		result = false;
	ReleaseSysCache(tuple);
	return result;
}
