/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * make_session.c - tokens of a slot as an archive that grew: make_session SLOT ARCHIVE
 *
 * 40 tokens, each with a commit; checkpoint 1; token 30 and those after it once more, up to the
 * 60th one; checkpoint 2; 5 more tokens and no footer.
 */
#include <stdio.h>

#include <kvarc.h>

static int64_t read_file(void *opaque, void *buf, size_t bytes, uint64_t offset)
{
	if (fseek(opaque, (long)offset, SEEK_SET))
		return -1;
	bytes = fread(buf, 1, bytes, opaque);
	return ferror((FILE *)opaque) ? -1 : (int64_t)bytes;
}

static int write_file(void *opaque, const void *buf, size_t bytes, uint64_t offset)
{
	(void)offset; /* strictly forward */
	return fwrite(buf, 1, bytes, opaque) == bytes ? 0 : -1;
}

/* Tokens t0 .. end - 1, each with a commit. */
static kvarc_ret append(kvarc_writer *w, kvarc_import *im, uint64_t t0, uint64_t end)
{
	kvarc_ret ret = KVARC_OK;

	for (uint64_t t = t0; t < end && ret == KVARC_OK; t++) {
		int32_t id, position;

		ret = kvarc_import_read_tokens(im, 0, t, 1, &id, &position);
		if (ret == KVARC_OK)
			ret = kvarc_writer_append_fetch(w, 0, 1, &id, &position, kvarc_import_fetch,
			                                im);
		if (ret == KVARC_OK)
			ret = kvarc_writer_commit(w);
	}
	return ret;
}

static kvarc_ret grow(kvarc_writer *w, kvarc_import *im)
{
	kvarc_ret ret = kvarc_writer_set_geometry(w, kvarc_import_geometry(im));

	if (ret == KVARC_OK)
		ret = append(w, im, 0, 40);
	if (ret == KVARC_OK)
		ret = kvarc_writer_checkpoint(w, "first", 0, NULL);
	if (ret == KVARC_OK)
		ret = kvarc_writer_rewind(w, 0, 30);
	if (ret == KVARC_OK)
		ret = append(w, im, 30, 60);
	if (ret == KVARC_OK)
		ret = kvarc_writer_checkpoint(w, "second", 0, NULL);
	return ret == KVARC_OK ? append(w, im, 60, 65) : ret;
}

int main(int argc, char **argv)
{
	kvarc_writer_options wo = KVARC_WRITER_OPTIONS_INIT;
	FILE *in = argc == 3 ? fopen(argv[1], "rb") : NULL;
	FILE *to = in ? fopen(argv[2], "wb") : NULL;
	kvarc_source source = { .read = read_file, .opaque = in };
	kvarc_sink sink = { .write = write_file, .opaque = to };
	kvarc_import *im;
	kvarc_writer *w = NULL;
	kvarc_ret ret;

	if (!to || fseek(in, 0, SEEK_END))
		return 1;
	source.size = (uint64_t)ftell(in);
	wo.flags = KVARC_WRITE_FILE_ID;
	ret = kvarc_import_open(&im, &source, "slot", NULL);
	if (ret == KVARC_OK)
		ret = kvarc_writer_open(&w, &sink, &wo);
	if (ret == KVARC_OK)
		ret = grow(w, im);
	kvarc_writer_abort(&w);
	kvarc_import_close(&im);
	fclose(in);
	return fclose(to) == 0 && ret == KVARC_OK ? 0 : 1;
}
