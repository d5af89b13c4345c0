/*
 * file.c
 *		Descriptors of the segments of indexes' files, for reads past shared_buffers.
 *
 * PostgreSQL may close and reopen its virtual descriptors at any time, so these
 * are kernel descriptors of our own, counted with AcquireExternalFD(). One is
 * closed when the relation's relcache entry is invalidated (dropped, rewritten,
 * moved), when it was unused for longest and another is needed, or when the
 * settings ask for another kind.
 */
#include "io/ring.h"

#include <fcntl.h>
#include <unistd.h>

#include "common/hashfn.h"
#include "common/relpath.h"
#include "storage/fd.h"
#include "utils/inval.h"

#define MAX_FILES 128
#define NUM_CHAINS 256

bool		pipeann_direct_io = true;

static PipeannFile files[MAX_FILES];
static int	chains[NUM_CHAINS];
static int	num_files = 0;		/* entries that were used at some time */
static uint64 use_clock = 0;
static bool direct_refused = false;

static uint32
FileChain(const PipeannLocator *locator, uint32 segment)
{
	return hash_combine(murmurhash32(PipeannLocatorNumber(*locator)),
						murmurhash32(segment)) % NUM_CHAINS;
}

/* Take an entry out of its chain. */
static void
UnlinkFile(PipeannFile *file)
{
	int		   *link = &chains[FileChain(&file->locator, file->segment)];
	int			entry = file - files;

	while (*link != entry)
		link = &files[*link].next;
	*link = file->next;
}

static void
CloseFile(PipeannFile *file)
{
	close(file->fd);
	ReleaseExternalFD();
	file->fd = -1;
}

/*
 * Hide an entry. It is closed now, or when the last read that names it has been
 * handed to the kernel, which then has a reference of its own.
 */
static void
DiscardFile(PipeannFile *file)
{
	UnlinkFile(file);
	file->stale = true;
	if (file->pins == 0)
		CloseFile(file);
}

void
PipeannFileUnpin(PipeannFile *file)
{
	Assert(file->pins > 0);
	if (--file->pins == 0 && file->stale)
		CloseFile(file);
}

static void
RelcacheCallback(Datum arg, Oid relid)
{
	(void) arg;
	for (int i = 0; i < num_files; i++)
	{
		PipeannFile *file = &files[i];

		if (file->fd >= 0 && !file->stale &&
			(relid == InvalidOid || relid == file->relid))
			DiscardFile(file);
	}
}

/* Registers the relcache callback; _PG_init() calls this. */
void
PipeannIoInit(void)
{
	for (int i = 0; i < NUM_CHAINS; i++)
		chains[i] = -1;
	CacheRegisterRelcacheCallback(RelcacheCallback, (Datum) 0);
}

bool
PipeannFileDirectWorks(void)
{
	return !direct_refused;
}

/* Note that a read failed as O_DIRECT does not work; whether it works. */
void
PipeannFileDirectRefused(void)
{
	if (direct_refused)
		return;
	direct_refused = true;
	ereport(LOG,
			(errmsg("direct I/O is not possible on the index's file system"),
			 errdetail("Index pages are read through the kernel's page cache.")));
}

/* The unpinned entry that was unused for longest, or NULL. */
static PipeannFile *
OldestFile(void)
{
	PipeannFile *oldest = NULL;

	for (int i = 0; i < num_files; i++)
	{
		PipeannFile *file = &files[i];

		if (file->fd >= 0 && file->pins == 0 &&
			(oldest == NULL || file->last_used < oldest->last_used))
			oldest = file;
	}
	return oldest;
}

/* Returns an entry with the right to open one descriptor, or NULL. */
static PipeannFile *
TakeFileEntry(void)
{
	PipeannFile *file = NULL;

	for (int i = 0; i < num_files && file == NULL; i++)
		if (files[i].fd < 0)
			file = &files[i];
	if (file == NULL && num_files < MAX_FILES)
	{
		file = &files[num_files++];
		file->fd = -1;
	}
	if (file != NULL && AcquireExternalFD())
		return file;

	file = OldestFile();
	if (file == NULL)
		return NULL;
	DiscardFile(file);
	return AcquireExternalFD() ? file : NULL;
}

static int
OpenSegment(const PipeannLocator *locator, uint32 segment, bool direct)
{
	char		path[MAXPGPATH];
	int			length;
	int			flags = O_RDONLY | O_CLOEXEC | PG_BINARY;
#if PG_VERSION_NUM >= 180000
	RelPathStr	base = relpathperm(*locator, MAIN_FORKNUM);

	length = strlcpy(path, base.str, MAXPGPATH);
#else
	char	   *base = relpathperm(*locator, MAIN_FORKNUM);

	length = strlcpy(path, base, MAXPGPATH);
	pfree(base);
#endif
	if (length >= MAXPGPATH)
		return -1;
	if (segment > 0)
		snprintf(path + length, MAXPGPATH - length, ".%u", segment);
	return BasicOpenFile(path, direct ? flags | PG_O_DIRECT : flags);
}

static PipeannFile *
FindFile(const PipeannLocator *locator, uint32 segment)
{
	for (int i = chains[FileChain(locator, segment)]; i >= 0;
		 i = files[i].next)
	{
		if (files[i].segment == segment &&
			PipeannLocatorEquals(files[i].locator, *locator))
			return &files[i];
	}
	return NULL;
}

/* Enter an open descriptor into its hash chain. */
static void
LinkFile(PipeannFile *file, int fd, bool direct, Relation index,
		 uint32 segment)
{
	int		   *chain;

	file->fd = fd;
	file->direct = direct;
	file->stale = false;
	file->pins = 0;
	file->relid = RelationGetRelid(index);
	file->segment = segment;
	file->locator = PipeannRelationLocator(index);
	chain = &chains[FileChain(&file->locator, segment)];
	file->next = *chain;
	*chain = file - files;
}

static PipeannFile *
OpenFile(Relation index, uint32 segment, bool direct)
{
	PipeannFile *file = TakeFileEntry();
	int			fd;

	if (file == NULL)
		return NULL;
	fd = OpenSegment(&PipeannRelationLocator(index), segment, direct);
	if (fd < 0 && direct && errno == EINVAL)
	{
		PipeannFileDirectRefused();
		direct = false;
		fd = OpenSegment(&PipeannRelationLocator(index), segment, direct);
	}
	if (fd < 0)
	{
		ReleaseExternalFD();
		return NULL;
	}
	LinkFile(file, fd, direct, index, segment);
	return file;
}

/*
 * Returns the descriptor of a segment of the file, pinned. NULL if there is none to
 * be had: then the block must be read through ReadBuffer().
 */
PipeannFile *
PipeannFileOpen(Relation index, uint32 segment, bool direct)
{
	PipeannFile *file = FindFile(&PipeannRelationLocator(index), segment);

	direct = direct && pipeann_direct_io && PG_O_DIRECT != 0 &&
		!direct_refused;
	if (file != NULL && file->direct != direct)
	{
		DiscardFile(file);
		file = NULL;
	}
	if (file == NULL)
		file = OpenFile(index, segment, direct);
	if (file == NULL)
		return NULL;
	file->pins++;
	file->last_used = ++use_clock;
	return file;
}
