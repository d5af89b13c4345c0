/*
 * huge.c
 *		Huge pages for memory that is read at random.
 *
 * Codes are read like that, and each read may miss the TLB. Then the CPU reads
 * the page table, which each process has for itself: where many clients take
 * turns on a CPU, page tables are not in the CPU's cache, either.
 *
 * huge_pages decides for the server's own shared memory, and few systems have
 * reserved huge pages. So if that memory is not in huge pages, the pages of
 * our part of it are collapsed into transparent ones as they are given out
 * (Linux 6.1 and later), whatever the system's default. This needs a mapping
 * whose offsets are multiples of a huge page where its addresses are; the
 * server's may begin anywhere. So a mapping of our own replaces the part. For
 * dynamic segments and private copies the kernel is asked for transparent huge
 * pages, which it grants if the administrator allows it. A refusal never
 * matters.
 */
#include "postgres.h"

#include "base/huge.h"

#include <sys/mman.h>

#include "miscadmin.h"
#include "storage/pg_shmem.h"

#if defined(__linux__) && !defined(MADV_COLLAPSE)
#define MADV_COLLAPSE 25
#endif
#if defined(__linux__) && !defined(MADV_COLD)
#define MADV_COLD 20
#endif

/* The part's own mapping, of whole huge pages; NULL if there is none. */
static char *mapped = NULL;
static char *mapped_end = NULL;

/* Ask for huge pages in other memory. Each process that maps a segment has to ask. */
void
PipeannHugeAdvise(void *address, Size size)
{
#ifdef MADV_HUGEPAGE
	char	   *first = (char *) TYPEALIGN(PIPEANN_HUGE_PAGE, address);
	char	   *end = (char *) TYPEALIGN_DOWN(PIPEANN_HUGE_PAGE,
											  (char *) address + size);

	if (first < end)
		(void) madvise(first, end - first, MADV_HUGEPAGE);
#endif
}

/*
 * At server start: map a part of the server's shared memory so that it can be in
 * huge pages. There is one such part; it begins at a multiple of PIPEANN_HUGE_PAGE.
 *
 * Memory in reserved huge pages stays as it is: it is recognised by refusing
 * MADV_COLD. After a crash the server unmaps its shared memory, with our
 * mapping in it.
 */
void
PipeannHugeMap(void *part, Size size)
{
#ifdef MADV_COLLAPSE
	char	   *first = part;
	char	   *end = first + TYPEALIGN_DOWN(PIPEANN_HUGE_PAGE, size);
	void	   *own;

	mapped = mapped_end = NULL;
	if (first >= end || huge_pages == HUGE_PAGES_OFF ||
		shared_memory_type != SHMEM_TYPE_MMAP ||
		madvise(first, end - first, MADV_COLD) != 0)
		return;
	own = mmap(NULL, end - first, PROT_READ | PROT_WRITE,
			   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (own == MAP_FAILED)
		return;
	if (mremap(own, end - first, end - first, MREMAP_MAYMOVE | MREMAP_FIXED,
			   first) == MAP_FAILED)
		ereport(FATAL,
				(errcode(ERRCODE_OUT_OF_MEMORY),
				 errmsg("could not map shared memory for pipeann: %m")));
	(void) madvise(first, end - first, MADV_HUGEPAGE);
	mapped = first;
	mapped_end = end;
#endif
}

/*
 * Collapse some of it into huge pages, as far as the kernel allows. The kernel
 * refuses memory that this process has never touched. It may take a while if
 * memory is fragmented, so one page at a time.
 */
void
PipeannHugeCollapse(void *address, Size size)
{
#ifdef MADV_COLLAPSE
	char	   *at = Max((char *) TYPEALIGN_DOWN(PIPEANN_HUGE_PAGE, address),
						 mapped);
	char	   *end = Min((char *) address + size, mapped_end);

	for (; at < end && !InterruptPending; at += PIPEANN_HUGE_PAGE)
	{
		(void) *(volatile char *) at;
		if (madvise(at, PIPEANN_HUGE_PAGE, MADV_COLLAPSE) != 0)
			break;
	}
#endif
}
