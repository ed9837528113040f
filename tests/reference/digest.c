/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * digest.c - prints what `kvarc_ref.py digest` prints, through the public API
 *
 * digest [-p] [-l] [-c N] [-i ISA] [-P PROFILE] [-M MODEL] [-K KEY] [-S STORE] FILE: a line for
 * each chunk in file order, then a line for each item; of checkpoint N. Exit 0; 1 with "data: ..."
 * or "format: ..."; 3 with "unsupported: ..."; 4 with "predictor: ..."; 5 with "lossy: ...", which
 * -l asks for: lossy chunks are not welcome; 6 with "key: ..."; 7 with "store: ..."; 2 for
 * everything else. STORE: a folder (spec/vectors/README.md). -p reads as from a pipe: forward only,
 * size not known. Prints no digests unless the whole file was good.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <kvarc.h>

#include "vector_store.h"

struct digest_item {
	uint8_t *p;
	uint64_t bytes;
};

struct digest {
	FILE *file;
	uint64_t at; /* where the file stands */
	int pipe, lossless;
	uint32_t isa;
	uint64_t checkpoint;
	const kvarc_profile *profile;
	kvarc_predictor *model;
	struct vector_store store;
	char key_line[160]; /* of the file of -K: "key HEX", "passphrase TEXT"; or empty */
	uint8_t key_bytes[KVARC_KEY_BYTES];
	kvarc_key key;
	kvarc_keys keys;
	kvarc_error error;
	const kvarc_geometry *geometry;
	char *lines;
	size_t n_lines;
	struct digest_item *items;
	size_t n_items;
};

static void *checked(void *p)
{
	if (!p) {
		fprintf(stderr, "digest: out of memory\n");
		exit(2);
	}
	return p;
}

static int64_t read_stream(void *opaque, void *buf, size_t bytes, uint64_t offset)
{
	(void)offset;
	FILE *file = opaque;
	size_t got = fread(buf, 1, bytes, file);
	return ferror(file) ? -1 : (int64_t)got;
}

static int64_t read_file(void *opaque, void *buf, size_t bytes, uint64_t offset)
{
	struct digest *d = opaque;
	if (offset != d->at && (d->pipe || fseek(d->file, (long)offset, SEEK_SET)))
		return -1;
	size_t got = fread(buf, 1, bytes, d->file);
	d->at = offset + got;
	return ferror(d->file) ? -1 : (int64_t)got;
}

static int deliver(void *opaque, uint32_t tensor, uint32_t head, uint32_t heads, uint64_t t0,
                   uint32_t n, const void *src)
{
	struct digest *d = opaque;
	const kvarc_tensor *t = &d->geometry->tensors[tensor];
	XXH128_hash_t h =
		XXH3_128bits(src, (size_t)n * heads * t->channels * kvarc_dtype_bytes(t->dtype));
	char line[160];
	int len = snprintf(line, sizeof line,
	                   "%" PRIu32 " %" PRIu32 " %" PRIu32 " %" PRIu64 " %" PRIu32 " %016" PRIx64
	                   "%016" PRIx64 "\n",
	                   tensor, head, heads, t0, n, (uint64_t)h.high64, (uint64_t)h.low64);
	d->lines = checked(realloc(d->lines, d->n_lines + (size_t)len));
	memcpy(d->lines + d->n_lines, line, (size_t)len);
	d->n_lines += (size_t)len;
	return 0;
}

static int write_item(void *opaque, const void *buf, size_t bytes, uint64_t offset)
{
	struct digest_item *item = opaque;
	if (offset > item->bytes || bytes > item->bytes - offset)
		return -1;
	if (bytes)
		memcpy(item->p + offset, buf, bytes);
	return 0;
}

static int open_item(void *opaque, const kvarc_item *info, kvarc_sink *sink)
{
	struct digest *d = opaque;
	if (info->index >= d->n_items || d->items[info->index].p)
		return -1;
	struct digest_item *item = &d->items[info->index];
	item->bytes = info->bytes;
	item->p = checked(calloc(1, info->bytes ? (size_t)info->bytes : 1));
	*sink = (kvarc_sink){ .write = write_item, .opaque = item };
	return 0;
}

static int take_key(struct digest *d, const char *path)
{
	static const char passphrase[] = "passphrase ";
	FILE *file = fopen(path, "rb");
	if (!file || !fgets(d->key_line, sizeof d->key_line, file))
		return -1;
	fclose(file);
	d->key_line[strcspn(d->key_line, "\r\n")] = '\0';
	d->keys = (kvarc_keys){ .list = &d->key, .n = 1 };
	if (!strncmp(d->key_line, passphrase, sizeof passphrase - 1)) {
		const char *text = d->key_line + sizeof passphrase - 1;
		d->key = (kvarc_key){ .kind = KVARC_KEY_PASSPHRASE,
			              .bytes = text,
			              .n = strlen(text) };
		return 0;
	}
	for (int i = 0; i < KVARC_KEY_BYTES; i++) {
		unsigned byte;
		if (sscanf(d->key_line + 4 + 2 * i, "%2x", &byte) != 1)
			return -1;
		d->key_bytes[i] = (uint8_t)byte;
	}
	d->key = (kvarc_key){ .kind = KVARC_KEY_GIVEN,
		              .bytes = d->key_bytes,
		              .n = sizeof d->key_bytes };
	return 0;
}

static kvarc_ret open_reader(struct digest *d, kvarc_reader **r)
{
	kvarc_source source = { .read = read_file, .opaque = d, .size = KVARC_UNKNOWN };
	kvarc_reader_options options = KVARC_READER_OPTIONS_INIT;
	options.common.error = &d->error;
	options.common.isa_mask = d->isa;
	options.checkpoint = d->checkpoint;
	options.profiles = &d->profile;
	options.n_profiles = d->profile != NULL;
	options.predictor = d->model;
	options.keys = d->keys.n ? &d->keys : NULL;
	options.flags = d->lossless ? 0 : KVARC_READ_ALLOW_LOSSY;
	options.stored_read = d->store.folder ? vector_store_read : NULL;
	options.stored_opaque = &d->store;
	if (fseek(d->file, 0, SEEK_END))
		return KVARC_IO;
	if (!d->pipe)
		source.size = (uint64_t)ftell(d->file);
	rewind(d->file);
	d->at = 0;
	kvarc_ret ret = kvarc_reader_open(r, &source, &options);
	if (ret == KVARC_OK)
		d->geometry = d->store.geometry = kvarc_reader_geometry(*r);
	return ret;
}

static kvarc_ret verify(struct digest *d)
{
	kvarc_reader *r;
	kvarc_info info;
	kvarc_ret ret = open_reader(d, &r);
	if (ret == KVARC_OK)
		ret = kvarc_reader_verify(r, NULL, NULL);
	if (ret == KVARC_OK)
		ret = kvarc_reader_get_info(r, &info);
	/* What is committed is good, but digests are of whole files. */
	if (ret == KVARC_OK && info.state == KVARC_STATE_CUT) {
		strcpy(d->error.text, "the file was cut after its last commit");
		ret = KVARC_DATA;
	}
	kvarc_reader_close(&r);
	return ret;
}

static kvarc_ret chunks(struct digest *d)
{
	kvarc_reader *r;
	kvarc_segment segment;
	kvarc_info info;
	kvarc_ret ret = open_reader(d, &r);
	while (ret == KVARC_OK) {
		ret = kvarc_reader_next_segment(r, &segment);
		if (ret == KVARC_OK && segment.ids_coded && !segment.ids)
			ret = KVARC_PREDICTOR; /* who has the model not gets no ids */
		if (ret == KVARC_OK)
			ret = kvarc_reader_segment_deliver(r, deliver, d);
	}
	if (ret == KVARC_END)
		ret = kvarc_reader_get_info(r, &info);
	if (ret == KVARC_OK)
		d->n_items = info.n_items;
	kvarc_reader_close(&r);
	return ret;
}

static kvarc_ret items(struct digest *d)
{
	kvarc_reader *r;
	d->items = checked(calloc(d->n_items, sizeof *d->items));
	kvarc_ret ret = open_reader(d, &r);
	if (ret == KVARC_OK)
		ret = kvarc_unpack(r, open_item, d);
	kvarc_reader_close(&r);
	for (size_t i = 0; ret == KVARC_OK && i < d->n_items; i++)
		if (!d->items[i].p)
			ret = KVARC_PROG; /* an item was not delivered */
	return ret;
}

static int report(const struct digest *d, kvarc_ret ret)
{
	const char *kind = ret == KVARC_FORMAT      ? "format"
	                   : ret == KVARC_DATA      ? "data"
	                   : ret == KVARC_OPTIONS   ? "unsupported"
	                   : ret == KVARC_PREDICTOR ? "predictor"
	                   : ret == KVARC_LOSSY     ? "lossy"
	                   : ret == KVARC_STORE     ? "store"
	                   : ret == KVARC_AUTH      ? "key"
	                                            : kvarc_strerror(ret);
	printf("%s: %s\n", kind, d->error.text);
	return ret == KVARC_FORMAT || ret == KVARC_DATA ? 1
	       : ret == KVARC_OPTIONS                   ? 3
	       : ret == KVARC_PREDICTOR                 ? 4
	       : ret == KVARC_LOSSY                     ? 5
	       : ret == KVARC_STORE                     ? 7
	       : ret == KVARC_AUTH                      ? 6
	                                                : 2;
}

static kvarc_ret open_profile(struct digest *d, FILE *file)
{
	kvarc_common common = { .error = &d->error };
	kvarc_source source = { .read = read_stream, .opaque = file, .size = KVARC_UNKNOWN };
	kvarc_profile *profile;
	kvarc_ret ret = kvarc_profile_open(&profile, &source, &common);
	d->profile = profile;
	return ret;
}

static kvarc_ret open_model(struct digest *d, const char *path)
{
	kvarc_common common = { .error = &d->error, .isa_mask = d->isa };
	return kvarc_predictor_open_model(&d->model, path, &common);
}

static int run(struct digest *d, FILE *profile, const char *model)
{
	kvarc_ret ret = profile ? open_profile(d, profile) : KVARC_OK;
	if (ret == KVARC_OK && model)
		ret = open_model(d, model);
	if (ret == KVARC_OK && !d->pipe)
		ret = verify(d);
	if (ret == KVARC_OK)
		ret = chunks(d);
	if (ret == KVARC_OK && d->n_items)
		ret = items(d);
	if (ret)
		return report(d, ret);
	if (d->n_lines)
		fwrite(d->lines, 1, d->n_lines, stdout);
	for (size_t i = 0; i < d->n_items; i++) {
		XXH128_hash_t h = XXH3_128bits(d->items[i].p, (size_t)d->items[i].bytes);
		printf("item %" PRIu64 " %016" PRIx64 "%016" PRIx64 "\n", d->items[i].bytes,
		       (uint64_t)h.high64, (uint64_t)h.low64);
	}
	return 0;
}

int main(int argc, char **argv)
{
	struct digest d = { 0 };
	FILE *profile = NULL;
	const char *model = NULL, *key = NULL;
	int i = 1;
	for (; i < argc - 1; i++) {
		if (!strcmp(argv[i], "-p"))
			d.pipe = 1;
		else if (!strcmp(argv[i], "-l"))
			d.lossless = 1;
		else if (!strcmp(argv[i], "-i") && i + 2 < argc)
			d.isa = (uint32_t)strtoul(argv[++i], NULL, 0);
		else if (!strcmp(argv[i], "-c") && i + 2 < argc)
			d.checkpoint = strtoull(argv[++i], NULL, 10);
		else if (!strcmp(argv[i], "-P") && i + 2 < argc && !profile)
			profile = fopen(argv[++i], "rb");
		else if (!strcmp(argv[i], "-M") && i + 2 < argc)
			model = argv[++i];
		else if (!strcmp(argv[i], "-S") && i + 2 < argc)
			d.store.folder = argv[++i];
		else if (!strcmp(argv[i], "-K") && i + 2 < argc)
			key = argv[++i];
		else
			break;
	}
	if (i != argc - 1 || (key && take_key(&d, key)) || !(d.file = fopen(argv[i], "rb"))) {
		fprintf(stderr, "usage: digest [-p] [-l] [-c N] [-i ISA] [-P PROFILE] "
		                "[-M MODEL] [-K KEY] [-S STORE] FILE\n");
		return 2;
	}
	int rc = run(&d, profile, model);
	kvarc_profile *opened = (kvarc_profile *)(uintptr_t)d.profile;
	kvarc_profile_close(&opened);
	kvarc_predictor_close(&d.model);
	if (profile)
		fclose(profile);
	for (size_t k = 0; k < d.n_items && d.items; k++)
		free(d.items[k].p);
	free(d.items);
	free(d.lines);
	fclose(d.file);
	return fflush(stdout) ? 2 : rc;
}
