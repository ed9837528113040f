/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_server.c - which slot files fit a llama.cpp server, by what it answers: a stand-in
 * (tests/engines asks a real one)
 */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "http_stand_in.h"
#include "kvarc/server.h"
#include "store_util.h"

/* What the stand-in says of its only slot and of its model. */
struct said {
	unsigned context, vocabulary;
	const char *busy;
	char text[512];
};

static void answer(void *opaque, const struct http_request *r, struct http_answer *a)
{
	struct said *s = opaque;
	if (strcmp(r->path, "/props") == 0)
		snprintf(s->text, sizeof s->text,
		         "{\"model_path\":\"/models/small.gguf\",\"build_info\":\"b1\","
		         "\"total_slots\":1,\"default_generation_settings\":{\"n_ctx\":%u}}",
		         s->context);
	else if (strcmp(r->path, "/v1/models") == 0)
		snprintf(s->text, sizeof s->text,
		         "{\"data\":[{\"meta\":{\"ftype\":\"F16\",\"n_vocab\":%u,\"n_params\":99,"
		         "\"size\":198}}]}",
		         s->vocabulary);
	else if (strcmp(r->path, "/slots") == 0)
		/* a prompt may have the word of a zero byte */
		snprintf(s->text, sizeof s->text,
		         "[{\"id\":0,\"n_ctx\":%u,\"is_processing\":%s,\"prompt\":\"a\\u0000b\"}]",
		         s->context, s->busy);
	else
		a->status = 404;
	a->body = s->text;
	a->bytes = a->status ? 0 : strlen(s->text);
}

static bool is_built(void)
{
#if defined HAVE_LIBCURL && defined HAVE_JANSSON
	return true;
#else
	return false;
#endif
}

/* The file says which model it comes from: nothing else is to warn. */
static const char *identity(void *opaque, const char *key)
{
	(void)opaque;
	return strcmp(key, "model") == 0 ? "small" : NULL;
}

/* The verdict on a slot of 50 tokens with the ids 100 to 149. */
static kvarc_server_verdict verdict_of(const struct said *said, unsigned slot, kvarc_ret want)
{
	enum { TOKENS = 50 };
	struct said s = *said;
	struct http_stand_in http;
	struct slot_made file = test_slot(TOKENS, UINT32_MAX);
	kvarc_source source = slot_source(&file);
	kvarc_server_verdict v;
	kvarc_import *im;
	kvarc_server *server;
	kvarc_import_options io = KVARC_IMPORT_OPTIONS_INIT;
	char url[64];
	io.rope = "none";
	http_start(&http, answer, &s);
	snprintf(url, sizeof url, "http://127.0.0.1:%u/", http.port);
	assert_int_equal(kvarc_server_open(&server, url, NULL), KVARC_OK);
	assert_int_equal(kvarc_import_open(&im, &source, "slot.bin", &io), KVARC_OK);
	assert_int_equal(kvarc_server_check(server, slot, im, im, identity, NULL, &v), want);
	assert_int_equal(v.tokens, TOKENS);
	kvarc_import_close(&im);
	kvarc_server_close(&server);
	http_stop(&http);
	slot_free(&file);
	return v;
}

/* A slot takes as many tokens as it has cells; a full one is worth a warning, not a refusal. */
static void test_context(void **state)
{
	kvarc_server_verdict v;
	(void)state;
	if (!is_built())
		skip();
	for (unsigned context = 49; context <= 51; context++) {
		const struct said said = { context, 1000, "false", "" };
		v = verdict_of(&said, 0, KVARC_OK);
		if (context < 50)
			assert_string_equal(v.refuse, "it has 50 tokens, the slot holds 49 (-c of "
			                              "the server)");
		else
			assert_string_equal(v.refuse, "");
		assert_int_equal(strstr(v.warn, "it fills the slot") != NULL, context == 50);
	}
}

/* Ids are below the end of the vocabulary. */
static void test_vocabulary(void **state)
{
	(void)state;
	if (!is_built())
		skip();
	for (unsigned end = 149; end <= 150; end++) {
		const struct said said = { 1000, end, "false", "" };
		const kvarc_server_verdict v = verdict_of(&said, 0, KVARC_OK);
		assert_int_equal(v.refuse[0] != 0, end == 149);
	}
}

static void test_busy(void **state)
{
	(void)state;
	if (!is_built())
		skip();
	const struct said busy = { 1000, 1000, "true", "" };
	assert_string_equal(verdict_of(&busy, 0, KVARC_OK).refuse, "slot 0 is at work");
	const struct said idle = { 1000, 1000, "false", "" };
	assert_string_equal(verdict_of(&idle, 0, KVARC_OK).refuse, "");
	verdict_of(&idle, 1, KVARC_OPTIONS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_context),
		cmocka_unit_test(test_vocabulary),
		cmocka_unit_test(test_busy),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
