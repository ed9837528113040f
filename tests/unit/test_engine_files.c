/* SPDX-License-Identifier: BSD-3-Clause */
/* test_engine_files.c - raw pages, files of torch.save, KVC: each element is found where it lies */
#include "import_files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "files/import_internal.h"
#include "util/bytes.h"

enum { LAYERS = 2, HEADS = 2, CHANNELS = 8, TOKENS = 12, PAGE = 4 };

static uint16_t bits_of(unsigned layer, unsigned kv, unsigned head, unsigned token,
                        unsigned channel)
{
	return (uint16_t)(layer * 2048 + kv * 1024 + head * 512 + token * 16 + channel);
}

static kvarc_import *open_bytes(struct blob *b, const char *raw, kvarc_ret want, kvarc_error *e)
{
	kvarc_import_options o = KVARC_IMPORT_OPTIONS_INIT;
	const kvarc_source src = blob_source(b);
	kvarc_import *im;
	o.raw = raw;
	o.rope = "none";
	o.common.error = e;
	assert_int_equal(kvarc_import_open(&im, &src, "x", &o), want);
	return im;
}

/* Every element of every tensor is the one of its position. */
static void check_elements(kvarc_import *im, unsigned tokens)
{
	const kvarc_geometry *g = kvarc_import_geometry(im);
	assert_int_equal(kvarc_import_tokens(im, 0), tokens);
	assert_int_equal(g->n_tensors, 2 * LAYERS);
	unsigned seen = 0;
	for (uint32_t i = 0; i < g->n_tensors; i++) {
		const kvarc_tensor *t = &g->tensors[i];
		const unsigned kv = t->kind == KVARC_VALUE;
		assert_true(t->heads == HEADS && t->channels == CHANNELS && t->layer < LAYERS);
		assert_true(kv || t->kind == KVARC_KEY);
		seen |= 1u << (2 * t->layer + kv);
		for (unsigned h = 0; h < HEADS; h++)
			for (unsigned n = 0; n < tokens; n++) {
				uint16_t got[CHANNELS];
				assert_int_equal(kvarc_import_fetch(im, i, h, 1, n, 1, got), 0);
				for (unsigned c = 0; c < CHANNELS; c++)
					assert_int_equal(got[c], bits_of(t->layer, kv, h, n, c));
			}
		/* all at once, over the borders of pages */
		uint16_t all[HEADS * CHANNELS * TOKENS];
		assert_int_equal(kvarc_import_fetch(im, i, 0, HEADS, 1, tokens - 1, all), 0);
		assert_int_equal(all[HEADS * CHANNELS - 1],
		                 bits_of(t->layer, kv, HEADS - 1, 1, CHANNELS - 1));
		assert_int_equal(all[HEADS * CHANNELS * (tokens - 1) - 1],
		                 bits_of(t->layer, kv, HEADS - 1, tokens - 1, CHANNELS - 1));
	}
	assert_int_equal(seen, 15);
}

static int open_item(void *opaque, const kvarc_item *item, kvarc_sink *sink)
{
	(void)item;
	*sink = blob_sink(opaque);
	return 0;
}

/* The file comes back byte for byte. */
static void check_back(kvarc_import *im, const struct blob *b)
{
	struct blob archive = { NULL, 0, 0, -1 }, back = { NULL, 0, 0, -1 };
	const kvarc_sink sink = blob_sink(&archive);
	kvarc_writer_options wo = KVARC_WRITER_OPTIONS_INIT;
	kvarc_reader *r;
	wo.level = KVARC_LEVEL(1);
	assert_int_equal(kvarc_pack(im, &sink, &wo, NULL), KVARC_OK);
	const kvarc_source src = blob_source(&archive);
	assert_int_equal(kvarc_reader_open(&r, &src, NULL), KVARC_OK);
	assert_int_equal(kvarc_unpack(r, open_item, &back), KVARC_OK);
	kvarc_reader_close(&r);
	assert_int_equal(back.n, b->n);
	assert_memory_equal(back.p, b->p, b->n);
	blob_free(&archive);
	blob_free(&back);
}

static uint64_t extent_of(char letter)
{
	switch (letter) {
	case 'L':
		return LAYERS;
	case 'H':
		return HEADS;
	case 'D':
		return CHANNELS;
	case 'T':
		return TOKENS;
	case 'B':
		return PAGE;
	case 'P':
		return TOKENS / PAGE;
	default:
		return 2;
	}
}

/* The elements in the order of the axes. */
static struct blob make_pages(const char *order)
{
	struct blob b = { NULL, 0, 0, -1 };
	uint64_t n = 1;
	for (const char *p = order; *p; p++)
		n *= extent_of(*p);
	b.n = b.cap = n * 2;
	b.p = malloc(b.n);
	assert_non_null(b.p);
	for (uint64_t i = 0; i < n; i++) {
		unsigned at[128] = { 0 };
		uint64_t rest = i;
		for (const char *p = order + strlen(order); p-- > order;) {
			at[(int)*p] = (unsigned)(rest % extent_of(*p));
			rest /= extent_of(*p);
		}
		const unsigned token = at['T'] + at['P'] * PAGE + at['B'];
		const uint16_t v = bits_of(at['L'], at['2'], at['H'], token, at['D']);
		memcpy(b.p + 2 * i, &v, 2);
	}
	return b;
}

static void raw_orders(void **unused)
{
	static const char *const orders[] = { "2LTHD",  "2TLHD",  "2HTLD",  "LTH2D",  "L2THD",
		                              "T2LHD",  "2LPBHD", "PL2BHD", "P2LBHD", "LP2BHD",
		                              "2PLBHD", "LPHB2D", "LPBH2D", "DHTL2",  "2LTDH" };
	(void)unused;
	for (size_t i = 0; i < sizeof orders / sizeof *orders; i++) {
		struct blob b = make_pages(orders[i]);
		char raw[64];
		snprintf(raw, sizeof raw, "bf16,%s,L=2,H=2,D=8%s", orders[i],
		         strchr(orders[i], 'B') ? ",B=4" : "");
		kvarc_import *im = open_bytes(&b, raw, KVARC_OK, NULL);
		assert_non_null(im);
		check_elements(im, TOKENS);
		check_back(im, &b);
		kvarc_import_close(&im);
		blob_free(&b);
	}
}

static void raw_refused(void **unused)
{
	static const struct {
		const char *raw, *text;
		kvarc_ret ret;
	} cases[] = {
		{ "bf16,2LTHD,L=5,H=2,D=8", "which is not a number of times", KVARC_GEOMETRY },
		{ "bf16,2LTHD,L=2,H=2,D=8,T=11", "and the axes '2LTHD' have", KVARC_GEOMETRY },
		{ "bf16,2LTHD,L=2", "3 axes", KVARC_PROG },
		{ "bf17,2LTHD,L=2,H=2,D=8", "no type", KVARC_PROG },
		{ "bf16", "no order", KVARC_PROG },
		{ "bf\n17,2LTHD", "'bf?17' is no type", KVARC_PROG },
		{ "bf16,2LTHTD,L=2,H=2,D=8", "no order", KVARC_PROG },
		{ "bf16,2LTH,L=2,H=2", "no order", KVARC_PROG },
		{ "bf16,2LTBHD,L=2,H=2,D=8", "no order", KVARC_PROG },
		{ "bf16,2LPTHD,L=2,H=2,D=8", "no order", KVARC_PROG },
		{ "bf16,2LTHD,L=2,H=2,D=8,D=8", "no extent", KVARC_PROG },
		{ "bf16,2LTHD,L=2,H=2,D=0", "no extent", KVARC_PROG },
		{ "bf16,2LTHD,L=2,H=2,D=99999999999", "no extent", KVARC_PROG },
		{ "bf16,2LTD,H=2,L=2,D=8", "no extent", KVARC_PROG },
		{ "bf16,2LTHD,L=2,2=2,D=8", "no extent", KVARC_PROG },
		{ "bf16,2LBPHD,L=2,H=2,D=8,B=4", "in front of", KVARC_GEOMETRY },
		{ "bf16,2LHPDB,L=2,H=2,D=8,B=3", "in front of", KVARC_GEOMETRY },
	};
	struct blob b = make_pages("2LTHD");
	(void)unused;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		kvarc_error e = { 0 };
		assert_null(open_bytes(&b, cases[i].raw, cases[i].ret, &e));
		if (!strstr(e.text, cases[i].text))
			fail_msg("%s: %s", cases[i].raw, e.text);
	}
	/* an empty file has no tokens; a latent has no heads */
	b.n = 0;
	assert_null(open_bytes(&b, "bf16,2LTHD,L=2,H=2,D=8", KVARC_GEOMETRY, NULL));
	b.n = b.cap;
	kvarc_import *im = open_bytes(&b, "bf16,LTD,L=2,D=32", KVARC_OK, NULL);
	assert_int_equal(kvarc_import_geometry(im)->tensors[1].kind, KVARC_MLA_LATENT);
	kvarc_import_close(&im);
	blob_free(&b);
}

static void layouts(void **unused)
{
	static const char vllm[] =
		"{\"dtype\":\"torch.bfloat16\",\"blocks_per_file\":4,\"kv_cache_groups\":["
		"{\"tokens_per_block\":16,\"layer_names\":[\"a\"]},"
		"{\"tokens_per_block\":32,\"layer_names\":[\"a\",\"b\",\"c\"]}]}";
	static const char model[] = "{\"torch_dtype\":\"float16\",\"num_hidden_layers\":30,"
				    "\"num_attention_heads\":9,\"num_key_value_heads\":3,"
				    "\"hidden_size\":576}";
	static const struct {
		const char *layout, *path, *config, *raw;
		kvarc_ret ret;
	} cases[] = {
		{ "vllm,D=64", "m_0_r0/abc/de_g1/x.bin", vllm, "bf16,LTH2D,D=64,L=3,T=128", 0 },
		{ "vllm:hnd,e4m3,D=64", "m_0_r0/abc/de_g0/x.bin", vllm,
		  "e4m3,LPHB2D,D=64,L=1,P=4,B=16", 0 },
		{ "vllm", "m_0_r0/abc/de_g0/x.bin", vllm, "", KVARC_PROG },
		{ "sglang:page_first", "key_model_0_1.bin", model, "f16,2TLHD,L=30,H=3,D=64", 0 },
		{ "sglang:page_head,bf16,H=1", "x", model, "bf16,2HTLD,H=1,L=30,D=64", 0 },
		{ "lmcache,L=2,H=2,D=8", "a/vllm@m@1@0@ff@bfloat16.pt", NULL,
		  "bf16,2LTHD,L=2,H=2,D=8", 0 },
		{ "lmcache,L=2,H=2,D=8", "x.data", NULL, "", KVARC_PROG },
		{ "lmcash", "x", NULL, "", KVARC_PROG },
		{ "lmcache", "x", "[1]", "", KVARC_DATA },
	};
	(void)unused;
	needs_all_parts();
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct blob b = { (uint8_t *)cases[i].config,
			          cases[i].config ? strlen(cases[i].config) : 0, 0, -1 };
		const kvarc_source src = blob_source(&b);
		kvarc_error e = { 0 };
		char raw[160];
		assert_int_equal(kvarc_raw_layout(cases[i].layout, cases[i].path, b.p ? &src : NULL,
		                                  raw, sizeof raw, &e),
		                 cases[i].ret);
		if (!cases[i].ret)
			assert_string_equal(raw, cases[i].raw);
		else
			assert_true(e.text[0] != '\0');
	}
	char small[8];
	assert_int_equal(
		kvarc_raw_layout("lmcache,bf16,L=2,H=2,D=8", NULL, NULL, small, sizeof small, NULL),
		KVARC_PROG);
}

static void torch_files(void **unused)
{
	static const char *const names[] = { "tuple", "ids",       "lists",      "cache",
		                             "views", "protocol4", "one-storage" };
	(void)unused;
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		char name[64];
		snprintf(name, sizeof name, "torch-%s.pt", names[i]);
		struct blob b = blob_load(name);
		kvarc_import *im = open_bytes(&b, NULL, KVARC_OK, NULL);
		/* 5 tokens, 2 heads: which is which is not always to be known */
		if (strcmp(names[i], "views") != 0)
			check_elements(im, 5);
		int32_t ids[5];
		if (strcmp(names[i], "ids") == 0) {
			assert_int_equal(kvarc_import_read_tokens(im, 0, 0, 5, ids, NULL),
			                 KVARC_OK);
			assert_int_equal(ids[4], 11);
		}
		kvarc_import_close(&im);
		blob_free(&b);
	}
}

/* The slot as erllama would write it. */
static struct blob make_kvc(const struct blob *slot, uint32_t check)
{
	struct blob b = { NULL, 0, 0, -1 };
	const kvarc_sink sink = blob_sink(&b);
	uint8_t head[72 + 4 + 4 + 5 + 5 * 4 + 4] = "KVC\1";
	const size_t state_at = 12 + 4 * (size_t)kvi_load32(slot->p + 8);
	const size_t state = slot->n - state_at;
	kvi_store64(head + 40, state);
	kvi_store64(head + 48, sizeof head);
	kvi_store64(head + 56, state);
	kvi_store32(head + 64, check);
	kvi_store32(head + 72, 4); /* text */
	memcpy(head + 76, "text", 4);
	kvi_store32(head + 80, 5 + 5 * 4); /* one tag: five token ids */
	head[84] = 9;
	kvi_store32(head + 85, 5 * 4);
	for (uint32_t i = 0; i < 5; i++)
		kvi_store32(head + 89 + 4 * i, 100 + i);
	assert_int_equal(sink.write(sink.opaque, head, sizeof head, 0), 0);
	assert_int_equal(sink.write(sink.opaque, slot->p + state_at, state, sizeof head), 0);
	return b;
}

static uint32_t slow_crc32c(const uint8_t *p, size_t n)
{
	uint32_t crc = UINT32_MAX;
	for (size_t i = 0; i < n; i++) {
		crc ^= p[i];
		for (int k = 0; k < 8; k++)
			crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78 : 0);
	}
	return ~crc;
}

static void kvc_files(void **unused)
{
	struct blob slot = blob_load("ggsq4-f16.bin");
	const size_t state_at = 12 + 4 * (size_t)kvi_load32(slot.p + 8);
	int32_t ids[5];
	(void)unused;
	assert_int_equal(slow_crc32c((const uint8_t *)"123456789", 9), 0xe3069283);
	struct blob b = make_kvc(&slot, slow_crc32c(slot.p + state_at, slot.n - state_at));
	kvarc_import *im = open_bytes(&b, NULL, KVARC_OK, NULL);
	assert_null(kvarc_import_note(im));
	assert_string_equal(kvarc_import_format(im), "KVC file, a state of llama.cpp");
	assert_int_equal(kvarc_import_geometry(im)->n_tensors, 4);
	assert_int_equal(kvarc_import_read_tokens(im, 0, 0, 5, ids, NULL), KVARC_OK);
	assert_int_equal(ids[4], 104);
	kvarc_import_close(&im);
	/* a wrong check: as it is */
	kvi_store32(b.p + 64, 1);
	im = open_bytes(&b, NULL, KVARC_OK, NULL);
	assert_non_null(strstr(kvarc_import_note(im), "check"));
	assert_int_equal(kvarc_import_geometry(im)->n_tensors, 4);
	kvarc_import_close(&im);
	/* another payload, and cut anywhere: bytes */
	for (size_t n = b.n - 1; n > b.n - 200; n--) {
		b.n = n;
		im = open_bytes(&b, NULL, KVARC_OK, NULL);
		assert_int_equal(kvarc_import_geometry(im)->n_tensors, 0);
		kvarc_import_close(&im);
	}
	blob_free(&b);
	blob_free(&slot);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(raw_orders), cmocka_unit_test(raw_refused),
		cmocka_unit_test(layouts),    cmocka_unit_test(torch_files),
		cmocka_unit_test(kvc_files),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
