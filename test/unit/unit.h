/*
 * unit.h
 *		A tiny test framework whose programs speak TAP, for prove.
 *
 * A program calls UNIT_RUN(Function) for each of its tests and ends with
 * `return UnitDone();`. Each test is one TAP line; checks that fail explain
 * themselves in comment lines.
 */
#ifndef PIPEANN_UNIT_H
#define PIPEANN_UNIT_H

#include "base/base.h"

/* Failed checks of a test that are explained; the others are counted. */
#define UNIT_MAX_MESSAGES 10

extern int	UnitTests;			/* tests run */
extern int	UnitFailedTests;
extern int	UnitFailures;		/* failed checks of the current test */

static inline bool
UnitCheck(bool good, const char *file, int line, const char *text)
{
	if (!good && ++UnitFailures <= UNIT_MAX_MESSAGES)
		printf("# %s:%d: not true: %s\n", file, line, text);
	return good;
}

static inline bool
UnitCheckClose(double a, double b, double tolerance, const char *file,
			   int line, const char *text)
{
	double		difference = a > b ? a - b : b - a;
	bool		good = a == b || difference <= tolerance;

	if (!good && ++UnitFailures <= UNIT_MAX_MESSAGES)
		printf("# %s:%d: %s: %.9g and %.9g differ by more than %g\n",
			   file, line, text, a, b, tolerance);
	return good;
}

/* Both give whether the check held, so that a test can stop early. */
#define CHECK(condition) \
	UnitCheck((condition), __FILE__, __LINE__, #condition)
#define CHECK_CLOSE(a, b, tolerance) \
	UnitCheckClose((a), (b), (tolerance), __FILE__, __LINE__, \
				   #a " ~ " #b)

/* Say something about a failure, or report a figure. printf's arguments. */
#define NOTE(...) \
	(printf("# "), printf(__VA_ARGS__), printf("\n"))

static inline void
UnitBegin(void)
{
	UnitFailures = 0;
}

static inline void
UnitEnd(const char *name)
{
	UnitTests++;
	if (UnitFailures > UNIT_MAX_MESSAGES)
		printf("# %d checks failed\n", UnitFailures);
	if (UnitFailures > 0)
		UnitFailedTests++;
	printf("%sok %d - %s\n", UnitFailures > 0 ? "not " : "", UnitTests, name);

	/* Nothing said may be lost when the next test crashes. */
	fflush(stdout);
}

/* Run a test, a function without arguments, named after itself. */
#define UNIT_RUN(function) \
	do { \
		UnitBegin(); \
		function(); \
		UnitEnd(#function); \
	} while (0)

/* The plan; gives the program's exit status. */
static inline int
UnitDone(void)
{
	printf("1..%d\n", UnitTests);
	return UnitFailedTests == 0 ? 0 : 1;
}

/*
 * Deterministic random numbers (SplitMix64): bits, and a float in [low, high).
 */
static inline uint64
UnitRandom(uint64 *state)
{
	uint64		z = (*state += UINT64_C(0x9E3779B97F4A7C15));

	z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
	return z ^ (z >> 31);
}

static inline float
UnitRandomFloat(uint64 *state, float low, float high)
{
	float		fraction = (float) (UnitRandom(state) >> 40) / 16777216.0f;

	return low + (high - low) * fraction;
}

/* Nearly normal: the sum of four, with a variance of four thirds. */
static inline float
UnitRandomNormal(uint64 *state)
{
	float		sum = 0;

	for (int i = 0; i < 4; i++)
		sum += UnitRandomFloat(state, -1, 1);
	return sum;
}

/* Few distances, so that many are equal. */
static inline float
UnitFewDistances(uint64 *state)
{
	return (float) (UnitRandom(state) % 50);
}

/*
 * The first bytes of Fashion-MNIST's images ("train" or "t10k"), 28 x 28 each.
 * False where its package is not installed.
 */
extern bool UnitReadImages(const char *set, uint8 *to, Size size);

#endif							/* PIPEANN_UNIT_H */
