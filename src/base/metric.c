/*
 * metric.c
 *		The table of metrics.
 */
#include "base/metric.h"

#include <math.h>

static double
RootOf(double key)
{
	return sqrt(Max(key, 0));
}

static double
OneMore(double key)
{
	return 1 + key;
}

static double
Same(double key)
{
	return key;
}

const PipeannMetricInfo PipeannMetrics[PIPEANN_NUM_METRICS + 1] = {
	[PIPEANN_L2] = {"l2", PIPEANN_L2, 2, RootOf},
	[PIPEANN_IP] = {"ip", PIPEANN_IP, 0, Same},
	[PIPEANN_COSINE] = {"cosine", PIPEANN_COSINE, 2, OneMore},
	[PIPEANN_L1] = {"l1", PIPEANN_L1, 1, Same},
	[PIPEANN_HAMMING] = {"hamming", PIPEANN_L2, 2, Same},
	[PIPEANN_JACCARD] = {"jaccard", PIPEANN_JACCARD, 2, Same},
	[PIPEANN_SPARSE_L1] = {"l1", PIPEANN_L2, 2, Same}
};
