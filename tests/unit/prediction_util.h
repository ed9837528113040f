/* SPDX-License-Identifier: BSD-3-Clause */
/* prediction_util.h - a tiny model, a cache that it could have made, and a profile for the two */
#ifndef PREDICTION_UTIL_H
#define PREDICTION_UTIL_H

#include "stream_util.h"

enum { TOKENS = 600, LAYERS = 2, CHANNELS = 8, WORDS = 5 };

/* Of tests/data/models. The path stays until the next call. */
const char *model_path(const char *name);
kvarc_predictor *open_model(const char *name);

struct world {
	kvarc_predictor *model;
	kvarc_profile *profile;
	struct cache c, back;
	struct memfile f;
	kvarc_writer_options wo;
	kvarc_reader_options ro;
	kvarc_error error;
	const kvarc_profile *list[1];
};

void world_open(struct world *w, int level);
/* The cache is what the model predicts at this level, bit for bit. */
void world_open_exact(struct world *w, int level, unsigned dtype);
void world_close(struct world *w);
/* Nothing is read yet. */
void world_empty(struct world *w);
/* The archive of the cache, in place of another one. */
void world_write(struct world *w);
/* It is read in order, and what the cache was. */
void world_read(struct world *w);
/* Where the CHUNK frame of a tensor and the segment from token t0 is in the archive. */
size_t world_chunk(struct world *w, uint32_t tensor, uint64_t t0);

#endif
