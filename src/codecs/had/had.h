/* SPDX-License-Identifier: BSD-3-Clause */
/* had.h - transform codecs had and klt: tiles, bodies, means, bases, one step a chunk */
#ifndef KVI_HAD_H
#define KVI_HAD_H

#include <string.h>

#include "kvarc.h"
#include "codecs/codec.h"
#include "codecs/lossy/codes.h"
#include "util/shared.h"

/* round(4 log2 v), v > 0 */
KVI_SHARED int kvi_quarter_log(float v);
/* 2^(e/16), |e| < 496 */
KVI_SHARED float kvi_power_of(int e);
/* The step for coefficients of that root mean square at the tier's rate for a kind; encoders
 * alone. */
KVI_SHARED float kvi_step_of(const kvarc_lossy *tier, unsigned kind, float rms);

#endif
