/* SPDX-License-Identifier: BSD-3-Clause */
/* small_model.h - a transformer of three layers, and caches of it */
#ifndef SMALL_MODEL_H
#define SMALL_MODEL_H

#include "exact/engine.h"
#include "stream_util.h"

enum {
	LAYERS = 3,
	WIDTH = 64,
	HEADS = 4,
	KV_HEADS = 2,
	CHANNELS = 16,
	FFN = 96,
	WORDS = 61,
	TOKENS = 700,
	KV = KV_HEADS * CHANNELS
};

/* The model as config.json and safetensors, in bf16. 0: it is there. */
extern char folder[];
int make_folder(void);
void remove_folder(void);
/* A build without its JSON library knows no folders. */
bool reads_folders(void);

struct engine {
	struct kvi_alloc alloc;
	struct kvi_pool *pool;
	struct kvi_model_file *file;
	struct kvi_engine *engine;
	struct kvi_run *run;
};

void engine_open(struct engine *e, unsigned level, unsigned round_to);
void engine_close(struct engine *e);

/* A cache as an engine in bf16 makes it, with noise in its hidden state. */
void make(struct cache *c, uint64_t seed, float noise);
/* Where a slot of a row is in the cache; an element of it. */
size_t channel(size_t slot);
float get(const uint8_t *from);

#endif
