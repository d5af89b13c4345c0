/*
 * build.h
 *		CREATE INDEX; and retraining or REINDEX of an index that is outgrown.
 *
 * This room knows a table's rows, the graph in memory, the format of pages, and
 * codes and entry graph of an index in use. It must not know how rows are
 * inserted, removed and found.
 */
#ifndef PIPEANN_BUILD_H
#define PIPEANN_BUILD_H

#include "base/base.h"

#include "index/index.h"
#include "nodes/execnodes.h"
#include "storage/dsm.h"
#include "storage/shm_toc.h"

/* build.c */
extern IndexBuildResult *pipeannbuild(Relation heap, Relation index,
									  IndexInfo *index_info);
extern void pipeannbuildempty(Relation index);

/* What a phase of a build is called, or NULL. */
extern const char *PipeannPhaseName(int64 phase);

/* Main function of a build's parallel workers, found by its name. */
extern PGDLLEXPORT void PipeannParallelWorker(dsm_segment *seg, shm_toc *toc);

/* coding.c */
extern bool PipeannIsOutgrown(const PipeannMeta *meta);
extern void PipeannRetrain(Relation heap, Relation index, const PipeannMeta *meta);

/* background.c */
extern bool pipeann_auto_reindex;

extern void PipeannKeepUp(Relation heap, Relation index);

/* Main function of the background worker, found by its name. */
extern PGDLLEXPORT void PipeannReindexWorker(Datum arg);

/* ---------- build.c: estimating a build ---------- */

/* A column and its index-to-be. The metric is assumed to be L2. */
typedef struct PipeannBuildInput
{
	uint64		rows;			/* rows that the index will have */
	PipeannType type;
	int			dim;
	const PipeannOptions *options;
	TupleDesc	values;			/* filter and included columns, or NULL */
	int			nfilter;		/* number of these that are filter columns */
	int			nsample;		/* at most PIPEANN_ESTIMATE_SAMPLE */
	Datum	   *sample;			/* [nsample][columns]: the vector, then those
								 * of values */
	bool	   *nulls;			/* [nsample][columns] */
} PipeannBuildInput;

/*
 * More than build/rows.c wants to see before it chooses a storage, as some may
 * be equal.
 */
#define PIPEANN_ESTIMATE_SAMPLE 2000

/* In bytes. */
typedef struct PipeannBuildEstimate
{
	uint64		memory_one_pass;	/* maintenance_work_mem to do without
									 * temporary files for shared arrays */
	uint64		temp_bytes;		/* of temporary files with the current settings */
	uint64		index_bytes;
	uint64		code_bytes;		/* in memory, for searches */
	uint64		shared_memory;	/* pipeann.shared_memory for it alone */
} PipeannBuildEstimate;

extern void PipeannEstimateBuild(const PipeannBuildInput *in,
								 PipeannBuildEstimate *estimate);

#endif							/* PIPEANN_BUILD_H */
