/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

#include <dhisparse/dhisparse.h>

#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)

uint32_t dhs_version(void)
{
	return DHS_VERSION;
}

const char *dhs_version_string(void)
{
	return TEXT(DHS_VERSION_MAJOR) "." TEXT(DHS_VERSION_MINOR) "." TEXT(DHS_VERSION_PATCH);
}
