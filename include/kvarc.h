/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * kvarc.h - lossless archives of transformer KV caches
 *
 * The umbrella header, the only one that applications include. Units are in
 * the names or stated: bytes, elements, tokens. "Token", "head", "layer",
 * "segment" are used as in spec/kvarc-format.md.
 */
#ifndef KVARC_H
#define KVARC_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define KVARC_H_INTERNAL 1

#ifdef __cplusplus
extern "C" {
#endif

#include "kvarc/base.h"
#include "kvarc/geometry.h"
#include "kvarc/io.h"
#include "kvarc/keys.h"
#include "kvarc/sources.h"
#include "kvarc/profile.h"
#include "kvarc/predictor.h"
#include "kvarc/lossy.h"
#include "kvarc/stored.h"
#include "kvarc/repair.h"
#include "kvarc/writer.h"
#include "kvarc/reader.h"
#include "kvarc/file.h"
#include "kvarc/workspace.h"

#ifdef __cplusplus
}
#endif

#undef KVARC_H_INTERNAL
#endif
