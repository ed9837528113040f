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

static kvarc_ret open_sink(struct kvi_new_archive *archive, struct kvarc_store *store)
{
	kvarc_common common = store->options.common;
	common.error = store->error;
	if (!store->options.temp_dir) {
		kvarc_ret ret = kvarc_memory_open(&archive->memory, &common);
		return ret ? ret : kvarc_memory_sink(archive->memory, &archive->sink);
	}
	archive->fd = temporary(store->options.temp_dir);
	if (archive->fd < 0)
		return kvi_fail(store->error, KVARC_IO, "store: no temporary file in %s: %s",
		                store->options.temp_dir, strerror(errno));
	kvarc_ret ret = kvarc_sink_fd(&archive->sink, archive->fd, &common);
	archive->sink.flush = NULL; /* the put into the store synchronises it */
	return ret;
}

kvarc_ret kvi_new_archive_begin(struct kvi_new_archive *archive, struct kvarc_store *store)
{
	memset(archive, 0, sizeof *archive);
	archive->fd = -1;
	kvarc_ret ret = kvi_store_random(store, archive->id);
	return ret ? ret : open_sink(archive, store);
}

kvarc_ret kvi_new_archive_end(struct kvi_new_archive *archive, struct kvarc_store *store)
{
	kvarc_common common = store->options.common;
	common.error = store->error;
	kvarc_ret ret = archive->memory ? kvarc_memory_source(archive->memory, &archive->source)
	                                : kvarc_source_fd(&archive->source, archive->fd, &common);
	archive->bytes = ret ? 0 : archive->source.size;
	return ret;
}

void kvi_new_archive_close(struct kvi_new_archive *archive)
{
	kvarc_source_close(&archive->source);
	/* A failure to close the sink is ignored: what was written is not needed any more. */
	if (kvarc_sink_close(&archive->sink, NULL))
		archive->bytes = 0;
	kvarc_memory_close(&archive->memory);
	if (archive->fd >= 0)
		close(archive->fd);
	archive->fd = -1;
}
