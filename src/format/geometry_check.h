/* SPDX-License-Identifier: BSD-3-Clause */
/* geometry_check.h - GEOMETRY content and owned copies (spec 4) */
#ifndef KVI_GEOMETRY_CHECK_H
#define KVI_GEOMETRY_CHECK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kvarc.h"
#include "util/alloc.h"
#include "util/bytes.h"

/* Limits of a geometry (spec 4). */
enum {
	KVI_MAX_ROPES = 64,
	KVI_MAX_TRACKS = 4096,
	KVI_MAX_TENSORS = 65536,
	KVI_MAX_ROTARY = 65534,
	KVI_MAX_WIDTH = 1 << 20
};

/* Elements a token. */
static inline uint32_t kvi_tensor_width(const kvarc_tensor *tensor)
{
	return tensor->heads * tensor->channels;
}
/* Bytes a token. */
static inline uint32_t kvi_tensor_bytes(const kvarc_tensor *tensor)
{
	return kvi_tensor_width(tensor) * (uint32_t)kvarc_dtype_bytes(tensor->dtype);
}
/* The RoPE of a tensor; NULL: none. */
static inline const kvarc_rope *kvi_tensor_rope(const kvarc_geometry *geometry,
                                                const kvarc_tensor *tensor)
{
	return tensor->rope ? &geometry->ropes[tensor->rope - 1] : NULL;
}

/* Checks the geometry that a caller gave to `call`. Returns OK, GEOMETRY (values cannot be stored),
 * PROG (reserved members); *error (NULL: nothing) says what is wrong. */
kvarc_ret kvi_check_geometry(const kvarc_geometry *geometry, const char *call, kvarc_error *error);
/* The reason why the values of a geometry cannot be stored, static storage; NULL: they can. */
const char *kvi_geometry_wrong(const kvarc_geometry *geometry);

/* Makes a copy with memory of its own, to be freed by kvi_geometry_free; after a failure *to is
 * empty. total_heads 0 becomes first_head + heads. Returns OK, MEM, MEMLIMIT. */
kvarc_ret kvi_geometry_copy(kvarc_geometry *to, const struct kvi_alloc *alloc,
                            const kvarc_geometry *from);
/* Frees a copy; *geometry is empty afterwards and may be freed again. */
void kvi_geometry_free(kvarc_geometry *geometry, const struct kvi_alloc *alloc);

/* Appends a GEOMETRY content; geometry is a copy (total_heads set). Test out->failed afterwards. */
void kvi_geometry_put(struct kvi_out *out, const kvarc_geometry *geometry);
/* Parses a GEOMETRY content. *geometry needs kvi_geometry_free in every case. Returns OK, MEM,
 * MEMLIMIT, DATA, OPTIONS. */
kvarc_ret kvi_geometry_parse(kvarc_geometry *geometry, const struct kvi_alloc *alloc,
                             const uint8_t *content, size_t bytes);

#endif
