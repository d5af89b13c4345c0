/*
 * retrain.h
 *		New codes, and a new packing, of an index that has outgrown its own.
 *
 * This room knows codes, entry graph and packing of an index that is in use. It
 * must not know how rows are inserted, removed and found.
 */
#ifndef PIPEANN_RETRAIN_H
#define PIPEANN_RETRAIN_H

#include "index/index.h"

/* retrain.c: new codes, codebook and entry graph */

/*
 * The factor of growth at which codes and packing are made anew. In a small
 * index that is quickly done, and adds little to the WAL of so many inserts.
 */
#define PIPEANN_SMALL_INDEX 65536

static inline uint32
PipeannGrowthFactor(const PipeannMeta *meta)
{
	return meta->nodes < PIPEANN_SMALL_INDEX ? 2 : 4;
}

/* Codes are made anew if they err so many times as much as they did. */
#define PIPEANN_DRIFT 1.5

/*
 * Whether they do because nodes inserted since are of another kind, which the entry
 * graph does not have either. Growth bounds the cost where kind after kind comes.
 */
static inline bool
PipeannHasStrayed(const PipeannMeta *meta)
{
	return meta->strayed > (PIPEANN_DRIFT - 1) * (double) meta->nodes &&
		meta->nodes >= 1.125 * (double) meta->trained_nodes;
}

/*
 * Whether an insert has to retrain: codes are missing, or the index outgrew
 * them, or what was inserted since is of another kind.
 */
extern bool PipeannIsOutgrown(const PipeannMeta *meta);

/*
 * Make the next generation if the index is still outgrown. Returns at once if
 * another backend is doing so. Waits twice for inserts under way, and goes on
 * beside later ones.
 */
extern void PipeannRetrain(Relation index);

/* The same for VACUUM, and also if the vectors have drifted. */
extern void PipeannRetrainIfDrifted(Relation index);

/* repack.c: a new packing of the graph, as a build would make it */

typedef enum PipeannRepackResult
{
	PIPEANN_REPACK_DONE,
	PIPEANN_REPACK_LATER,		/* another backend is in the way */
	PIPEANN_REPACK_NEVER		/* no need, or no room */
} PipeannRepackResult;

/*
 * Pack the graph anew, with codes of the next generation, if it has grown by
 * the factor above since it was packed. The caller holds the maintenance lock.
 * Inserts wait while pages are written.
 */
extern PipeannRepackResult PipeannRepack(PipeannIndexView *view);

/*
 * While PIPEANN_META_RETRAINING is set: the next generation's code of
 * x[dim], normalised for cosine, to out[pq_bytes].
 */
extern void PipeannEncodeNext(PipeannIndexView *view, const float *x,
							  uint8 *out);

#endif							/* PIPEANN_RETRAIN_H */
