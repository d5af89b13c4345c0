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

extern PipeannMapped *PipeannMappedMake(FileSet *files, uint32 number,
										Size size);
extern PipeannMapped *PipeannMappedOpen(FileSet *files, uint32 number,
										Size size);
extern void PipeannMappedClose(PipeannMapped *m);
extern void PipeannMappedDelete(FileSet *files, uint32 number);

#endif							/* PIPEANN_MAPPED_H */
