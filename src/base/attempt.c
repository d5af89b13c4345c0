/*
 * attempt.c
 *		Calling functions that may fail, without failing the statement.
 *
 * There is no subtransaction, which would cost a transaction id and is not
 * allowed in parallel mode. So this is for calls of which it is known what
 * they leave behind when they fail: resources, which are released with a
 * resource owner of their own.
 */
#include "postgres.h"

#include "base/attempt.h"
#include "miscadmin.h"
#include "utils/resowner.h"

typedef struct Segment
{
	dsm_handle	handle;
	Size		size;
	dsm_segment *dsm;
} Segment;

/*
 * Call work(arg). If it fails with an error that is not an interrupt, copies
 * the message to error[size] and returns false. Whatever resources work leaves
 * with the current resource owner are released in either case. It must not
 * begin or end a transaction, nor hold an LWLock when it fails.
 */
bool
PipeannAttempt(void (*work) (void *arg), void *arg, char *error, Size size)
{
	MemoryContext context = CurrentMemoryContext;
	ResourceOwner outer = CurrentResourceOwner;
	ResourceOwner owner = ResourceOwnerCreate(outer, "pipeann attempt");
	uint32		holdoff = InterruptHoldoffCount;
	volatile bool done = false;

	PG_TRY();
	{
		CurrentResourceOwner = owner;
		work(arg);
		done = true;
	}
	PG_CATCH();
	{
		ErrorData  *data;

		InterruptHoldoffCount = holdoff;
		CurrentResourceOwner = outer;
		MemoryContextSwitchTo(context);
		data = CopyErrorData();
		if (data->sqlerrcode == ERRCODE_QUERY_CANCELED ||
			data->sqlerrcode == ERRCODE_ADMIN_SHUTDOWN ||
			data->sqlerrcode == ERRCODE_CRASH_SHUTDOWN)
			PG_RE_THROW();
		FlushErrorState();
		strlcpy(error, data->message, size);
		FreeErrorData(data);
	}
	PG_END_TRY();

	CurrentResourceOwner = outer;
	ResourceOwnerRelease(owner, RESOURCE_RELEASE_BEFORE_LOCKS, false, false);
	ResourceOwnerRelease(owner, RESOURCE_RELEASE_LOCKS, false, false);
	ResourceOwnerRelease(owner, RESOURCE_RELEASE_AFTER_LOCKS, false, false);
	ResourceOwnerDelete(owner);
	return done;
}

static void
MakeSegment(void *arg)
{
	Segment    *segment = arg;

	if (segment->handle != DSM_HANDLE_INVALID)
		segment->dsm = dsm_attach(segment->handle);
	else
		segment->dsm = dsm_create(segment->size,
								  DSM_CREATE_NULL_IF_MAXSEGMENTS);
	if (segment->dsm != NULL)
		dsm_pin_mapping(segment->dsm);
}

/*
 * Make a segment of dynamic shared memory, or attach to one if handle is
 * valid, mapped for the life of this backend (dsm_pin_mapping). NULL if that
 * fails, with the reason in error[error_size]. An error may leave a half-made
 * segment behind, which is released with the owner.
 */
dsm_segment *
PipeannAttemptSegment(dsm_handle handle, Size size, char *error,
					  Size error_size)
{
	Segment		segment = {handle, size, NULL};

	if (!PipeannAttempt(MakeSegment, &segment, error, error_size))
		return NULL;
	if (segment.dsm == NULL)
		strlcpy(error, handle != DSM_HANDLE_INVALID ?
				"the dynamic shared memory segment is gone" :
				"too many dynamic shared memory segments", error_size);
	return segment.dsm;
}
