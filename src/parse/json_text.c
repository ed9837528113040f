/* SPDX-License-Identifier: BSD-3-Clause */
/* json_text.c - the one place where JSON of others becomes a tree, at a cost that is bounded */
#include "config.h"

#include "json_text.h"

#ifdef HAVE_JANSSON
#include "util/jansson_calls.h"

bool kvi_json_fits(size_t n, uint64_t budget)
{
	return n <= budget / KVI_JSON_COST;
}

kvarc_ret kvi_json_parse(const void *p, size_t n, uint64_t *budget, struct json_t **root)
{
	*root = NULL;
	if (!kvi_jansson(NULL))
		return KVARC_OPTIONS;
	if (!kvi_json_fits(n, *budget))
		return KVARC_MEMLIMIT;
	*budget -= (uint64_t)n * KVI_JSON_COST;
	*root = json_loadb(p, n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
	return *root ? KVARC_OK : KVARC_DATA;
}

#else
typedef int kvi_json_text_empty; /* a C file has something in it */
#endif
