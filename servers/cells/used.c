/*
 * used.c
 *		Counting how often cells are asked, in shared memory.
 *
 * There is room for that if the library is preloaded: for a number of cells. When
 * others come, those that were asked least are dropped.
 */
#include "postgres.h"

#include "catalog/pg_foreign_server.h"
#include "cells/cells.h"
#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"
#include "utils/syscache.h"

#define MOST_COUNTS 16384
#define MOST_NAMES 32

typedef struct NameCounts
{
	Oid			database;
	Oid			server;
	int			first;			/* its first count */
	PipeannCellsUse use;
} NameCounts;

typedef struct Counts
{
	LWLock		lock;
	int			tranche;
	int			nnames;
	int			ncounts;
	NameCounts		names[MOST_NAMES];
	uint32		count[MOST_COUNTS]; /* of queries in a cell */
} Counts;

static Counts *counts;
static shmem_request_hook_type former_request;
static shmem_startup_hook_type former_startup;

static void
Request(void)
{
	if (former_request)
		former_request();
	RequestAddinShmemSpace(MAXALIGN(sizeof(Counts)));
}

static void
StartUp(void)
{
	bool		found;

	if (former_startup)
		former_startup();
	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	counts = ShmemInitStruct("pipeann cells", sizeof(Counts), &found);
	if (!found)
	{
		memset(counts, 0, sizeof(Counts));
		counts->tranche = LWLockNewTrancheId();
		LWLockInitialize(&counts->lock, counts->tranche);
	}
	LWLockRelease(AddinShmemInitLock);
	LWLockRegisterTranche(counts->tranche, "pipeann cells");
}

/* Have the server make room for counts, when it starts. */
void
PipeannCellsPreload(void)
{
	if (!process_shared_preload_libraries_in_progress)
		return;
	former_request = shmem_request_hook;
	shmem_request_hook = Request;
	former_startup = shmem_startup_hook;
	shmem_startup_hook = StartUp;
}

static NameCounts *
Find(Oid server)
{
	for (int i = 0; i < counts->nnames; i++)
		if (counts->names[i].server == server &&
			counts->names[i].database == MyDatabaseId)
			return &counts->names[i];
	return NULL;
}

static void
Drop(NameCounts *name)
{
	NameCounts *next = name + 1;
	int			ncells = name->use.ncells;
	uint32	   *count = counts->count + name->first;

	counts->ncounts -= ncells;
	memmove(count, count + ncells,
			(counts->ncounts - name->first) * sizeof(uint32));
	for (NameCounts *later = next; later < counts->names + counts->nnames; later++)
		later->first -= ncells;
	memmove(name, next,
			(counts->names + counts->nnames - next) * sizeof(NameCounts));
	counts->nnames--;
}

static NameCounts *
LeastUsed(void)
{
	NameCounts *least = counts->names;

	for (int i = 1; i < counts->nnames; i++)
		if (counts->names[i].use.queries < least->use.queries)
			least = &counts->names[i];
	return least;
}

static NameCounts *
FindOrAdd(Oid server, int ncells)
{
	NameCounts *name = Find(server);

	/* with another number these are other cells */
	if (name != NULL && name->use.ncells == ncells)
		return name;
	if (name != NULL)
		Drop(name);
	while (counts->nnames == MOST_NAMES || counts->ncounts + ncells > MOST_COUNTS)
		Drop(LeastUsed());
	name = &counts->names[counts->nnames++];
	memset(name, 0, sizeof(NameCounts));
	name->database = MyDatabaseId;
	name->server = server;
	name->first = counts->ncounts;
	name->use.ncells = ncells;
	memset(counts->count + name->first, 0, ncells * sizeof(uint32));
	counts->ncounts += ncells;
	return name;
}

static Oid
ServerOf(const char *cells)
{
	return GetSysCacheOid1(FOREIGNSERVERNAME, Anum_pg_foreign_server_oid,
						   CStringGetDatum(cells));
}

/* Count parts and waves, and a query that begins: cell is its nearest one, else -1. */
void
PipeannCellsNote(const char *cells, int ncells, int cell, int nparts, int nwaves)
{
	Oid			server = counts == NULL ? InvalidOid : ServerOf(cells);
	NameCounts *name;

	if (!OidIsValid(server))
		return;
	LWLockAcquire(&counts->lock, LW_EXCLUSIVE);
	name = FindOrAdd(server, ncells);
	name->use.queries += cell >= 0;
	name->use.parts += nparts;
	name->use.waves += nwaves;
	if (cell >= 0)
		counts->count[name->first + cell]++;
	LWLockRelease(&counts->lock);
}

/*
 * What was counted, and the queries of each cell, *of_cell[use.ncells]; no cells if there
 * is no room for counts, or none was asked.
 */
PipeannCellsUse
PipeannCellsUsed(const char *cells, uint32 **of_cell)
{
	uint32	   *copy = palloc(sizeof(counts->count));
	PipeannCellsUse use = {0};
	Oid			server = ServerOf(cells);
	const NameCounts *name;

	*of_cell = copy;
	if (counts == NULL)
		return use;
	LWLockAcquire(&counts->lock, LW_SHARED);
	name = Find(server);
	if (name != NULL)
	{
		use = name->use;
		memcpy(copy, counts->count + name->first, use.ncells * sizeof(uint32));
	}
	LWLockRelease(&counts->lock);
	return use;
}
