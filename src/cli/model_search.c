/* SPDX-License-Identifier: BSD-3-Clause */
/* model_search.c - looks for the model of an archive in the folders of KVARC_MODEL_PATH */
#include "config.h"

#include "model_search.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "library.h"
#include "message.h"
#include "paths.h"
#include "units.h"

enum { DEPTH = 5, PATH_BYTES = 4096 };

/* A file or folder that may be a model. */
struct model_file {
	char *path;
	kvarc_predictor *p; /* NULL: not opened yet, or no model */
	kvarc_predictor_model model;
	kvarc_error error; /* the predictor keeps where it is */
	bool opened, has_digest;
	uint8_t digest[16];
};

static struct {
	struct model_file **list;
	size_t n;
	bool walked;
} found;

/* Takes ownership of path. */
static void add(char *path)
{
	struct model_file **list = realloc(found.list, (found.n + 1) * sizeof(void *));
	struct model_file *c = calloc(1, sizeof(*c));

	if (list)
		found.list = list;
	if (!list || !c || !path) {
		free(c);
		free(path);
		return;
	}
	c->path = path;
	found.list[found.n++] = c;
}

static bool holds_model(const char *folder)
{
	char path[PATH_BYTES];

	return (size_t)snprintf(path, sizeof(path), "%s/config.json", folder) < sizeof(path) &&
	       access(path, R_OK) == 0;
}

static bool is_gguf(const char *name)
{
	size_t n = strlen(name);

	return n > 5 && strcmp(name + n - 5, ".gguf") == 0;
}

static int is_visible(const struct dirent *dirent)
{
	return dirent->d_name[0] != '.';
}

/* Models in a folder and below, as deep as those of a hub's cache lie. */
static void walk(const char *folder, unsigned depth)
{
	struct dirent **entries;
	int n;

	if (holds_model(folder))
		add(strdup(folder));
	n = depth < DEPTH ? scandir(folder, &entries, is_visible, alphasort) : 0;
	if (n <= 0)
		return;
	for (int i = 0; i < n; i++) {
		char *path = paths_join(folder, entries[i]->d_name);
		struct stat st;

		if (path && stat(path, &st) == 0 && S_ISDIR(st.st_mode))
			walk(path, depth + 1);
		else if (path && S_ISREG(st.st_mode) && is_gguf(path))
			add(strdup(path));
		free(path);
		free(entries[i]);
	}
	free(entries);
}

static void walk_all(void)
{
	char folder[PATH_BYTES];

	for (const char *path = getenv("KVARC_MODEL_PATH"); path && *path; path += *path == ':') {
		size_t n = strcspn(path, ":");

		if (n && n < sizeof(folder)) {
			memcpy(folder, path, n);
			folder[n] = '\0';
			walk(folder, 0);
		}
		path += n;
	}
	found.walked = true;
}

/* Reads the header, not the weights. */
static bool opens(const struct options *options, struct model_file *file)
{
	kvarc_common common;

	if (!file->opened) {
		file->opened = true;
		library_common(options, &common, &file->error);
		common.progress = progress_opening;
		common.progress_opaque = (void *)(uintptr_t)paths_base(file->path);
		if (kvarc_predictor_open_model(&file->p, file->path, &common) == KVARC_OK &&
		    kvarc_predictor_get_model(file->p, &file->model) != KVARC_OK)
			kvarc_predictor_close(&file->p);
	}
	return file->p;
}

/* Whether archives call the model by this name. */
static bool has_name(const struct model_file *file, const char *name)
{
	return strcmp(file->model.name[0] ? file->model.name : paths_base(file->path), name) == 0;
}

/* Whether it could have made keys and values of this shape, of all layers or of the first ones. */
static bool has_shape(const struct model_file *file, const kvarc_geometry *geometry)
{
	for (size_t i = 0; i < geometry->n_tensors; i++) {
		const kvarc_tensor *t = &geometry->tensors[i];

		if (t->role == KVARC_WHOLE && t->layer < file->model.layers &&
		    (uint64_t)t->heads * t->channels ==
		            (uint64_t)file->model.heads * file->model.channels)
			return true;
	}
	return false;
}

static bool has_weights(struct model_file *file, const uint8_t weights[16])
{
	if (!file->has_digest && kvarc_predictor_digest(file->p, file->digest) != KVARC_OK) {
		kvarc_predictor_close(&file->p);
		return false;
	}
	file->has_digest = true;
	return memcmp(file->digest, weights, 16) == 0;
}

static const struct model_file *find(const struct options *options,
                                     const kvarc_predictor_info *info,
                                     const kvarc_geometry *geometry)
{
	for (int by_name = 1; by_name >= 0; by_name--) {
		for (size_t i = 0; i < found.n; i++) {
			struct model_file *c = found.list[i];

			if (opens(options, c) && has_name(c, info->model_name) == by_name &&
			    has_shape(c, geometry) && has_weights(c, info->weights)) {
				msg_note(c->path, "has the weights that are needed");
				return c;
			}
		}
	}
	return NULL;
}

const kvarc_predictor *model_search(const struct options *options, const char *file,
                                    const kvarc_reader *r, const char **path)
{
	const struct model_file *c = NULL;
	kvarc_predictor_info x;
	char hex[33];

	if (!paths_have_models(options))
		return NULL;
	for (size_t i = 0; kvarc_reader_predictor(r, i, &x) == KVARC_OK && !c; i++) {
		if (!x.model)
			continue;
		if (!found.walked)
			walk_all();
		c = find(options, &x, kvarc_reader_geometry(r));
		if (!c)
			msg_result(file,
			           "none of %zu models in KVARC_MODEL_PATH has the weights %s",
			           found.n, units_digest(hex, x.weights));
	}
	*path = c ? c->path : NULL;
	return c ? c->p : NULL;
}

void model_search_close(void)
{
	for (size_t i = 0; i < found.n; i++) {
		kvarc_predictor_close(&found.list[i]->p);
		free(found.list[i]->path);
		free(found.list[i]);
	}
	free(found.list);
	memset(&found, 0, sizeof(found));
}
