/* SPDX-License-Identifier: BSD-3-Clause */
/* make_named.c - packs a few bytes under any name, for tests of unsafe names */
#include <stdio.h>
#include <string.h>

#include <kvarc.h>

static const char content[] = "not where it should be\n";

static int64_t read_content(void *opaque, void *buf, size_t bytes, uint64_t offset)
{
	(void)opaque;
	if (offset >= sizeof(content) - 1)
		return 0;
	if (bytes > sizeof(content) - 1 - offset)
		bytes = sizeof(content) - 1 - (size_t)offset;
	memcpy(buf, content + offset, bytes);
	return (int64_t)bytes;
}

static int write_file(void *opaque, const void *buf, size_t bytes, uint64_t offset)
{
	(void)offset;
	return fwrite(buf, 1, bytes, opaque) == bytes ? 0 : -1;
}

int main(int argc, char **argv)
{
	kvarc_import_options io = { .opaque = 1 };
	kvarc_writer_options wo = KVARC_WRITER_OPTIONS_INIT;
	kvarc_source source = { .read = read_content, .opaque = NULL, .size = sizeof(content) - 1 };
	kvarc_sink sink = { .write = write_file, .opaque = stdout };
	kvarc_import *im;
	kvarc_ret ret;

	if (argc != 2)
		return 1;
	ret = kvarc_import_open(&im, &source, argv[1], &io);
	if (ret == KVARC_OK)
		ret = kvarc_pack(im, &sink, &wo, NULL);
	kvarc_import_close(&im);
	return ret == KVARC_OK && fflush(stdout) == 0 ? 0 : 1;
}
