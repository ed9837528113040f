/* SPDX-License-Identifier: BSD-3-Clause */
/* json_text.h - the one place where JSON of others becomes a tree, at a cost that is bounded */
#ifndef KVI_JSON_TEXT_H
#define KVI_JSON_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kvarc.h"
#include "util/shared.h"

/* Memory that a byte of JSON may need: jansson takes 256 bytes for "{}," and its entry in an
 * array. */
enum { KVI_JSON_COST = 88 };

/* An object of jansson. */
struct json_t;

/* Whether the tree of n bytes of JSON fits a budget of memory, whatever they are. */
bool kvi_json_fits(size_t n, uint64_t budget);
/*
 * Parses n bytes of JSON. jansson allocates by itself, so that its memory is bounded beforehand:
 * KVI_JSON_COST per byte must fit *budget, which is reduced by it. A string may hold \u0000, where
 * it ends for who takes it as text: a model has such words. Release *root with json_decref; it is
 * NULL on failure. Returns OK; MEMLIMIT: they do not fit; DATA: it is no JSON, or an object
 * in it has a name twice; OPTIONS: there is no jansson. Fills no error.
 */
KVI_SHARED kvarc_ret kvi_json_parse(const void *p, size_t n, uint64_t *budget,
                                    struct json_t **root);

#endif
