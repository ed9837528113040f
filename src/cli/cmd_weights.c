/* SPDX-License-Identifier: BSD-3-Clause */
/* cmd_weights.c - kvarc weights: what the weight cache holds, and its removal */
#include "config.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "commands.h"
#include "message.h"
#include "options.h"
#include "report.h"
#include "times.h"
#include "units.h"
#include "weights.h"

enum { KEY_DIGITS = 32, DEFAULT_GB = 8 };

/* The files of the weight cache are called by a hash. */
static int is_weights(const struct dirent *dirent)
{
	return strspn(dirent->d_name, "0123456789abcdef") == KEY_DIGITS &&
	       strcmp(dirent->d_name + KEY_DIGITS, ".kvw") == 0;
}

static void report_file(bool json, const char *name, const struct stat *st)
{
	struct report x;
	char date[24], used[TIMES_BYTES];

	times_local(date, sizeof(date), st->st_mtim);
	report_start(&x, json);
	report_string(&x, "file", name);
	report_u64(&x, "bytes", (uint64_t)st->st_size);
	report_string(&x, "used", times_write(used, st->st_mtim) ? used : NULL);
	report_string(&x, ".date", date);
	report_print(&x, "{bytes:9B}  {.date:-16}  {file}\n");
	report_end(&x);
}

/* Reports the sum of all files, in the last line. */
static void report_sum(bool json, const kvarc_weight_cache *cache, size_t n, uint64_t bytes,
                       bool removed)
{
	struct report x;

	report_start(&x, false);
	report_u64(&x, ".bytes", bytes);
	report_u64(&x, ".limit", cache->max_bytes ? cache->max_bytes : (uint64_t)DEFAULT_GB << 30);
	report_string(&x, ".folder", cache->folder);
	report_u64(&x, ".n", n);
	if (removed)
		report_note(&x, cache->folder, "{.n} file{.n:s} removed, {.bytes:B}");
	else if (!json && msg_level() >= 0)
		report_print(&x, "{.bytes:9B}  of at most {.limit:B} in {.folder}\n");
	report_end(&x);
}

/* Lists the files, or removes them. */
static void visit(bool json, const kvarc_weight_cache *cache, int fd, struct dirent **entries,
                  int n, bool clear)
{
	uint64_t bytes = 0;
	size_t files = 0;
	struct stat st;

	for (int i = 0; i < n; i++) {
		const char *name = entries[i]->d_name;

		if (fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(st.st_mode))
			continue;
		if (clear && unlinkat(fd, name, 0) != 0) {
			msg_error(name, "cannot remove: %s", strerror(errno));
			continue;
		}
		files++;
		bytes += (uint64_t)st.st_size;
		if (!clear && (json || msg_level() >= 0))
			report_file(json, name, &st);
	}
	report_sum(json, cache, files, bytes, clear);
}

void cmd_weights(const struct options *options)
{
	const kvarc_weight_cache *c = weights_cache();
	const char *action = options->n_files ? options->files[0] : "list";
	bool clear = strcmp(action, "clear") == 0;
	struct dirent **entries = NULL;
	int fd, n;

	if (options->n_files > 1) {
		msg_usage("give nothing behind '%s'", action);
		return;
	}
	if (!c) {
		msg_result(NULL, "the weight cache is off (KVARC_CACHE)");
		return;
	}
	n = scandir(c->folder, &entries, is_weights, alphasort);
	fd = open(c->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (n < 0 || fd < 0) {
		if (errno == ENOENT)
			report_sum(options->json, c, 0, 0, clear);
		else
			msg_error(c->folder, "cannot open: %s", strerror(errno));
	} else {
		visit(options->json, c, fd, entries, n, clear);
	}
	if (fd >= 0)
		close(fd);
	for (int i = 0; i < n; i++)
		free(entries[i]);
	free(entries);
}
