/* SPDX-License-Identifier: BSD-3-Clause */
/* version.c - version and names of return codes */
#include "kvarc.h"

const char *kvarc_version(void)
{
	return KVARC_VERSION_STRING;
}

int kvarc_usable(kvarc_ret ret)
{
	return ret == KVARC_OK || ret == KVARC_END || ret == KVARC_GEOMETRY || ret == KVARC_PROG;
}

const char *kvarc_strerror(kvarc_ret ret)
{
	switch (ret) {
	case KVARC_OK:
		return "ok";
	case KVARC_END:
		return "end";
	case KVARC_MEM:
		return "out of memory";
	case KVARC_MEMLIMIT:
		return "memory limit reached";
	case KVARC_FORMAT:
		return "not a kvarc file";
	case KVARC_OPTIONS:
		return "not supported";
	case KVARC_DATA:
		return "data error";
	case KVARC_GEOMETRY:
		return "geometry differs";
	case KVARC_PREDICTOR:
		return "predictor missing or different";
	case KVARC_AUTH:
		return "key missing or wrong";
	case KVARC_IO:
		return "input or output error";
	case KVARC_PROG:
		return "programming error";
	case KVARC_LOSSY:
		return "lossy";
	case KVARC_STORE:
		return "missing in the store";
	}
	return "unknown return code";
}
