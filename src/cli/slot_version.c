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

/* Packs the import into a file of no name, at the level that takes least time. */
static kvarc_ret pack(const struct work_options *work, kvarc_import *im, int fd, kvarc_error *error)
{
	kvarc_writer_options wo = KVARC_WRITER_OPTIONS_INIT;
	kvarc_sink sink;
	kvarc_ret ret;

	library_common(work, &wo.common, error);
	wo.level = 0;
	ret = kvarc_sink_fd(&sink, fd, &wo.common);
	sink.flush = NULL; /* it is gone with the command */
	return ret == KVARC_OK ? kvarc_pack(im, &sink, &wo, NULL) : ret;
}

/* Writes the slot of an archive; *why: as of slot_version_write. */
static kvarc_ret export(const struct work_options *work, int archive, unsigned version, int slot,
                        kvarc_error *error, const char **why)
{
	const kvarc_llama_options llama = { .flags = KVARC_LLAMA_EXACT, .state_version = version };
	const kvarc_range all = KVARC_RANGE_ALL(0);
	kvarc_reader_options ro = KVARC_READER_OPTIONS_INIT;
	kvarc_slot_prefix prefix = KVARC_ZERO;
	kvarc_source source = KVARC_ZERO;
	kvarc_sink sink;
	kvarc_reader *r = NULL;
	kvarc_ret ret;

	library_common(work, &ro.common, error);
	ret = kvarc_source_fd(&source, archive, &ro.common);
	if (ret == KVARC_OK)
		ret = kvarc_sink_fd(&sink, slot, &ro.common);
	if (ret == KVARC_OK)
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
	const int archive = input_temporary();
	const int slot = openat(to->dirfd, to->name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC,
	                        to->mode);
	kvarc_error error = KVARC_ZERO;
	kvarc_ret ret = KVARC_IO;

	*why = NULL;
	if (archive < 0 || slot < 0 || fchmod(slot, to->mode) != 0) {
		msg_error(archive < 0 ? "temporary file" : to->path, "cannot be made: %s",
		          strerror(errno));
	} else {
		ret = pack(work, im, archive, &error);
		if (ret == KVARC_OK)
			ret = export(work, archive, version, slot, &error, why);
		if (ret != KVARC_OK && !*why)
			library_error(to->path, ret, &error, NULL, NULL);
	}
	if (slot >= 0)
		close(slot);
	if (archive >= 0)
		close(archive);
	return ret == KVARC_OK;
}
