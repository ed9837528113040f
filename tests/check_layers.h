/* SPDX-License-Identifier: BSD-3-Clause */
/* check_layers.h - a part of check_kernels */
#ifndef CHECK_LAYERS_H
#define CHECK_LAYERS_H

#include "kernels/layers.h"

/* One random round of two sets, which may be the same; the name of a kernel that differs, that does
 * not decode what was encoded, or whose planes are not those of the specification. NULL: none. A
 * kernel that reads or writes behind a buffer ends the process by a signal. */
const char *check_layers(const struct kvi_layer_kernels *ref, const struct kvi_layer_kernels *fast);

#endif
