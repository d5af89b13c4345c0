/*
 * engine.c
 *		Searches by the engine itself, over pages in memory. A read's latency is
 *		counted in steps of the search.
 */
#include "codes.h"

#define MAX_FRAMES 4096
#define MAX_IN_FLIGHT 64

/* Candidates come by edges alone, and their order from codes alone. */
#define WITHOUT \
	(PIPEANN_ALL_IDEAS & ~(PIPEANN_READ_PER_STEP | PIPEANN_DYNAMIC_WIDTH))

typedef struct MemoryFrame
{
	PipeannFrame frame;
	int			ready;			/* in this step */
} MemoryFrame;

typedef struct MemorySource
{
	PipeannPageSource source;
	PipeannCounters counters;
	const Index *index;
	int			latency;
	int			step;
	int			nframes;
	int			first;			/* frames before it have come */
	MemoryFrame frames[MAX_FRAMES];
} MemorySource;

static PipeannFrame *
Request(PipeannPageSource *source, uint32 page, int slot)
{
	MemorySource *memory = (MemorySource *) source;
	MemoryFrame *f;

	if (memory->nframes == MAX_FRAMES)
		abort();
	f = &memory->frames[memory->nframes++];
	f->frame.page = page;
	f->frame.state = PIPEANN_FRAME_IN_FLIGHT;
	(void) slot;
	f->frame.hit = false;
	f->frame.slot = PIPEANN_ALL_SLOTS;
	f->frame.nodes = memory->index->data + page * memory->index->page_size;
	f->ready = memory->step + memory->latency;
	source->in_flight++;
	source->counters->page_reads++;
	return &f->frame;
}

static void
Submit(PipeannPageSource *source)
{
	(void) source;
}

/* Reads come in the order in which they were asked for. */
static PipeannFrame *
Next(PipeannPageSource *source, bool wait)
{
	MemorySource *memory = (MemorySource *) source;
	MemoryFrame *f = &memory->frames[memory->first];

	if (memory->first == memory->nframes)
		return NULL;
	if (wait && f->ready > memory->step)
		memory->step = f->ready;
	if (f->ready > memory->step)
	{
		memory->step++;
		return NULL;
	}
	memory->first++;
	source->in_flight--;
	f->frame.state = PIPEANN_FRAME_READY;
	return &f->frame;
}

static void
Release(PipeannPageSource *source, PipeannFrame *frame)
{
	(void) source;
	(void) frame;
}

void
CodesSearchEngine(const Index *index, const float *query, int mode, int width,
				  int ef, int latency, Found *found)
{
	MemorySource *memory = palloc0(sizeof(MemorySource));
	PipeannSearchParams params = {0};
	PipeannSearch *search;

	memory->index = index;
	memory->latency = latency;
	memory->source.request = Request;
	memory->source.submit = Submit;
	memory->source.next = Next;
	memory->source.release = Release;
	memory->source.max_in_flight = MAX_IN_FLIGHT;
	memory->source.counters = &memory->counters;
	params.policy = PipeannPolicies[mode];
	params.disabled = WITHOUT;
	params.ef = ef;
	params.width = width;
	params.max_pages = MAX_FRAMES;
	search = PipeannSearchCreate();
	PipeannSearchBegin(search, &index->layout, &index->codes, &memory->source,
					   query, &params);
	PipeannSearchRun(search);
	found->reads = memory->counters.page_reads;
	found->code_distances = memory->counters.code_distances;
	found->explored = memory->counters.nodes_explored;
	for (int i = 0; i < CODES_K; i++)
	{
		const PipeannResult *result = PipeannSearchPop(search);

		found->nodes[i] = result == NULL ? PIPEANN_INVALID_ID :
			index->order[result->id];
	}
	free(memory);
}
