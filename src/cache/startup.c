/*
 * startup.c
 *		Work at library load: settings, shared memory at server start, and a
 *		callback for relations that are dropped.
 */
#include "cache/registry.h"

#include "storage/ipc.h"
#include "utils/guc.h"
#include "utils/inval.h"

static shmem_request_hook_type prev_shmem_request_hook = NULL;
static shmem_startup_hook_type prev_shmem_startup_hook = NULL;

static void
RequestSharedMemory(void)
{
	if (prev_shmem_request_hook)
		prev_shmem_request_hook();
	RequestAddinShmemSpace(add_size(MAXALIGN(sizeof(PipeannControl)),
									PipeannArenaSize()));
}

static void
StartUp(void)
{
	PipeannControl *control;

	if (prev_shmem_startup_hook)
		prev_shmem_startup_hook();
	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	control = PipeannControlFindOrMake();
	PipeannArenaInit(control);
	LWLockRelease(AddinShmemInitLock);
	PipeannControlAttach(control);
}

static void
RelcacheCallback(Datum arg pg_attribute_unused(), Oid relid)
{
	if (relid == InvalidOid || PipeannAttachmentHasRelation(relid) ||
		PipeannRegistryHasRelation(PipeannControlAttached(), relid))
		PipeannSweepOnInvalidation();
}

void
PipeannCacheInit(void)
{
	bool		preload = process_shared_preload_libraries_in_progress;

	DefineCustomIntVariable("pipeann.shared_memory",
							"Sets the shared memory for codes and entry graphs of pipeann indexes.",
							"Zero means that each backend keeps copies of its own. "
							"Reserved at server start when pipeann is in shared_preload_libraries.",
							&pipeann_shared_memory, 128, 0, MAX_KILOBYTES,
							preload ? PGC_POSTMASTER : PGC_SIGHUP,
							GUC_UNIT_MB, NULL, NULL, NULL);
	DefineCustomIntVariable("pipeann.hot_pages",
							"Part of shared_buffers, in per cent, for index pages that searches want often.",
							"Searches bring in no more than this, over all pipeann indexes of the server. Zero: none.",
							&pipeann_hot_pages, 25, 0, 90, PGC_SIGHUP, 0,
							NULL, NULL, NULL);
	CacheRegisterRelcacheCallback(RelcacheCallback, (Datum) 0);
	if (preload)
	{
		prev_shmem_request_hook = shmem_request_hook;
		shmem_request_hook = RequestSharedMemory;
		prev_shmem_startup_hook = shmem_startup_hook;
		shmem_startup_hook = StartUp;
	}
}
