/*
 * baton.h
 *		Searches that other servers go on with; part of search.h.
 */
#ifndef PIPEANN_BATON_H
#define PIPEANN_BATON_H

#include "storage/slot.h"

struct PipeannResult;
struct PipeannSearch;
struct PipeannSearchParams;

/* What a search does when it was to be passed on to whoever has a part in memory. */
typedef enum PipeannPassed
{
	PIPEANN_PASSED,				/* goes on: it knows what was found there */
	PIPEANN_NOT_PASSED,			/* reads the pages of this part by itself */
	PIPEANN_PASSES_BACK			/* ends its run: it has come from elsewhere */
} PipeannPassed;

typedef PipeannPassed (*PipeannPassOn) (struct PipeannSearch *search, uint32 part,
										void *arg);

/* Takes away what is not to be believed of a result that another server has found. */
typedef void (*PipeannDoubt) (struct PipeannResult *result, PipeannRowList *rows,
							  void *arg);

extern Size PipeannSearchExportSize(const struct PipeannSearch *search);
extern Size PipeannSearchExport(struct PipeannSearch *search, bool back, char *to);
extern bool PipeannSearchTakeParams(const char *from, Size size,
									struct PipeannSearchParams *params);
extern bool PipeannSearchImport(struct PipeannSearch *search, bool back,
								const char *from, Size size);
extern void PipeannSearchStep(struct PipeannSearch *search);

#endif							/* PIPEANN_BATON_H */
