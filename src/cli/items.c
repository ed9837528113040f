/* SPDX-License-Identifier: BSD-3-Clause */
/* items.c - writes the files that an archive holds, under safe names only */
#include "config.h"

#include "items.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "message.h"
#include "paths.h"
#include "staging.h"

/* An item's kind (spec 10). */
enum { LLAMA_SLOT = 2 };

/* Items that have two descriptors each until all are complete. */
enum { FEW = 16 };

static bool into_folder(const struct items *s)
{
	return s->o->output && strcmp(s->o->output, "-") != 0 && paths_is_folder(s->o->output);
}

/* The folder of -o; -1: errno is set. */
static int open_top(const struct items *s)
{
	if (mkdir(s->o->output, 0777) != 0 && errno != EEXIST)
		return -1;
	return open(s->o->output, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

/* All files stay until all are complete, more than a few of them without descriptors. */
static bool start_staging(struct items *s)
{
	struct output top = { .name = s->o->output };
	int fd = open_top(s);

	if (fd >= 0)
		s->staging = staging_open(fd, paths_base(s->archive));
	top.error = errno;
	if (fd >= 0)
		close(fd);
	if (!s->staging)
		output_report(&top);
	return s->staging;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Whether no two of the n items have one name; else a message was shown. Items whose description
 * salvage lost have none. */
static bool names_differ(const struct items *s, kvarc_reader *r, size_t n)
{
	const char **names = malloc((n + 1) * sizeof(*names));
	const char *twice = NULL;
	size_t used = 0;
	kvarc_item item;

	if (!names) {
		msg_error(NULL, "out of memory");
		return false;
	}
	for (size_t i = 0; i < n; i++) {
		if (kvarc_reader_item(r, i, &item) == KVARC_OK && item.kind &&
		    item.kind != KVARC_ITEM_WORKSPACE)
			names[used++] = item.name;
	}
	qsort((void *)names, used, sizeof(*names), by_name);
	for (size_t i = 1; i < used && !twice; i++) {
		if (strcmp(names[i - 1], names[i]) == 0)
			twice = names[i];
	}
	free((void *)names);
	if (twice)
		msg_error(s->archive, "holds two files with the name '%s'", twice);
	return !twice;
}

bool items_check(struct items *s, kvarc_reader *r)
{
	kvarc_item item;
	size_t n = 0, workspaces = 0;

	while (kvarc_reader_item(r, n, &item) == KVARC_OK) {
		if (item.kind == KVARC_ITEM_WORKSPACE)
			workspaces++;
		else if (into_folder(s) && item.name[0] && !paths_safe_path(item.name)) {
			msg_error(s->archive,
			          "holds a file with the unsafe name "
			          "'%s'; give a name with -o FILE",
			          item.name);
			return false;
		}
		n++;
	}
	if (n - workspaces > 1 && !into_folder(s)) {
		msg_error(s->archive, "holds %zu files; give a folder for them, -o FOLDER/",
		          n - workspaces);
		return false;
	}
	if (!names_differ(s, r, n) || !workspace_check(s->o))
		return false;
	return n <= FEW || start_staging(s);
}

/* Opens the folder of a path below dirfd, making what is missing and following
 * no links; path is cut into components on the way. -1: errno is set. */
static int walk(int dirfd, char *path)
{
	int fd = fcntl(dirfd, F_DUPFD_CLOEXEC, 3);
	char *slash;

	while (fd >= 0 && (slash = strchr(path, '/')) != NULL) {
		int next;

		*slash = '\0';
		if (mkdirat(fd, path, 0777) != 0 && errno != EEXIST)
			next = -1;
		else
			next = openat(fd, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		int error = errno;
		close(fd);
		errno = error;
		fd = next;
		path = slash + 1;
	}
	return fd;
}

/* The folder of an item, in that of -o; -1: a message was shown. */
static int open_folder(const struct items *s, const struct item *it)
{
	char *copy = strdup(it->name);
	int top, fd = -1;

	if (!copy) {
		msg_error(NULL, "out of memory");
		return -1;
	}
	top = open_top(s);
	if (top >= 0)
		fd = walk(top, copy);
	if (fd < 0)
		msg_error(it->path, "cannot make its folder: %s",
		          errno == ELOOP || errno == ENOTDIR
		                  ? "there is a file or a link of that name"
		                  : strerror(errno));
	if (top >= 0)
		close(top);
	free(copy);
	return fd;
}

static bool open_in_folder(struct items *s, struct item *it)
{
	unsigned flags = OUTPUT_RANDOM | paths_output_flags(s->o);
	struct staging *staging;
	int fd;
	bool ok;

	it->path = paths_join(s->o->output, it->name);
	if (!it->path) {
		msg_error(NULL, "out of memory");
		return false;
	}
	fd = open_folder(s, it);
	if (fd < 0)
		return false;
	staging = s->staging && staging_reaches(s->staging, fd) ? s->staging : NULL;
	ok = output_open_at(&it->out, fd, paths_base(it->name), it->path, flags, s->mode, staging);
	close(fd);
	return ok;
}

/* The base name that the archive remembers, if it is safe, in the folder of the
 * archive; else the name of the archive without its ending. */
static char *default_path(const struct items *s, const char *name)
{
	const char *base = paths_base(name);
	char *folder = paths_folder(s->archive), *path;

	if (!folder)
		return NULL;
	if (paths_safe_name(base)) {
		path = paths_join(folder, base);
	} else {
		char *stem = paths_stem(s->archive, "");
		path = stem ? paths_join(folder, stem) : NULL;
		free(stem);
	}
	free(folder);
	return path;
}

static bool open_named(struct items *s, struct item *it)
{
	unsigned flags = OUTPUT_RANDOM | paths_output_flags(s->o);

	if (paths_to_stdout(s->o))
		it->path = strdup("-");
	else if (s->o->output)
		it->path = strdup(s->o->output);
	else
		it->path = default_path(s, it->name);
	if (!it->path) {
		msg_error(NULL, "out of memory");
		return false;
	}
	return output_open(&it->out, it->path, flags, s->mode);
}

static bool open_item(struct items *s, struct item *it)
{
	if (!(into_folder(s) ? open_in_folder(s, it) : open_named(s, it)))
		return false;
	output_set_time(&it->out, s->mtime);
	return true;
}

static bool add_item(struct items *s, const kvarc_item *item, kvarc_sink *sink)
{
	struct item **list = realloc(s->list, (s->n + 1) * sizeof(*list));
	struct item *it = calloc(1, sizeof(*it));
	char *name = item->name[0] || !into_folder(s) ? strdup(item->name)
	                                              : paths_stem(paths_base(s->archive), "");

	if (list)
		s->list = list;
	if (!list || !it || !name) {
		free(it);
		free(name);
		msg_error(NULL, "out of memory");
		s->failed = true;
		return false;
	}
	s->list[s->n++] = it;
	it->bytes = item->bytes;
	it->index = item->index;
	it->slot = item->kind == LLAMA_SLOT;
	it->name = name;
	it->open = open_item(s, it);
	if (!it->open) {
		s->failed = true;
		return false;
	}
	*sink = output_sink(&it->out);
	return true;
}

int items_open(void *opaque, const kvarc_item *item, kvarc_sink *sink)
{
	struct items *s = opaque;

	/* Salvage: the frame that describes this file is lost. */
	if (item->kind == 0) {
		msg_warning(s->archive, "nothing is left of its file %zu", item->index);
		return 1;
	}
	if (item->kind == KVARC_ITEM_WORKSPACE) {
		int ret = workspace_item(&s->workspace, s->o, s->archive, sink);
		s->failed = s->failed || ret < 0;
		return ret;
	}
	return add_item(s, item, sink) ? 0 : -1;
}

const struct output *items_failed_output(const struct items *s)
{
	for (size_t i = 0; i < s->n; i++) {
		if (s->list[i]->open && s->list[i]->out.error)
			return &s->list[i]->out;
	}
	return NULL;
}

static int64_t read_output(void *opaque, void *buf, size_t bytes, uint64_t offset)
{
	int fd = output_fd(opaque);
	size_t got = 0;

	while (got < bytes) {
		ssize_t n = pread(fd, (char *)buf + got, bytes - got, (off_t)(offset + got));
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -1;
		if (n == 0)
			break;
		got += (size_t)n;
	}
	return (int64_t)got;
}

/* What kvarc_salvage_slot has said about an item. */
static bool shortened(struct item *it, kvarc_ret ret, const kvarc_slot_prefix *prefix)
{
	if (ret == KVARC_OPTIONS) {
		msg_error(it->path,
		          "cannot be shortened to whole tokens: %s; "
		          "--salvage-tokens zero writes what is left, with zeros",
		          prefix->why);
		return false;
	}
	if (ret != KVARC_OK) {
		msg_error(it->path, "shortening it to its whole tokens failed");
		return false;
	}
	it->bytes = prefix->bytes;
	it->tokens = prefix->tokens;
	it->whole_tokens = prefix->whole_tokens;
	msg_warning(it->path,
	            "%" PRIu64 " of %" PRIu64 " tokens are whole; the slot "
	            "is written with these %" PRIu64,
	            it->whole_tokens, it->tokens, it->whole_tokens);
	return true;
}

/* The shorter slot goes to a file of its own, which replaces the first one. */
static bool shorten(struct items *s, struct item *it, kvarc_reader *r)
{
	struct output full = it->out;
	char *path = it->path;
	kvarc_slot_prefix prefix;
	kvarc_ret ret;

	if (!output_truncate(&full, it->bytes)) {
		it->open = false;
		return false;
	}
	it->path = NULL;
	if (!open_item(s, it)) {
		it->out = full;
		free(it->path);
		it->path = path;
		return false;
	}
	kvarc_source source = { .read = read_output, .opaque = &full, .size = it->bytes };
	kvarc_sink sink = output_sink(&it->out);
	ret = kvarc_salvage_slot(r, it->index, &source, &sink, &prefix);
	if (ret == KVARC_END) { /* nothing of it is lost */
		output_abort(&it->out);
		free(it->path);
		it->path = path;
		it->out = full;
		return true;
	}
	output_abort(&full);
	free(path);
	return shortened(it, ret, &prefix);
}

bool items_shorten(struct items *s, kvarc_reader *r)
{
	for (size_t i = 0; i < s->n; i++)
		if (s->list[i]->slot && !shorten(s, s->list[i], r))
			return false;
	return true;
}

bool items_commit(struct items *s)
{
	for (size_t i = 0; i < s->n; i++) {
		struct item *it = s->list[i];

		if (!output_truncate(&it->out, it->bytes))
			return false;
		if (it->out.staging && (it->out.dirfd = open_folder(s, it)) < 0)
			return false;
		it->open = false;
		if (!output_commit(&it->out))
			return false;
	}
	return true;
}

void items_free(struct items *s)
{
	for (size_t i = 0; i < s->n; i++) {
		if (s->list[i]->open)
			output_abort(&s->list[i]->out);
		free(s->list[i]->path);
		free(s->list[i]->name);
		free(s->list[i]);
	}
	free(s->list);
	staging_close(s->staging);
	workspace_close(&s->workspace);
}
