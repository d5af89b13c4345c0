/*
 * source.c
 *		A source of copies of an index's pages, so that a search does the same whatever
 *		is in memory and whenever a read ends.
 *
 * Either all pages are at hand, or all have to be read, and come in the order in which
 * they were asked for, each when there is nothing else to do: a read takes as long as it
 * takes to explore a hundred nodes.
 */
#include "postgres.h"

#include "base/id_set.h"
#include "storage/bufmgr.h"
#include "recall/recall.h"

#define FIRST_COPIES 256

typedef struct CopySource
{
	PipeannPageSource source;	/* must be first */
	const PipeannIndexView *view;
	bool		as_if_read;
	PipeannIdSet known;			/* page -> frames[] */
	PipeannFrame **frames;		/* [size], each with room for a page */
	uint32		nframes;		/* of known pages */
	uint32		nused;			/* that there is memory for */
	uint32		size;
	PipeannFrame **coming;		/* [size] a ring: those asked for, the last */
	uint32		last_coming;	/* source.in_flight of so many */
} CopySource;

/*
 * Copy so many bytes of a page of one block from an offset on. No checksum is computed: the
 * search for exact answers, a moment ago, has come by every page.
 */
static void
CopyPart(const PipeannIndexView *view, uint32 page, Size offset, Size bytes, char *nodes)
{
	BlockNumber blkno = PipeannViewBlock(view, page);
	Buffer		buffer = ReadBuffer(view->index, blkno);

	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	if (PipeannPageIsKind((char *) BufferGetPage(buffer), PIPEANN_GRAPH))
		memcpy(nodes + offset, PipeannPagePayload(BufferGetPage(buffer)) + offset, bytes);
	else
		memset(nodes + offset, 0, bytes);
	UnlockReleaseBuffer(buffer);
}

/* Copy a page, or one of its slots, to a frame. */
static void
Load(PipeannPageSource *source, PipeannFrame *frame, int slot)
{
	const PipeannIndexView *view = ((CopySource *) source)->view;
	const PipeannLayout *l = &view->meta.layout;
	char	   *nodes = unconstify(char *, frame->nodes);

	frame->slot = slot;
	if (l->node_pages > 1)
	{
		if (!PipeannGraphPageCopy(view, frame->page, nodes))
			memset(nodes, 0, (Size) l->node_pages * PIPEANN_PAYLOAD);
	}
	else if (slot == PIPEANN_ALL_SLOTS)
		CopyPart(view, frame->page, 0, PIPEANN_PAYLOAD, nodes);
	else
		CopyPart(view, frame->page, (Size) slot * l->slot_size, l->slot_size, nodes);
}

/* The frame of a page. */
static PipeannFrame *
FrameOf(CopySource *s, uint32 page)
{
	Size		bytes = (Size) s->view->meta.layout.node_pages * PIPEANN_PAYLOAD;
	PipeannMemory former = PipeannMemoryEnter(s);
	PipeannFrame *frame;
	uint32		at;

	if (!PipeannIdSetGet(&s->known, page, &at))
	{
		at = s->nframes++;
		PipeannIdSetPut(&s->known, page, at);
		if (at == s->size)
		{
			s->size *= 2;
			s->frames = repalloc_array(s->frames, PipeannFrame *, s->size);
			s->coming = repalloc_array(s->coming, PipeannFrame *, s->size);
		}
		if (at == s->nused)
		{
			s->nused++;
			s->frames[at] = palloc(MAXALIGN(sizeof(PipeannFrame)) + bytes);
		}
		frame = s->frames[at];
		frame->page = page;
		frame->nodes = (char *) frame + MAXALIGN(sizeof(PipeannFrame));
	}
	PipeannMemoryLeave(former);
	return s->frames[at];
}

static PipeannFrame *
Request(PipeannPageSource *source, uint32 page, int slot)
{
	CopySource *s = (CopySource *) source;
	PipeannFrame *frame = FrameOf(s, page);

	frame->hit = !s->as_if_read;
	frame->state = frame->hit ? PIPEANN_FRAME_READY : PIPEANN_FRAME_IN_FLIGHT;
	Load(source, frame, frame->hit ? slot : PIPEANN_ALL_SLOTS);
	if (!frame->hit)
	{
		s->coming[s->last_coming++ % s->size] = frame;
		source->in_flight++;
	}
	return frame;
}

static PipeannFrame *
RequestResident(PipeannPageSource *source, uint32 page, int slot)
{
	return ((CopySource *) source)->as_if_read ? NULL :
		Request(source, page, slot);
}

static void
Prefetch(PipeannPageSource *source, uint32 page, int slot)
{
}

static void
Submit(PipeannPageSource *source)
{
}

static PipeannFrame *
Next(PipeannPageSource *source, bool wait)
{
	CopySource *s = (CopySource *) source;
	PipeannFrame *frame;

	if (!wait || source->in_flight == 0)
		return NULL;
	frame = s->coming[(s->last_coming - source->in_flight--) % s->size];
	frame->state = PIPEANN_FRAME_READY;
	return frame;
}

static void
Release(PipeannPageSource *source, PipeannFrame *frame)
{
}

/* Must not outlive the view. */
PipeannPageSource *
PipeannCopySource(const PipeannIndexView *view, PipeannCounters *counters)
{
	CopySource *s = palloc0(sizeof(CopySource));

	s->source = (PipeannPageSource) {
		.request = Request,.request_resident = RequestResident,
		.prefetch = Prefetch,.load = Load,.submit = Submit,.next = Next,
		.release = Release,.max_in_flight = FIRST_COPIES,.counters = counters
	};
	s->view = view;
	s->size = FIRST_COPIES;
	s->frames = PipeannArray(PipeannFrame *, s->size);
	s->coming = PipeannArray(PipeannFrame *, s->size);
	PipeannIdSetInit(&s->known, FIRST_COPIES, true);
	return &s->source;
}

/* For the next search: whether pages have to be read. None is on its way. */
void
PipeannCopyBegin(PipeannPageSource *source, bool read)
{
	CopySource *s = (CopySource *) source;

	s->as_if_read = read;
	s->last_coming = 0;
	s->nframes = 0;
	source->in_flight = 0;
	PipeannIdSetReset(&s->known, FIRST_COPIES, true);
}
