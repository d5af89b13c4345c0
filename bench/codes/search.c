/*
 * search.c
 *		All queries with one code. The engine is the one of src/: only the kernel
 *		that it scans codes with is replaced.
 */
#include "codes.h"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

/* The engine frees nothing: a process of its own for so many queries. */
#define QUERIES_A_PROCESS 50

Coded		CodesCoded;

/* A code is a node's id. */
static void
ScanDecoded(const float *table, int nchunks, const uint8 *const *codes, int n,
			float *out)
{
	(void) table;
	(void) nchunks;
	for (int i = 0; i < n; i++)
	{
		uint32		id;

		memcpy(&id, codes[i], sizeof(id));
		out[i] = CodesDistance(id);
	}
}

/*
 * Search all queries in a PipeannSearchMode.
 */
void
CodesSearch(const Index *index, const float *vectors, const float *bias,
			int dim, const float *queries, const float *code_queries,
			uint32 nqueries, int mode, int width, int ef, int latency,
			Found *found)
{
	Size		size = nqueries * sizeof(Found);
	Found	   *shared = mmap(NULL, size, PROT_READ | PROT_WRITE,
							  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	PipeannKernels kernels = *PipeannKernel;

	if (shared == MAP_FAILED)
		abort();
	CodesCoded.vectors = vectors;
	CodesCoded.bias = bias;
	CodesCoded.dim = dim;
	kernels.pq_scan = ScanDecoded;
	for (uint32 first = 0; first < nqueries; first += QUERIES_A_PROCESS)
	{
		pid_t		child = fork();
		int			status;

		if (child == 0)
		{
			PipeannKernel = &kernels;
			for (uint32 i = first;
				 i < Min(nqueries, first + QUERIES_A_PROCESS); i++)
			{
				CodesCoded.query = code_queries + (Size) i * dim;
				CodesSearchEngine(index, queries +
								  (Size) i * index->layout.dim, mode, width,
								  ef, latency, &shared[i]);
			}
			_exit(0);
		}
		if (child < 0 || waitpid(child, &status, 0) < 0 || status != 0)
			abort();
	}
	memcpy(found, shared, size);
	munmap(shared, size);
}
