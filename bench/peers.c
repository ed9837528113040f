/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * peers.c - kvarc next to zstd and shuffle + zstd, on the same bytes
 *
 * Each packs a whole file in memory, one thread, and gives it back; the result
 * is compared. Fastest of several runs, in processor time, which other programs
 * on the machine disturb less than the time on the wall. `quickstart demo` prints
 * this table. A profile adds a row for each level that it has models of.
 */
#include "config.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <zstd.h>

#include <kvarc.h>

enum { REPEAT = 5, ZSTD_LEVEL = 3 };

struct buffer {
	uint8_t *data;
	size_t bytes, capacity;
};

/* One way to pack; level is its own. shuffle: bytes of an element, 1 for none. */
struct method {
	const char *name;
	int (*pack)(const struct method *m, const struct buffer *in, struct buffer *packed,
	            struct buffer *scratch);
	int (*unpack)(const struct method *m, const struct buffer *packed, struct buffer *out,
	              struct buffer *scratch);
	int level;
	size_t shuffle;
	const kvarc_profile *profile; /* NULL: none */
};

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int make_room(struct buffer *b, size_t bytes)
{
	b->data = malloc(bytes ? bytes : 1);
	b->bytes = 0;
	b->capacity = bytes;
	return b->data ? 0 : -1;
}

/* ------------------------------------------------------------ zstd */

/* All first bytes of the elements, then all second bytes, ...; the rest as it is. */
static void shuffle(uint8_t *dst, const uint8_t *src, size_t bytes, size_t size)
{
	size_t n = bytes / size;

	for (size_t k = 0; k < size; k++) {
		for (size_t i = 0; i < n; i++)
			dst[k * n + i] = src[i * size + k];
	}
	memcpy(dst + n * size, src + n * size, bytes - n * size);
}

static void unshuffle(uint8_t *dst, const uint8_t *src, size_t bytes, size_t size)
{
	size_t n = bytes / size;

	for (size_t k = 0; k < size; k++) {
		for (size_t i = 0; i < n; i++)
			dst[i * size + k] = src[k * n + i];
	}
	memcpy(dst + n * size, src + n * size, bytes - n * size);
}

static int zstd_pack(const struct method *m, const struct buffer *in, struct buffer *packed,
                     struct buffer *scratch)
{
	const uint8_t *src = in->data;
	size_t n;

	if (m->shuffle > 1) {
		shuffle(scratch->data, src, in->bytes, m->shuffle);
		src = scratch->data;
	}
	n = ZSTD_compress(packed->data, packed->capacity, src, in->bytes, m->level);
	packed->bytes = ZSTD_isError(n) ? 0 : n;
	return ZSTD_isError(n) ? -1 : 0;
}

static int zstd_unpack(const struct method *m, const struct buffer *packed, struct buffer *out,
                       struct buffer *scratch)
{
	uint8_t *dst = m->shuffle > 1 ? scratch->data : out->data;
	size_t n = ZSTD_decompress(dst, out->capacity, packed->data, packed->bytes);

	if (ZSTD_isError(n))
		return -1;
	if (m->shuffle > 1)
		unshuffle(out->data, scratch->data, n, m->shuffle);
	out->bytes = n;
	return 0;
}

/* ------------------------------------------------------------ kvarc */

static int64_t read_buffer(void *opaque, void *buf, size_t bytes, uint64_t offset)
{
	const struct buffer *b = opaque;

	if (offset >= b->bytes)
		return 0;
	if (bytes > b->bytes - offset)
		bytes = b->bytes - (size_t)offset;
	memcpy(buf, b->data + offset, bytes);
	return (int64_t)bytes;
}

static int write_buffer(void *opaque, const void *buf, size_t bytes, uint64_t offset)
{
	struct buffer *b = opaque;

	if (offset > b->capacity || bytes > b->capacity - offset)
		return -1;
	memcpy(b->data + offset, buf, bytes);
	if (offset + bytes > b->bytes)
		b->bytes = (size_t)offset + bytes;
	return 0;
}

static int report(kvarc_ret ret)
{
	if (ret == KVARC_OK)
		return 0;
	fprintf(stderr, "peers: kvarc: %s\n", kvarc_strerror(ret));
	return -1;
}

static int kvarc_run_pack(const struct method *m, const struct buffer *in, struct buffer *packed,
                          struct buffer *scratch)
{
	kvarc_import_options io = KVARC_IMPORT_OPTIONS_INIT;
	kvarc_writer_options wo = KVARC_WRITER_OPTIONS_INIT;
	struct buffer input = *in;
	kvarc_source source = { .read = read_buffer, .opaque = &input, .size = in->bytes };
	kvarc_sink sink = { .write = write_buffer, .opaque = packed };
	kvarc_import *im;
	kvarc_ret ret;

	(void)scratch;
	packed->bytes = 0;
	wo.level = KVARC_LEVEL(m->level);
	io.rope = m->level == 0 ? "none" : NULL; /* as kvarc pack */
	wo.profile = m->profile;
	io.profiles = &m->profile;
	io.n_profiles = m->profile != NULL;
	ret = kvarc_import_open(&im, &source, NULL, &io);
	if (ret == KVARC_OK)
		ret = kvarc_pack(im, &sink, &wo, NULL);
	kvarc_import_close(&im);
	return report(ret);
}

static int take_item(void *opaque, const kvarc_item *item, kvarc_sink *sink)
{
	(void)item;
	sink->write = write_buffer;
	sink->flush = NULL;
	sink->opaque = opaque;
	return 0;
}

static int kvarc_run_unpack(const struct method *m, const struct buffer *packed, struct buffer *out,
                            struct buffer *scratch)
{
	struct buffer input = *packed;
	kvarc_source source = { .read = read_buffer, .opaque = &input, .size = packed->bytes };
	kvarc_reader_options ro = KVARC_READER_OPTIONS_INIT;
	kvarc_reader *r;
	kvarc_ret ret;

	(void)scratch;
	out->bytes = 0;
	ro.profiles = &m->profile;
	ro.n_profiles = m->profile != NULL;
	ret = kvarc_reader_open(&r, &source, &ro);
	if (ret == KVARC_OK)
		ret = kvarc_unpack(r, take_item, out);
	kvarc_reader_close(&r);
	return report(ret);
}

/* ------------------------------------------------------------ table */

static int measure(const struct method *m, const struct buffer *in, struct buffer *packed,
                   struct buffer *out, struct buffer *scratch, size_t element)
{
	double pack = 0, unpack = 0, t;

	for (int i = 0; i < REPEAT; i++) {
		t = now();
		if (m->pack(m, in, packed, scratch) != 0)
			return -1;
		t = now() - t;
		pack = i == 0 || t < pack ? t : pack;
		memset(out->data, 0, out->capacity);
		t = now();
		if (m->unpack(m, packed, out, scratch) != 0)
			return -1;
		t = now() - t;
		unpack = i == 0 || t < unpack ? t : unpack;
	}
	if (out->bytes != in->bytes || memcmp(out->data, in->data, in->bytes) != 0) {
		fprintf(stderr, "peers: %s: the result differs\n", m->name);
		return -1;
	}
	printf("  %-20s %11zu  %6.3fx  %8.2f  %7.0f MB/s  %7.0f MB/s\n", m->name, packed->bytes,
	       (double)in->bytes / (double)packed->bytes,
	       8.0 * (double)packed->bytes / ((double)in->bytes / (double)element),
	       (double)in->bytes / pack / 1e6, (double)in->bytes / unpack / 1e6);
	fflush(stdout);
	return 0;
}

static int load(struct buffer *b, const char *file)
{
	FILE *f = fopen(file, "rb");
	long size = -1;

	if (f && fseek(f, 0, SEEK_END) == 0)
		size = ftell(f);
	if (size < 0 || fseek(f, 0, SEEK_SET) != 0 || make_room(b, (size_t)size) != 0 ||
	    fread(b->data, 1, (size_t)size, f) != (size_t)size) {
		perror(file);
		if (f)
			fclose(f);
		return -1;
	}
	b->bytes = (size_t)size;
	fclose(f);
	return 0;
}

static int load_profile(kvarc_profile **p, const char *file)
{
	struct buffer b = { NULL, 0, 0 };
	kvarc_ret ret = KVARC_IO;

	if (load(&b, file) == 0) {
		kvarc_source source = { .read = read_buffer, .opaque = &b, .size = b.bytes };

		ret = kvarc_profile_open(p, &source, NULL);
		if (ret != KVARC_OK)
			fprintf(stderr, "peers: %s: %s\n", file, kvarc_strerror(ret));
	}
	free(b.data);
	return ret == KVARC_OK ? 0 : -1;
}

static int has_level(const kvarc_profile *p, int level)
{
	kvarc_profile_info info;

	return p && kvarc_profile_get_info(p, &info) == KVARC_OK && info.levels >> level & 1;
}

static int table(const char *file, size_t element, const kvarc_profile *p)
{
	const struct method methods[] = {
		{ "zstd -3", zstd_pack, zstd_unpack, ZSTD_LEVEL, 1, NULL },
		{ "shuffle + zstd -3", zstd_pack, zstd_unpack, ZSTD_LEVEL, element, NULL },
		{ "kvarc -0", kvarc_run_pack, kvarc_run_unpack, 0, 1, NULL },
		{ "kvarc -1", kvarc_run_pack, kvarc_run_unpack, 1, 1, NULL },
		{ "kvarc -2 --profile", kvarc_run_pack, kvarc_run_unpack, 2, 1, p },
		{ "kvarc -3 --profile", kvarc_run_pack, kvarc_run_unpack, 3, 1, p },
	};
	struct buffer in = { NULL, 0, 0 }, packed = in, out = in, scratch = in;
	const char *slash = strrchr(file, '/');
	int ret = load(&in, file);

	if (ret == 0 && (make_room(&packed, in.bytes + in.bytes / 4 + (1 << 20)) ||
	                 make_room(&out, in.bytes) || make_room(&scratch, in.bytes)))
		ret = -1;
	if (ret == 0) {
		printf("%s, %zu bytes, one thread (%s)\n", slash ? slash + 1 : file, in.bytes,
		       kvarc_isa_name(KVARC_ISA_ALL));
		printf("  %-20s %11s  %7s  %8s  %12s  %12s\n", "", "bytes", "ratio", "bits/el.",
		       "pack", "unpack");
	}
	for (size_t i = 0; ret == 0 && i < sizeof(methods) / sizeof(methods[0]); i++) {
		const struct method *m = &methods[i];

		if (m->pack == kvarc_run_pack && m->level > 1 && !has_level(p, m->level))
			continue;
		ret = measure(m, &in, &packed, &out, &scratch, element);
	}
	free(in.data);
	free(packed.data);
	free(out.data);
	free(scratch.data);
	return ret;
}

static int usage(void)
{
	fprintf(stderr, "usage: peers [-e ELEMENT_BYTES] [-p PROFILE] FILE...\n");
	return 1;
}

int main(int argc, char **argv)
{
	kvarc_profile *profile = NULL;
	const char *profile_file = NULL;
	size_t element = 2;
	int c, failed = 0;

	while ((c = getopt(argc, argv, "e:p:")) != -1) {
		if (c == 'e')
			element = (size_t)atoi(optarg);
		else if (c == 'p')
			profile_file = optarg;
		else
			return usage();
	}
	if (optind >= argc || element < 1 || element > 8)
		return usage();
	if (profile_file && load_profile(&profile, profile_file) != 0)
		return 1;
	for (int i = optind; i < argc && !failed; i++)
		failed = table(argv[i], element, profile) != 0;
	kvarc_profile_close(&profile);
	return failed;
}
