/* SPDX-License-Identifier: BSD-3-Clause */
/* new_archive.c - an archive that is written before it is put into a store */
#include "config.h"

#include "new_archive.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "store_state.h"

enum { PATH_BYTES = 4096 };

/* A file without a name in a folder; -1: errno. */
static int temporary(const char *folder)
{
	char path[PATH_BYTES];
#ifdef O_TMPFILE
	int fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != ENOENT))
		return fd;
#endif
	if (snprintf(path, sizeof path, "%s/kvarc-XXXXXX", folder) >= (int)sizeof path) {
		errno = ENAMETOOLONG;
		return -1;
	}
	int named = mkstemp(path);
	if (named >= 0) {
		unlink(path);
		(void)fcntl(named, F_SETFD, FD_CLOEXEC);
	}
	return named;
}

static kvarc_ret open_sink(struct kvi_new_archive *a, struct kvarc_store *s)
{
	kvarc_common common = s->options.common;
	common.error = s->error;
	if (!s->options.temp_dir) {
		kvarc_ret ret = kvarc_memory_open(&a->memory, &common);
		return ret ? ret : kvarc_memory_sink(a->memory, &a->sink);
	}
	a->fd = temporary(s->options.temp_dir);
	if (a->fd < 0)
		return kvi_fail(s->error, KVARC_IO, "store: no temporary file in %s: %s",
		                s->options.temp_dir, strerror(errno));
	kvarc_ret ret = kvarc_sink_fd(&a->sink, a->fd, &common);
	a->sink.flush = NULL; /* what is put into the store is synchronised there */
	return ret;
}

kvarc_ret kvi_new_archive_begin(struct kvi_new_archive *a, struct kvarc_store *s)
{
	memset(a, 0, sizeof *a);
	a->fd = -1;
	kvarc_ret ret = kvi_store_random(s, a->id);
	return ret ? ret : open_sink(a, s);
}

kvarc_ret kvi_new_archive_end(struct kvi_new_archive *a, struct kvarc_store *s)
{
	kvarc_common common = s->options.common;
	common.error = s->error;
	kvarc_ret ret = a->memory ? kvarc_memory_source(a->memory, &a->source)
	                          : kvarc_source_fd(&a->source, a->fd, &common);
	a->bytes = ret ? 0 : a->source.size;
	return ret;
}

void kvi_new_archive_close(struct kvi_new_archive *a)
{
	kvarc_source_close(&a->source);
	/* What was written is not needed any more. */
	if (kvarc_sink_close(&a->sink, NULL))
		a->bytes = 0;
	kvarc_memory_close(&a->memory);
	if (a->fd >= 0)
		close(a->fd);
	a->fd = -1;
}
