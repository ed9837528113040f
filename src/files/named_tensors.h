/* SPDX-License-Identifier: BSD-3-Clause */
/* named_tensors.h - named dense tensors of safetensors, npy and kvc files */
#ifndef KVI_NAMED_TENSORS_H
#define KVI_NAMED_TENSORS_H

#include <stddef.h>
#include <stdint.h>

#include "kvarc.h"
#include "files/kv_rules.h"

/* Most axes of a named tensor. */
enum { KVI_NAMED_AXES_MAX = 8 };

/* A tensor of a file that names its tensors (safetensors, npy). */
struct kvi_named {
	uint32_t item;
	const char *name;
	uint8_t dtype;     /* kvarc_dtype; 0 for one that is not supported */
	uint8_t int_bytes; /* 4 or 8 for I32 and I64, else 0 */
	uint8_t n_axes;
	uint64_t shape[KVI_NAMED_AXES_MAX];
	uint64_t offset, bytes; /* position in the item; bytes fit shape and type */
};

/*
 * Adds those tensors that follow a rule (kv_rules.h), and token ids from a vector
 * of integers named tokens, input_ids or ids. *found: how many have keys, values or states.
 * Others are left to be literal bytes. Returns OK, END (a limit of the format), PROG (the rules in
 * the options are none), MEM, MEMLIMIT.
 */
kvarc_ret kvi_import_named(kvarc_import *im, const struct kvi_named *named, size_t n,
                           size_t *found);

#endif
