/*
 * bulk.h
 *		The kernels that work on many centroids, vectors or elements at once;
 *		private to distance/.
 *
 * Each set has them in a file of its own, SET_bulk.c. See struct
 * PipeannKernels for what they do.
 */
#ifndef PIPEANN_BULK_H
#define PIPEANN_BULK_H

#include "distance/distance.h"

#define DECLARE_BULK(set) \
extern void Pipeann##set##CentroidL2(const float *x, const float *centroids, \
									 int len, float *out); \
extern void Pipeann##set##CentroidDot(const float *x, const float *centroids, \
									  int len, float *out); \
extern void Pipeann##set##CentroidNearest(const float *x, Size stride, int n, \
										  const float *centroids, int len, \
										  const PipeannNearest *out); \
extern void Pipeann##set##DotTile(const int16 *const *rows, \
								  const int16 *panel, int dim, int32 *out); \
extern void Pipeann##set##TileNear(const int32 *row_norms, \
								   const int32 *column_norms, \
								   const int32 *row_limits, \
								   const int32 *column_limits, \
								   int32 *tile, uint16 *near); \
extern uint64 Pipeann##set##Equal16(const uint16 *a, int n, uint16 value); \
extern uint16 Pipeann##set##Most16(const uint16 *a, int n); \
extern void Pipeann##set##KeepMembers(const uint8 *bytes, int n, \
									  const uint8 *set_of_bytes, \
									  uint64 *mask); \
extern void Pipeann##set##KeepRange(const uint8 *high, const uint8 *low, \
									int n, uint16 from, uint16 to, \
									uint64 *mask); \
extern void Pipeann##set##Float2ToFloat(const void *src, int dim, \
										float *dst); \
extern void Pipeann##set##Int8ToFloat(const void *src, int dim, float *dst); \
extern void Pipeann##set##Uint8ToFloat(const void *src, int dim, float *dst); \
extern void Pipeann##set##ToFixed(const float *x, const float *offset, \
								  float scale, int dim, int16 *out)

/* Their part of a set's struct PipeannKernels. */
#define BULK_KERNELS(set) \
	.centroid_l2 = Pipeann##set##CentroidL2, \
	.centroid_dot = Pipeann##set##CentroidDot, \
	.centroid_nearest = Pipeann##set##CentroidNearest, \
	.dot_tile = Pipeann##set##DotTile, \
	.tile_near = TileNearOf##set, \
	.equal16 = Equal16Of##set, \
	.most16 = Most16Of##set, \
	.keep_members = KeepMembersOf##set, \
	.keep_range = KeepRangeOf##set, \
	.to_float = {NULL, PipeannFloat4ToFloat, Pipeann##set##Float2ToFloat, \
	Pipeann##set##Int8ToFloat, Pipeann##set##Uint8ToFloat}, \
	.to_fixed = Pipeann##set##ToFixed

/* Sets that have none of their own. */
#define TileNearOfScalar PipeannScalarTileNear
#define TileNearOfAvx2 PipeannAvx2TileNear
#define TileNearOfAvx512 PipeannAvx2TileNear
#define TileNearOfNeon PipeannScalarTileNear

#define Equal16OfScalar PipeannScalarEqual16
#define Equal16OfAvx2 PipeannAvx2Equal16
#define Equal16OfAvx512 PipeannAvx2Equal16
#define Equal16OfNeon PipeannNeonEqual16

#define Most16OfScalar PipeannScalarMost16
#define Most16OfAvx2 PipeannAvx2Most16
#define Most16OfAvx512 PipeannAvx2Most16
#define Most16OfNeon PipeannNeonMost16

#define KeepMembersOfScalar PipeannScalarKeepMembers
#define KeepMembersOfAvx2 PipeannAvx2KeepMembers
#define KeepMembersOfAvx512 PipeannAvx2KeepMembers
#define KeepMembersOfNeon PipeannNeonKeepMembers

#define KeepRangeOfScalar PipeannScalarKeepRange
#define KeepRangeOfAvx2 PipeannAvx2KeepRange
#define KeepRangeOfAvx512 PipeannAvx2KeepRange
#define KeepRangeOfNeon PipeannNeonKeepRange

DECLARE_BULK(Scalar);
DECLARE_BULK(Avx2);
DECLARE_BULK(Avx512);
DECLARE_BULK(Neon);

/* A copy, for all sets. */
extern void PipeannFloat4ToFloat(const void *src, int dim, float *dst);

/* Two neighbouring elements of a row, in the order of memory. */
static inline int32
LoadPair(const int16 *row)
{
	int32		pair;

	memcpy(&pair, row, sizeof(pair));
	return pair;
}

#endif							/* PIPEANN_BULK_H */
