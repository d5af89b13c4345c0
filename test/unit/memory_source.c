/*
 * memory_source.c
 *		A page source whose reads complete late and in random order.
 */
#include "memory_source.h"

static void
Land(MemorySource *memory, MemoryFrame *frame)
{
	const Index *index = memory->index;

	frame->copy = PipeannAlloc(index->page_size);
	memcpy(frame->copy, index->data + frame->frame.page * index->page_size,
		   index->page_size);
	frame->frame.slot = PIPEANN_ALL_SLOTS;
	frame->frame.nodes = frame->copy;
	frame->frame.state = PIPEANN_FRAME_READY;
}

/*
 * Leave in a frame's copy nothing but a slot, if one is asked for; now and then
 * the whole page comes all the same.
 */
static void
KeepSlot(MemorySource *memory, MemoryFrame *frame, int slot)
{
	const Index *index = memory->index;
	Size		size = index->layout.slot_size;

	memcpy(frame->copy, index->data + frame->frame.page * index->page_size,
		   index->page_size);
	frame->frame.slot = PIPEANN_ALL_SLOTS;
	if (slot == PIPEANN_ALL_SLOTS || UnitRandom(&memory->random) % 8 == 0)
		return;
	frame->frame.slot = slot;
	for (int i = 0; i < index->layout.slots_per_page; i++)
		if (i != slot)
			memset(frame->copy + i * size, 0x7E, size);
}

static bool
IsResident(const MemorySource *memory, uint32 page)
{
	return (page * 2654435761U >> 16) % 100 < (uint32) memory->resident;
}

static bool
IsBeingRead(const MemoryFrame *frame)
{
	return frame->frame.state == PIPEANN_FRAME_IN_FLIGHT && !frame->came;
}

/*
 * No more reads may start: wait for one. The search is told of it by next().
 */
static void
MakeRoom(MemorySource *memory)
{
	for (int i = 0; i < memory->nframes; i++)
		if (IsBeingRead(memory->frames[i]))
		{
			memory->frames[i]->came = true;
			memory->frames[i]->looks = 0;
			memory->source.in_flight--;
			return;
		}
}

static PipeannFrame *
MemoryRequest(PipeannPageSource *source, uint32 page, int slot)
{
	MemorySource *memory = (MemorySource *) source;
	MemoryFrame *frame = PipeannAllocZero(sizeof(MemoryFrame));

	if (page >= memory->index->pages)
	{
		printf("Bail out! page %u of %u was requested\n", page,
			   memory->index->pages);
		exit(1);
	}
	if (memory->held[page] || memory->nframes == MAX_FRAMES)
		memory->mistakes++;
	if (source->in_flight >= source->max_in_flight)
		MakeRoom(memory);
	memory->held[page] = true;
	memory->requests[page]++;
	memory->frames[memory->nframes++] = frame;
	memory->most_frames = Max(memory->most_frames, memory->nframes);
	frame->frame.page = page;
	if (IsResident(memory, page))
	{
		frame->frame.hit = true;
		frame->told = true;
		memory->counters.page_hits++;
		Land(memory, frame);
		KeepSlot(memory, frame, slot);
		return &frame->frame;
	}
	frame->frame.state = PIPEANN_FRAME_IN_FLIGHT;
	frame->looks = UnitRandom(&memory->random) % 6;
	source->in_flight++;
	memory->counters.page_reads++;
	memory->counters.in_flight_peak = Max(memory->counters.in_flight_peak,
										  (uint64) source->in_flight);
	return &frame->frame;
}

static PipeannFrame *
MemoryRequestResident(PipeannPageSource *source, uint32 page, int slot)
{
	return IsResident((MemorySource *) source, page) ?
		MemoryRequest(source, page, slot) : NULL;
}

/* Only of what may be asked for, and only while nothing was read. */
static void
MemoryPrefetch(PipeannPageSource *source, uint32 page, int slot)
{
	MemorySource *memory = (MemorySource *) source;

	if (page >= memory->index->pages || slot < PIPEANN_ALL_SLOTS ||
		slot >= (int) memory->index->layout.slots_per_page ||
		source->counters->page_reads > 0)
		memory->mistakes++;
}

static void
MemoryLoad(PipeannPageSource *source, PipeannFrame *frame, int slot)
{
	MemorySource *memory = (MemorySource *) source;

	if (frame->state != PIPEANN_FRAME_READY || !frame->hit ||
		frame->slot == PIPEANN_ALL_SLOTS || frame->slot == slot)
		memory->mistakes++;
	memory->requests[frame->page]++;
	KeepSlot(memory, (MemoryFrame *) frame, slot);
}

static void
MemorySubmit(PipeannPageSource *source)
{
	(void) source;
}

static bool
Untold(const MemorySource *memory)
{
	for (int i = 0; i < memory->nframes; i++)
		if (!memory->frames[i]->told)
			return true;
	return false;
}

static PipeannFrame *
MemoryNext(PipeannPageSource *source, bool wait)
{
	MemorySource *memory = (MemorySource *) source;
	int			first = memory->nframes == 0 ? 0 :
		UnitRandom(&memory->random) % memory->nframes;

	do
	{
		for (int i = 0; i < memory->nframes; i++)
		{
			MemoryFrame *frame = memory->frames[(first + i) % memory->nframes];

			if (frame->told || frame->looks-- > 0)
				continue;
			frame->told = true;
			if (IsBeingRead(frame))
				source->in_flight--;
			Land(memory, frame);
			return &frame->frame;
		}
	} while (wait && Untold(memory));
	return NULL;
}

static void
MemoryRelease(PipeannPageSource *source, PipeannFrame *released)
{
	MemorySource *memory = (MemorySource *) source;

	for (int i = 0; i < memory->nframes; i++)
	{
		MemoryFrame *frame = memory->frames[i];

		if (&frame->frame != released)
			continue;
		if (IsBeingRead(frame))
			source->in_flight--;
		memory->held[frame->frame.page] = false;
		memory->frames[i] = memory->frames[--memory->nframes];
		if (frame->copy != NULL)
			memset(frame->copy, 0x7E, memory->index->page_size);
		free(frame->copy);
		memset(frame, 0x7E, sizeof(*frame));
		free(frame);
		return;
	}
	memory->mistakes++;
}

MemorySource *
OpenSource(const Index *index, int resident, uint64 seed)
{
	MemorySource *memory = PipeannAllocZero(sizeof(MemorySource));

	memory->source.request = MemoryRequest;
	memory->source.request_resident = MemoryRequestResident;
	memory->source.prefetch = MemoryPrefetch;
	memory->source.load = MemoryLoad;
	memory->source.submit = MemorySubmit;
	memory->source.next = MemoryNext;
	memory->source.release = MemoryRelease;
	memory->source.max_in_flight = 64;
	memory->source.counters = &memory->counters;
	memory->index = index;
	memory->held = PipeannAllocZero(index->pages);
	memory->requests = PipeannAllocZero(index->pages * sizeof(uint32));
	memory->resident = resident;
	memory->random = seed;
	return memory;
}
