/* SPDX-License-Identifier: BSD-3-Clause */
/* slot_version.c - a slot file of llama.cpp as a server of another version writes it */
#include "config.h"

#include "slot_version.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "infile.h"
#include "library.h"
#include "message.h"

unsigned slot_version(const kvarc_import *im)
{
	unsigned version;

	return sscanf(kvarc_import_format(im), "llama.cpp sequence file, version %u", &version) == 1
	               ? version
	               : 0;
}

/* A file that is written at any offset, and read. */
static int write_at(void *opaque, const void *bytes, size_t n, uint64_t at)
{
	struct input *file = opaque;
	const char *from = bytes;

	while (n) {
		const ssize_t some = pwrite(file->fd, from, n, (off_t)at);
		if (some < 0 && errno == EINTR)
			continue;
		if (some < 0) {
			file->error = errno;
			return -1;
		}
		from += some;
		n -= (size_t)some;
		at += (uint64_t)some;
	}
	return 0;
}

/* Packs the import into a temporary file, at the level that takes least time. */
static kvarc_ret pack(const struct work_options *work, kvarc_import *im, struct input *archive,
                      kvarc_error *error)
{
	kvarc_writer_options wo = KVARC_WRITER_OPTIONS_INIT;
	const kvarc_sink sink = { .opaque = archive, .write = write_at };
	struct stat st;
	kvarc_ret ret;

	library_common(work, &wo.common, error);
	wo.level = 0;
	ret = kvarc_pack(im, &sink, &wo, NULL);
	if (ret == KVARC_OK && fstat(archive->fd, &st) != 0) {
		archive->error = errno;
		return KVARC_IO;
	}
	if (ret == KVARC_OK)
		archive->size = (uint64_t)st.st_size;
	return ret;
}

/* Writes the slot of an archive; *why: as of slot_version_write. */
static kvarc_ret export(const struct work_options *work, struct input *archive, unsigned version,
                        struct input *slot, kvarc_error *error, const char **why)
{
	const kvarc_llama_options llama = { .flags = KVARC_LLAMA_EXACT, .state_version = version };
	const kvarc_range all = KVARC_RANGE_ALL(0);
	const kvarc_source source = input_source(archive);
	const kvarc_sink sink = { .opaque = slot, .write = write_at };
	kvarc_reader_options ro = KVARC_READER_OPTIONS_INIT;
	kvarc_slot_prefix prefix = KVARC_ZERO;
	kvarc_reader *r = NULL;
	kvarc_ret ret;

	library_common(work, &ro.common, error);
	ret = kvarc_reader_open(&r, &source, &ro);
	if (ret == KVARC_OK)
		ret = kvarc_export_llama(r, &all, &sink, &llama, &prefix);
	if (ret == KVARC_OPTIONS)
		*why = prefix.why;
	kvarc_reader_close(&r);
	return ret;
}

bool slot_version_write(const struct work_options *work, kvarc_import *im, unsigned version,
                        const struct slot_target *to, const char **why)
{
	struct input archive = { .name = "temporary file", .seekable = true };
	struct input slot = { .name = to->path };
	kvarc_error error = KVARC_ZERO;
	kvarc_ret ret = KVARC_IO;

	*why = NULL;
	archive.fd = input_temporary();
	slot.fd = openat(to->dirfd, to->name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, to->mode);
	if (archive.fd < 0 || slot.fd < 0 || fchmod(slot.fd, to->mode) != 0) {
		msg_error(archive.fd < 0 ? archive.name : to->path, "cannot be made: %s",
		          strerror(errno));
	} else {
		ret = pack(work, im, &archive, &error);
		if (ret != KVARC_OK) {
			library_error(to->path, ret, &error, &archive, NULL);
		} else {
			ret = export(work, &archive, version, &slot, &error, why);
			if (ret != KVARC_OK && !*why)
				library_error(to->path, ret, &error, slot.error ? &slot : &archive,
				              NULL);
		}
	}
	input_close(&slot);
	input_close(&archive);
	return ret == KVARC_OK;
}
