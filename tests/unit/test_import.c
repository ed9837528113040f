/* SPDX-License-Identifier: BSD-3-Clause */
/* test_import.c - the importers: what they find, and that no byte is lost */
#include "config.h"

#include "import_files.h"

#ifdef HAVE_JANSSON
#include "util/jansson_calls.h"
#endif
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "files/import_internal.h"
#include "files/input_hash.h"
#include "files/kv_rules.h"
#include "files/plan.h"
#include "parse/json_text.h"

/* A small generator, the same numbers everywhere. */
static uint64_t state = 1;
static uint32_t next(uint32_t below)
{
	state = state * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)((state >> 33) % below);
}

static kvarc_import *open_blob(struct blob *b, const char *name,
                               const kvarc_import_options *options)
{
	kvarc_source src = blob_source(b);
	kvarc_import_options o = KVARC_IMPORT_OPTIONS_INIT;
	kvarc_import *im;
	if (options)
		o = *options;
	o.temp_dir = "/tmp";
	return kvarc_import_open(&im, &src, name, &o) ? NULL : im;
}

/* Fetches every tensor in odd blocks and puts the item together from them. */
static void rebuild(kvarc_import *im, uint32_t item, struct blob *out)
{
	struct kvi_restore plan;
	kvarc_sink sink = blob_sink(out);
	uint64_t at = 0;
	assert_int_equal(kvi_plan_make(im, item, &plan), KVARC_OK);
	assert_true(kvi_restore_valid(&plan, &im->geometry));
	for (size_t i = 0; i < plan.n_pieces; i++) {
		const struct kvi_piece *p = &plan.pieces[i];
		uint8_t *buf = malloc((size_t)p->bytes);
		assert_non_null(buf);
		if (p->type == KVI_PIECE_LITERAL) {
			assert_int_equal(
				kvi_source_read(&im->items[item].src, buf, (size_t)p->bytes, at),
				KVARC_OK);
			assert_int_equal(sink.write(out, buf, (size_t)p->bytes, at), 0);
		}
		for (size_t v = 0; v < p->n_views; v++) {
			uint32_t k = p->views[v].tensor;
			const kvarc_tensor *t = &im->geometry.tensors[k];
			uint32_t es = (uint32_t)kvarc_dtype_bytes(t->dtype);
			for (uint64_t t0 = 0; t0 < p->n_tokens;) {
				uint32_t n = 1 + next(200), h = 0;
				if (n > p->n_tokens - t0)
					n = (uint32_t)(p->n_tokens - t0);
				while (h < t->heads) {
					uint32_t hs = 1 + next(t->heads - h);
					struct kvi_block b = { t0, n, h * t->channels,
						               hs * t->channels, es };
					assert_int_equal(kvarc_import_fetch(im, k, h, hs,
					                                    p->t0 + t0, n, buf),
					                 0);
					assert_int_equal(kvi_strided_write(&im->alloc, &sink, at,
					                                   &p->views[v], &b, buf),
					                 0);
					h += hs;
				}
				t0 += n;
			}
		}
		at += p->bytes;
		free(buf);
	}
	assert_int_equal(at, plan.file_bytes);
	kvi_restore_free(&plan, &im->alloc);
}

/* Writes tokens of a whole tensor in the runs that the item has of them; false: it has none. */
static bool write_runs(kvarc_import *im, const kvarc_sink *sink, uint64_t at,
                       const struct kvi_area_view *view, const struct kvi_block *block,
                       const void *packed)
{
	const kvarc_tensor *t = &im->geometry.tensors[view->tensor];
	const uint64_t width = (uint64_t)t->heads * t->channels;
	struct kvi_block in_runs = *block;
	struct kvi_strided_runs runs;
	if (!kvi_strided_runs(view, width, block->elem_bytes, block->n, &runs))
		return false;
	assert_int_equal(runs.n * runs.bytes, width * block->elem_bytes * block->n);
	/* of this size exactly: what is behind it is not to be touched */
	uint8_t *memory = malloc((size_t)(runs.n * runs.bytes));
	assert_non_null(memory);
	in_runs.t0 = 0;
	kvi_strided_copy(memory, 0, &runs.view, &in_runs, packed);
	assert_int_equal(kvi_strided_runs_write(sink, at, view, block->t0, &runs, memory), 0);
	free(memory);
	return true;
}

/* As rebuild, all heads at once. Returns how many views went in runs. */
static unsigned rebuild_in_runs(kvarc_import *im, uint32_t item, struct blob *out)
{
	struct kvi_restore plan;
	kvarc_sink sink = blob_sink(out);
	unsigned in_runs = 0;
	uint64_t at = 0;
	assert_int_equal(kvi_plan_make(im, item, &plan), KVARC_OK);
	for (size_t i = 0; i < plan.n_pieces; at += plan.pieces[i++].bytes) {
		const struct kvi_piece *p = &plan.pieces[i];
		uint8_t *buf = malloc((size_t)p->bytes);
		assert_non_null(buf);
		assert_int_equal(kvi_source_read(&im->items[item].src, buf, (size_t)p->bytes, at),
		                 KVARC_OK);
		if (!p->n_views)
			assert_int_equal(sink.write(out, buf, (size_t)p->bytes, at), 0);
		for (size_t v = 0; v < p->n_views; v++) {
			const struct kvi_area_view *view = &p->views[v];
			const kvarc_tensor *t = &im->geometry.tensors[view->tensor];
			struct kvi_block b = { 0, 0, 0, t->heads * t->channels,
				               (uint32_t)kvarc_dtype_bytes(t->dtype) };
			bool all = true;
			for (; b.t0 < p->n_tokens; b.t0 += b.n) {
				const uint64_t left = p->n_tokens - b.t0;
				b.n = 1 + next(200);
				b.n = b.n < left ? b.n : (uint32_t)left;
				assert_int_equal(kvarc_import_fetch(im, view->tensor, 0, t->heads,
				                                    p->t0 + b.t0, b.n, buf),
				                 0);
				if (write_runs(im, &sink, at, view, &b, buf))
					continue;
				all = false;
				assert_int_equal(
					kvi_strided_write(&im->alloc, &sink, at, view, &b, buf), 0);
			}
			in_runs += all;
		}
		free(buf);
	}
	kvi_restore_free(&plan, &im->alloc);
	return in_runs;
}

/* Returns how many views went in runs. */
static unsigned check_rebuilt(kvarc_import *im)
{
	unsigned in_runs = 0;
	for (uint32_t i = 0; i < im->n_items; i++) {
		const kvarc_source *src = &im->items[i].src;
		struct blob out = { NULL, 0, 0, -1 };
		uint8_t *want = malloc((size_t)src->size + 1);
		assert_non_null(want);
		assert_int_equal(kvi_source_read(src, want, (size_t)src->size, 0), KVARC_OK);
		rebuild(im, i, &out);
		assert_int_equal(out.n, src->size);
		if (out.n)
			assert_memory_equal(out.p, want, out.n);
		if (out.n)
			memset(out.p, 0, out.n);
		in_runs += rebuild_in_runs(im, i, &out);
		assert_int_equal(out.n, src->size);
		if (out.n)
			assert_memory_equal(out.p, want, out.n);
		free(want);
		blob_free(&out);
	}
	return in_runs;
}

/* A source that is in memory gives the same, and elements without a read. */
static void check_in_memory(kvarc_import *im, struct blob *b, const char *name)
{
	kvarc_source src = blob_source(b);
	kvarc_import_options o = KVARC_IMPORT_OPTIONS_INIT;
	struct kvi_h128 read = { 1, 2 }, seen = read;
	kvarc_import *mapped;
	o.temp_dir = "/tmp";
	src.memory = b->p;
	assert_int_equal(kvarc_import_open(&mapped, &src, name, &o), KVARC_OK);
	check_rebuilt(mapped);
	assert_int_equal(kvi_input_hash(im, &read), KVARC_OK);
	assert_int_equal(kvi_input_hash(mapped, &seen), KVARC_OK);
	assert_true(kvi_h128_equal(read, seen));
	/* an area behind the end is not there */
	for (uint32_t i = 0; i < mapped->n_tensors; i++) {
		const kvarc_tensor *t = &mapped->geometry.tensors[i];
		struct kvi_imp_area *area = &mapped->areas[mapped->tensors[i].area];
		const size_t bytes = (size_t)t->heads * t->channels * kvarc_dtype_bytes(t->dtype);
		uint8_t *row = malloc(bytes);
		const uint64_t at = area->offset;
		assert_non_null(row);
		assert_int_equal(kvarc_import_fetch(mapped, i, 0, t->heads, area->t0, 1, row), 0);
		area->offset = mapped->items[area->item].src.size;
		assert_int_not_equal(kvarc_import_fetch(mapped, i, 0, t->heads, area->t0, 1, row),
		                     0);
		area->offset = UINT64_MAX / 2;
		assert_int_not_equal(kvarc_import_fetch(mapped, i, 0, t->heads, area->t0, 1, row),
		                     0);
		area->offset = at;
		free(row);
	}
	kvarc_import_close(&mapped);
}

static void finds_what_is_there(void **unused)
{
	unsigned in_runs = 0, tensors = 0;
	needs_all_parts();
	(void)unused;
	for (size_t i = 0; i < n_import_files; i++) {
		const struct expected *e = &import_files[i];
		struct blob b = blob_load(e->name);
		kvarc_import *im = open_blob(&b, e->name, NULL);
		uint64_t tensor_bytes;
		print_message("%s\n", e->name);
		assert_non_null(im);
		const char *note = kvarc_import_note(im);
		kvarc_import_sizes(im, NULL, &tensor_bytes);
		assert_memory_equal(kvarc_import_format(im), e->format, strlen(e->format));
		if (e->note)
			assert_non_null(note ? strstr(note, e->note) : NULL);
		else
			assert_null(note);
		assert_int_equal(im->n_items, e->items);
		assert_int_equal(im->geometry.n_tracks, e->tracks);
		assert_int_equal(im->geometry.n_tensors, e->tensors);
		assert_int_equal(tensor_bytes, e->tensor_bytes);
		in_runs += check_rebuilt(im);
		tensors += e->tensors;
		check_in_memory(im, &b, e->name);
		kvarc_import_close(&im);
		blob_free(&b);
	}
	/* of all but those of planes in blocks */
	assert_true(in_runs > 100 && in_runs < tensors);
}

/* A member that is stored as it is, of which the directory says two sizes: nothing is taken from
 * such a file, and it is kept whole. */
static void two_sizes(void **unused)
{
	enum { PACKED = 20, BYTES = 24 };
	needs_all_parts();
	const kvarc_import_options o = { .members = 1 };
	(void)unused;
	for (int i = 0; i < 3; i++) {
		struct blob b = blob_load("box-slots.zip");
		uint8_t *p = b.p;
		while (memcmp(p, "PK\1\2", 4) != 0)
			p++;
		p[BYTES] = (uint8_t)(p[BYTES] + (i == 1));
		p[PACKED] = (uint8_t)(p[PACKED] - (i == 2));
		kvarc_import *im = open_blob(&b, "box.zip", &o);
		assert_non_null(im);
		assert_int_equal(kvarc_import_geometry(im)->n_tensors != 0, i == 0);
		assert_true(i == 0 || strstr(kvarc_import_note(im), "exact end"));
		check_rebuilt(im);
		kvarc_import_close(&im);
		blob_free(&b);
	}
}

/* Positions and ids of a track, through the whole path. */
static void check_tokens(const char *name, uint32_t track, const int32_t *pos, const int32_t *ids,
                         uint32_t n)
{
	struct blob b = blob_load(name);
	kvarc_import_options o = { .members = 1 };
	kvarc_import *im = open_blob(&b, name, &o);
	int32_t got_pos[16], got_ids[16];
	assert_non_null(im);
	assert_int_equal(kvarc_import_tokens(im, track), n);
	assert_int_equal(im->tracks[track].has_ids, ids != NULL);
	assert_int_equal(kvi_import_tokens(im, track, 0, n, got_pos, got_ids), 0);
	assert_memory_equal(got_pos, pos, n * sizeof *pos);
	if (ids)
		assert_memory_equal(got_ids, ids, n * sizeof *ids);
	for (uint32_t i = 0; i < n; i++) {
		assert_int_equal(kvarc_import_read_tokens(im, track, i, n - i, NULL, got_pos),
		                 KVARC_OK);
		assert_memory_equal(got_pos, pos + i, (n - i) * sizeof *pos);
		assert_int_equal(kvarc_import_read_tokens(im, track, i, 1, got_ids, NULL),
		                 ids ? KVARC_OK : KVARC_OPTIONS);
		if (ids)
			assert_int_equal(got_ids[0], ids[i]);
	}
	assert_int_equal(kvarc_import_read_tokens(im, track, n, 1, NULL, got_pos), KVARC_GEOMETRY);
	assert_int_equal(kvarc_import_read_tokens(im, (uint32_t)im->n_tracks, 0, 0, NULL, NULL),
	                 KVARC_GEOMETRY);
	kvarc_import_close(&im);
	blob_free(&b);
}

static void tokens_and_positions(void **unused)
{
	needs_all_parts();
	static const int32_t count[] = { 0, 1, 2, 3, 4 };
	static const int32_t ids[] = { 11, 22, 33, 44, 55 };
	static const int32_t mixed[] = { 4, 0, 1, 9, 8 }, back[] = { 55, 44, 33, 22, 11 };
	(void)unused;
	check_tokens("st-batch-bf16.safetensors", 0, count, ids, 5);
	check_tokens("st-batch-bf16.safetensors", 1, count, back, 5);
	check_tokens("st-batch-one-ids.safetensors", 0, count, NULL, 5);
	check_tokens("np-batch-i2.npz", 2, count, NULL, 5);
	check_tokens("ggsq2-f16.bin", 0, count, ids, 5);
	check_tokens("ggsq4-f16.bin", 0, count, ids, 5);
	check_tokens("ggsq3-mrope-media.bin", 0, count, NULL, 4);
	check_tokens("ggsq4-disorder.bin", 0, mixed, NULL, 5);
	check_tokens("ggsq4-iswa.bin", 0, count, ids, 5);
	check_tokens("ggsq4-iswa.bin", 1, count + 2, ids + 2, 3);
	check_tokens("ggsn10-stream3.bin", 2, count, NULL, 4);
	check_tokens("st-htc-bf16.safetensors", 0, count, ids, 5);
	check_tokens("st-thc-f16.safetensors", 0, count, ids, 5);
	check_tokens("st-window.safetensors", 1, count + 2, ids + 2, 3);
	check_tokens("np-bf16.npz", 0, count, ids, 5);
	check_tokens("box-slots.zip", 0, count, ids, 5);
	check_tokens("box-slots.zip", 1, count, ids, 5);
}

static void shapes(void **unused)
{
	needs_all_parts();
	static const struct {
		const char *name;
		uint32_t tensor, heads, channels, layer;
		uint8_t kind, role, dtype;
		uint16_t source_type;
	} cases[] = {
		{ "st-htc-bf16.safetensors", 3, 2, 8, 1, KVARC_VALUE, KVARC_WHOLE, KVARC_BF16, 0 },
		{ "st-thc-f16.safetensors", 0, 2, 8, 0, KVARC_KEY, KVARC_WHOLE, KVARC_F16, 0 },
		{ "st-1htc-f32.safetensors", 0, 2, 8, 0, KVARC_KEY, KVARC_WHOLE, KVARC_F32, 0 },
		{ "ggsq4-q8_0.bin", 1, 1, 64, 0, KVARC_KEY, KVARC_PAYLOAD, KVARC_I8, 0x108 },
		{ "ggsq4-q5_1.bin", 14, 1, 8, 1, KVARC_VALUE, KVARC_HIGH_BITS, KVARC_U8, 0x107 },
		{ "ggsq4-nvfp4.bin", 2, 1, 4, 0, KVARC_VALUE, KVARC_SCALE, KVARC_U8, 0x128 },
		{ "ggsq4-mla.bin", 1, 1, 72, 1, KVARC_MLA_LATENT, KVARC_WHOLE, KVARC_F16, 0 },
		{ "ggsq4-iswa.bin", 9, 1, 64, 4, KVARC_VALUE, KVARC_WHOLE, KVARC_F16, 0 },
	};
	(void)unused;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct blob b = blob_load(cases[i].name);
		kvarc_import *im = open_blob(&b, cases[i].name, NULL);
		assert_non_null(im);
		const kvarc_tensor *t = &kvarc_import_geometry(im)->tensors[cases[i].tensor];
		assert_int_equal(t->heads, cases[i].heads);
		assert_int_equal(t->channels, cases[i].channels);
		assert_int_equal(t->layer, cases[i].layer);
		assert_int_equal(t->kind, cases[i].kind);
		assert_int_equal(t->role, cases[i].role);
		assert_int_equal(t->dtype, cases[i].dtype);
		assert_int_equal(t->source_type, cases[i].source_type);
		kvarc_import_close(&im);
		blob_free(&b);
	}
}

/* Element (token, head, channel) is the one that the format says: `at` in the
 * file, where the steps of token, head and channel are given. */
static void elements(void **unused)
{
	needs_all_parts();
	static const struct {
		const char *name;
		uint32_t tensor, elem;
		size_t at, token, head, channel;
	} cases[] = {
		/* rows; keys of layer 0, values of layer 1 */
		{ "ggsq4-f16.bin", 0, 2, 144, 128, 0, 2 },
		{ "ggsq4-f16.bin", 3, 2, 2100, 128, 0, 2 },
		/* channels first: values of layer 0 */
		{ "ggsq4-f32-vtrans.bin", 1, 4, 1128, 4, 0, 20 },
		/* planes of blocks: scales, then payload (first block) */
		{ "ggsq4-q8_0.bin", 0, 2, 144, 68, 0, 34 },
		{ "ggsq4-q8_0.bin", 1, 1, 146, 68, 0, 1 },
		/* heads first, tokens first; 0: wherever the header says */
		{ "st-htc-bf16.safetensors", 0, 2, 0, 16, 80, 2 },
		{ "st-thc-f16.safetensors", 0, 2, 0, 32, 16, 2 },
	};
	(void)unused;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct blob b = blob_load(cases[i].name);
		kvarc_import *im = open_blob(&b, cases[i].name, NULL);
		assert_non_null(im);
		const kvarc_tensor *t = &im->geometry.tensors[cases[i].tensor];
		uint32_t es = cases[i].elem, channels = t->channels;
		size_t at = cases[i].at;
		if (t->kind == KVARC_KEY && cases[i].name[0] == 's')
			at = (size_t)im->areas[im->tensors[cases[i].tensor].area].offset;
		if (cases[i].channel == 1 && channels > 32)
			channels = 32; /* the first block */
		for (uint32_t k = 0; k < 5 * t->heads; k++) {
			uint8_t got[512];
			uint32_t token = k / t->heads, head = k % t->heads;
			assert_int_equal(
				kvarc_import_fetch(im, cases[i].tensor, head, 1, token, 1, got), 0);
			for (uint32_t c = 0; c < channels; c++)
				assert_memory_equal(got + (size_t)c * es,
				                    b.p + at + token * cases[i].token +
				                            head * cases[i].head +
				                            c * cases[i].channel,
				                    es);
		}
		kvarc_import_close(&im);
		blob_free(&b);
	}
}

static void user_options(void **unused)
{
	needs_all_parts();
	struct blob b = blob_load("st-rule.safetensors");
	kvarc_import_options o = KVARC_IMPORT_OPTIONS_INIT;
	(void)unused;
	o.kv_rule = "net/{layer}/attn_{key|value}";
	kvarc_import *im = open_blob(&b, "x", &o);
	assert_int_equal(im->geometry.n_tensors, 4);
	assert_int_equal(im->geometry.tensors[3].layer, 1);
	kvarc_import_close(&im);
	o.axes = "thc";
	im = open_blob(&b, "x", &o);
	assert_int_equal(kvarc_import_tokens(im, 0), 2);
	assert_int_equal(im->geometry.tensors[0].heads, 5);
	check_rebuilt(im);
	kvarc_import_close(&im);
	o.axes = "1htc"; /* does not fit: bytes */
	im = open_blob(&b, "x", &o);
	assert_int_equal(im->geometry.n_tensors, 0);
	assert_non_null(kvarc_import_note(im));
	kvarc_import_close(&im);
	o.opaque = 1;
	im = open_blob(&b, "x", &o);
	assert_string_equal(kvarc_import_format(im), "opaque file");
	kvarc_import_close(&im);
	blob_free(&b);
}

static void naming_rules(void **unused)
{
	struct kvi_rule_match m;
	(void)unused;
	assert_true(kvi_rule_match("a.{layer}.{k|v}", "a.17.v", &m));
	assert_int_equal(m.layer, 17);
	assert_true(m.value && m.has_layer);
	assert_true(kvi_rule_match("{k|kv}{layer}", "kv3", &m));
	assert_true(m.value);
	assert_true(kvi_rule_match("{number}.x.{layer}", "4.x.5", &m));
	assert_int_equal(m.number, 4);
	assert_int_equal(m.layer, 5);
	assert_true(kvi_rule_match("{number}.{layer}.{number}", "7.5.6", &m));
	assert_int_equal(m.number, 7);
	assert_true(kvi_rule_match("kv", "kv", &m));
	assert_false(m.has_layer);
	assert_false(kvi_rule_match("a.{layer}.{k|v}", "a.17.vx", &m));
	assert_false(kvi_rule_match("a.{layer}.{k|v}", "a..v", &m));
	assert_false(kvi_rule_match("a.{layer}", "a.65536", &m));
	assert_false(kvi_rule_match("a.{layer", "a.1", &m));
	assert_false(kvi_rule_match("{|}", "x", &m));
	assert_true(kvi_rule_match("*a.{layer}", "a.1", &m));
	assert_true(kvi_rule_match("*a.{layer}", "a.x/b:a.12", &m));
	assert_int_equal(m.layer, 12);
	assert_false(kvi_rule_match("*a.{layer}", "ba.1", &m));
	assert_false(kvi_rule_match("*a.{layer}", "a.x.", &m));
	assert_false(kvi_rule_match("*a.{layer}", "", &m));
}

static void model_headers(void **unused)
{
	struct kvi_alloc a;
	struct kvi_gguf g;
	(void)unused;
	kvi_alloc_init(&a, NULL, 0);
	struct blob b = blob_load("model-llama.gguf");
	kvarc_source src = blob_source(&b);
	assert_int_equal(kvi_gguf_read(&g, &a, &src), KVARC_OK);
	assert_string_equal(g.arch, "llama");
	assert_int_equal(g.heads, 4);
	assert_int_equal(g.key_channels, 16);
	assert_int_equal(g.rotary, 16);
	assert_int_equal(g.pairing, KVARC_ROPE_INTERLEAVED);
	assert_true(g.theta == 10000);

	/* It names the heads of a slot, which does not. */
	struct blob slot = blob_load("ggsq4-f16.bin");
	kvarc_import_options o = KVARC_IMPORT_OPTIONS_INIT;
	o.model = &src;
	kvarc_import *im = open_blob(&slot, "x", &o);
	assert_int_equal(im->geometry.tensors[0].heads, 4);
	assert_int_equal(im->geometry.tensors[1].channels, 16);
	kvarc_import_close(&im);
	blob_free(&b);

	b = blob_load("model-neox.gguf");
	src = blob_source(&b);
	assert_int_equal(kvi_gguf_read(&g, &a, &src), KVARC_OK);
	assert_int_equal(g.pairing, KVARC_ROPE_HALF);
	/* Cut anywhere, it is damaged, and says so. */
	for (src.size = 4; src.size < b.n; src.size++)
		assert_int_not_equal(kvi_gguf_read(&g, &a, &src), KVARC_OK);
	blob_free(&b);
	b = blob_load("opaque.txt");
	src = blob_source(&b);
	o.model = &src;
	assert_null(open_blob(&slot, "x", &o));
	blob_free(&b);
	blob_free(&slot);
}

/* A manual rope goes to the keys and splits them into heads. */
static void manual_rope(void **unused)
{
	struct blob b = blob_load("ggsq4-f16.bin");
	kvarc_import_options o = KVARC_IMPORT_OPTIONS_INIT;
	(void)unused;
	o.rope = "1e4,half,32";
	kvarc_import *im = open_blob(&b, "x", &o);
	assert_non_null(im);
	assert_int_equal(im->geometry.n_ropes, 1);
	assert_int_equal(im->geometry.ropes[0].rotary, 32);
	assert_int_equal(im->geometry.ropes[0].pairing, KVARC_ROPE_HALF);
	for (size_t i = 0; i < im->geometry.n_tensors; i++) {
		const kvarc_tensor *t = &im->geometry.tensors[i];
		assert_int_equal(t->heads, 2);
		assert_int_equal(t->rope, t->kind == KVARC_KEY);
	}
	check_rebuilt(im);
	kvarc_import_close(&im);
	o.rope = "10000;half";
	assert_null(open_blob(&b, "x", &o));
	blob_free(&b);
}

/* Every truncation and many flips: no crash, and what opens loses nothing. */
static void damage(void **unused)
{
	(void)unused;
	for (size_t i = 0; i < n_import_files; i++) {
		struct blob whole = blob_load(import_files[i].name);
		size_t step = whole.n > 4000 ? 37 : whole.n > 1500 ? 5 : 1;
		for (size_t n = 0; n < whole.n; n += step) {
			struct blob b = blob_copy(&whole);
			b.n = n;
			kvarc_import *im = open_blob(&b, "x", NULL);
			if (im)
				check_rebuilt(im);
			kvarc_import_close(&im);
			blob_free(&b);
		}
		for (int k = 0; whole.n && k < 300; k++) {
			struct blob b = blob_copy(&whole);
			/* headers are at the start */
			uint32_t at = next((uint32_t)(k % 2 ? b.n : b.n < 256 ? b.n : 256));
			b.p[at] ^= (uint8_t)(1 << next(8));
			kvarc_import *im = open_blob(&b, "x", NULL);
			if (im)
				check_rebuilt(im);
			kvarc_import_close(&im);
			blob_free(&b);
		}
		blob_free(&whole);
	}
}

static void no_memory(void **unused)
{
	(void)unused;
	for (size_t i = 0; i < n_import_files; i++) {
		struct blob b = blob_load(import_files[i].name);
		for (long n = 0;; n++) {
			struct failing f;
			kvarc_import_options o = KVARC_IMPORT_OPTIONS_INIT;
			kvarc_source src = blob_source(&b);
			kvarc_import *im;
			failing_init(&f, n);
			o.common.allocator = &f.fn;
			o.temp_dir = "/tmp";
			o.members = i % 2;
			kvarc_ret ret = kvarc_import_open(&im, &src, "x", &o);
			assert_true(ret == KVARC_OK || ret == KVARC_MEM);
			kvarc_import_close(&im);
			assert_int_equal(f.held, 0);
			if (ret == KVARC_OK)
				break;
		}
		blob_free(&b);
	}
}

static void memory_limit(void **unused)
{
	struct blob b = blob_load("ggsq4-f16.bin");
	kvarc_import_options o = KVARC_IMPORT_OPTIONS_INIT;
	kvarc_source src = blob_source(&b);
	kvarc_error e;
	kvarc_import *im;
	(void)unused;
	o.common.memlimit = 4096;
	o.common.error = &e;
	assert_int_equal(kvarc_import_open(&im, &src, "x", &o), KVARC_MEMLIMIT);
	assert_null(im);
	assert_int_equal(e.code, KVARC_MEMLIMIT);
	blob_free(&b);
}

/* JSON has its budget before it is parsed, and an object has each name once. */
static void json_budget(void **unused)
{
	(void)unused;
#ifdef HAVE_JANSSON
	static const struct {
		const char *text;
		uint64_t less; /* than it may cost */
		kvarc_ret ret;
	} cases[] = {
		{ "[{},{}]", 0, KVARC_OK },
		{ "[{},{}]", 1, KVARC_MEMLIMIT },
		{ "[{},{}", 0, KVARC_DATA },
		{ "", 0, KVARC_DATA },
		{ "{\"a\":1,\"a\":2}", 0, KVARC_DATA },
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		const size_t n = strlen(cases[i].text);
		const uint64_t cost = n * KVI_JSON_COST;
		uint64_t budget = cost - cases[i].less;
		json_t *root = (json_t *)1;
		assert_int_equal(kvi_json_parse(cases[i].text, n, &budget, &root), cases[i].ret);
		assert_true(!root == (cases[i].ret != KVARC_OK));
		assert_int_equal(budget, cases[i].less ? cost - cases[i].less : 0);
		json_decref(root);
	}
#endif
}

/* A build without a part says so, and keeps the file. */
static void parts_left_out(void **unused)
{
	static const struct {
		const char *file, *part;
	} cases[] = {
		{ "st-htc-bf16.safetensors", "jansson" },
		{ "np-bf16.npz", "libarchive" },
	};
	const kvarc_import_options o = { .members = 1 };
	(void)unused;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct blob b = blob_load(cases[i].file);
		kvarc_import *im = open_blob(&b, cases[i].file, &o);
		const char *note = kvarc_import_note(im);
		bool there = i ? reads_containers() : reads_safetensors();
		bool found = note && strstr(note, cases[i].part);
		assert_int_equal(found, !there);
		assert_int_equal(im->geometry.n_tensors > 0, there);
		kvarc_import_close(&im);
		blob_free(&b);
	}
}

/* How many tokens the window of a slot with two checkpoints has, which must come
 * back byte for byte. */
static uint64_t window_tokens(struct blob *b, size_t checkpoints)
{
	kvarc_import *im = open_blob(b, "slot", NULL);
	int32_t positions[64];
	assert_non_null(im);
	assert_null(kvarc_import_note(im));
	assert_int_equal(strstr(kvarc_import_format(im), "2 context") != NULL, checkpoints == 2);
	uint64_t n = kvarc_import_tokens(im, 1);
	assert_true(n <= 64);
	assert_int_equal(kvarc_import_read_tokens(im, 1, 0, n, NULL, positions), KVARC_OK);
	for (uint64_t i = 1; i < n && n <= 32; i++)
		assert_int_equal(positions[i], positions[i - 1] + 1);
	assert_int_equal(positions[n - 1], 43);
	check_rebuilt(im);
	kvarc_import_close(&im);
	return n;
}

/* Tokens 28 to 43 are in the window, 12 to 27 and 24 to 39 in its checkpoints. */
static void checkpoints_share_rows(void **unused)
{
	enum { APPENDIX = 16988, CELLS = 16 * 12, FIRST_ROW = 36 + 8 + 8 + CELLS + 16 + 12 };
	(void)unused;
	struct blob b = blob_load("engine-checkpoints-window.bin");
	assert_memory_equal(b.p + APPENDIX, "SCKP", 4);
	assert_int_equal(window_tokens(&b, 2), 32);
	/* a row of the second checkpoint that is not the slot's: a token of its own */
	size_t first = (b.n - APPENDIX - 12) / 2;
	b.p[APPENDIX + 12 + first + FIRST_ROW - 4] ^= 1;
	assert_true(window_tokens(&b, 2) > 32);
	/* an appendix that is not whole stays as it is */
	b.n--;
	assert_int_equal(window_tokens(&b, 0), 16);
	b.n = APPENDIX + 6;
	assert_int_equal(window_tokens(&b, 0), 16);
	blob_free(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(parts_left_out), cmocka_unit_test(finds_what_is_there),
		cmocka_unit_test(two_sizes),      cmocka_unit_test(tokens_and_positions),
		cmocka_unit_test(shapes),         cmocka_unit_test(checkpoints_share_rows),
		cmocka_unit_test(elements),       cmocka_unit_test(user_options),
		cmocka_unit_test(naming_rules),   cmocka_unit_test(model_headers),
		cmocka_unit_test(manual_rope),    cmocka_unit_test(damage),
		cmocka_unit_test(no_memory),      cmocka_unit_test(memory_limit),
		cmocka_unit_test(json_budget),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
