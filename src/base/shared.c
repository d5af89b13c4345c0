/*
 * shared.c
 *		What the processes of a build share.
 *
 * maintenance_work_mem is the limit of all processes together. What does not
 * fit goes to temporary files that are mapped, and so does what the system refuses:
 * /dev/shm of a container is small.
 */
#include "postgres.h"

#include <fcntl.h>
#include <sys/mman.h>

#include "base/attempt.h"
#include "base/shared.h"
#include "miscadmin.h"
#include "storage/fd.h"
#include "storage/fileset.h"
#include "utils/memutils.h"
#include "utils/wait_event.h"

typedef struct PipeannMapped
{
	File		file;
	char	   *at;
	Size		size;
	bool		mapped;
	MemoryContextCallback callback;
} PipeannMapped;

/*
 * Memory of a build that is a temporary file.
 *
 * What a build keeps of every node does not fit maintenance_work_mem when there
 * are many. Then it is mapped from temporary files of PostgreSQL's, and the
 * system keeps of them in memory what it has room for. Nodes have numbers by
 * which near ones follow one another (graph/clusters.c), and the build goes
 * through them in that order. So it works on a part of a file at a time.
 *
 * A file is written before it is mapped: so a full disk is an error, not a
 * signal, temp_file_limit holds, and the statistics know the bytes.
 */

#define BLOCK (1024 * 1024)

static void
FileName(char *name, uint32 number)
{
	snprintf(name, MAXPGPATH, "pipeann.%u", number);
}

static void
WriteZeros(File file, Size size)
{
	char	   *zeros = palloc0(BLOCK);

	for (Size done = 0; done < size; done += BLOCK)
	{
		int			length = (int) Min(size - done, BLOCK);

		CHECK_FOR_INTERRUPTS();
		errno = 0;
		if (FileWrite(file, zeros, length, (off_t) done,
					  WAIT_EVENT_BUFFILE_WRITE) == length)
			continue;
		if (errno == 0)
			errno = ENOSPC;
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not write to file \"%s\": %m",
						FilePathName(file))));
	}
	pfree(zeros);
}

static void
Unmap(void *arg)
{
	PipeannMapped *m = arg;

	if (m->mapped)
		munmap(m->at, m->size);
	m->mapped = false;
}

static PipeannMapped *
Map(File file, Size size)
{
	PipeannMapped *m = palloc0(sizeof(PipeannMapped));

	m->file = file;
	m->size = size;
	m->at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED,
				 FileGetRawDesc(file), 0);
	if (m->at == MAP_FAILED)
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not map file \"%s\": %m", FilePathName(file))));
	m->mapped = true;
	m->callback.func = Unmap;
	m->callback.arg = m;
	MemoryContextRegisterResetCallback(CurrentMemoryContext, &m->callback);
	return m;
}

/*
 * Make the file number `number` of a set, of zeros, and map it. Palloc'd; unmapped
 * with CurrentMemoryContext at the latest. An error if the disk is full, or
 * temp_file_limit forbids it.
 */
static PipeannMapped *
MappedMake(FileSet *files, uint32 number, Size size)
{
	char		name[MAXPGPATH];
	File		file;

	FileName(name, number);
	file = FileSetCreate(files, name);
	WriteZeros(file, size);
	return Map(file, size);
}

/* Map a file that another process has made. */
static PipeannMapped *
MappedOpen(FileSet *files, uint32 number, Size size)
{
	char		name[MAXPGPATH];

	FileName(name, number);
	return Map(FileSetOpen(files, name, O_RDWR), size);
}

/*
 * Unmap and close it; the file stays.
 *
 * The callback stays registered, so the struct has to stay as well.
 */
static void
MappedClose(PipeannMapped *m)
{
	Unmap(m);
	FileClose(m->file);
}

static void
MappedDelete(FileSet *files, uint32 number)
{
	char		name[MAXPGPATH];

	FileName(name, number);
	(void) FileSetDelete(files, name, false);
}

/* So little is not worth a file, nor counting. */
#define SMALL (64 * 1024)

/* Where memory is short, one part of so many is for all but work. */
#define WORK_PART 3

typedef struct Allocation
{
	void	   *at;
	Size		counted;		/* bytes of memory, of s->used */
	dsm_segment *segment;		/* or */
	PipeannMapped *mapped;		/* or private memory */
	uint32		file;
} Allocation;

static void
NoticeFiles(PipeannShares *s, const char *reason)
{
	if (s->noticed)
		return;
	s->noticed = true;
	ereport(NOTICE,
			(errmsg("pipeann index build uses temporary files"),
			 errdetail("%s", reason)));
}

static void
NoticeLimit(PipeannShares *s)
{
	NoticeFiles(s, psprintf("What it needs does not fit maintenance_work_mem, %d MB.",
							maintenance_work_mem / 1024));
}

/* Bytes of memory left; where it is short, most of it is for work. */
Size
PipeannSharesRoom(const PipeannShares *s, bool work)
{
	Size		limit = s->short_of && !work ? s->limit / WORK_PART : s->limit;

	return s->used < limit ? limit - s->used : 0;
}

static bool
Fits(const PipeannShares *s, Size size, bool work)
{
	return size <= SMALL || size <= PipeannSharesRoom(s, work);
}

static Allocation *
Keep(PipeannShares *s, const Allocation *a)
{
	Allocation *copy = palloc(sizeof(Allocation));

	*copy = *a;
	s->used += a->counted;
	s->live = lappend(s->live, copy);
	return copy;
}

static void
MakeFile(PipeannShares *s, Allocation *a, Size size)
{
	a->file = s->nfiles++;
	a->mapped = MappedMake(s->files, a->file, size);
	a->at = a->mapped->at;
	s->file_bytes += size;
}

/* ---------- a team of one ---------- */

static void *
AllocAlone(PipeannShares *s, Size size, bool work)
{
	Allocation	a = {0};

	if (Fits(s, size, work))
	{
		a.at = PipeannAllocZero(size);
		a.counted = size > SMALL ? size : 0;
	}
	else
	{
		NoticeLimit(s);
		MakeFile(s, &a, size);
	}
	return Keep(s, &a)->at;
}

/* ---------- a team of several ---------- */

/* The leader makes a segment if it may, else a file. */
static void
Make(PipeannShares *s, Allocation *a, Size size, bool work, bool segment)
{
	char		error[256] = "a worker could not attach to it";
	bool		fits = Fits(s, size, work);

	if (!fits)
		NoticeLimit(s);
	else if (segment)
	{
		a->segment = PipeannAttemptSegment(DSM_HANDLE_INVALID, size, error,
										   sizeof(error));
		/* a pending cancel makes the system call fail, too */
		CHECK_FOR_INTERRUPTS();
	}
	if (fits && a->segment == NULL)
		NoticeFiles(s, psprintf("Dynamic shared memory is not to be had: %s.",
								error));
	s->share[s->turn].refused = false;
	s->share[s->turn].handle = DSM_HANDLE_INVALID;
	if (a->segment == NULL)
	{
		MakeFile(s, a, size);
		s->share[s->turn].file = a->file;
		return;
	}
	a->at = dsm_segment_address(a->segment);
	a->counted = size > SMALL ? size : 0;
	s->share[s->turn].handle = dsm_segment_handle(a->segment);
	/* memory that the server has reserved was used before */
	if (min_dynamic_shared_memory > 0)
		memset(a->at, 0, size);
}

/* The others attach to it; whether all could is known after a meeting. */
static void
Attach(PipeannShares *s, Allocation *a, Size size)
{
	char		error[256];

	if (s->share[s->turn].handle == DSM_HANDLE_INVALID)
	{
		a->mapped = MappedOpen(s->files, s->share[s->turn].file, size);
		a->at = a->mapped->at;
		return;
	}
	a->segment = PipeannAttemptSegment(s->share[s->turn].handle, 0, error,
									   sizeof(error));
	CHECK_FOR_INTERRUPTS();
	if (a->segment == NULL)
		s->share[s->turn].refused = true;
	else
	{
		a->at = dsm_segment_address(a->segment);
		a->counted = size > SMALL ? size : 0;
	}
}

/* What is exchanged is written over two exchanges later, when all have read it. */
static void
Exchange(PipeannTeam *team, PipeannShares *s, Allocation *a, Size size,
		 bool work, bool segment)
{
	s->turn = 1 - s->turn;
	if (PipeannTeamLeads(team))
		Make(s, a, size, work, segment);
	PipeannTeamMeet(team);
	if (!PipeannTeamLeads(team))
		Attach(s, a, size);
	PipeannTeamMeet(team);
}

static void *
AllocTogether(PipeannTeam *team, PipeannShares *s, Size size, bool work)
{
	Allocation	a = {0};

	Exchange(team, s, &a, size, work, true);
	if (s->share[s->turn].refused)
	{
		if (a.segment != NULL)
			dsm_detach(a.segment);
		memset(&a, 0, sizeof(a));
		Exchange(team, s, &a, size, work, false);
	}
	/* the mapping is this transaction's, so that an error ends it */
	if (a.segment != NULL)
		dsm_unpin_mapping(a.segment);
	return Keep(s, &a)->at;
}

/*
 * Memory that all members of a team share, zeroed; a temporary file if there
 * would be more than s->limit bytes of memory, or if it is not to be had. All
 * members call, in the same order, with the same size.
 */
void *
PipeannSharesAlloc(PipeannTeam *team, PipeannShares *s, Size size, bool work)
{
	size = Max(size, 1);
	return team->members > 1 ? AllocTogether(team, s, size, work) :
		AllocAlone(s, size, work);
}

static void
Release(PipeannTeam *team, PipeannShares *s, Allocation *a)
{
	s->used -= a->counted;
	if (a->segment != NULL)
		dsm_detach(a->segment);
	else if (a->mapped == NULL)
		pfree(a->at);
	else
	{
		MappedClose(a->mapped);
		if (PipeannTeamLeads(team))
			MappedDelete(s->files, a->file);
	}
}

void
PipeannSharesFree(PipeannTeam *team, PipeannShares *s, void *memory)
{
	ListCell   *cell;

	foreach(cell, s->live)
	{
		Allocation *a = lfirst(cell);

		if (a->at != memory)
			continue;
		s->live = foreach_delete_current(s->live, cell);
		Release(team, s, a);
		pfree(a);
		return;
	}
	elog(ERROR, "memory of an index build is not known");
}

/* Give back all that is left. */
void
PipeannSharesFreeAll(PipeannTeam *team, PipeannShares *s)
{
	ListCell   *cell;

	foreach(cell, s->live)
		Release(team, s, lfirst(cell));
	list_free_deep(s->live);
	s->live = NIL;
}
