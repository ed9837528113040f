/* SPDX-License-Identifier: BSD-3-Clause */
/* models_util.h - models in memory for tests, and what is in them as text */
#ifndef MODELS_UTIL_H
#define MODELS_UTIL_H

#include "import_files.h"
#include "weights/model_internal.h"

enum { MODEL_TEXT_MAX = 1 << 16, MODEL_PARTS = 2 };

/* A folder: config.json and its parts. */
struct model_folder {
	struct blob config;
	unsigned n;
	struct blob parts[MODEL_PARTS];
};
/* Of tests/data/models; name "llama". */
struct model_folder folder_load(const char *name);
void folder_free(struct model_folder *f);

/* Loads bytes which end where their memory ends. *m NULL after a failure. */
kvarc_ret load_gguf(struct kvi_model_file **m, const struct kvi_alloc *alloc, const struct blob *b,
                    kvarc_error *error);
kvarc_ret load_folder(struct kvi_model_file **m, const struct kvi_alloc *alloc,
                      const struct model_folder *f, kvarc_error *error);
/* Frees the bytes too. */
void unload(struct kvi_model_file **m);

/* FNV-1a of all rows as fp32; 0 when a number is not finite. */
uint64_t matrix_hash(const struct kvi_matrix *m);
/* All that a model says, its numbers as a hash of each matrix. */
void model_text(const struct kvi_model_file *m, char text[MODEL_TEXT_MAX]);

#endif
