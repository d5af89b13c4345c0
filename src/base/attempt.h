/*
 * attempt.h
 *		Doing what may fail, without the statement failing.
 */
#ifndef PIPEANN_ATTEMPT_H
#define PIPEANN_ATTEMPT_H

#include "postgres.h"

#include "storage/dsm.h"

/*
 * Call work(arg). If it fails with an error that is no interrupt, the message
 * is copied to error[size], and false is returned. Whatever resources work
 * leaves with the current resource owner are released in either case. It must
 * not begin or end a transaction, and hold no lock where it fails.
 */
extern bool PipeannAttempt(void (*work) (void *arg), void *arg, char *error,
						   Size size);

/*
 * Make a segment of dynamic shared memory, or attach to one if handle is
 * valid, mapped for the life of this backend (dsm_pin_mapping). NULL if it is
 * not to be had, with the reason in error[error_size].
 */
extern dsm_segment *PipeannAttemptSegment(dsm_handle handle, Size size,
										  char *error, Size error_size);

#endif							/* PIPEANN_ATTEMPT_H */
