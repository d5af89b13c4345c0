/*
 * fill.h
 *		How a scan heeds a limit above it; private to scan/.
 */
#ifndef PIPEANN_SCAN_FILL_H
#define PIPEANN_SCAN_FILL_H

#include "scan/scan.h"

/* The limit for a scan that begins with these order-by keys, or NULL. */
extern PipeannFill *PipeannFillOf(const ScanKeyData *keys);

#endif							/* PIPEANN_SCAN_FILL_H */
