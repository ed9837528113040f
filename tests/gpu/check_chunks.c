/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * check_chunks.c - the kernels of gpu/ on the host against the library: same answers, same elements
 *
 * check_chunks [-d N] [-e] FILE...: all chunks of the files, as they are and N times damaged.
 * Elements go to pages in random order; nothing else may change, with damage either. With -e the
 * files are of the library's writer, and the kernels have to make the same payloads of the elements
 * of codec 4 that are of f16, bf16 and e4m3, of codec 5 that are of e4m3, and of codec 16, but for
 * those of levels above 0 that are the host's.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "archive_chunks.h"
#include "encode_trial.h"
#include "host_run.h"
#include "util/hash.h"

enum { GUARD = 0xa5 };

static struct {
	struct kvi_alloc alloc;
	struct kvi_coder_tables *tables;
	struct kvi_coder *coder;
	struct kvi_gpu_tables device;
	unsigned damage;
	bool encode;
	uint64_t random;
	const char *file;
	unsigned long chunks[KVI_N_CODECS], bytes, host, damaged, noticed, wrong;
	unsigned long encoded[3]; /* of codecs 4, 5 and 16 */
} t;

__attribute__((format(printf, 1, 2))) static void wrong(const char *text, ...)
{
	va_list args;
	va_start(args, text);
	fprintf(stderr, "%s: ", t.file);
	vfprintf(stderr, text, args);
	fputc('\n', stderr);
	va_end(args);
	t.wrong++;
}

static void *memory(size_t bytes)
{
	void *p = aligned_alloc(16, (bytes + 15) / 16 * 16 + 16);
	if (!p)
		abort();
	return p;
}

static uint64_t address(const void *p)
{
	return (uint64_t)(uintptr_t)p;
}

static uint32_t below(uint32_t n)
{
	return (uint32_t)(kvi_splitmix64(&t.random) % n);
}

/* A chunk on its way through both decoders. */
struct trial {
	const struct archive_chunk *chunk;
	struct kvi_gpu_chunk job;
	struct kvi_gpu_batch batch; /* the job alone */
	uint8_t *payload, *raw, *pages;
	int32_t table[KVI_SEGMENT_TOKENS];
	uint32_t page_bytes;
};

/* The library's answer, and the elements. A reader compares the header with its index, but for how
 * the chunk is cut and its check. */
static bool library_decodes(struct trial *x)
{
	struct kvi_chunk_header h;
	uint64_t check = 0;
	if (!kvi_chunk_header_parse(&h, x->payload, x->chunk->bytes) ||
	    memcmp(x->payload, x->chunk->payload, 25) ||
	    memcmp(x->payload + 26, x->chunk->payload + 26, 6))
		return false;
	const struct kvi_decode_request in = {
		.chunk = x->chunk->shape,
		.codec = h.codec,
		.cut = h.cut,
		.params = x->chunk->params,
		.payload = x->payload + KVI_CHUNK_HEADER_BYTES,
		.payload_bytes = x->chunk->bytes - KVI_CHUNK_HEADER_BYTES,
	};
	return kvi_chunk_decode(t.coder, &in, x->raw, &check) == KVARC_OK && check == h.raw_check;
}

/* Pages of 1 to 16 tokens, in random order, heads before tokens in a page; half of the trials have
 * no gaps, so that kernels copy 16 bytes at once; every eighth one has tokens that are not
 * wanted. */
static void make_view(struct trial *x, uint32_t elem)
{
	const struct kvi_chunk *s = &x->chunk->shape;
	struct kvi_gpu_view *v = &x->job.view;
	v->page_tokens = 1 + below(16);
	v->first_token = below(v->page_tokens);
	v->n_table = v->n_pages = (v->first_token + s->n_tokens + v->page_tokens - 1) /
	                          v->page_tokens;
	const uint32_t gaps = below(2);
	v->elem_stride = elem * (1 + gaps * below(2));
	v->token_stride = (uint64_t)v->elem_stride * s->head_channels + elem * gaps * below(3);
	v->head_stride = v->token_stride * v->page_tokens + elem * gaps * below(5);
	v->page_stride = v->head_stride * s->heads;
	v->bytes = v->page_stride * v->n_pages;
	for (uint32_t i = 0; i < v->n_pages; i++) {
		const uint32_t j = below(i + 1);
		x->table[i] = x->table[j];
		x->table[j] = (int32_t)i;
	}
	if (below(8) == 0)
		x->table[below(v->n_pages)] = -1;
	x->pages = memory(v->bytes);
	memset(x->pages, GUARD, v->bytes);
	v->base = address(x->pages);
	v->page_table = address(x->table);
}

/* Whether the pages hold the elements of raw, NULL: any, and the guard elsewhere. */
static bool pages_hold(const struct trial *x, const uint8_t *raw, uint32_t elem)
{
	const struct kvi_chunk *s = &x->chunk->shape;
	const struct kvi_gpu_view *v = &x->job.view;
	for (uint32_t i = 0; i < s->n_tokens; i++) {
		const uint32_t n = v->first_token + i;
		const int32_t page = x->table[n / v->page_tokens];
		for (uint32_t c = 0; c < s->heads * s->head_channels; c++) {
			const uint8_t *from = raw;
			raw = raw ? raw + elem : NULL;
			if (page < 0)
				continue;
			uint8_t *at = x->pages + (uint32_t)page * v->page_stride +
			              n % v->page_tokens * v->token_stride +
			              c / s->head_channels * v->head_stride +
			              c % s->head_channels * v->elem_stride;
			if (from && memcmp(at, from, elem))
				return false;
			memset(at, GUARD, elem);
		}
	}
	for (size_t i = 0; i < v->bytes; i++)
		if (x->pages[i] != GUARD)
			return false;
	return true;
}

/* Both decoders; true when the chunk is good. */
static bool compare(struct trial *x, const char *what)
{
	const uint32_t elem = (uint32_t)kvarc_dtype_bytes(x->chunk->shape.dtype);
	uint32_t status = ~0u;
	make_view(x, elem);
	x->batch.part[0].status = address(&status);
	kvi_gpu_host_decode(&x->batch, 1, kvi_gpu_shared_bytes(&x->job, false));
	const bool good = library_decodes(x);
	if (status == KVI_GPU_HOST)
		t.host++;
	else if (status != (good ? KVI_GPU_OK : KVI_GPU_DATA))
		wrong("%s chunk of codec %u, tensor %u: answer %u, but the library's is %s", what,
		      x->chunk->header->codec, x->chunk->header->tensor, status,
		      good ? "good" : "bad");
	if (!pages_hold(x, status == KVI_GPU_OK ? x->raw : NULL, elem))
		wrong("%s chunk of codec %u, tensor %u: other elements", what,
		      x->chunk->header->codec, x->chunk->header->tensor);
	free(x->pages);
	return good;
}

/* Flips one to three bits of a good chunk, more often in its first kilobyte. */
static void damage(struct trial *x)
{
	const uint32_t n = (uint32_t)x->chunk->bytes;
	for (unsigned i = 0; i < t.damage; i++) {
		for (uint32_t k = 1 + below(3); k-- > 0;) {
			const uint32_t at = below(below(2) && n > 1024 ? 1024 : n);
			/* extension_bytes: the frame's reader has taken it off */
			x->payload[at / 4 == 11 ? at - 4 : at] ^= 1u << below(8);
		}
		if (!memcmp(x->payload, x->chunk->payload, n))
			continue; /* what was damaged twice */
		t.damaged++;
		t.noticed += !compare(x, "damaged");
		memcpy(x->payload, x->chunk->payload, n);
	}
}

/* Whether kernels encode a chunk: those that kvi_append_chunk.elsewhere means. */
static bool is_encoded(const struct archive_chunk *chunk)
{
	const uint32_t dtype = chunk->shape.dtype;
	const size_t bytes = chunk->bytes - KVI_CHUNK_HEADER_BYTES,
		     n = kvi_chunk_bytes(&chunk->shape);
	if (bytes > n - n / 16 || kvi_chunk_channels(&chunk->shape) > KVI_GPU_CHANNELS)
		return false;
	const bool wide = dtype == KVARC_F16 || dtype == KVARC_BF16;
	switch (chunk->header->codec) {
	case KVI_CODEC_LAYERS:
		return wide || dtype == KVARC_E4M3;
	case KVI_CODEC_GRID:
		return dtype == KVARC_E4M3;
	case KVI_CODEC_CELLS:
		return wide;
	default:
		return false;
	}
}

/* The kernels' encoder, on elements side by side and on such with gaps. */
static void check_encoder(const struct archive_chunk *chunk, const uint8_t *raw,
                          const struct kvi_gpu_params *params)
{
	const unsigned codec = chunk->header->codec;
	enum encode_result result[2];
	if (!is_encoded(chunk))
		return;
	for (uint32_t gap = 0; gap < 2; gap++) {
		result[gap] = encode_trial(chunk, raw, gap, params, &t.device);
		/* of level 1 some are the host's, which compares other codecs */
		if (result[gap] == ENCODED_OTHER || result[gap] != result[0] ||
		    (result[gap] == ENCODED_NOT && codec == KVI_CODEC_LAYERS))
			wrong("chunk of codec %u, tensor %u: encoded otherwise, gap %u", codec,
			      chunk->header->tensor, gap);
	}
	if (result[0] == ENCODED_SAME)
		t.encoded[codec == KVI_CODEC_LAYERS ? 0 : codec == KVI_CODEC_GRID ? 1 : 2]++;
}

static void check_chunk(void *opaque, const struct archive_chunk *chunk)
{
	const struct kvi_chunk *s = &chunk->shape;
	struct kvi_gpu_params params;
	uint32_t lock = 0;
	struct trial x = { .chunk = chunk };
	uint8_t *arrays = NULL, *place;
	(void)opaque;
	x.payload = malloc(chunk->bytes);
	x.raw = memory(kvi_chunk_bytes(s));
	if (!x.payload)
		abort();
	memcpy(x.payload, chunk->payload, chunk->bytes);
	kvi_gpu_chunk_fill(&x.job, s, chunk->header, (uint32_t)chunk->bytes);
	const size_t slot = kvi_gpu_chunk_place(&x.job, false);
	place = memory(slot);
	x.batch = (struct kvi_gpu_batch){ .part = { { address(&x.job), 0, 1 } },
		                          .tables = address(&t.device),
		                          .work = address(place),
		                          .locks = address(&lock),
		                          .slot_bytes = slot,
		                          .n = 1,
		                          .slots = 1 };
	x.job.payload = address(x.payload);
	if (chunk->params) {
		arrays = memory(kvi_gpu_params_bytes(chunk->params, s->rope));
		kvi_gpu_params_fill(&params, chunk->params, s->rope, arrays, address(arrays));
		x.job.params = address(&params);
		x.job.positions = address(s->positions);
	}
	t.chunks[chunk->header->codec]++;
	t.bytes += kvi_chunk_bytes(s);
	const bool good = compare(&x, "whole");
	if (good && t.encode)
		check_encoder(chunk, x.raw, &params);
	if (good)
		damage(&x);
	free(x.payload);
	free(x.raw);
	free(arrays);
	free(place);
}

/* The kernels' hash of all short lengths, of long ones, at all alignments. */
static void check_hash(void)
{
	enum { BYTES = 5000 };
	uint8_t *p = memory(BYTES + 16);
	for (size_t i = 0; i < BYTES + 16; i++)
		p[i] = (uint8_t)kvi_splitmix64(&t.random);
	for (uint32_t n = 1; n <= BYTES; n += n < 600 ? 1 : 61)
		if (kvi_gpu_host_hash(p + n % 9, n) != kvi_h64(p + n % 9, n))
			wrong("another hash of %u bytes", n);
	free(p);
}

static void check_file(const char *name)
{
	FILE *f = fopen(name, "rb");
	t.file = name;
	if (!f || fseek(f, 0, SEEK_END)) {
		wrong("cannot be read");
		return;
	}
	const size_t n = (size_t)ftell(f);
	uint8_t *p = memory(n);
	rewind(f);
	if (fread(p, 1, n, f) == n)
		archive_chunks(p, n, check_chunk, NULL);
	else
		wrong("cannot be read");
	fclose(f);
	free(p);
}

int main(int argc, char **argv)
{
	int i = 1;
	t.random = 20261124;
	t.file = "hash";
	if (i + 1 < argc && !strcmp(argv[i], "-d")) {
		t.damage = (unsigned)atoi(argv[i + 1]);
		i += 2;
	}
	if (i < argc && !strcmp(argv[i], "-e")) {
		t.encode = true;
		i++;
	}
	kvi_alloc_init(&t.alloc, NULL, 0);
	if (kvi_coder_tables_open(&t.tables, &t.alloc) ||
	    kvi_coder_open(&t.coder, &t.alloc, t.tables, 0))
		return 99;
	uint8_t *tables = memory(kvi_gpu_tables_bytes());
	kvi_gpu_tables_fill(&t.device, tables, address(tables));
	check_hash();
	for (; i < argc; i++)
		check_file(argv[i]);
	printf("chunks of codecs 0, 2, 4, 5, 16: %lu, %lu, %lu, %lu, %lu; %lu bytes; "
	       "%lu for the host; %lu of %lu damaged ones noticed; "
	       "%lu, %lu, %lu of codecs 4, 5, 16 encoded; %lu wrong\n",
	       t.chunks[KVI_CODEC_RAW], t.chunks[KVI_CODEC_CONSTANT], t.chunks[KVI_CODEC_LAYERS],
	       t.chunks[KVI_CODEC_GRID], t.chunks[KVI_CODEC_CELLS], t.bytes, t.host, t.noticed,
	       t.damaged, t.encoded[0], t.encoded[1], t.encoded[2], t.wrong);
	free(tables);
	kvi_coder_close(t.coder);
	kvi_coder_tables_close(t.tables);
	return t.wrong != 0;
}
