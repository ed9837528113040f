/* SPDX-License-Identifier: BSD-3-Clause */
/* import_files.c - the files of tests/data/import in memory, for tests */
#include "config.h"

#include "import_files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SEQ "llama.cpp sequence file, version "
#define SESSION "llama.cpp session file, version "
#define ST "safetensors, "
#define OPAQUE "opaque file"

const struct expected import_files[] = {
	{ "ggsq2-f16.bin", SEQ "2", NULL, 1, 1, 4, 2560 },
	{ "ggsq2-no-streams.bin", SEQ "2", NULL, 1, 1, 4, 2560 },
	{ "ggsq2-mrope.bin", SEQ "2", NULL, 1, 1, 4, 2560 },
	{ "ggsq3-bf16.bin", SEQ "3", NULL, 1, 1, 4, 2560 },
	{ "ggsq3-mrope-media.bin", SEQ "3", NULL, 1, 1, 4, 2048 },
	{ "ggsq4-f16.bin", SEQ "4", NULL, 1, 1, 4, 2560 },
	{ "ggsq4-f16-vtrans.bin", SEQ "4", NULL, 1, 1, 4, 2560 },
	{ "ggsq4-f32-vtrans.bin", SEQ "4", NULL, 1, 1, 4, 1920 },
	{ "ggsq4-q4_0.bin", SEQ "4", NULL, 1, 1, 8, 720 },
	{ "ggsq4-q4_1.bin", SEQ "4", NULL, 1, 1, 12, 800 },
	{ "ggsq4-q5_0.bin", SEQ "4", NULL, 1, 1, 12, 880 },
	{ "ggsq4-q5_1.bin", SEQ "4", NULL, 1, 1, 16, 960 },
	{ "ggsq4-q8_0.bin", SEQ "4", NULL, 1, 1, 8, 1360 },
	{ "ggsq4-iq4_nl.bin", SEQ "4", NULL, 1, 1, 8, 720 },
	{ "ggsq4-mxfp4.bin", SEQ "4", NULL, 1, 1, 8, 680 },
	{ "ggsq4-nvfp4.bin", SEQ "4", NULL, 1, 1, 8, 720 },
	{ "ggsq4-mla.bin", SEQ "4", NULL, 1, 1, 2, 1440 },
	{ "ggsq4-mla-indexer.bin", SEQ "4", NULL, 1, 2, 4, 1760 },
	{ "ggsq4-indexer.bin", SEQ "4", NULL, 1, 2, 6, 2880 },
	{ "ggsq4-iswa.bin", SEQ "4", NULL, 1, 2, 10, 4864 },
	{ "ggsq4-hybrid.bin", SEQ "4", NULL, 1, 3, 10, 3040 },
	{ "ggsq4-disorder.bin", SEQ "4", NULL, 1, 1, 4, 2560 },
	{ "ggsq4-empty.bin", SEQ "4", NULL, 1, 1, 0, 0 },
	{ "ggsq4-long.bin", SEQ "4", NULL, 1, 1, 4, 20400 },
	{ "ggsq4-stream3.bin", SEQ "4", NULL, 1, 1, 4, 2560 },
	{ "ggsn9-f16.bin", SESSION "9", NULL, 1, 1, 4, 2560 },
	{ "ggsn9-no-streams.bin", SESSION "9", NULL, 1, 1, 4, 2560 },
	{ "ggsn9-outputs.bin", SESSION "9", NULL, 1, 1, 4, 2560 },
	{ "ggsn10-stream3.bin", SESSION "10", NULL, 1, 3, 12, 6144 },
	{ "ggsn11-f16.bin", SESSION "11", NULL, 1, 1, 4, 2560 },
	{ "engine-window.bin", SEQ "4", NULL, 1, 2, 14, 15360 },
	{ "engine-latent.bin", SEQ "4", NULL, 1, 1, 2, 7680 },
	{ "engine-picture.bin", SEQ "4", NULL, 1, 1, 4, 6144 },
	{ "engine-hybrid.bin", SEQ "4", NULL, 1, 2, 6, 7168 },
	{ "engine-latent-session3.bin", SESSION "11", NULL, 1, 3, 6, 16320 },
	{ "engine-hybrid-session.bin", SESSION "11", NULL, 1, 2, 6, 7168 },
	{ "engine-checkpoints-window.bin", SEQ "4, with 2 context checkpoints", NULL, 1, 2, 12,
	  36352 },
	{ "engine-checkpoints-window-vtrans.bin", SEQ "4, with 2 context checkpoints", NULL, 1, 4,
	  32, 36352 },
	{ "engine-checkpoints-hybrid.bin", SEQ "4, with 2 context checkpoints", NULL, 1, 4, 10,
	  14336 },
	{ "ggsq4-hybrid-idx.bin", SEQ "4", NULL, 1, 4, 12, 7296 },
	{ "ggsq4-hybrid-idx-history.bin", SEQ "4", NULL, 1, 5, 14, 7392 },
	{ "ggsq4-hybrid-idx-one-form.bin", SEQ "4", NULL, 1, 5, 13, 7248 },
	{ "ggsq4-hybrid-idx-checkpoints.bin", SEQ "4, with 2 context checkpoints", NULL, 1, 8, 24,
	  8064 },
	{ "ggsq4-dsa-iswa.bin", SEQ "4", NULL, 1, 3, 7, 2400 },
	{ "ggsq4-msa.bin", SEQ "4", NULL, 1, 2, 6, 6912 },
	{ "ggsq4-deepseek4.bin", SEQ "4", NULL, 1, 7, 13, 14832 },
	{ "ggsq4-deepseek4-checkpoint.bin", SEQ "4, with 1 context checkpoint", NULL, 1, 10, 19,
	  25136 },
	{ "bad-hybrid-idx-cut.bin", OPAQUE, "it ends too early", 1, 1, 0, 0 },
	{ "bad-hybrid-idx-states.bin", OPAQUE, "what follows its memory is not known", 1, 1, 0, 0 },
	{ "bad-deepseek4-version.bin", OPAQUE, "its kind of memory is not known", 1, 1, 0, 0 },
	{ "bad-deepseek4-rows.bin", OPAQUE, "its kind of memory is not known", 1, 1, 0, 0 },
	{ "version2.bin", SEQ "2", NULL, 1, 1, 4, 1536 },
	{ "version2-picture.bin", SEQ "2", NULL, 1, 1, 4, 1536 },
	{ "version2-checkpoint.bin", SEQ "2, with 1 context checkpoint", NULL, 1, 2, 8, 3072 },
	{ "version3.bin", SEQ "3", NULL, 1, 1, 4, 1536 },
	{ "version3-picture.bin", SEQ "3", NULL, 1, 1, 4, 1536 },
	{ "version3-checkpoint.bin", SEQ "3, with 1 context checkpoint", NULL, 1, 2, 8, 3072 },
	{ "version4.bin", SEQ "4", NULL, 1, 1, 4, 1536 },
	{ "version4-picture.bin", SEQ "4", NULL, 1, 1, 4, 1536 },
	{ "version4-checkpoint.bin", SEQ "4, with 1 context checkpoint", NULL, 1, 2, 8, 3072 },
	{ "bad-version.bin", OPAQUE, "version is not known", 1, 1, 0, 0 },
	{ "bad-trailing.bin", OPAQUE, "what follows its memory is not known", 1, 1, 0, 0 },
	{ "bad-truncated.bin", OPAQUE, "it ends too early", 1, 1, 0, 0 },
	{ "bad-type.bin", OPAQUE, "what follows its memory is not known", 1, 1, 0, 0 },
	{ "bad-row.bin", OPAQUE, "its kind of memory is not known", 1, 1, 0, 0 },
	{ "bad-position.bin", OPAQUE, "its kind of memory is not known", 1, 1, 0, 0 },
	{ "bad-count.bin", OPAQUE, "its header is not known", 1, 1, 0, 0 },
	{ "bad-cells.bin", OPAQUE, "its kind of memory is not known", 1, 1, 0, 0 },
	{ "bad-session.bin", OPAQUE, "its header is not known", 1, 1, 0, 0 },
	{ "st-htc-bf16.safetensors", ST "4 of 5", NULL, 1, 1, 4, 640 },
	{ "st-thc-f16.safetensors", ST "4 of 5", NULL, 1, 1, 4, 640 },
	{ "st-1htc-f32.safetensors", ST "4 of 5", NULL, 1, 1, 4, 1280 },
	{ "st-batch-bf16.safetensors", ST "4 of 5", NULL, 1, 2, 8, 1280 },
	{ "st-batch-one-ids.safetensors", ST "4 of 5", NULL, 1, 2, 8, 1280 },
	{ "np-batch-i2.npz", "zip archive of 4", NULL, 1, 3, 12, 1920 },
	{ "st-tc-f16.safetensors", ST "4 of 4", NULL, 1, 1, 4, 640 },
	{ "st-e4m3.safetensors", ST "4 of 4", NULL, 1, 1, 4, 320 },
	{ "st-e5m2.safetensors", ST "4 of 4", NULL, 1, 1, 4, 320 },
	{ "st-i8.safetensors", ST "4 of 4", NULL, 1, 1, 4, 320 },
	{ "st-u8.safetensors", ST "4 of 4", NULL, 1, 1, 4, 320 },
	{ "st-window.safetensors", ST "4 of 5", NULL, 1, 2, 4, 512 },
	{ "st-rule.safetensors", ST "0 of 4", "rule", 1, 1, 0, 0 },
	{ "st-weights.safetensors", ST "0 of 2", "rule", 1, 1, 0, 0 },
	{ "st-hole.safetensors", ST "4 of 5", NULL, 1, 1, 4, 640 },
	{ "bad-st-overlap.safetensors", OPAQUE, "not valid", 1, 1, 0, 0 },
	{ "bad-st-size.safetensors", OPAQUE, "not valid", 1, 1, 0, 0 },
	{ "bad-st-outside.safetensors", OPAQUE, "not valid", 1, 1, 0, 0 },
	{ "bad-st-json.safetensors", OPAQUE, "not JSON", 1, 1, 0, 0 },
	{ "bad-st-twice.safetensors", OPAQUE, "not JSON", 1, 1, 0, 0 },
	{ "bad-st-negative.safetensors", OPAQUE, "not valid", 1, 1, 0, 0 },
	{ "bad-st-long.safetensors", OPAQUE, NULL, 1, 1, 0, 0 },
	{ "mlx-0.32.safetensors", "safetensors of mlx-lm, 4 of 6", NULL, 1, 1, 4, 32768 },
	{ "mlx-0.32-rotating.safetensors", "safetensors of mlx-lm, 4 of 12", NULL, 1, 1, 4, 640 },
	{ "mlx-0.32-quantised.safetensors", ST "0 of 12", "(QuantizedKVCache)", 1, 1, 0, 0 },
	{ "mlx-0.32-hybrid.safetensors", "safetensors of mlx-lm, 4 of 4", NULL, 1, 3, 4, 496 },
	{ "mlx-0.32-list.safetensors", "safetensors of mlx-lm, 6 of 23", NULL, 1, 3, 6, 816 },
	{ "mlx-0.31.safetensors", "safetensors of mlx-lm, 4 of 4", NULL, 1, 1, 4, 640 },
	{ "mlx-0.31-arrays.safetensors", "safetensors of mlx-lm, 4 of 4", NULL, 1, 1, 4, 640 },
	{ "mlx-0.31-hybrid.safetensors", "safetensors of mlx-lm, 4 of 4", NULL, 1, 3, 4, 496 },
	{ "mlx-0.31-list.safetensors", "safetensors of mlx-lm, 8 of 8", NULL, 1, 1, 8, 1280 },
	{ "omlx-2.safetensors", "safetensors of oMLX, 4 of 4", NULL, 1, 1, 4, 640 },
	{ "omlx-2-hybrid.safetensors", "safetensors of oMLX, 4 of 4", NULL, 1, 3, 4, 496 },
	{ "omlx-3.safetensors", "safetensors of oMLX, 4 of 4", NULL, 1, 1, 4, 640 },
	{ "omlx-3-hybrid.safetensors", "safetensors of oMLX, 4 of 4", NULL, 1, 3, 4, 496 },
	{ "vmlx.safetensors", ST "4 of 5", NULL, 1, 1, 4, 640 },
	{ "vllm-packed.tar", "tar archive of 12", NULL, 1, 1, 24, 3840 },
	{ "vllm-before.tar", "tar archive of 2", NULL, 1, 1, 4, 640 },
	{ "model.layers.7.attn.safetensors", "safetensors of vLLM, 1 of 1", NULL, 1, 1, 2, 320 },
	{ "np-ml-dtypes.npz", "zip archive of 4", NULL, 1, 1, 4, 640 },
	{ "torch-tuple.pt", "zip archive of", NULL, 1, 1, 4, 640 },
	{ "torch-ids.pt", "zip archive of", NULL, 1, 1, 4, 640 },
	{ "torch-lists.pt", "zip archive of", NULL, 1, 1, 4, 640 },
	{ "torch-cache.pt", "zip archive of", NULL, 1, 1, 4, 640 },
	{ "torch-protocol4.pt", "zip archive of", NULL, 1, 1, 4, 640 },
	{ "torch-views.pt", "zip archive of", NULL, 1, 1, 4, 640 },
	{ "torch-one-storage.pt", "zip archive of", NULL, 1, 1, 4, 640 },
	{ "torch-gaps.pt", OPAQUE, "no cache was found", 1, 1, 0, 0 },
	{ "torch-twice.pt", "zip archive of", NULL, 1, 1, 2, 320 },
	{ "torch-other.pt", OPAQUE, "data.pkl has more", 1, 1, 0, 0 },
	{ "torch-legacy.pt", OPAQUE, NULL, 1, 1, 0, 0 },
	{ "np-bf16.npz", OPAQUE, "5 of 5 members are compressed", 1, 1, 0, 0 },
	{ "layers.0.key.npy", "npy, 1 of 1", NULL, 1, 1, 1, 160 },
	{ "bad-np-fortran.npy", OPAQUE, NULL, 1, 1, 0, 0 },
	{ "bad-np-size.npy", OPAQUE, NULL, 1, 1, 0, 0 },
	{ "box-slots.zip", "zip archive of 4", NULL, 1, 2, 8, 3200 },
	{ "box-slots.tar", "tar archive of 2", NULL, 1, 1, 4, 2560 },
	{ "np-names.npz", "zip archive of 6", NULL, 1, 1, 4, 640 },
	{ "box-latin.zip", "zip archive of 2", NULL, 1, 2, 8, 3200 },
	{ "box-comment.zip", "zip archive of 2", NULL, 1, 2, 8, 3200 },
	{ "box-zip64.zip", "zip archive of 2", NULL, 1, 2, 8, 3200 },
	{ "box-twice.zip", OPAQUE, "2 of 2 members are compressed", 1, 1, 0, 0 },
	{ "box-nested.zip", OPAQUE, "compressed", 1, 1, 0, 0 },
	{ "box-dots.zip", OPAQUE, "2 of 3 members are compressed", 1, 1, 0, 0 },
	{ "box-lzma.zip", OPAQUE, "compressed", 1, 1, 0, 0 },
	{ "box-dots.tar", "tar archive of 2", NULL, 1, 2, 8, 3200 },
	{ "box-joined.tar", "tar archive of 7", NULL, 1, 3, 12, 3840 },
	{ "box-linked.tar", "tar archive of 2", NULL, 1, 2, 8, 3200 },
	{ "box-gnu.tar", "tar archive of 5", NULL, 1, 1, 4, 640 },
	{ "box-pax.tar", "tar archive of 5", NULL, 1, 1, 4, 640 },
	{ "bad-box.zip", OPAQUE, "exact end", 1, 1, 0, 0 },
	{ "bad-box-behind.zip", OPAQUE, "exact end", 1, 1, 0, 0 },
	{ "bad-box-overlap.zip", OPAQUE, "exact end", 1, 1, 0, 0 },
	{ "bad-box-behind.tar", OPAQUE, "exact end", 1, 1, 0, 0 },
	{ "bad-box-check.tar", OPAQUE, "exact end", 1, 1, 0, 0 },
	{ "bad-box-cut.tar", OPAQUE, "exact end", 1, 1, 0, 0 },
	{ "box-plain.zip", OPAQUE, "no cache was found", 1, 1, 0, 0 },
	{ "model-llama.gguf", OPAQUE, NULL, 1, 1, 0, 0 },
	{ "opaque.txt", OPAQUE, NULL, 1, 1, 0, 0 },
	{ "opaque-empty", OPAQUE, NULL, 1, 1, 0, 0 },
};
const size_t n_import_files = sizeof import_files / sizeof *import_files;

struct blob blob_load(const char *name)
{
	const char *dir = getenv("srcdir"); /* set by `make check' */
	char path[1024];
	snprintf(path, sizeof path, "%s/tests/data/import/%s", dir ? dir : ".", name);
	FILE *f = fopen(path, "rb");
	if (!f)
		fail_msg("cannot open %s", path);
	struct blob b = { NULL, 0, 0, -1 };
	uint8_t buf[4096];
	size_t n;
	while ((n = fread(buf, 1, sizeof buf, f)) > 0) {
		kvarc_sink sink = blob_sink(&b);
		assert_int_equal(sink.write(&b, buf, n, b.n), 0);
	}
	fclose(f);
	return b;
}

struct blob blob_copy(const struct blob *b)
{
	struct blob c = { malloc(b->n + 1), b->n, b->n + 1, -1 };
	assert_non_null(c.p);
	if (b->n)
		memcpy(c.p, b->p, b->n);
	return c;
}

void blob_free(struct blob *b)
{
	free(b->p);
	*b = (struct blob){ NULL, 0, 0, -1 };
}

static int64_t read_blob(void *opaque, void *buf, size_t bytes, uint64_t offset)
{
	const struct blob *b = opaque;
	size_t left = offset < b->n ? b->n - (size_t)offset : 0;
	size_t n = bytes < left ? bytes : left;
	if (n > 1000) /* short counts are allowed */
		n -= 7;
	if (n)
		memcpy(buf, b->p + offset, n);
	return (int64_t)n;
}

kvarc_source blob_source(struct blob *b)
{
	return (kvarc_source){ .read = read_blob, .opaque = b, .size = b->n };
}

static int write_blob(void *opaque, const void *buf, size_t bytes, uint64_t offset)
{
	struct blob *b = opaque;
	size_t end = (size_t)offset + bytes;
	if (b->fail_after == 0)
		return 1;
	if (b->fail_after > 0)
		b->fail_after--;
	if (end > b->cap) {
		size_t cap = end * 2 + 64;
		uint8_t *p = realloc(b->p, cap);
		if (!p)
			return 1;
		memset(p + b->cap, 0, cap - b->cap);
		b->p = p;
		b->cap = cap;
	}
	if (bytes)
		memcpy(b->p + offset, buf, bytes);
	if (end > b->n)
		b->n = end;
	return 0;
}

kvarc_sink blob_sink(struct blob *b)
{
	return (kvarc_sink){ .write = write_blob, .opaque = b };
}

static void *failing_alloc(void *opaque, size_t bytes)
{
	struct failing *f = opaque;
	if (f->left == 0)
		return NULL;
	if (f->left > 0)
		f->left--;
	void *p = malloc(bytes);
	f->held += p != NULL;
	return p;
}

static void failing_free(void *opaque, void *ptr)
{
	struct failing *f = opaque;
	f->held -= ptr != NULL;
	free(ptr);
}

void failing_init(struct failing *f, long allocations)
{
	f->fn = (kvarc_allocator){ .alloc = failing_alloc, .free = failing_free, .opaque = f };
	f->left = allocations;
	f->held = 0;
}

bool reads_containers(void)
{
#ifdef HAVE_LIBARCHIVE
	return true;
#else
	return false;
#endif
}

bool reads_safetensors(void)
{
#ifdef HAVE_JANSSON
	return true;
#else
	return false;
#endif
}

void needs_all_parts(void)
{
	if (!reads_containers() || !reads_safetensors())
		skip();
}

static int64_t read_pipe(void *opaque, void *buf, size_t bytes, uint64_t offset)
{
	struct blob_pipe *p = opaque;
	assert_int_equal(offset, p->at);
	size_t left = p->b->n - (size_t)p->at;
	size_t n = bytes < left ? bytes : left;
	n = n > 333 ? 333 : n;
	if (n)
		memcpy(buf, p->b->p + p->at, n);
	p->at += n;
	return (int64_t)n;
}

kvarc_source pipe_source(struct blob_pipe *pipe)
{
	return (kvarc_source){ .read = read_pipe, .opaque = pipe, .size = KVARC_UNKNOWN };
}

kvarc_reader *read_archive(struct blob *archive, struct blob_pipe *pipe, unsigned threads)
{
	kvarc_reader_options o = KVARC_READER_OPTIONS_INIT;
	kvarc_source src = blob_source(archive);
	kvarc_reader *r;
	o.common.threads = threads;
	o.common.overlap = threads > 2;
	if (pipe) {
		*pipe = (struct blob_pipe){ archive, 0 };
		src = pipe_source(pipe);
	}
	assert_int_equal(kvarc_reader_open(&r, &src, &o), KVARC_OK);
	return r;
}
