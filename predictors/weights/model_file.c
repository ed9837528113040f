/* SPDX-License-Identifier: BSD-3-Clause */
/* model_file.c - opens a model: its files, and what they are */
#include "config.h"

#include "model_internal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* The files of a model: a GGUF, or config.json and its parts. */
struct maps {
	struct kvi_map single;
	struct kvi_model_part *parts;
	size_t n;
	char *path;                  /* path as it was given */
	struct kvi_file_stamp stamp; /* stamp of single and the parts */
};

/* Adds the stamp of a file. */
static void add_stamp(struct kvi_file_stamp *all, struct kvi_file_stamp one)
{
	all->is = kvi_h128_2(&all->is, sizeof all->is, &one.is, sizeof one.is);
	all->stable = all->stable && one.stable;
}

static kvarc_ret path_in(const struct kvi_alloc *alloc, const char *folder, const char *name,
                         char **path, kvarc_error *error)
{
	size_t n = strlen(folder) + strlen(name) + 2;
	*path = kvi_malloc(alloc, n);
	if (!*path)
		return kvi_fail_alloc(error, alloc);
	snprintf(*path, n, "%s/%s", folder, name);
	return KVARC_OK;
}

/* Maps a file of a folder, and adds its stamp to all (may be NULL). END: there is no such file. */
static kvarc_ret map_in(const struct kvi_alloc *alloc, const char *folder, const char *name,
                        struct kvi_map *map, struct kvi_file_stamp *all, kvarc_error *error)
{
	struct kvi_file_stamp stamp;
	char *path;
	kvarc_ret ret = path_in(alloc, folder, name, &path, error);
	if (ret)
		return ret;
	ret = kvi_map_open(map, path, all ? &stamp : NULL, error);
	kvi_free(alloc, path);
	if (!ret && all)
		add_stamp(all, stamp);
	return ret;
}

static kvarc_ret single_part(const struct kvi_alloc *alloc, struct maps *maps,
                             const struct kvi_map *map, kvarc_error *error)
{
	static const char name[] = "model.safetensors";
	maps->parts = kvi_calloc(alloc, 1, sizeof *maps->parts);
	if (!maps->parts)
		return kvi_fail_alloc(error, alloc);
	maps->n = 1;
	maps->parts[0].name = kvi_malloc(alloc, sizeof name);
	if (!maps->parts[0].name)
		return kvi_fail_alloc(error, alloc);
	memcpy(maps->parts[0].name, name, sizeof name);
	maps->parts[0].map = *map;
	return KVARC_OK;
}

/* model.safetensors, or else what the index names. */
static kvarc_ret map_parts(const struct kvi_alloc *alloc, const char *folder, struct maps *maps,
                           kvarc_error *error)
{
	struct kvi_map map;
	kvarc_ret ret = map_in(alloc, folder, "model.safetensors", &map, &maps->stamp, error);
	if (!ret) {
		ret = single_part(alloc, maps, &map, error);
		if (ret)
			kvi_map_close(&map);
		return ret;
	}
	if (ret == KVARC_END)
		ret = map_in(alloc, folder, "model.safetensors.index.json", &map, NULL, error);
	if (ret == KVARC_END)
		return kvi_fail(error, KVARC_FORMAT,
		                "the folder has neither model.safetensors nor "
		                "model.safetensors.index.json");
	if (ret)
		return ret;
	ret = kvi_safetensors_index(alloc, map, &maps->parts, &maps->n, error);
	kvi_map_close(&map);
	for (size_t i = 0; i < maps->n && !ret; i++) {
		ret = map_in(alloc, folder, maps->parts[i].name, &maps->parts[i].map, &maps->stamp,
		             error);
		if (ret == KVARC_END)
			ret = kvi_fail(error, KVARC_IO,
			               "%.100s, a part of the model, is missing: download it",
			               maps->parts[i].name);
	}
	return ret;
}

static kvarc_ret open_folder(struct kvi_model_file *file, const char *path, kvarc_error *error)
{
	struct maps *maps = file->maps;
	kvarc_ret ret = map_in(file->alloc, path, "config.json", &maps->single, &maps->stamp,
	                       error);
	if (ret == KVARC_END)
		return kvi_fail(error, KVARC_FORMAT,
		                "the folder has no config.json: it is not a model");
	if (!ret)
		ret = map_parts(file->alloc, path, maps, error);
	return ret ? ret : kvi_safetensors_model(file, maps->single, maps->parts, maps->n, error);
}

static kvarc_ret open_path(struct kvi_model_file *file, const char *path, kvarc_error *error)
{
	struct maps *maps = file->maps;
	struct kvi_file_stamp stamp;
	struct stat st;
	maps->stamp.stable = true;
	maps->path = kvi_malloc(file->alloc, strlen(path) + 1);
	if (!maps->path)
		return kvi_fail_alloc(error, file->alloc);
	memcpy(maps->path, path, strlen(path) + 1);
	if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
		return open_folder(file, path, error);
	kvarc_ret ret = kvi_map_open(&maps->single, path, &stamp, error);
	if (!ret)
		add_stamp(&maps->stamp, stamp);
	if (ret == KVARC_END)
		return kvi_fail(error, KVARC_IO, "%s: %s", path, strerror(ENOENT));
	return ret ? ret : kvi_gguf_model(file, maps->single, error);
}

kvarc_ret kvi_model_file_open(struct kvi_model_file **file, const struct kvi_alloc *alloc,
                              const char *path, kvarc_error *error)
{
	*file = kvi_calloc(alloc, 1, sizeof **file);
	if (!*file)
		return kvi_fail_alloc(error, alloc);
	(*file)->alloc = alloc;
	(*file)->maps = kvi_calloc(alloc, 1, sizeof(struct maps));
	kvarc_ret ret = (*file)->maps ? open_path(*file, path, error)
	                              : kvi_fail_alloc(error, alloc);
	if (ret)
		kvi_model_file_close(file);
	return ret;
}

/* Computes the stamp of the files that are there now; false: no memory. */
static bool stamp_again(const struct kvi_model_file *file, struct kvi_file_stamp *all)
{
	const struct maps *maps = file->maps;
	*all = (struct kvi_file_stamp){ .stable = true };
	if (!maps->n)
		add_stamp(all, kvi_file_stamp(maps->path));
	for (size_t i = 0; maps->n && i <= maps->n; i++) {
		const char *name = i ? maps->parts[i - 1].name : "config.json";
		char *path;
		if (path_in(file->alloc, maps->path, name, &path, NULL))
			return false;
		add_stamp(all, kvi_file_stamp(path));
		kvi_free(file->alloc, path);
	}
	return true;
}

bool kvi_model_file_stamp(const struct kvi_model_file *file, struct kvi_h128 *stamp)
{
	const struct maps *maps = file->maps;
	struct kvi_file_stamp now;
	if (!maps || !maps->stamp.stable || !stamp_again(file, &now))
		return false;
	*stamp = maps->stamp.is;
	return now.stable && memcmp(&now.is, &maps->stamp.is, sizeof now.is) == 0;
}

void kvi_model_file_close(struct kvi_model_file **file)
{
	if (!*file)
		return;
	const struct kvi_alloc *alloc = (*file)->alloc;
	struct maps *maps = (*file)->maps;
	for (size_t i = 0; maps && i < maps->n; i++) {
		kvi_map_close(&maps->parts[i].map);
		kvi_free(alloc, maps->parts[i].name);
	}
	if (maps) {
		kvi_map_close(&maps->single);
		kvi_free(alloc, maps->parts);
		kvi_free(alloc, maps->path);
	}
	kvi_free(alloc, maps);
	for (unsigned i = 0; i < (*file)->n_ropes; i++)
		kvi_free(alloc, (*file)->ropes[i].freq);
	kvi_free(alloc, (*file)->layers);
	kvi_free(alloc, *file);
	*file = NULL;
}
