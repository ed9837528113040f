/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * kvarc/tools.h - fitting profiles, and what an archive does to what a model predicts
 *
 * These calls are in libkvarc-tools, which needs the libkvarc of the same version. Programs that
 * write and read archives need neither the library nor this header.
 */
#ifndef KVARC_TOOLS_H
#define KVARC_TOOLS_H

#include <kvarc.h>

#define KVARC_H_INTERNAL 1

#ifdef __cplusplus
extern "C" {
#endif

#include "kvarc/train.h"
#include "kvarc/scores.h"
#include "kvarc/eval.h"
#include "kvarc/gate.h"

#ifdef __cplusplus
}
#endif

#undef KVARC_H_INTERNAL
#endif
