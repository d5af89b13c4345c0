/*
 * profile.c
 *		Measuring how long this machine takes to read a random block.
 *
 * Reads blocks as a search does, several in flight, past shared_buffers, by the
 * method of this backend. The contents are ignored.
 */
#include "io/ring.h"

#include "portability/instr_time.h"

#define IN_FLIGHT 8
#define ROUNDS 16
#define ROUND_READS 24

typedef struct Profile
{
	Relation	relation;
	BlockNumber nblocks;
	uint64		random;
	PipeannReadOwner owner;
	int			in_flight;
	PipeannBufferedFrame *frames[IN_FLIGHT];
	bool		failed;
} Profile;

/* The next block of a fixed random sequence. */
static BlockNumber
NextBlock(Profile *profile)
{
	profile->random ^= profile->random << 13;
	profile->random ^= profile->random >> 7;
	profile->random ^= profile->random << 17;
	return profile->random % profile->nblocks;
}

static void
QueueOne(Profile *profile, PipeannBufferedFrame *frame)
{
	PipeannRead *read = &frame->read;
	BlockNumber blkno = NextBlock(profile);

	PipeannReadReserve();
	read->file = PipeannFileOpen(profile->relation, blkno / RELSEG_SIZE,
								 PipeannRingInUse());
	if (read->file == NULL)
	{
		profile->failed = true;
		return;
	}
	read->owner = &profile->owner;
	read->buffer = frame->buffer;
	read->length = BLCKSZ;
	read->offset = (off_t) (blkno % RELSEG_SIZE) * BLCKSZ;
	PipeannReadQueue(read);
}

/*
 * Wait for a read; returns how many were done. With go_on, start as many
 * again.
 */
static int
CollectReads(Profile *profile, bool go_on)
{
	int			n = 0;

	PipeannReadWait(&profile->owner, profile->in_flight);
	while (!dlist_is_empty(&profile->owner.done))
	{
		PipeannRead *read = dlist_container(PipeannRead, node,
											dlist_pop_head_node(&profile->owner.done));

		read->state = PIPEANN_READ_IDLE;
		if (read->direct && read->result == -EINVAL)
			PipeannFileDirectRefused();
		profile->failed |= read->lost || read->result != read->length;
		n++;
		if (go_on && !profile->failed)
			QueueOne(profile, PipeannReadFrame(read));
	}
	return n;
}

static int
CompareDoubles(const void *a, const void *b)
{
	double		x = *(const double *) a;
	double		y = *(const double *) b;

	return (x > y) - (x < y);
}

/*
 * The median of times[n], which are sorted for it: others use the machine, too.
 */
double
PipeannProfileMedian(double *times, int n)
{
	qsort(times, n, sizeof(double), CompareDoubles);
	return times[n / 2];
}

/*
 * Microseconds a read: the median of rounds, as others may use the disk, too.
 */
static double
ReadRounds(Profile *profile)
{
	double		us[ROUNDS];

	for (int i = 0; i < IN_FLIGHT && !profile->failed; i++)
		QueueOne(profile, profile->frames[i]);
	for (int round = 0; round < ROUNDS && !profile->failed; round++)
	{
		instr_time	start;
		instr_time	duration;
		int			reads = 0;

		INSTR_TIME_SET_CURRENT(start);
		while (reads < ROUND_READS && !profile->failed)
			reads += CollectReads(profile, true);
		INSTR_TIME_SET_CURRENT(duration);
		INSTR_TIME_SUBTRACT(duration, start);
		us[round] = INSTR_TIME_GET_DOUBLE(duration) * 1e6 / reads;
	}
	while (profile->in_flight > 0)
		(void) CollectReads(profile, false);
	if (profile->failed)
		return 0;
	return PipeannProfileMedian(us, ROUNDS);
}

/* Free the frames; one that the kernel still reads into becomes an orphan. */
static void
GiveBack(Profile *profile)
{
	for (int i = 0; i < IN_FLIGHT; i++)
		if (profile->frames[i] != NULL &&
			PipeannReadCancel(&profile->frames[i]->read))
			PipeannFrameFree(profile->frames[i]);
	PipeannFrameTrim();
}

/*
 * Set *us to the microseconds that a random read of a block takes while
 * several are in flight, measured on a relation of nblocks blocks. False if
 * the relation is temporary or reads fail.
 */
bool
PipeannProfileReads(Relation relation, BlockNumber nblocks, double *us)
{
	Profile		profile;

	if (nblocks == 0 || RelationUsesLocalBuffers(relation))
		return false;
	memset(&profile, 0, sizeof(profile));
	profile.relation = relation;
	profile.nblocks = nblocks;
	profile.random = 88172645463325252u;
	profile.owner.in_flight = &profile.in_flight;
	dlist_init(&profile.owner.done);
	PG_TRY();
	{
		for (int i = 0; i < IN_FLIGHT; i++)
			profile.frames[i] = PipeannFrameAlloc(1);
		*us = ReadRounds(&profile);
	}
	PG_CATCH();
	{
		GiveBack(&profile);
		PG_RE_THROW();
	}
	PG_END_TRY();
	GiveBack(&profile);
	return !profile.failed && *us > 0;
}
