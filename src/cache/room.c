/*
 * room.c
 *		Whether there is room for an index's cache at all, and who is told that there is
 *		none.
 */
#include "postgres.h"

#include "cache/cache.h"
#include "cache/registry.h"

/* Whether all the memory that there is would hold such a cache, were it empty. */
bool
PipeannCacheFits(Relation index, const PipeannMeta *meta)
{
	uint64		megabytes;
	Size		size = PipeannCacheMemory(meta, &megabytes);

	return RelationUsesLocalBuffers(index) ||
		(PipeannMayShare(index) ? size / FPM_PAGE_SIZE <= PipeannArenaLimit() :
		 size <= PIPEANN_MOST_OF_OWN);
}

/* Whether each of several processes may have a cache that one of them has got. */
bool
PipeannCacheIsCheap(const PipeannCache *cache)
{
	return cache->place != PIPEANN_CACHE_PRIVATE ||
		cache->bytes <= PIPEANN_MOST_OF_OWN;
}

/*
 * Warn if a cache does not fit, so that every backend that searches would have a copy,
 * or none: better said now than found out later.
 */
void
PipeannCacheWarn(Relation index, const PipeannMeta *meta)
{
	uint64		megabytes;
	bool		too_large = PipeannCacheMemory(meta, &megabytes) > PIPEANN_MOST_OF_OWN;

	if (PipeannCacheFits(index, meta))
		return;
	ereport(WARNING,
			(errmsg("codes of index \"%s\" do not fit pipeann.shared_memory, %d MB",
					RelationGetRelationName(index), pipeann_shared_memory),
			 errdetail(too_large ? "The index can be neither searched nor written." :
					   "Each session that searches the index will have a copy of its own."),
			 errhint("Set pipeann.shared_memory to at least %llu MB, and restart the server.",
					 (unsigned long long) megabytes)));
}
