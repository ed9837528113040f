/* SPDX-License-Identifier: BSD-3-Clause */
/* cmd_unpack.c - kvarc unpack: files, tensors and ids out of archives */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "attach.h"
#include "commands.h"
#include "damage_report.h"
#include "gpu.h"
#include "identities.h"
#include "library.h"
#include "message.h"
#include "models.h"
#include "paths.h"
#include "ranges.h"
#include "readers.h"
#include "report.h"
#include "outfile.h"
#include "units.h"
#include "watch.h"

/* ==== Writes the files that an archive holds, under safe names only ==== */

/* A packed file that is being unpacked. */
struct item {
	struct output out;
	char *path;   /* path of the output, for messages */
	char *name;   /* name in the archive; its path below a folder that -o names */
	size_t index; /* index in the archive */
	bool slot;    /* a llama.cpp slot, which salvage can shorten */
	uint64_t bytes;
	uint64_t tokens, whole_tokens; /* tokens of a slot that salvage has shortened, else 0 */
	bool open;
};

/* All packed files of an archive. */
struct items {
	const struct options *o;
	const char *archive;
	mode_t mode;
	struct timespec mtime; /* zero: none */
	struct item **list;
	size_t n;
	struct staging *staging; /* holds many files; NULL: each has its temporary file */
	struct workspace workspace;
	bool failed; /* a message was shown */
};

/* An item's kind (spec 10). */
enum { LLAMA_SLOT = 2 };

/* Items that have two descriptors each until all are complete. */
enum { FEW = 16 };

static bool into_folder(const struct items *items)
{
	return items->o->output && strcmp(items->o->output, "-") != 0 &&
	       paths_is_folder(items->o->output);
}

/* The folder of -o; -1: errno is set. */
static int open_top(const struct items *items)
{
	if (mkdir(items->o->output, 0777) != 0 && errno != EEXIST)
		return -1;
	return open(items->o->output, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

/* Starts the staging of many files: all stay until all are complete, more than a few of them
 * without descriptors. */
static bool start_staging(struct items *items)
{
	struct output top = { .name = items->o->output };
	int fd = open_top(items);

	if (fd >= 0)
		items->staging = staging_open(fd, paths_base(items->archive));
	top.error = errno;
	if (fd >= 0)
		close(fd);
	if (!items->staging)
		output_report(&top);
	return items->staging;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Whether no two of the n items have one name; else a message was shown. Items whose description
 * salvage lost have none. */
static bool names_differ(const struct items *items, kvarc_reader *r, size_t n)
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
		msg_error(items->archive, "holds two files with the name '%s'", twice);
	return !twice;
}

/* Checks that the items of the archive can go where -o says. false: a message was shown. */
static bool items_check(struct items *items, kvarc_reader *r)
{
	kvarc_item item;
	size_t n = 0, workspaces = 0;

	while (kvarc_reader_item(r, n, &item) == KVARC_OK) {
		if (item.kind == KVARC_ITEM_WORKSPACE)
			workspaces++;
		else if (into_folder(items) && item.name[0] && !paths_safe_path(item.name)) {
			msg_error(items->archive,
			          "holds a file with the unsafe name "
			          "'%s'; give a name with -o FILE",
			          item.name);
			return false;
		}
		n++;
	}
	if (n - workspaces > 1 && !into_folder(items)) {
		msg_error(items->archive, "holds %zu files; give a folder for them, -o FOLDER/",
		          n - workspaces);
		return false;
	}
	if (!names_differ(items, r, n) || !workspace_check(items->o))
		return false;
	return n <= FEW || start_staging(items);
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
static int open_folder(const struct items *items, const struct item *it)
{
	char *copy = strdup(it->name);
	int top, fd = -1;

	if (!copy) {
		msg_error(NULL, "out of memory");
		return -1;
	}
	top = open_top(items);
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

static bool open_in_folder(struct items *items, struct item *it)
{
	unsigned flags = OUTPUT_RANDOM | paths_output_flags(items->o);
	struct staging *staging;
	int fd;
	bool ok;

	it->path = paths_join(items->o->output, it->name);
	if (!it->path) {
		msg_error(NULL, "out of memory");
		return false;
	}
	fd = open_folder(items, it);
	if (fd < 0)
		return false;
	staging = items->staging && staging_reaches(items->staging, fd) ? items->staging : NULL;
	ok = output_open_at(&it->out, fd, paths_base(it->name), it->path, flags, items->mode,
	                    staging);
	close(fd);
	return ok;
}

/* The base name that the archive remembers, if it is safe, in the folder of the
 * archive; else the name of the archive without its ending. */
static char *default_path(const struct items *items, const char *name)
{
	const char *base = paths_base(name);
	char *folder = paths_folder(items->archive), *path;

	if (!folder)
		return NULL;
	if (paths_safe_name(base)) {
		path = paths_join(folder, base);
	} else {
		char *stem = paths_stem(items->archive, "");
		path = stem ? paths_join(folder, stem) : NULL;
		free(stem);
	}
	free(folder);
	return path;
}

static bool open_named(struct items *items, struct item *it)
{
	unsigned flags = OUTPUT_RANDOM | paths_output_flags(items->o);

	if (paths_to_stdout(items->o))
		it->path = strdup("-");
	else if (items->o->output)
		it->path = strdup(items->o->output);
	else
		it->path = default_path(items, it->name);
	if (!it->path) {
		msg_error(NULL, "out of memory");
		return false;
	}
	return output_open(&it->out, it->path, flags, items->mode);
}

static bool open_item(struct items *items, struct item *it)
{
	if (!(into_folder(items) ? open_in_folder(items, it) : open_named(items, it)))
		return false;
	it->out.mtime = items->mtime;
	return true;
}

static bool add_item(struct items *items, const kvarc_item *item, kvarc_sink *sink)
{
	struct item **list = realloc(items->list, (items->n + 1) * sizeof(*list));
	struct item *it = calloc(1, sizeof(*it));
	char *name = item->name[0] || !into_folder(items)
	                     ? strdup(item->name)
	                     : paths_stem(paths_base(items->archive), "");

	if (list)
		items->list = list;
	if (!list || !it || !name) {
		free(it);
		free(name);
		msg_error(NULL, "out of memory");
		items->failed = true;
		return false;
	}
	items->list[items->n++] = it;
	it->bytes = item->bytes;
	it->index = item->index;
	it->slot = item->kind == LLAMA_SLOT;
	it->name = name;
	it->open = open_item(items, it);
	if (!it->open) {
		items->failed = true;
		return false;
	}
	*sink = output_sink(&it->out);
	return true;
}

/* A kvarc_item_open; opaque is the items. */
static int items_open(void *opaque, const kvarc_item *item, kvarc_sink *sink)
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

/* The output that failed to write, NULL if none did. */
static const struct output *items_failed_output(const struct items *items)
{
	for (size_t i = 0; i < items->n; i++) {
		if (items->list[i]->open && items->list[i]->out.error)
			return &items->list[i]->out;
	}
	return NULL;
}

static int64_t read_output(void *opaque, void *buf, size_t bytes, uint64_t offset)
{
	int fd = output_fd(opaque);
	ssize_t n;

	do {
		n = pread(fd, buf, bytes, (off_t)offset);
	} while (n < 0 && errno == EINTR);
	return n;
}

/* Reports the result of kvarc_salvage_slot for an item. */
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
static bool shorten(struct items *items, struct item *it, kvarc_reader *r)
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
	if (!open_item(items, it)) {
		it->out = full;
		free(it->path);
		it->path = path;
		return false;
	}
	kvarc_source source = { .read = read_output, .opaque = &full, .size = it->bytes };
	kvarc_sink sink = output_sink(&it->out);
	ret = kvarc_salvage_slot(r, it->index, &source, &sink, &prefix);
	if (ret == KVARC_END) { /* the slot has lost nothing */
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

/* Shortens, after salvage, llama.cpp slots that lost something to their leading tokens that are
 * whole. false: a message says what cannot be written, and nothing is to be. */
static bool items_shorten(struct items *items, kvarc_reader *r)
{
	for (size_t i = 0; i < items->n; i++)
		if (items->list[i]->slot && !shorten(items, items->list[i], r))
			return false;
	return true;
}

/* Gives all files their names; false: a message was shown. */
static bool items_commit(struct items *items)
{
	for (size_t i = 0; i < items->n; i++) {
		struct item *it = items->list[i];

		if (!output_truncate(&it->out, it->bytes))
			return false;
		if (it->out.staging && (it->out.dirfd = open_folder(items, it)) < 0)
			return false;
		it->open = false;
		if (!output_commit(&it->out))
			return false;
	}
	return true;
}

/* Removes what is not finished, frees. */
static void items_free(struct items *items)
{
	for (size_t i = 0; i < items->n; i++) {
		if (items->list[i]->open)
			output_abort(&items->list[i]->out);
		free(items->list[i]->path);
		free(items->list[i]->name);
		free(items->list[i]);
	}
	free(items->list);
	staging_close(items->staging);
	workspace_close(&items->workspace);
}

/* ==== kvarc unpack: the packed files, or tensors, out of archives ==== */

/* A value of --salvage-tokens, and one of --to. */
enum { SALVAGE_ZERO = 2, TO_LLAMA = 2 };
#define ZEROS "what was lost is zero in the output"
#define WHOLE_TOKENS "only the first whole tokens of a slot are written"

static void unpack_report(bool json, const char *archive, const char *target, uint64_t bytes,
                          double seconds, const struct damage_list *damage,
                          const kvarc_geometry *geometry, const struct item *item)
{
	struct report r;

	report_start(&r, json);
	report_string(&r, "file", archive);
	report_string(&r, "output", target);
	report_string(&r, ".output", strcmp(target, "-") == 0 ? "(stdout)" : target);
	report_u64(&r, "bytes", bytes);
	report_real(&r, ".rate", (double)bytes / seconds, 0);
	report_u64(&r, "tokens", damage->loss.tokens);
	damage_report(&r, damage, geometry);
	if (item && item->tokens)
		report_u64(&r, "slot_tokens", item->whole_tokens);
	report_real(&r, "seconds", seconds, 4);
	report_note(&r, archive, "{bytes:B} -> {.output}, {.rate:R}");
	report_end(&r);
}

/* Salvage takes a file that becomes another one for a damaged one. */
static bool is_changed(const struct reading_options *reading, const struct input *in)
{
	return reading->salvage && watch_input_changed(in, NULL, 0);
}

/* Says what salvage could not read, and what becomes of it, else how the archive ends. False: out
 * of memory. */
static bool show_losses(const struct reading_options *reading, const char *archive, kvarc_reader *r,
                        struct damage_list *list, const char *rest)
{
	kvarc_info info;

	if (reading->salvage)
		kvarc_reader_damage(r, damage_collect, list);
	if (!damage_sum(list, archive, r))
		return false;
	if (list->n) {
		damage_show(archive, list, kvarc_reader_geometry(r), false);
		damage_show_sum(archive, list, false, rest);
	} else if (kvarc_reader_get_info(r, &info) == KVARC_OK) {
		library_warn_state(archive, &info, library_tokens(r));
	}
	return true;
}

/* Clause on the fate of items that have lost something. */
static const char *after_salvage(const struct reading_options *reading, const struct items *items)
{
	for (size_t i = 0; i < items->n; i++)
		if (!items->list[i]->slot || reading->salvage_tokens == SALVAGE_ZERO)
			return ZEROS;
	return WHOLE_TOKENS;
}

/* Ways out of an archive that holds no file. */
static void show_formats(struct input *in, kvarc_reader *r)
{
	const kvarc_range all = KVARC_RANGE_ALL(0);
	bool llama = kvarc_export_llama(r, &all, NULL, NULL, NULL) == KVARC_OK;
	kvarc_info info;

	if (kvarc_reader_get_info(r, &info) == KVARC_OK && info.state == KVARC_STATE_CUT) {
		msg_error(in->name,
		          "was cut: it ends before its files; what it holds of their "
		          "tokens comes with --to %ssafetensors",
		          llama ? "llama or --to " : "");
		return;
	}
	msg_error(in->name, "holds tensors but no file; use --to %ssafetensors",
	          llama ? "llama or --to " : "");
}

/* The GPU of --device; d NULL: there is none. */
static struct gpu unpack_gpu;

static void unpack_items(const struct options *options, struct input *in, kvarc_reader *r,
                         kvarc_error *error)
{
	struct items s = { .o = options, .archive = in->name, .mode = in->mode };
	struct damage_list damage = { 0 };
	struct gpu_files on_gpu = { .gpu = &unpack_gpu, .geometry = kvarc_reader_geometry(r) };
	double start = units_now();
	uint64_t tokens;
	kvarc_ret ret;

	kvarc_item first;

	if (kvarc_reader_item(r, 0, &first) == KVARC_END) {
		show_formats(in, r);
		return;
	}
	if (!items_check(&s, r))
		return;
	/* A file that may differ from the packed one gets the current time. */
	if (!options->reading.salvage && !options->reading.allow_lossy)
		s.mtime = identities_time(in, r);
	progress_start(in->name, KVARC_UNKNOWN);
	tokens = models_tokens(r, NULL);
	progress_tokens(tokens);
	progress_phase(tokens ? "running the model, unpacking" : "unpacking");
	input_read_ahead(in);
	ret = unpack_gpu.d ? kvarc_unpack_by(r, items_open, &s, gpu_files_read, &on_gpu)
	                   : kvarc_unpack(r, items_open, &s);
	progress_stop();
	if (is_changed(&options->reading, in))
		ret = KVARC_IO;
	if (ret == KVARC_OK && unpack_gpu.d)
		gpu_files_note(&on_gpu, in->name);
	gpu_files_error(&on_gpu, error);
	gpu_files_free(&on_gpu);
	if (ret != KVARC_OK) {
		if (!s.failed && unpack_gpu.d && ret == KVARC_PROG)
			msg_error(in->name, "is no file that can seek, which --device needs");
		else if (!s.failed)
			library_error(in->name, ret, error, in, items_failed_output(&s));
	} else {
		const char *rest = after_salvage(&options->reading, &s);
		uint64_t bytes = 0;
		bool ok = show_losses(&options->reading, in->name, r, &damage, rest);
		if (ok && damage.n && options->reading.salvage_tokens != SALVAGE_ZERO)
			ok = items_shorten(&s, r);
		for (size_t i = 0; i < s.n; i++)
			bytes += s.list[i]->bytes;
		if (ok && damage.n && s.workspace.open) {
			msg_error(in->name, "is damaged: its workspace is not extracted");
			workspace_close(&s.workspace);
		} else if (ok) {
			ok = workspace_extract(&s.workspace, options, in->name);
		}
		if (ok && items_commit(&s))
			unpack_report(options->json, in->name,
			              s.n == 1 ? s.list[0]->path : options->output, bytes,
			              units_now() - start, &damage, kvarc_reader_geometry(r),
			              s.n == 1 ? s.list[0] : NULL);
	}
	damage_free(&damage);
	items_free(&s);
}

/* Path of the file that gets the tensors, allocated. */
static char *export_target(const struct options *options, const char *archive)
{
	char *name, *folder, *path;

	if (paths_to_stdout(options))
		return strdup("-");
	if (options->output && !paths_is_folder(options->output))
		return strdup(options->output);
	name = paths_stem(archive, options->extract.to == TO_LLAMA ? ".llama" : ".safetensors");
	folder = options->output ? strdup(options->output) : paths_folder(archive);
	path = name && folder ? paths_join(folder, name) : NULL;
	free(name);
	free(folder);
	return path;
}

/* Warns that an engine cannot continue from all tokens of a slot. */
static void show_shorter(const char *target, const kvarc_slot_prefix *prefix)
{
	if (prefix->whole_tokens < prefix->tokens)
		msg_warning(target,
		            "an engine can go on from %" PRIu64 " of these %" PRIu64
		            " tokens; the file has them, and the engine computes the others",
		            prefix->whole_tokens, prefix->tokens);
}

static void export_tensors(const struct options *options, struct input *in, kvarc_reader *r,
                           kvarc_error *error, bool first)
{
	char *target = export_target(options, in->name);
	struct damage_list damage = { 0 };
	kvarc_slot_prefix prefix = { 0 };
	struct item slot = { 0 };
	const kvarc_llama_options llama = { .state_version = options->extract.state_version };
	double start = units_now();
	struct output out;
	kvarc_range range;
	kvarc_sink sink;
	kvarc_ret ret;

	(void)first;
	if (!target) {
		msg_error(NULL, "out of memory");
		return;
	}
	if (options->extract.state_version && options->extract.to != TO_LLAMA)
		msg_error(in->name, "--state-version needs --to llama");
	else if (ranges_from_options(&options->extract, in->name, r, &range) &&
	         paths_make_folder(options->output) &&
	         output_open(&out, target, OUTPUT_RANDOM | paths_output_flags(options), in->mode)) {
		sink = output_sink(&out);
		progress_start(in->name, KVARC_UNKNOWN);
		ret = options->extract.to == TO_LLAMA
		              ? kvarc_export_llama(r, &range, &sink, &llama, &prefix)
		              : kvarc_export_safetensors(r, &range, &sink);
		progress_stop();
		if (is_changed(&options->reading, in))
			ret = KVARC_IO;
		slot.tokens = prefix.tokens;
		slot.whole_tokens = prefix.whole_tokens;
		if (ret != KVARC_OK) {
			library_error(in->name, ret, error, in, &out);
			output_abort(&out);
		} else {
			uint64_t bytes = out.size;
			const char *rest = options->extract.to == TO_LLAMA ? WHOLE_TOKENS : ZEROS;
			if (show_losses(&options->reading, in->name, r, &damage, rest) &&
			    output_commit(&out)) {
				show_shorter(target, &prefix);
				unpack_report(options->json, in->name, target, bytes,
				              units_now() - start, &damage,
				              kvarc_reader_geometry(r), &slot);
			}
		}
	}
	damage_free(&damage);
	free(target);
}

/* The last checkpoint of an archive whose last state has no file: an append behind it did not end.
 * 0: there is none, or no reason to look for it. */
static uint64_t last_checkpoint(kvarc_reader *r)
{
	kvarc_checkpoint c;
	kvarc_item item;
	uint64_t last = 0;

	if (kvarc_reader_item(r, 0, &item) == KVARC_OK)
		return 0;
	for (size_t i = 0; kvarc_reader_checkpoint(r, i, &c) == KVARC_OK; i++)
		last = c.number;
	return last;
}

static void unpack_one(const struct options *options, struct input *in, kvarc_reader *r,
                       kvarc_error *error, bool first)
{
	struct reading_options at = options->reading;

	(void)first;
	at.checkpoint = at.checkpoint ? 0 : last_checkpoint(r);
	if (!at.checkpoint) {
		unpack_items(options, in, r, error);
		return;
	}
	msg_warning(in->name,
	            "an append did not end; its last checkpoint, %" PRIu64 ", is unpacked",
	            at.checkpoint);
	r = readers_open(&options->work, &at, in, at.salvage ? KVARC_READ_SALVAGE : 0, error);
	if (r)
		unpack_items(options, in, r, error);
	kvarc_reader_close(&r);
}

static void each(const struct options *options, readers_fn *fn)
{
	if (paths_check_operands(options))
		readers_each(options, options->reading.salvage || options->extract.to,
		             options->reading.salvage ? KVARC_READ_SALVAGE : 0, fn);
}

void cmd_unpack_to(const struct options *options)
{
	each(options, export_tensors);
}

void cmd_unpack(const struct options *options)
{
	if (!gpu_open(&unpack_gpu, &options->device, &options->work))
		return;
	each(options, options->extract.to ? export_tensors : unpack_one);
	gpu_close(&unpack_gpu);
}
