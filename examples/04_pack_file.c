/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * 04_pack_file.c - a file into an archive and back, byte for byte
 *
 * With a name as argument (a llama.cpp slot, a safetensors file) it packs that.
 */
#include "example.h"

/* Where unpacked bytes go: a file in memory. */
struct memory {
	uint8_t *data;
	uint64_t bytes;
};

static int memory_write(void *opaque, const void *buf, size_t bytes, uint64_t offset)
{
	struct memory *m = opaque;

	if (offset > m->bytes || bytes > m->bytes - offset)
		return -1;
	memcpy(m->data + offset, buf, bytes);
	return 0;
}

/* A kvarc_item_open: called for each file in the archive. */
static int take_item(void *opaque, const kvarc_item *item, kvarc_sink *sink)
{
	struct memory *m = opaque;

	m->data = calloc(1, (size_t)item->bytes + 1);
	m->bytes = item->bytes;
	sink->write = memory_write;
	sink->flush = NULL;
	sink->opaque = m;
	return m->data ? 0 : -1;
}

static FILE *made_up_file(void)
{
	FILE *f = tmpfile();

	EXPECT(f != NULL);
	for (int i = 0; i < 5000; i++)
		fprintf(f, "line %d of a file that is no cache\n", i);
	return f;
}

int main(int argc, char **argv)
{
	kvarc_import_options io = KVARC_IMPORT_OPTIONS_INIT;
	kvarc_writer_options wo = KVARC_WRITER_OPTIONS_INIT;
	FILE *in = argc > 1 ? fopen(argv[1], "rb") : made_up_file();
	FILE *packed = tmpfile();
	kvarc_source source = { .read = example_read, .opaque = in, .size = 0 };
	kvarc_sink sink = { .write = example_write, .opaque = packed };
	struct memory back = { NULL, 0 };
	kvarc_writer_stats stats;
	kvarc_import *im;
	kvarc_reader *r;
	uint8_t *original;

	EXPECT(in != NULL && packed != NULL);
	source.size = example_size(in);
	CHECK(kvarc_import_open(&im, &source, "example", &io));
	printf("%s\n", kvarc_import_format(im));
	if (kvarc_import_note(im))
		printf("kept as plain bytes: %s\n", kvarc_import_note(im));
	CHECK(kvarc_pack(im, &sink, &wo, &stats));
	kvarc_import_close(&im);

	source.opaque = packed;
	source.size = example_size(packed);
	CHECK(kvarc_reader_open(&r, &source, NULL));
	CHECK(kvarc_unpack(r, take_item, &back));
	kvarc_reader_close(&r);

	original = malloc((size_t)back.bytes + 1);
	EXPECT(original && example_size(in) == back.bytes);
	EXPECT(example_read(in, original, (size_t)back.bytes, 0) == (int64_t)back.bytes);
	EXPECT(memcmp(original, back.data, (size_t)back.bytes) == 0);
	printf("%llu bytes became %llu and came back\n", (unsigned long long)back.bytes,
	       (unsigned long long)stats.file_bytes);
	free(original);
	free(back.data);
	fclose(packed);
	fclose(in);
	return 0;
}
