/*
 * lens.c
 *		A lens is how this backend sees an image: one for each index used,
 *		kept from scan to scan with its pointers resolved.
 *
 * A shared image is referenced in its record only while a handle is in use, so
 * that it may be evicted between scans. A lens no longer good for new scans
 * (its image dropped, its index rebuilt) is taken off the hash table at once
 * and freed when its last handle is let go.
 */
#include "cache/registry.h"

#include "access/xact.h"
#include "storage/ipc.h"
#include "utils/hsearch.h"

typedef struct LensSlot
{
	PipeannLensKey key;
	PipeannLens *lens;
} LensSlot;

static HTAB *slots = NULL;
static dlist_head lenses = DLIST_STATIC_INIT(lenses);
static bool exiting = false;

/*
 * Before this backend leaves: give back what it holds in shared memory. Later
 * callbacks find nothing left to do there.
 */
static void
LetGoAtExit(int code pg_attribute_unused(), Datum arg pg_attribute_unused())
{
	PipeannControl *control = PipeannControlAttached();
	dlist_iter	iter;

	exiting = true;
	if (control == NULL)
		return;
	dlist_foreach(iter, &lenses)
	{
		PipeannLens *lens = dlist_container(PipeannLens, node, iter.cur);

		if (lens->record != NULL)
			PipeannRegistryLetGo(control, lens);
	}
}

static void
InitLenses(void)
{
	HASHCTL		ctl;

	if (slots != NULL)
		return;
	ctl.keysize = sizeof(PipeannLensKey);
	ctl.entrysize = sizeof(LensSlot);
	ctl.hcxt = TopMemoryContext;
	slots = hash_create("pipeann images", 16, &ctl,
						HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	before_shmem_exit(LetGoAtExit, (Datum) 0);
}

static PipeannLensKey
KeyOf(Relation index)
{
	PipeannLensKey key;

	memset(&key, 0, sizeof(key));
	key.file = PipeannRelationFile(index);
	key.backend = index->rd_backend;
	return key;
}

PipeannLens *
PipeannLensFind(Relation index)
{
	PipeannLensKey key = KeyOf(index);
	LensSlot   *slot;

	InitLenses();
	slot = hash_search(slots, &key, HASH_FIND, NULL);
	return slot == NULL ? NULL : slot->lens;
}

void
PipeannLensList(PipeannLens *lens)
{
	bool		found;
	LensSlot   *slot = hash_search(slots, &lens->key, HASH_ENTER, &found);

	Assert(!found);
	slot->lens = lens;
	lens->listed = true;
}

/*
 * No handle is in use.
 */
static void
FreeLens(PipeannLens *lens)
{
	Assert(lens->refs == 0);
	while (!dlist_is_empty(&lens->idle))
		dlist_container(PipeannHandle, node,
						dlist_pop_head_node(&lens->idle))->lens = NULL;
	if (lens->record != NULL && !exiting)
		PipeannRegistryLetGo(PipeannControlAttached(), lens);
	for (uint32 i = 0; i < lens->npieces && !exiting; i++)
		PipeannAreaDetach(&lens->pieces[i]);
	dlist_delete(&lens->node);
	MemoryContextDelete(lens->context);
}

/*
 * New scans are not to find this lens.
 */
void
PipeannLensDrop(PipeannLens *lens)
{
	if (lens->listed)
		hash_search(slots, &lens->key, HASH_REMOVE, NULL);
	lens->listed = false;
	if (lens->refs == 0)
		FreeLens(lens);
}

/*
 * Make sure that the image stays. False when it has been dropped.
 */
bool
PipeannLensHold(PipeannLens *lens)
{
	return lens->record == NULL || lens->referenced ||
		PipeannRegistryRef(PipeannControlAttached(), lens);
}

/*
 * A handle is done with the lens.
 */
void
PipeannLensUnuse(PipeannLens *lens)
{
	if (--lens->refs > 0)
		return;
	if (lens->record != NULL && !exiting)
		PipeannRegistryLetGo(PipeannControlAttached(), lens);
	if (!lens->listed)
		FreeLens(lens);
}

/*
 * Whether an unused lens is of no use to any later scan.
 */
static bool
IsDead(const PipeannLens *lens, bool check_file)
{
	if (lens->record != NULL)
		return lens->record->generation != lens->generation ||
			lens->record->state != PIPEANN_RECORD_READY;
	return check_file &&
		PipeannFileIsGone(&lens->key.file, lens->key.backend);
}

void
PipeannLensesClean(bool check_files)
{
	dlist_mutable_iter iter;

	dlist_foreach_modify(iter, &lenses)
	{
		PipeannLens *lens = dlist_container(PipeannLens, node, iter.cur);

		if (lens->refs == 0 && lens->listed && IsDead(lens, check_files))
			PipeannLensDrop(lens);
	}
}

bool
PipeannLensHasRelation(Oid relid)
{
	dlist_iter	iter;

	dlist_foreach(iter, &lenses)
		if (dlist_container(PipeannLens, node, iter.cur)->relid == relid)
			return true;
	return false;
}

static void
SetPq(PipeannLens *lens, const PipeannLayout *l)
{
	int			n = l->pq_bytes;
	int		   *start = MemoryContextAlloc(lens->context, n * sizeof(int));
	int		   *len = MemoryContextAlloc(lens->context, n * sizeof(int));
	Size	   *offset = MemoryContextAlloc(lens->context, n * sizeof(Size));

	PipeannPqLayout(l->dim, n, start, len, offset);
	lens->pq.dim = l->dim;
	lens->pq.nchunks = n;
	lens->pq.start = start;
	lens->pq.len = len;
	lens->pq.offset = offset;
}

static PipeannLens *
NewLens(Relation index, const PipeannMeta *meta)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext,
												  "pipeann image",
												  ALLOCSET_SMALL_SIZES);
	PipeannLens *lens = MemoryContextAllocZero(context, sizeof(PipeannLens));

	lens->context = context;
	lens->key = KeyOf(index);
	lens->relid = RelationGetRelid(index);
	lens->build_id = meta->build_id;
	lens->entry_count = meta->entry_count;
	lens->entry_degree = meta->entry_degree;
	lens->place = PIPEANN_IMAGE_PRIVATE;
	lens->tried = GetCurrentStatementStartTimestamp();
	dlist_init(&lens->idle);
	SetPq(lens, &meta->layout);
	MemoryContextSetParent(context, TopMemoryContext);
	dlist_push_tail(&lenses, &lens->node);
	return lens;
}

/*
 * Get memory and read the index into it.
 */
static bool
Load(Relation index, PipeannLens *lens, const PipeannMeta *meta, bool evict)
{
	PipeannBody plan;
	uint32		nodes;
	Size		size = PipeannBodyPlan(meta, &plan, &nodes);
	PipeannBody *body;

	if (!PipeannLensAddPiece(lens, size, 0, nodes, evict))
		return false;
	body = (PipeannBody *) lens->pieces[0].address;
	body->kills = plan.kills;
	PipeannKillInit(body, plan.kill_mask + 1);
	PipeannRecentInit(&body->recent);
	body->hot = plan.hot;
	PipeannHotInitTable((PipeannHot *) ((char *) body + body->hot), meta);
	body->centroids = plan.centroids;
	body->entries = plan.entries;
	body->codes = plan.codes;
	pg_atomic_init_u32(&body->ncodes, 0);
	pg_atomic_init_u64(&body->applied, 0);
	pg_atomic_init_u64(&body->entries_applied, 0);
	lens->body = body;
	PipeannLensRefresh(index, lens, meta);
	PipeannBodyLoad(index, lens, meta);
	return true;
}

/*
 * The image that is in shared memory, or a new one there.
 */
static bool
FillShared(Relation index, PipeannLens *lens, const PipeannMeta *meta,
		   bool evict)
{
	PipeannControl *control = PipeannControlGet();

	lens->place = control->area_pages > 0 ? PIPEANN_IMAGE_SHARED :
		PIPEANN_IMAGE_DYNAMIC;
	switch (PipeannRegistryClaim(control, lens, evict))
	{
		case PIPEANN_CLAIM_READY:
			return PipeannLensRefresh(index, lens, meta);
		case PIPEANN_CLAIM_LOAD:
			if (!Load(index, lens, meta, evict))
				return false;
			PipeannRegistryPublish(control, lens);
			return true;
		default:
			return false;
	}
}

/*
 * A new lens, not yet in the hash table. NULL when there is no shared memory
 * to be had for it.
 */
PipeannLens *
PipeannLensMake(Relation index, const PipeannMeta *meta, bool shared,
				bool evict)
{
	PipeannLens *volatile lens = NewLens(index, meta);
	volatile bool ok = false;

	PG_TRY();
	{
		if (shared)
			ok = FillShared(index, lens, meta, evict);
		else
			ok = Load(index, lens, meta, false);
	}
	PG_CATCH();
	{
		FreeLens(lens);
		PG_RE_THROW();
	}
	PG_END_TRY();
	if (ok)
		return lens;
	FreeLens(lens);
	return NULL;
}
