/*
 * unit.c
 *		What a test program has counted, and real vectors.
 */
#include "unit.h"

#define IMAGES "/usr/share/datasets/fashion-mnist"
#define IMAGE_HEADER 16

int			UnitTests = 0;
int			UnitFailedTests = 0;
int			UnitFailures = 0;

bool
UnitReadImages(const char *set, uint8 *to, Size size)
{
	char		command[200];
	char		header[IMAGE_HEADER];
	FILE	   *file;
	bool		good;

	snprintf(command, sizeof(command),
			 "gzip -dc " IMAGES "/%s-images-idx3-ubyte.gz 2>/dev/null", set);
	if ((file = popen(command, "r")) == NULL)
		return false;
	good = fread(header, 1, sizeof(header), file) == sizeof(header) &&
		fread(to, 1, size, file) == size;
	pclose(file);
	return good;
}
