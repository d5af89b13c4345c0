/*
 * mapped.h
 *		Memory of a build that is a temporary file.
 */
#ifndef PIPEANN_MAPPED_H
#define PIPEANN_MAPPED_H

#include "postgres.h"

#include "storage/fd.h"
#include "storage/fileset.h"

typedef struct PipeannMapped
{
	File		file;
	char	   *at;
	Size		size;
	bool		mapped;
	MemoryContextCallback callback;
} PipeannMapped;

/*
 * Make the file number `number` of a set, of zeros, and map it. Palloc'd; unmapped
 * with CurrentMemoryContext at the latest. An error if the disk is full, or
 * temp_file_limit forbids it.
 */
extern PipeannMapped *PipeannMappedMake(FileSet *files, uint32 number,
										Size size);

/* Map a file that another process has made. */
extern PipeannMapped *PipeannMappedOpen(FileSet *files, uint32 number,
										Size size);

/* Unmap and close it; the file stays. */
extern void PipeannMappedClose(PipeannMapped *m);

extern void PipeannMappedDelete(FileSet *files, uint32 number);

#endif							/* PIPEANN_MAPPED_H */
