/* SPDX-License-Identifier: BSD-3-Clause */
/* made_caches.h - small models of every architecture, and the caches that transformers made of
 * them: tests/data/models/caches.zst */
#ifndef MADE_CACHES_H
#define MADE_CACHES_H

#include "import_files.h"

enum { LAYERS = 3, ROW_MAX = 32, TOKENS_MAX = 300, WORDS = 32 };

/* Set up and end a group of tests. */
int made_load(void **state);
int made_free(void **state);
/* "llama", "model.gguf": a view, not to be freed. */
struct blob made_entry(const char *model, const char *file);

/* What transformers computed. */
struct made_cache {
	size_t tokens, first, row;
	int32_t ids[TOKENS_MAX], positions[TOKENS_MAX];
	const uint8_t *numbers;
};
struct made_cache made_cache(const char *model);
/* Keys (0) or values (1) of a layer; behind the last one are the logits. */
const uint8_t *made_numbers(const struct made_cache *c, size_t layer, int value);
/* Row t of numbers, n of them. */
void made_load_row(const uint8_t *numbers, size_t t, size_t n, float *x);
/* A key or value of a token in the order of channels that transformers has. */
void made_row(const struct made_cache *c, size_t layer, int value, size_t t, float *x);

#endif
