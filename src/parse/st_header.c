/* SPDX-License-Identifier: BSD-3-Clause */
/* st_header.c - JSON of bounded cost, and the entries of a safetensors header */
#include "config.h"

#include "st_header.h"

#ifdef HAVE_JANSSON
#include "util/jansson_calls.h"

#include "util/ckd.h"
#include "util/error.h"

kvarc_ret kvi_json_load(const uint8_t *p, size_t n, const char *name, uint64_t *budget,
                        struct json_t **root, kvarc_error *error)
{
	*root = NULL;
	if (n > KVI_ST_HEADER_MAX)
		return kvi_fail(error, KVARC_DATA,
		                "%.80s: JSON of %zu bytes is more than the format allows", name, n);
	if (!kvi_jansson(error))
		return KVARC_OPTIONS;
	if (kvi_json_parse(p, n, budget, root) == KVARC_MEMLIMIT)
		return kvi_fail(error, KVARC_MEMLIMIT,
		                "%.80s: its JSON needs more memory than the limit: raise the limit",
		                name);
	if (json_is_object(*root))
		return KVARC_OK;
	json_decref(*root);
	*root = NULL;
	return kvi_fail(error, KVARC_DATA,
	                "%.80s is damaged, its JSON cannot be read: download it again", name);
}

/* A count or offset: an integer that is not negative. */
static bool get_count(const json_t *v, uint64_t *n)
{
	if (!json_is_integer(v) || json_integer_value(v) < 0)
		return false;
	*n = (uint64_t)json_integer_value(v);
	return true;
}

bool kvi_st_entry(const struct json_t *v, uint64_t data_bytes, struct kvi_st_entry *entry)
{
	const json_t *shape = json_object_get(v, "shape");
	const json_t *offsets = json_object_get(v, "data_offsets");
	entry->dtype = json_string_value(json_object_get(v, "dtype"));
	if (!entry->dtype || !json_is_array(shape) || json_array_size(offsets) != 2 ||
	    !get_count(json_array_get(offsets, 0), &entry->begin) ||
	    !get_count(json_array_get(offsets, 1), &entry->end) || entry->begin > entry->end ||
	    entry->end > data_bytes)
		return false;
	entry->axes = json_array_size(shape);
	entry->elements = 1;
	for (size_t i = 0; i < entry->axes; i++) {
		uint64_t n;
		if (!get_count(json_array_get(shape, i), &n) ||
		    kvi_mul(entry->elements, n, &entry->elements))
			return false;
		if (i < KVI_ST_AXES_MAX)
			entry->shape[i] = n;
	}
	return true;
}

#endif
