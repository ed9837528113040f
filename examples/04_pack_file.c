/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * 04_pack_file.c - a file into an archive and back, byte for byte
 *
 * With a name as argument (a llama.cpp slot, a safetensors file) it packs that.
 */
#include "example.h"

/* A kvarc_item_open: called for each file in the archive. */
static int take_item(void *opaque, const kvarc_item *item, kvarc_sink *sink)
{
	(void)item;
	return kvarc_memory_sink(opaque, sink) == KVARC_OK ? 0 : -1;
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
	kvarc_memory *packed, *back;
	kvarc_source original, archive;
	kvarc_sink sink;
	kvarc_writer_stats stats;
	kvarc_import *im;
	kvarc_reader *r;
	uint8_t *bytes;

	CHECK(kvarc_source_file(&original, in, NULL));
	CHECK(kvarc_memory_open(&packed, NULL));
	CHECK(kvarc_memory_open(&back, NULL));
	CHECK(kvarc_memory_sink(packed, &sink));
	CHECK(kvarc_import_open(&im, &original, "example", &io));
	printf("%s\n", kvarc_import_format(im));
	if (kvarc_import_note(im))
		printf("kept as plain bytes: %s\n", kvarc_import_note(im));
	CHECK(kvarc_pack(im, &sink, &wo, &stats));
	kvarc_import_close(&im);

	CHECK(kvarc_memory_source(packed, &archive));
	CHECK(kvarc_reader_open(&r, &archive, NULL));
	CHECK(kvarc_unpack(r, take_item, back));
	kvarc_reader_close(&r);

	bytes = malloc((size_t)original.size + 1);
	EXPECT(bytes && kvarc_memory_bytes(back) == original.size);
	EXPECT(original.read(original.opaque, bytes, (size_t)original.size, 0) ==
	       (int64_t)original.size);
	EXPECT(memcmp(bytes, kvarc_memory_data(back), (size_t)original.size) == 0);
	printf("%llu bytes became %llu and came back\n", (unsigned long long)original.size,
	       (unsigned long long)stats.file_bytes);
	free(bytes);
	kvarc_memory_close(&back);
	kvarc_memory_close(&packed);
	fclose(in);
	return 0;
}
