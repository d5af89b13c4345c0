/*
 * unit.c
 *		What a test program has counted.
 */
#include "unit.h"

int			UnitTests = 0;
int			UnitFailedTests = 0;
int			UnitFailures = 0;
