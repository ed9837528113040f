/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * hostile_frames.c - writes archives that are small and cost a reader much
 *
 * usage: hostile_frames FOLDER. params.kva: 100 PARAMS frames of 2^27 bytes that no chunk uses;
 * identity.kva: 300 IDENTITY frames of 16 MiB each; heads.kva: a million good frame headers whose
 * frames run past the end of the file. hostile_frames.sh measures them.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "format/frame.h"
#include "format/packed.h"
#include "writer/writer_internal.h"

static const uint8_t file_id[16];

struct hostile_file {
	FILE *file;
	uint64_t at, sequence;
};

static void check(bool good, const char *what)
{
	if (good)
		return;
	fprintf(stderr, "hostile_frames: %s failed\n", what);
	exit(1);
}

static int write_file(void *opaque, const void *data, size_t n, uint64_t at)
{
	struct hostile_file *f = opaque;

	(void)at;
	f->at += n;
	return fwrite(data, 1, n, f->file) != n;
}

/* Superblock and GEOMETRY of one tensor. */
static void begin(struct hostile_file *f, const char *folder, const char *name)
{
	kvarc_tensor t = { .dtype = KVARC_F16, .heads = 1, .channels = 64 };
	kvarc_track track = { 0 };
	const kvarc_geometry g = { .n_tensors = 1, .tensors = &t, .n_tracks = 1, .tracks = &track };
	kvarc_writer_options o = KVARC_WRITER_OPTIONS_INIT;
	kvarc_sink sink = { .write = write_file, .opaque = f };
	char path[4096];
	kvarc_writer *w;

	o.flags = KVARC_WRITE_FILE_ID;
	check(snprintf(path, sizeof path, "%s/%s", folder, name) < (int)sizeof path, "naming");
	*f = (struct hostile_file){ .file = fopen(path, "wb"), .sequence = 1 };
	check(f->file, "opening a file");
	check(!kvarc_writer_open(&w, &sink, &o) && !kvarc_writer_set_geometry(w, &g),
	      "writing a GEOMETRY");
	kvarc_writer_abort(&w);
}

static void put_head(struct hostile_file *f, uint16_t type, uint32_t payload, uint32_t decoded)
{
	uint8_t head[KVI_FRAME_HEAD_BYTES];
	const struct kvi_frame_head h = { type, kvi_frame_flags(type), payload, decoded,
		                          f->sequence++ };

	kvi_frame_head_write(head, &h, kvi_frame_sync(file_id), f->at);
	check(!write_file(f, head, sizeof head, 0), "writing");
}

/* n frames of this content, which is packed once. */
static void put_frames(struct hostile_file *f, uint16_t type, unsigned n, const uint8_t *content,
                       size_t bytes)
{
	struct kvi_alloc alloc;
	struct kvi_packer packer;
	struct kvi_out out;

	kvi_alloc_init(&alloc, NULL, (uint64_t)4 << 30);
	kvi_packer_init(&packer, &alloc);
	kvi_out_init(&out, &alloc);
	check(!kvi_pack(&packer, &out, content, bytes, 1), "packing");
	const uint32_t payload = (uint32_t)out.n;
	const size_t padded = kvi_frame_padded(payload);
	check(kvi_out_reserve(&out, padded - payload), "packing");
	memset(out.p + payload, 0, padded - payload);
	for (unsigned i = 0; i < n; i++) {
		uint8_t head[KVI_FRAME_HEAD_BYTES], sum[KVI_FRAME_CHECK_BYTES];
		const struct kvi_frame_head h = { type, kvi_frame_flags(type), payload,
			                          (uint32_t)bytes, f->sequence };
		kvi_frame_head_write(head, &h, kvi_frame_sync(file_id), f->at);
		kvi_store_h128(sum, kvi_frame_check(head, f->at, out.p, padded));
		put_head(f, type, payload, (uint32_t)bytes);
		check(!write_file(f, out.p, padded, 0) && !write_file(f, sum, sizeof sum, 0),
		      "writing");
	}
	kvi_out_free(&out);
	kvi_packer_free(&packer);
}

/* IDENTITY of 256 pairs with values of 65535 characters. */
static uint8_t *identity(size_t *bytes)
{
	enum { PAIRS = 256, VALUE = 65535, PAIR = 3 + 3 + VALUE };
	uint8_t *content = malloc(2 + (size_t)PAIRS * PAIR), *p = content;

	check(content, "allocating");
	*p++ = (PAIRS & 0x7f) | 0x80;
	*p++ = PAIRS >> 7;
	for (unsigned i = 0; i < PAIRS; i++) {
		const uint8_t head[] = {
			2, (uint8_t)('a' + i / 16), (uint8_t)('a' + i % 16), 0xff, 0xff, 3
		};
		memcpy(p, head, sizeof head);
		memset(p + sizeof head, 'v', VALUE);
		p += PAIR;
	}
	*bytes = (size_t)(p - content);
	return content;
}

int main(int argc, char **argv)
{
	const size_t most = (size_t)1 << 28, half = most / 2;
	struct hostile_file f;
	size_t bytes;

	check(argc == 2, "usage: hostile_frames FOLDER:");
	uint8_t *content = calloc(1, half);
	check(content, "allocating");
	content[6] = 1; /* one head, codec grid */
	content[8] = 5;
	begin(&f, argv[1], "params.kva");
	put_frames(&f, KVI_FRAME_PARAMS, 100, content, half);
	check(!fclose(f.file), "writing");
	free(content);
	content = identity(&bytes);
	begin(&f, argv[1], "identity.kva");
	put_frames(&f, KVI_FRAME_IDENTITY, 300, content, bytes);
	check(!fclose(f.file), "writing");
	free(content);
	begin(&f, argv[1], "heads.kva");
	for (unsigned i = 0; i < 1000000; i++)
		put_head(&f, KVI_FRAME_CHUNK, (uint32_t)most, (uint32_t)most);
	check(!fclose(f.file), "writing");
	return 0;
}
