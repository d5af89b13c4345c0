/*
 * retrain.h
 *		New codes, and a new packing, of an index that has outgrown its own.
 */
#ifndef PIPEANN_RETRAIN_H
#define PIPEANN_RETRAIN_H

#include "index/index.h"

/* retrain/retrain.c: an index that has outgrown its codes, or grown to need some */

/*
 * How many times the nodes make codes and layout anew. In a small index that is
 * quickly done, and adds little to the WAL of so many inserts.
 */
#define PIPEANN_SMALL_INDEX 65536

static inline uint32
PipeannGrowthFactor(const PipeannMeta *meta)
{
	return meta->nodes < PIPEANN_SMALL_INDEX ? 2 : 4;
}

/* Whether an insert is to do it: there are none, or so many times the nodes. */
extern bool PipeannIsOutgrown(const PipeannMeta *meta);

/*
 * Make the next generation if that is wanted still. Returns at once if somebody
 * else is at it. Waits for inserts under way, twice; they go on meanwhile.
 */
extern void PipeannRetrain(Relation index);

/* The same, and also if the vectors have drifted: for VACUUM. */
extern void PipeannRetrainIfDrifted(Relation index);

/* retrain/repack.c: packing the graph anew, as a build would */

typedef enum PipeannRepackResult
{
	PIPEANN_REPACK_DONE,
	PIPEANN_REPACK_LATER,		/* somebody is in the way */
	PIPEANN_REPACK_NEVER		/* not wanted, or there is not the room */
} PipeannRepackResult;

/*
 * If the graph has grown to several times what it was when it was laid out, do
 * it again, with codes of the next generation. For the holder of the
 * maintenance lock. Inserts wait while pages are written.
 */
extern PipeannRepackResult PipeannRepack(PipeannIndexView *view);

/*
 * While PIPEANN_META_RETRAINING is set: the next generation's code of x (for
 * cosine normalised), out[pq_bytes].
 */
extern void PipeannEncodeNext(PipeannIndexView *view, const float *x,
							  uint8 *out);

#endif							/* PIPEANN_RETRAIN_H */
