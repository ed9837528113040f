/* SPDX-License-Identifier: BSD-3-Clause */
/* test_session.c - chain values (spec 5.3) through writer and reader */
#include "stream_util.h"

enum { TOKENS = 300, FULL = 256 };

/* What differs from the first archive. */
struct variant {
	int32_t id_behind;   /* added to the ids of the last segment */
	int32_t id_first;    /* added to the first id */
	int32_t position;    /* added to all positions */
	const char *key;     /* of an identity pair, NULL: none */
	bool no_ids, coarse; /* coarse: fewer tokens a segment */
};

/* Chain values of an archive at FULL and TOKENS; false: there is none. */
static bool chains(const struct variant *v, uint8_t full[16], uint8_t all[16])
{
	struct cache c;
	struct memfile f = { .fail_at = -1 };
	kvarc_sink sink = memfile_sink(&f);
	kvarc_writer_options o = KVARC_WRITER_OPTIONS_INIT;
	int32_t ids[TOKENS], positions[TOKENS];
	const char *value = "value";
	kvarc_writer *w;
	kvarc_reader *r;
	cache_make(&c, 0, 1);
	for (int i = 0; i < TOKENS; i++) {
		ids[i] = 7 * i + (i < FULL ? 0 : v->id_behind) + (i ? 0 : v->id_first);
		positions[i] = i + v->position;
	}
	o.segment_tokens = v->coarse ? 128 : 0;
	assert_int_equal(kvarc_writer_open(&w, &sink, &o), KVARC_OK);
	assert_int_equal(kvarc_writer_set_geometry(w, &c.g), KVARC_OK);
	if (v->key)
		assert_int_equal(kvarc_writer_identity(w, 1, &v->key, &value), KVARC_OK);
	for (int at = 0; at < TOKENS; at += 50)
		assert_int_equal(kvarc_writer_append(w, 0, 50, v->no_ids ? NULL : ids + at,
		                                     positions + at, c.views),
		                 KVARC_OK);
	assert_int_equal(kvarc_writer_close(&w), KVARC_OK);
	kvarc_source source = memfile_source(&f);
	assert_int_equal(kvarc_reader_open(&r, &source, NULL), KVARC_OK);
	kvarc_ret ret = kvarc_reader_chain(r, 0, FULL, full);
	assert_int_equal(kvarc_reader_chain(r, 0, TOKENS, all), ret);
	assert_int_equal(kvarc_reader_chain(r, 0, TOKENS - 1, all), KVARC_END);
	assert_int_equal(kvarc_reader_chain(r, 99, 1, all), KVARC_GEOMETRY);
	kvarc_reader_close(&r);
	assert_int_equal(cache_verify(&f, NULL), KVARC_OK);
	memfile_free(&f);
	cache_free(&c);
	return ret == KVARC_OK;
}

static void test_chains(void **state)
{
	static const struct {
		struct variant v;
		bool full, all, any; /* the same value; there is one */
	} cases[] = {
		{ { 0 }, true, true, true },
		{ { .key = "engine" }, true, true, true },
		{ { .id_behind = 1 }, true, false, true },
		{ { .id_first = 1 }, false, false, true },
		{ { .key = "model" }, false, false, true },
		{ { .key = "namespace" }, false, false, true },
		{ { .coarse = true }, false, false, true },
		{ { .no_ids = true }, false, false, false },
		{ { .id_first = -1 }, false, false, false },
		{ { .position = 1 }, false, false, false },
	};
	uint8_t full[2][16], all[2][16];
	(void)state;
	assert_true(chains(&cases[0].v, full[0], all[0]));
	for (size_t i = 1; i < sizeof cases / sizeof *cases; i++) {
		assert_int_equal(chains(&cases[i].v, full[1], all[1]), cases[i].any);
		if (!cases[i].any)
			continue;
		assert_int_equal(!memcmp(full[0], full[1], 16), cases[i].full);
		assert_int_equal(!memcmp(all[0], all[1], 16), cases[i].all);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_chains),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
