/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

#include "error.h"

#include <stdarg.h>
#include <stdio.h>

static _Thread_local char last_error[512];

int dhs_fail(int code, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(last_error, sizeof(last_error), format, args);
	va_end(args);
	return code;
}

const char *dhs_last_error(void)
{
	return last_error;
}

const char *dhs_strerror(int code)
{
	switch (code) {
	case DHS_OK:
		return "success";
	case DHS_ERR_ARGUMENT:
		return "invalid argument";
	case DHS_ERR_ORDER:
		return "call out of order";
	case DHS_ERR_DEVICE_MEMORY:
		return "no room on the device";
	case DHS_ERR_HOST_MEMORY:
		return "no room in host memory";
	case DHS_ERR_BUSY:
		return "in use by an unsettled step";
	case DHS_ERR_PENDING:
		return "relies on work that is not recorded yet";
	case DHS_ERR_MISMATCH:
		return "device and host disagree about a session's length";
	case DHS_ERR_CAPTURING:
		return "the stream is being captured";
	case DHS_ERR_UNSUPPORTED:
		return "not supported";
	case DHS_ERR_DEVICE:
		return "the device is lost";
	case DHS_ERR_CORRUPT:
		return "corrupt data";
	case DHS_ERR_VERSION:
		return "made for a newer version of the library";
	case DHS_ERR_QUARANTINED:
		return "quarantined after a fault";
	default:
		return "unknown error code";
	}
}
