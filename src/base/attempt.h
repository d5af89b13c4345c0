/*
 * attempt.h
 *		Calling functions that may fail, without failing the statement.
 */
#ifndef PIPEANN_ATTEMPT_H
#define PIPEANN_ATTEMPT_H

#include "postgres.h"

#include "storage/dsm.h"

extern bool PipeannAttempt(void (*work) (void *arg), void *arg, char *error,
						   Size size);
extern dsm_segment *PipeannAttemptSegment(dsm_handle handle, Size size,
										  char *error, Size error_size);

#endif							/* PIPEANN_ATTEMPT_H */
