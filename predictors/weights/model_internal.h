/* SPDX-License-Identifier: BSD-3-Clause */
/* model_internal.h - what the loaders of models share */
#ifndef KVI_MODEL_INTERNAL_H
#define KVI_MODEL_INTERNAL_H

#include "util/error.h"
#include "util/hash.h"
#include "weights/model_file.h"

/* Limits of what a file may say. */
enum {
	KVI_MODEL_LAYERS_MAX = 65535,
	KVI_MODEL_WIDTH_MAX = 1 << 20, /* also the channels of all heads, and of the feed-forward
	                                * part */
	KVI_MODEL_HEADS_MAX = 65535,
	KVI_MODEL_VOCABULARY_MAX = 1 << 24,
	KVI_MODEL_TENSORS_MAX = 1 << 21,
	KVI_MODEL_PARTS_MAX = 4096
};

/* A file in memory. */
struct kvi_map {
	const uint8_t *p;
	size_t n;
};

/* The identity and state of a file: path without links, inode, size and times. */
struct kvi_file_stamp {
	struct kvi_h128 is;
	bool stable; /* a later change of the file changes `is` */
};
/* Maps a file. stamp may be NULL. Returns OK, END (there is no such file), IO with its text. */
kvarc_ret kvi_map_open(struct kvi_map *map, const char *path, struct kvi_file_stamp *stamp,
                       kvarc_error *error);
/* The stamp of the file that has the path now. */
struct kvi_file_stamp kvi_file_stamp(const char *path);
/* Unmaps the file; a map that was never opened is fine. */
void kvi_map_close(struct kvi_map *map);

/* A tensor of a file. */
struct kvi_weight {
	const char *name; /* name_n bytes, not terminated */
	size_t name_n;
	uint8_t type; /* enum kvi_number_type, KVI_NUM_NONE: not known */
	bool plain;   /* has one axis, or two */
	bool used;
	char type_name[16];     /* the file's name of the type, for errors */
	uint64_t rows, columns; /* sizes in the file; rows 1 for one axis */
	const uint8_t *data;    /* checked to lie in the file where type is known */
	uint64_t bytes;
};
/* A type that is not known. */
enum { KVI_NUM_NONE = 255 };

/* The tensors of a file. */
struct kvi_weights {
	struct kvi_weight *w;
	size_t n;
};

/* A name as it can be shown: cut, nothing but printable ASCII. */
enum { KVI_SHOWN_BYTES = 72 };
/* Writes the name for a message to dst; returns dst. */
const char *kvi_shown(char dst[KVI_SHOWN_BYTES], const char *name, size_t n);
/* Refuses tensors that overlap and names that are there twice, then sorts tensors by name. Returns
 * OK, DATA. */
kvarc_ret kvi_weights_sort(struct kvi_weights *weights, kvarc_error *error);
/* Finds a tensor by name, after kvi_weights_sort; NULL: there is none. */
struct kvi_weight *kvi_weights_find(const struct kvi_weights *weights, const char *name);

/* Types by their number in ggml; NULL: not known. */
struct kvi_number_info {
	const char *name;
	unsigned elements, bytes; /* elements and bytes of a block */
};
/* The row of a type; NULL: not known. */
const struct kvi_number_info *kvi_number_info(uint32_t type);
/* The names of all types, for errors. */
extern const char kvi_number_names[];

/* Kinds of scaling of a rope. */
enum kvi_rope_scaling { KVI_ROPE_PLAIN, KVI_ROPE_LINEAR, KVI_ROPE_LLAMA3 };

/* The rule by which a model derives the frequencies of its RoPE. */
struct kvi_rope_rule {
	uint32_t rotary;
	double theta;
	enum kvi_rope_scaling scaling;
	double factor, low, high, context; /* low, high, context: llama3 alone */
};

/* Computes freq[0 .. rotary / 2 - 1], in units of struct kvi_model_rope. False: a number of the
 * rule is out of range, and freq is not to be used. */
bool kvi_rope_rule_freq(const struct kvi_rope_rule *r, uint64_t *freq);
/* Divides a frequency (struct kvi_model_rope) and rounds it to a multiple of 2^16. False, with
 * *freq unchanged: the divisor is NaN, below 0.25 or above 2^20. */
bool kvi_rope_divide(uint64_t *freq, double by);

/* Whether the output matrix is the embedding. */
enum kvi_tied { KVI_TIED_UNSAID, KVI_TIED_YES, KVI_TIED_NO };

/* Settings of a model that a loader has before its tensors are looked up. */
struct kvi_model_spec {
	bool safetensors;
	struct kvi_rope_rule ropes[2]; /* theta 0: there is none */
	const uint8_t *sliding;        /* flags by layer, memory of the loader; NULL: none */
	uint32_t window;               /* window of sliding layers */
	enum kvi_tied tied;            /* unsaid: tied if there is no output matrix */
};

/* Sets file->ropes and n_ropes from spec->ropes; head_channels is set before. The first rope of a
 * GGUF is divided by the factors of its tensor rope_freqs.weight, if there is one.
 * kvi_model_file_close frees the frequencies, also after an error. Returns OK, MEM, MEMLIMIT,
 * OPTIONS, DATA. */
kvarc_ret kvi_rope_bind(struct kvi_model_file *file, const struct kvi_model_spec *spec,
                        const struct kvi_weights *tensors, kvarc_error *error);

/* The architectures that are known. */
enum kvi_arch_id {
	KVI_ARCH_LLAMA,
	KVI_ARCH_QWEN2,
	KVI_ARCH_QWEN3,
	KVI_ARCH_GEMMA3,
	KVI_ARCH_GPT2,
	KVI_ARCHS
};
/* Finds an architecture by its name in a GGUF, or the model_type of a config.json; -1: it is not
 * known, and error has OPTIONS. */
int kvi_arch_find(const char *name, bool safetensors, kvarc_error *error);
/* Sets the members that depend on the architecture alone: arch, layer_norm, activation and the
 * like. */
void kvi_arch_begin(struct kvi_model_file *file, int arch, bool safetensors);
/* Checks sizes, then finds and checks all tensors. */
kvarc_ret kvi_arch_bind(struct kvi_model_file *file, int arch, const struct kvi_model_spec *spec,
                        struct kvi_weights *tensors, kvarc_error *error);

/* Reads the model of a GGUF in memory. Returns OK, MEM, MEMLIMIT, FORMAT, DATA, OPTIONS. */
kvarc_ret kvi_gguf_model(struct kvi_model_file *model, struct kvi_map file, kvarc_error *error);
/* A safetensors file of a model in memory; its name is for errors. */
struct kvi_model_part {
	char *name;
	struct kvi_map map;
};
/* Reads a model of config.json and safetensors files into file. Returns OK, MEM, MEMLIMIT, DATA,
 * OPTIONS. */
kvarc_ret kvi_safetensors_model(struct kvi_model_file *file, struct kvi_map config,
                                const struct kvi_model_part *parts, size_t n_parts,
                                kvarc_error *error);
/* Lists the files that an index names, each once; parts and parts[].name are of alloc, also after
 * an error. */
kvarc_ret kvi_safetensors_index(const struct kvi_alloc *alloc, struct kvi_map index,
                                struct kvi_model_part **parts, size_t *n_parts, kvarc_error *error);
/* Reads config.json into file and spec; *sliding: to be freed, or NULL. */
kvarc_ret kvi_config_json(struct kvi_model_file *file, struct kvi_map config, int *arch,
                          struct kvi_model_spec *spec, uint8_t **sliding, kvarc_error *error);

#endif
