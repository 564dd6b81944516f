/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

#include "options.h"

#include <string.h>

/* Larger than any struct will ever be: what claims more was not initialised. */
#define MOST_BYTES 4096

static int tail_is_zero(const unsigned char *bytes, size_t from, size_t to)
{
	for (size_t i = from; i < to; i++)
		if (bytes[i])
			return 0;
	return 1;
}

int dhs_options_read(const char *call, const char *name, const void *from, void *to, size_t known,
                     size_t least)
{
	uint32_t size;

	if (!from)
		return dhs_fail(DHS_ERR_ARGUMENT, "%s: %s is NULL", call, name);
	memcpy(&size, from, sizeof(size));
	if (size < least || size > MOST_BYTES)
		return dhs_fail(DHS_ERR_ARGUMENT, "%s: %s->size is %u; it must be %zu to %d", call, name,
		                size, least, MOST_BYTES);
	if (size > known && !tail_is_zero(from, known, size))
		return dhs_fail(DHS_ERR_VERSION,
		                "%s: %s->size is %u and fields past byte %zu are in use, which this "
		                "version (%s) does not know",
		                call, name, size, known, dhs_version_string());
	memset(to, 0, known);
	memcpy(to, from, size < known ? size : known);
	return DHS_OK;
}

int dhs_options_read_element(const char *call, const char *name, size_t index, const void *from,
                             size_t given, void *to, size_t known)
{
	const unsigned char *element = (const unsigned char *)from + index * given;

	if (given > known && !tail_is_zero(element, known, given))
		return dhs_fail(DHS_ERR_VERSION,
		                "%s: %s[%zu] uses fields past byte %zu, which this version (%s) does not "
		                "know",
		                call, name, index, known, dhs_version_string());
	memcpy(to, element, known);
	return DHS_OK;
}

int dhs_options_check_pointer(const char *call, const char *name, const void *pointer, size_t align)
{
	if (!pointer)
		return dhs_fail(DHS_ERR_ARGUMENT, "%s: %s is NULL", call, name);
	if ((uintptr_t)pointer % align)
		return dhs_fail(DHS_ERR_ARGUMENT, "%s: %s is %p; it must be a multiple of %zu", call, name,
		                pointer, align);
	return DHS_OK;
}

int dhs_options_check_range(const char *call, const char *name, uint64_t value, uint64_t least,
                            uint64_t most)
{
	if (value < least || value > most)
		return dhs_fail(DHS_ERR_ARGUMENT, "%s: options->%s is %llu; it must be %llu to %llu", call,
		                name, (unsigned long long)value, (unsigned long long)least,
		                (unsigned long long)most);
	return DHS_OK;
}

int dhs_options_check_output(const char *call, const char *name, const void *to)
{
	uint32_t size;

	if (!to)
		return dhs_fail(DHS_ERR_ARGUMENT, "%s: %s is NULL", call, name);
	memcpy(&size, to, sizeof(size));
	if (size < 2 * sizeof(uint32_t) || size > MOST_BYTES)
		return dhs_fail(DHS_ERR_ARGUMENT, "%s: %s->size is %u; it must be 8 to %d", call, name,
		                size, MOST_BYTES);
	return DHS_OK;
}

void dhs_options_write(const void *from, size_t known, void *to)
{
	uint32_t size;

	memcpy(&size, to, sizeof(size));
	memcpy((unsigned char *)to + sizeof(size), (const unsigned char *)from + sizeof(size),
	       (size < known ? size : known) - sizeof(size));
}
