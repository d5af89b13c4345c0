/*
 * place.c
 *		Dividing cells among servers.
 *
 * Near cells belong on one server, so that a query asks few, and all servers should
 * have about equally many rows. So it is k-means of the centroids in which each
 * server has a price that is added to distances from it: it rises while the server
 * has too many rows, and falls while it has too few. Cells are large, so prices
 * alone do not balance the servers. Then the cells that lose least by it are given
 * to other servers, or exchanged.
 */
#include "postgres.h"

#include <float.h>
#include <math.h>

#include "base/random.h"
#include "cells/cells.h"
#include "core/core.h"
#include "distance/distance.h"
#include "miscadmin.h"

/* Rounds of k-means, and of prices in each. */
#define ROUNDS 20
#define PRICE_ROUNDS 40

/* How far from the mean a server's rows may be, as a part of it. */
#define TOLERANCE 0.01

/* A gain up to this part of the mean is not worth moving a cell. */
#define LEAST_GAIN 0.001

typedef struct Placing
{
	const PipeannPlaced *cells;
	int			nservers;
	int			elements;
	const float *x;				/* [cells][elements] centroids */
	float	   *center;			/* [servers][elements] */
	float	   *distance;		/* [cells][servers] */
	double	   *price;			/* [servers] */
	double	   *load;			/* [servers] rows */
	double		mean;			/* of load */
	int		   *server;			/* [cells] the result */
} Placing;

static inline float
DistanceTo(const Placing *p, int cell, int server)
{
	return p->distance[(Size) cell * p->nservers + server];
}

static void
MeasureDistances(Placing *p)
{
	for (int i = 0; i < p->cells->n; i++)
	{
		CHECK_FOR_INTERRUPTS();
		for (int s = 0; s < p->nservers; s++)
			p->distance[(Size) i * p->nservers + s] =
				pipeann_core->kernels->l2_pair[PIPEANN_FLOAT4] (p->x + (Size) i * p->elements,
														p->center + (Size) s * p->elements,
														p->elements);
	}
}

/* The first centers: a random one, then each time the cell farthest from all of them. */
static void
Seed(Placing *p, uint64 seed)
{
	int			n = p->cells->n;
	float	   *nearest = PipeannArray(float, n);
	int			pick = PipeannRandomBelow(&seed, n);

	for (int i = 0; i < n; i++)
		nearest[i] = FLT_MAX;
	for (int s = 0; s < p->nservers; s++)
	{
		const float *center = p->x + (Size) pick * p->elements;

		memcpy(p->center + (Size) s * p->elements, center, p->elements * sizeof(float));
		for (int i = 0; i < n; i++)
		{
			float		d = pipeann_core->kernels->l2_pair[PIPEANN_FLOAT4] (p->x + (Size) i * p->elements,
																	center, p->elements);

			nearest[i] = Min(nearest[i], d);
		}
		for (int i = 0; i < n; i++)
			if (nearest[i] > nearest[pick])
				pick = i;
	}
	pfree(nearest);
}

/* Give each cell to the nearest server at the present prices. */
static void
Assign(Placing *p)
{
	memset(p->load, 0, p->nservers * sizeof(double));
	for (int i = 0; i < p->cells->n; i++)
	{
		int			best = 0;

		for (int s = 1; s < p->nservers; s++)
			if (DistanceTo(p, i, s) + p->price[s] < DistanceTo(p, i, best) + p->price[best])
				best = s;
		p->server[i] = best;
		p->load[best] += p->cells->rows[i];
	}
}

/* Change prices until servers have about equally many rows. */
static void
Bargain(Placing *p)
{
	double		step = 0;

	for (int i = 0; i < p->cells->n; i++)
		step += DistanceTo(p, i, p->server[i]);
	step /= p->cells->n;
	for (int round = 0; round < PRICE_ROUNDS; round++)
	{
		CHECK_FOR_INTERRUPTS();
		for (int s = 0; s < p->nservers; s++)
			p->price[s] += step / (2 + round) * Min(p->load[s] / p->mean - 1, 1);
		Assign(p);
	}
}

/* Move the servers' centers to the means of their rows. */
static void
MoveCenters(Placing *p)
{
	double	   *sum = PipeannAllocZero(mul_size(mul_size(p->nservers, p->elements), sizeof(double)));

	for (int i = 0; i < p->cells->n; i++)
		for (int d = 0; d < p->elements; d++)
			sum[(Size) p->server[i] * p->elements + d] +=
				(double) p->cells->rows[i] * p->x[(Size) i * p->elements + d];
	for (int s = 0; s < p->nservers; s++)
		if (p->load[s] > 0)
			for (int d = 0; d < p->elements; d++)
				p->center[(Size) s * p->elements + d] =
					(float) (sum[(Size) s * p->elements + d] / p->load[s]);
	pfree(sum);
}

/* The rows by which a load is wrong, beyond the tolerance. */
static double
Wrong(const Placing *p, double load)
{
	double		off = fabs(load - p->mean) - TOLERANCE * p->mean;

	return Max(off, 0);
}

/*
 * By how much servers are less wrong if this many rows move from one to the other; 0 if
 * it is no more than rounding, so that moving cells ends.
 */
static double
Gain(const Placing *p, int from, int to, double rows)
{
	double		gain = Wrong(p, p->load[from]) + Wrong(p, p->load[to]) -
		Wrong(p, p->load[from] - rows) - Wrong(p, p->load[to] + rows);

	return gain > LEAST_GAIN * p->mean ? gain : 0;
}

/* The cost of giving a cell to a server. */
static double
Loss(const Placing *p, int cell, int to)
{
	return ((double) DistanceTo(p, cell, to) - DistanceTo(p, cell, p->server[cell])) *
		p->cells->rows[cell];
}

static void
Give(Placing *p, int cell, int to)
{
	p->load[p->server[cell]] -= p->cells->rows[cell];
	p->load[to] += p->cells->rows[cell];
	p->server[cell] = to;
}

/* Give away the cell with the least loss for its gain; false if there is none. */
static bool
GiveOne(Placing *p)
{
	double		least = DBL_MAX;
	int			cell = -1;
	int			to = 0;

	for (int i = 0; i < p->cells->n; i++)
		for (int s = 0; s < p->nservers; s++)
		{
			double		gain = s == p->server[i] ? 0 :
				Gain(p, p->server[i], s, p->cells->rows[i]);

			if (gain > 0 && Loss(p, i, s) / gain < least)
			{
				least = Loss(p, i, s) / gain;
				cell = i;
				to = s;
			}
		}
	if (cell >= 0)
		Give(p, cell, to);
	return cell >= 0;
}

/* The same by exchanging two cells. */
static bool
ExchangeTwo(Placing *p)
{
	double		least = DBL_MAX;
	int			one = -1;
	int			other = 0;

	for (int i = 0; i < p->cells->n; i++)
	{
		CHECK_FOR_INTERRUPTS();
		if (Wrong(p, p->load[p->server[i]]) == 0)
			continue;
		for (int j = 0; j < p->cells->n; j++)
		{
			double		gain = p->server[i] == p->server[j] ? 0 :
				Gain(p, p->server[i], p->server[j],
					 (double) p->cells->rows[i] - p->cells->rows[j]);
			double		cost = gain <= 0 ? 0 :
				(Loss(p, i, p->server[j]) + Loss(p, j, p->server[i])) / gain;

			if (gain > 0 && cost < least)
			{
				least = cost;
				one = i;
				other = j;
			}
		}
	}
	if (one >= 0)
	{
		int			to = p->server[other];

		Give(p, other, p->server[one]);
		Give(p, one, to);
	}
	return one >= 0;
}

/* Sets server[] of each cell, from 0 on. */
void
PipeannPlace(const PipeannPlaced *cells, int nservers, uint64 seed, int *server)
{
	Placing		p = {cells, nservers, cells->elements, cells->x,.server = server};

	p.center = PipeannArray(float, mul_size(nservers, p.elements));
	p.distance = PipeannArray(float, mul_size(cells->n, nservers));
	p.price = PipeannAllocZero(mul_size(nservers, sizeof(double)));
	p.load = PipeannArray(double, nservers);
	for (int i = 0; i < cells->n; i++)
		p.mean += cells->rows[i];
	p.mean /= nservers;
	memset(server, 0, mul_size(cells->n, sizeof(int)));
	Seed(&p, seed);
	for (int round = 0; round < ROUNDS; round++)
	{
		MeasureDistances(&p);
		Assign(&p);
		Bargain(&p);
		MoveCenters(&p);
	}
	MeasureDistances(&p);
	while (GiveOne(&p) || ExchangeTwo(&p))
		CHECK_FOR_INTERRUPTS();
	pfree(p.center);
	pfree(p.distance);
	pfree(p.price);
	pfree(p.load);
}
