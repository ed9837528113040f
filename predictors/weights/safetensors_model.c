/* SPDX-License-Identifier: BSD-3-Clause */
/* safetensors_model.c - tensors of a folder with config.json and safetensors files */
#include "config.h"

#include "model_internal.h"

#ifdef HAVE_JANSSON
#include "util/jansson_calls.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "parse/st_header.h"
#include "util/bytes.h"
#include "util/ckd.h"

/* A header with the file it is of. */
struct header {
	const struct kvi_model_part *part;
	json_t *root;
	const uint8_t *data;
	uint64_t data_bytes;
};

static kvarc_ret load_header(struct header *header, uint64_t *budget, kvarc_error *error)
{
	const struct kvi_map *map = &header->part->map;
	uint64_t n = map->n < 8 ? UINT64_MAX : kvi_load64(map->p);
	if (n == UINT64_MAX || n > map->n - 8)
		return kvi_fail(error, KVARC_DATA,
		                "%.80s is not a safetensors file, or it is cut: download it again",
		                header->part->name);
	header->data = map->p + 8 + n;
	header->data_bytes = map->n - 8 - n;
	return kvi_json_load(map->p + 8, (size_t)n, header->part->name, budget, &header->root,
	                     error);
}

static void set_type(struct kvi_weight *w, const char *dtype, unsigned *bytes)
{
	static const struct {
		const char *name;
		uint8_t type;
	} known[] = { { "F32", KVI_NUM_F32 }, { "F16", KVI_NUM_F16 }, { "BF16", KVI_NUM_BF16 } };
	w->type = KVI_NUM_NONE;
	*bytes = 0;
	for (size_t i = 0; i < sizeof known / sizeof *known; i++)
		if (!strcmp(dtype, known[i].name)) {
			w->type = known[i].type;
			*bytes = kvi_number_info(w->type)->bytes;
		}
	char shown[KVI_SHOWN_BYTES];
	snprintf(w->type_name, sizeof w->type_name, "%.15s",
	         kvi_shown(shown, dtype, strlen(dtype)));
}

static kvarc_ret take_tensor(const struct header *header, const char *name, const json_t *v,
                             struct kvi_weight *w, kvarc_error *error)
{
	struct kvi_st_entry e;
	unsigned bytes;
	uint64_t size;
	bool good = kvi_st_entry(v, header->data_bytes, &e);
	w->name = name;
	w->name_n = strlen(name);
	if (good) {
		set_type(w, e.dtype, &bytes);
		good = !bytes || (!kvi_mul(e.elements, bytes, &size) && size == e.end - e.begin);
	}
	if (!good) {
		char shown[KVI_SHOWN_BYTES];
		return kvi_fail(error, KVARC_DATA,
		                "tensor %s is not valid, or %.60s ends before "
		                "it does: download it again",
		                kvi_shown(shown, name, strlen(name)), header->part->name);
	}
	w->plain = e.axes == 1 || e.axes == 2;
	w->rows = e.axes == 2 ? e.shape[0] : 1;
	w->columns = e.axes == 2 ? e.shape[1] : e.axes == 1 ? e.shape[0] : 0;
	w->data = header->data + e.begin;
	w->bytes = e.end - e.begin;
	return KVARC_OK;
}

static kvarc_ret take_tensors(const struct header *header, struct kvi_weights *weights,
                              kvarc_error *error)
{
	const char *name;
	json_t *v;
	json_object_foreach(header->root, name, v)
	{
		if (!strcmp(name, "__metadata__"))
			continue;
		kvarc_ret ret = take_tensor(header, name, v, &weights->w[weights->n], error);
		if (ret)
			return ret;
		weights->n++;
	}
	return KVARC_OK;
}

struct st_loader {
	struct kvi_model_file *m;
	struct header *headers;
	size_t n;
	struct kvi_weights tensors;
	uint8_t *sliding;
	kvarc_error *error;
};

static kvarc_ret load_tensors(struct st_loader *loader)
{
	uint64_t budget = loader->m->alloc->limit;
	size_t n = 0;
	for (size_t i = 0; i < loader->n; i++) {
		kvarc_ret ret = load_header(&loader->headers[i], &budget, loader->error);
		if (ret)
			return ret;
		n += json_object_size(loader->headers[i].root);
	}
	loader->tensors.w = n && n <= KVI_MODEL_TENSORS_MAX
	                            ? kvi_calloc(loader->m->alloc, n, sizeof *loader->tensors.w)
	                            : NULL;
	if (n > KVI_MODEL_TENSORS_MAX)
		return kvi_fail(loader->error, KVARC_DATA, "the model has more than %d tensors",
		                KVI_MODEL_TENSORS_MAX);
	if (n && !loader->tensors.w)
		return kvi_fail_alloc(loader->error, loader->m->alloc);
	for (size_t i = 0; i < loader->n; i++) {
		kvarc_ret ret = take_tensors(&loader->headers[i], &loader->tensors, loader->error);
		if (ret)
			return ret;
	}
	return kvi_weights_sort(&loader->tensors, loader->error);
}

/* The model's own code multiplies embeddings with a number of their type. */
static void round_scale(struct kvi_model_file *file)
{
	uint32_t bits, cut = file->embedding.type == KVI_NUM_BF16  ? 16
	                     : file->embedding.type == KVI_NUM_F16 ? 13
	                                                           : 0;
	memcpy(&bits, &file->embedding_scale, sizeof bits);
	if (cut) {
		bits += ((uint32_t)1 << (cut - 1)) - 1 + (bits >> cut & 1);
		bits = bits >> cut << cut;
	}
	memcpy(&file->embedding_scale, &bits, sizeof bits);
}

static kvarc_ret load(struct st_loader *loader, struct kvi_map config)
{
	struct kvi_model_spec spec = { .safetensors = true };
	int arch;
	kvarc_ret ret = kvi_config_json(loader->m, config, &arch, &spec, &loader->sliding,
	                                loader->error);
	if (!ret)
		ret = load_tensors(loader);
	if (!ret)
		ret = kvi_arch_bind(loader->m, arch, &spec, &loader->tensors, loader->error);
	if (!ret)
		round_scale(loader->m);
	return ret;
}

kvarc_ret kvi_safetensors_model(struct kvi_model_file *file, struct kvi_map config,
                                const struct kvi_model_part *parts, size_t n_parts,
                                kvarc_error *error)
{
	struct st_loader l = { .m = file, .error = error };
	l.headers = kvi_calloc(file->alloc, n_parts, sizeof *l.headers);
	if (!l.headers)
		return kvi_fail_alloc(error, file->alloc);
	l.n = n_parts;
	for (size_t i = 0; i < n_parts; i++)
		l.headers[i].part = &parts[i];
	kvarc_ret ret = load(&l, config);
	for (size_t i = 0; i < n_parts; i++)
		json_decref(l.headers[i].root);
	kvi_free(file->alloc, l.headers);
	kvi_free(file->alloc, l.tensors.w);
	kvi_free(file->alloc, l.sliding);
	return ret;
}

/* A file of the folder itself, and of no other kind. */
static bool good_name(const char *name)
{
	static const char end[] = ".safetensors";
	size_t n = strlen(name);
	return n > sizeof end - 1 && n < 200 && name[0] != '.' && !strchr(name, '/') &&
	       !strcmp(name + n - (sizeof end - 1), end);
}

static int by_text(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The distinct names of n. */
static kvarc_ret take_names(const struct kvi_alloc *alloc, const char **names, size_t n,
                            struct kvi_model_part **parts, size_t *n_parts, kvarc_error *error)
{
	size_t distinct = 0;
	qsort(names, n, sizeof *names, by_text);
	for (size_t i = 0; i < n; i++)
		if (i == 0 || strcmp(names[i], names[distinct - 1]) != 0)
			names[distinct++] = names[i];
	if (distinct > KVI_MODEL_PARTS_MAX)
		return kvi_fail(error, KVARC_DATA,
		                "the index of the model names more than %d files",
		                KVI_MODEL_PARTS_MAX);
	*parts = kvi_calloc(alloc, distinct, sizeof **parts);
	if (!*parts)
		return kvi_fail_alloc(error, alloc);
	for (; *n_parts < distinct; ++*n_parts) {
		size_t bytes = strlen(names[*n_parts]) + 1;
		char *name = kvi_malloc(alloc, bytes);
		if (!name)
			return kvi_fail_alloc(error, alloc);
		memcpy(name, names[*n_parts], bytes);
		(*parts)[*n_parts].name = name;
	}
	return KVARC_OK;
}

static kvarc_ret read_index(const struct kvi_alloc *alloc, const json_t *root,
                            struct kvi_model_part **parts, size_t *n_parts, kvarc_error *error)
{
	json_t *map = json_object_get(root, "weight_map"), *v;
	size_t n = 0, capacity = json_object_size(map);
	const char *key;
	kvarc_ret ret = KVARC_OK;
	const char **names = capacity ? kvi_array(alloc, capacity, sizeof *names) : NULL;
	if (!capacity)
		return kvi_fail(error, KVARC_DATA,
		                "the index of the model names no files: download it again");
	if (!names)
		return kvi_fail_alloc(error, alloc);
	json_object_foreach(map, key, v)
	{
		const char *name = json_string_value(v);
		if (!name || !good_name(name)) {
			ret = kvi_fail(error, KVARC_DATA,
			               "the index of the model names a file "
			               "that is not one of its folder: do not use this model");
			break;
		}
		names[n++] = name;
	}
	if (!ret)
		ret = take_names(alloc, names, n, parts, n_parts, error);
	kvi_free(alloc, names);
	return ret;
}

kvarc_ret kvi_safetensors_index(const struct kvi_alloc *alloc, struct kvi_map index,
                                struct kvi_model_part **parts, size_t *n_parts, kvarc_error *error)
{
	uint64_t budget = alloc->limit;
	json_t *root;
	*parts = NULL;
	*n_parts = 0;
	kvarc_ret ret = kvi_json_load(index.p, index.n, "model.safetensors.index.json", &budget,
	                              &root, error);
	if (ret)
		return ret;
	ret = read_index(alloc, root, parts, n_parts, error);
	json_decref(root);
	return ret;
}

#else

static kvarc_ret fail_library(kvarc_error *error)
{
	return kvi_fail(error, KVARC_OPTIONS,
	                "models as safetensors need " JANSSON_MISSING ": use a GGUF file");
}

kvarc_ret kvi_safetensors_model(struct kvi_model_file *file, struct kvi_map config,
                                const struct kvi_model_part *parts, size_t n_parts,
                                kvarc_error *error)
{
	(void)file;
	(void)config;
	(void)parts;
	(void)n_parts;
	return fail_library(error);
}

kvarc_ret kvi_safetensors_index(const struct kvi_alloc *alloc, struct kvi_map index,
                                struct kvi_model_part **parts, size_t *n_parts, kvarc_error *error)
{
	(void)alloc;
	(void)index;
	*parts = NULL;
	*n_parts = 0;
	return fail_library(error);
}

#endif
