/*
 * mapped.c
 *		Memory of a build that is a temporary file.
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
#include "postgres.h"

#include <fcntl.h>
#include <sys/mman.h>

#include "base/mapped.h"
#include "miscadmin.h"
#include "utils/memutils.h"
#include "utils/wait_event.h"

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
PipeannMapped *
PipeannMappedMake(FileSet *files, uint32 number, Size size)
{
	char		name[MAXPGPATH];
	File		file;

	FileName(name, number);
	file = FileSetCreate(files, name);
	WriteZeros(file, size);
	return Map(file, size);
}

/* Map a file that another process has made. */
PipeannMapped *
PipeannMappedOpen(FileSet *files, uint32 number, Size size)
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
void
PipeannMappedClose(PipeannMapped *m)
{
	Unmap(m);
	FileClose(m->file);
}

void
PipeannMappedDelete(FileSet *files, uint32 number)
{
	char		name[MAXPGPATH];

	FileName(name, number);
	(void) FileSetDelete(files, name, false);
}
