/*
 * poll.c
 *		Waiting for a page awake, while nobody else wants the processor.
 *
 * To sleep until a read is done and to be woken takes long beside what a good disk
 * takes to read. (SIFT, MiniLM, GloVe-100 from the disk of a virtual machine with two
 * cores: awake a search takes 0.89, 0.89, 0.93 of the time and 1.3 to 1.4 times
 * the processor time; two clients get 1.2 times the queries, eight as many.)
 * PipeANN's program polls, too. A server has other uses for its processors, so that
 * this is off unless asked for.
 *
 * Even then the processor is offered to others at each turn, and when someone kept
 * it the next waits are asleep: who sleeps is served at once when its read is done,
 * who polls is one among others. That is also what a container that used up its share
 * of the processor looks like. Where pages take longer than a wait may be awake, none
 * is.
 */
#include "io/ring.h"

#include <sched.h>

#include "portability/instr_time.h"

/*
 * A turn that takes longer, in microseconds, was somebody else's who has more to
 * do than to answer a query.
 */
#define OTHERS_TURN 200

/*
 * Waits asleep after that: twice as many each time, up to most, and half as many
 * after each that was awake to its end.
 */
#define FEWEST_ASLEEP 16
#define MOST_ASLEEP 1024

/* Weight of the last wait in the usual one. */
#define LAST_WEIGHT 0.125

int			pipeann_busy_poll;

static double usual_us = 0;		/* how long a wait takes */
static int	asleep = 0;			/* waits still to be asleep */
static int	next_asleep = FEWEST_ASLEEP;

static double
MicrosecondsSince(instr_time start)
{
	instr_time	now;

	INSTR_TIME_SET_CURRENT(now);
	INSTR_TIME_SUBTRACT(now, start);
	return INSTR_TIME_GET_DOUBLE(now) * 1e6;
}

bool
PipeannPollIsWorthIt(void)
{
	if (pipeann_busy_poll == 0 || usual_us > pipeann_busy_poll)
		return false;
	if (asleep > 0)
	{
		asleep--;
		return false;
	}
	return true;
}

bool
PipeannPoll(bool (*is_done) (void))
{
	instr_time	start;
	double		before = 0;

	INSTR_TIME_SET_CURRENT(start);
	while (before < pipeann_busy_poll)
	{
		double		after;

		if (is_done())
		{
			next_asleep = Max(next_asleep / 2, FEWEST_ASLEEP);
			return true;
		}
		(void) sched_yield();
		after = MicrosecondsSince(start);
		if (after - before > OTHERS_TURN)
		{
			asleep = next_asleep;
			next_asleep = Min(next_asleep * 2, MOST_ASLEEP);
			break;
		}
		before = after;
	}
	return is_done();
}

void
PipeannPollNote(instr_time start)
{
	usual_us += (MicrosecondsSince(start) - usual_us) * LAST_WEIGHT;
}
