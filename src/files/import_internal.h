/* SPDX-License-Identifier: BSD-3-Clause */
/* import_internal.h - what the parsers of src/files build together */
#ifndef KVI_IMPORT_INTERNAL_H
#define KVI_IMPORT_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "format/identity.h"
#include "format/restore.h"
#include "kvarc.h"
#include "gguf_import.h"
#include "strided.h"
#include "numeric/rope_search.h"
#include "util/alloc.h"
#include "util/bytes.h"
#include "util/list.h"

/* Limits of what an import takes from a file. */
enum {
	KVI_IMPORT_TRACKS_MAX = 4096,
	KVI_IMPORT_TENSORS_MAX = 65536,
	KVI_IMPORT_ITEMS_MAX = 4096,
	KVI_IMPORT_ROPES_MAX = 16,
	KVI_IMPORT_LAYER_MAX = 65535,
	KVI_IMPORT_WIDTH_MAX = 1 << 20
};

/* The bytes of a member in its container. */
struct kvi_member_window {
	const kvarc_source *container;
	uint64_t base, bytes;
};

/* An input file, or for the time of open a member of a container. */
struct kvi_imp_item {
	kvarc_source src;
	struct kvi_member_window *window; /* src reads it, for a member in place; NULL otherwise */
	int fd;                           /* spooled member, -1 otherwise */
	uint16_t kind;
	char *name;
};

/* Tokens start .. start + count - 1 have positions first, first + 1, ... */
struct kvi_imp_run {
	uint64_t start, count;
	int64_t first;
};

/* A token axis of the import, with the positions and ids of its tokens. */
struct kvi_imp_track {
	kvarc_track pub;
	char label[48];
	uint64_t n;
	uint64_t row;             /* row of a batch */
	uint64_t padding;         /* leading rows of no token, as far as the file says; below n */
	uint32_t item;            /* named tensors: the file that the track was made for */
	bool one_layer;           /* the item has one layer, files beside it have others */
	struct kvi_imp_run *runs; /* none: positions 0, 1, 2, ... */
	size_t n_runs, cap_runs;
	bool has_ids;
	uint32_t ids_item;
	uint64_t ids_at;   /* token ids in that item */
	uint8_t ids_bytes; /* 4 or 8 each */
};

/* A tensor and where its elements lie: strides count from the area's start. */
struct kvi_imp_tensor {
	kvarc_tensor pub;
	char name[64];
	uint32_t area;           /* first area of the tensor */
	struct kvi_area_view at; /* strides; the tensor member is not used */
};

/*
 * A part of a file that is tensors through and through: tokens [t0, t0 + n_tokens)
 * of a track. The areas of a tensor stand one after another; together they hold all
 * of its tokens, some perhaps more than once.
 */
struct kvi_imp_area {
	uint32_t item, track;
	uint64_t offset, bytes;
	uint64_t t0, n_tokens;
	uint32_t first_tensor, n_tensors;
};

/* An import: items (files), tracks, tensors, and the areas of tensors in items. */
struct kvarc_import {
	struct kvi_alloc alloc;
	kvarc_error *error;
	kvarc_import_options options; /* pointers are valid during open only */
	struct kvi_gguf gguf;

	struct kvi_imp_item *items;
	struct kvi_imp_track *tracks;
	struct kvi_imp_tensor *tensors;
	struct kvi_imp_area *areas;
	size_t n_items, cap_items, n_tracks, cap_tracks;
	size_t n_tensors, cap_tensors, n_areas, cap_areas;
	struct kvi_rope ropes[KVI_IMPORT_ROPES_MAX];
	size_t n_ropes;

	kvarc_geometry geometry; /* arrays below, made by kvi_import_finish */
	kvarc_rope pub_ropes[KVI_IMPORT_ROPES_MAX];
	kvarc_track *pub_tracks;
	kvarc_tensor *pub_tensors;
	char format[96];
	char layout[48];            /* for the identity; "": nothing to say */
	uint32_t streams;           /* number of streams of a llama.cpp file; 0: not in the file */
	const char *engine;         /* NULL: not known */
	kvarc_source container;     /* when container_kind is not NULL */
	const char *container_kind; /* "zip", "tar", or NULL */
	size_t n_members;           /* items that replace their container; 0: none */
	char note[560];             /* "": none */
	/* Why no rule has a tensor of some file, and the rule to give; "": nothing to say. */
	char unknown[200], hint[320];
	bool typing; /* no cache was found: parsers add what kvi_import_typed takes */
	/* pairs from kvarc_import_identity; an empty value leaves a key out */
	struct kvi_identity identity;
	unsigned adopted; /* which keys it has from an archive (kvi_import_adopt) */
	kvarc_append_call append; /* NULL: kvarc_writer_append_fetch */
	void *append_opaque;
};

/*
 * Parsers return OK when they understood the item, END when it is something
 * else or not understood to its end (a note may say why), anything else is
 * final. They add tracks, areas and tensors; on END what they added is
 * removed by the caller.
 */
kvarc_ret kvi_import_llama(kvarc_import *im, uint32_t item);
/* As kvi_import_llama, for the bytes of an item from `at` on as a bare state of llama.cpp, with
 * n_ids token ids of 4 bytes at ids_at; 0: none. The caller sets the item's kind and the format. */
kvarc_ret kvi_import_llama_state(kvarc_import *im, uint32_t item, uint64_t at, uint64_t ids_at,
                                 uint32_t n_ids);
/* As kvi_import_llama, for a KVC file (named_tensors.c). */
kvarc_ret kvi_import_kvc(kvarc_import *im, uint32_t item);
/* As kvi_import_llama, for a safetensors file. */
kvarc_ret kvi_import_safetensors(kvarc_import *im, uint32_t item);
/* Imports the item as raw pages, described by options.raw. Returns OK, END (more tensors than an
 * archive can describe), GEOMETRY, PROG, MEM, MEMLIMIT. */
kvarc_ret kvi_import_raw(kvarc_import *im, uint32_t item);
/* Imports all items, members of one container, as a file of torch.save (torch_pt.c). */
kvarc_ret kvi_import_pt(kvarc_import *im);
/* Imports all items from `first` on, npy files of one container, together. */
kvarc_ret kvi_import_npy(kvarc_import *im, uint32_t first);
/* Sets heads, channels and RoPE of key tensors that have none yet. */
kvarc_ret kvi_import_find_ropes(kvarc_import *im);

/* The kvi_import_add_* calls add to a growing array and return the new entry, zeroed, or NULL
 * (kvi_import_full returns the error). This one: an item. */
struct kvi_imp_item *kvi_import_add_item(kvarc_import *im, const char *name);
/* A track of n tokens. */
struct kvi_imp_track *kvi_import_add_track(kvarc_import *im, uint64_t n);
/* An area of an item: bytes from offset on that hold elements of the track. */
struct kvi_imp_area *kvi_import_add_area(kvarc_import *im, uint32_t item, uint32_t track,
                                         uint64_t offset, uint64_t bytes);
/* The next area of the tensors of the last one, of other or the same tokens. */
struct kvi_imp_area *kvi_import_add_part(kvarc_import *im, uint64_t offset, uint64_t bytes,
                                         uint64_t t0, uint64_t n_tokens);
/* Belongs to the last area. */
struct kvi_imp_tensor *kvi_import_add_tensor(kvarc_import *im);
/* The error of a NULL from kvi_import_add_*: END with a note when a limit of the
 * format was reached, else MEM or MEMLIMIT. */
kvarc_ret kvi_import_full(kvarc_import *im);
/* The first note wins. */
void kvi_import_note(kvarc_import *im, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
/* Appends a position to a track. */
kvarc_ret kvi_import_position(kvarc_import *im, struct kvi_imp_track *track, int64_t position);
/* Sets heads and channels for a width: `wanted` heads when that divides it and fits. */
void kvi_import_shape(kvarc_tensor *tensor, uint64_t width, uint32_t wanted);

/* Positions and, when the track has them, ids of tokens [t0, t0 + n). */
kvarc_ret kvi_import_tokens(const kvarc_import *im, uint32_t track, uint64_t t0, uint32_t n,
                            int32_t *positions, int32_t *ids);

#endif
