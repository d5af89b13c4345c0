/*
 * planted.c
 *		Which fault is planted, for tests.
 */
#include "postgres.h"

#include "base/planted.h"

#ifdef PIPEANN_PLANTED_FAULTS

#include "utils/guc.h"

static char *planted_fault;

bool
PipeannIsPlanted(const char *name)
{
	return planted_fault != NULL && strcmp(planted_fault, name) == 0;
}

/* Registers pipeann.planted_fault, if the library is built with it. */
void
PipeannPlantedInit(void)
{
	DefineCustomStringVariable("pipeann.planted_fault",
							   "The fault that this session has, for tests.",
							   NULL, &planted_fault, "", PGC_USERSET, 0, NULL,
							   NULL, NULL);
}

#endif
