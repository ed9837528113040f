/* SPDX-License-Identifier: BSD-3-Clause */
/* server.c - slots of a running llama.cpp server, by its HTTP interface */
#include "config.h"

#include "server_state.h"

#include "parse/json_text.h"
#include "util/arguments.h"
#include "util/error.h"

#ifdef HAVE_JANSSON

#include <stdio.h>
#include <string.h>

#include "util/jansson_calls.h"

#define TIMEOUT_DEFAULT 600
enum { NAME_MAX_BYTES = 200, HTTP_OK = 200 };

/* A number that is not negative; 0: it is not there, or something else. */
static uint64_t number_of(const json_t *object, const char *key)
{
	json_int_t v = json_integer_value(json_object_get(object, key));
	return v > 0 ? (uint64_t)v : 0;
}

/* Copies a text, without bytes that are not printable; "" when it is not there. */
static void copy_text(char *to, size_t capacity, const json_t *object, const char *key)
{
	const char *text = json_string_value(json_object_get(object, key));
	size_t n = 0;
	for (; text && *text && n + 1 < capacity; text++) {
		if ((unsigned char)*text >= ' ' && *text != 0x7f)
			to[n++] = *text;
	}
	to[n] = 0;
}

/* IO or OPTIONS: an answer that is an error, with the server's own words. */
static kvarc_ret fail_answer(const kvarc_server *s, const char *path, long status, const json_t *j)
{
	char words[160];
	copy_text(words, sizeof words, json_object_get(j, "error"), "message");
	return kvi_fail(s->error, status / 100 == 4 ? KVARC_OPTIONS : KVARC_IO,
	                "server: %s: it answers %ld%s%s", path, status, words[0] ? ": " : "",
	                words);
}

/* Sends a request; *j is the answer, which the caller releases. */
static kvarc_ret ask(kvarc_server *s, const char *path, const char *body, json_t **j)
{
	const char *answer;
	size_t bytes;
	long status;
	*j = NULL;
	kvarc_ret ret = kvi_http_send(s->http, path, body, &status, &answer, &bytes, s->error);
	if (ret)
		return ret;
	/* the connection has refused what would not fit; what is no JSON has no root */
	uint64_t budget = s->alloc.limit;
	(void)!kvi_json_parse(answer, bytes, &budget, j);
	if (status != HTTP_OK)
		ret = fail_answer(s, path, status, *j);
	else if (!*j)
		ret = kvi_fail(s->error, KVARC_IO,
		               "server: %s: its answer is not JSON; is it a llama.cpp server?",
		               path);
	if (ret) {
		json_decref(*j);
		*j = NULL;
	}
	return ret;
}

/* The base name of a path, without ".gguf". */
static void shorten(char *path)
{
	const char *slash = strrchr(path, '/');
	if (slash)
		memmove(path, slash + 1, strlen(slash));
	size_t n = strlen(path);
	if (n > 5 && strcmp(path + n - 5, ".gguf") == 0)
		path[n - 5] = 0;
}

static kvarc_ret learn(kvarc_server *s)
{
	json_t *props, *models;
	kvarc_ret ret = ask(s, "/props", NULL, &props);
	if (ret)
		return ret;
	if (!json_is_string(json_object_get(props, "build_info"))) {
		json_decref(props);
		return kvi_fail(s->error, KVARC_IO,
		                "server: /props does not say what llama.cpp says; is it one?");
	}
	copy_text(s->model, sizeof s->model, props, "model_path");
	shorten(s->model);
	copy_text(s->build, sizeof s->build, props, "build_info");
	s->info.slots = number_of(props, "total_slots");
	s->info.context = number_of(json_object_get(props, "default_generation_settings"), "n_ctx");
	json_decref(props);
	ret = ask(s, "/v1/models", NULL, &models);
	if (ret)
		return ret;
	const json_t *meta = json_object_get(json_array_get(json_object_get(models, "data"), 0),
	                                     "meta");
	copy_text(s->quantization, sizeof s->quantization, meta, "ftype");
	s->info.vocabulary = number_of(meta, "n_vocab");
	s->info.parameters = number_of(meta, "n_params");
	s->info.model_bytes = number_of(meta, "size");
	json_decref(models);
	s->info.model = s->model;
	s->info.quantization = s->quantization;
	s->info.build = s->build;
	return KVARC_OK;
}

kvarc_ret kvarc_server_open(kvarc_server **out, const char *url,
                            const kvarc_server_options *options)
{
	static const kvarc_server_options none = KVARC_SERVER_OPTIONS_INIT;
	kvarc_server *s;
	if (!out)
		return KVARC_PROG;
	*out = NULL;
	const kvarc_server_options *o = options ? options : &none;
	kvarc_error *e = o->common.error;
	kvarc_ret ret = KVI_CHECK_RESERVED(e, "kvarc_server_open", "kvarc_server_options", o);
	if (!ret && !url)
		ret = kvi_fail(e, KVARC_PROG, "kvarc_server_open: url is NULL");
	if (!ret && !kvi_jansson(e))
		ret = KVARC_OPTIONS;
	if (!ret)
		ret = kvi_handle_new(&s, sizeof *s, offsetof(kvarc_server, alloc), &o->common,
		                     o->common.memlimit);
	if (ret)
		return ret;
	*out = s;
	s->error = e;
	/* An answer, its buffer while it grows, and its tree. */
	const uint64_t fits = s->alloc.limit / (KVI_JSON_COST + 6);
	ret = kvi_http_open(&s->http, url, o->api_key, o->timeout ? o->timeout : TIMEOUT_DEFAULT,
	                    fits < KVI_HTTP_ANSWER_MAX ? (size_t)fits : KVI_HTTP_ANSWER_MAX,
	                    o->common.allocator, e);
	if (!ret)
		ret = learn(s);
	if (ret)
		kvarc_server_close(out);
	return ret;
}

void kvarc_server_close(kvarc_server **s)
{
	kvarc_server *x = s ? *s : NULL;
	if (!x)
		return;
	kvi_http_close(&x->http);
	kvi_free(&x->alloc, x);
	*s = NULL;
}

void kvarc_server_get_info(const kvarc_server *s, kvarc_server_info *info)
{
	*info = s->info;
}

kvarc_ret kvi_server_slot(kvarc_server *s, unsigned slot, struct kvi_server_slot *state)
{
	json_t *slots;
	kvarc_ret ret = ask(s, "/slots", NULL, &slots);
	if (ret)
		return ret;
	ret = KVARC_OPTIONS;
	for (size_t i = 0; ret && i < json_array_size(slots); i++) {
		const json_t *x = json_array_get(slots, i);
		const json_t *id = json_object_get(x, "id");
		if (!json_is_integer(id) || json_integer_value(id) != (json_int_t)slot)
			continue;
		state->context = number_of(x, "n_ctx");
		state->busy = json_is_true(json_object_get(x, "is_processing"));
		ret = KVARC_OK;
	}
	json_decref(slots);
	return ret ? kvi_fail(s->error, ret, "server: it has no slot %u; it has %llu, from 0 on",
	                      slot, (unsigned long long)s->info.slots)
	           : ret;
}

/* A slot that can be used now. */
static kvarc_ret need_slot(kvarc_server *s, unsigned slot)
{
	struct kvi_server_slot state;
	kvarc_ret ret = kvi_server_slot(s, slot, &state);
	if (!ret && state.busy)
		ret = kvi_fail(s->error, KVARC_OPTIONS,
		               "server: slot %u is at work; wait until its request has ended",
		               slot);
	return ret;
}

/* Whether a name is that of a file in the folder, and needs no escapes in JSON. */
static int name_valid(const char *name)
{
	size_t n = strlen(name);
	for (size_t i = 0; i < n; i++) {
		char c = name[i];
		if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
		      strchr("._-", c)))
			return 0;
	}
	return n > 0 && n <= NAME_MAX_BYTES && name[0] != '.';
}

/* Saves or restores; `key` names the number of tokens in the answer. */
static kvarc_ret slot_action(kvarc_server *s, unsigned slot, const char *action, const char *key,
                             const char *name, uint64_t *tokens)
{
	char path[64], body[NAME_MAX_BYTES + 32];
	json_t *j;
	if (!s || !name)
		return KVARC_PROG;
	if (!name_valid(name))
		return kvi_fail(s->error, KVARC_PROG,
		                "server: the name of a file has letters, digits, '.', '_' and '-'");
	kvarc_ret ret = need_slot(s, slot);
	if (ret)
		return ret;
	snprintf(path, sizeof path, "/slots/%u?action=%s", slot, action);
	snprintf(body, sizeof body, "{\"filename\":\"%s\"}", name);
	ret = ask(s, path, body, &j);
	if (ret)
		return ret;
	if (!json_is_integer(json_object_get(j, key)))
		ret = kvi_fail(s->error, KVARC_IO, "server: %s: its answer lacks %s", path, key);
	else if (tokens)
		*tokens = number_of(j, key);
	json_decref(j);
	return ret;
}

kvarc_ret kvarc_server_save(kvarc_server *s, unsigned slot, const char *name, uint64_t *tokens)
{
	return slot_action(s, slot, "save", "n_saved", name, tokens);
}

kvarc_ret kvarc_server_restore(kvarc_server *s, unsigned slot, const char *name, uint64_t *tokens)
{
	return slot_action(s, slot, "restore", "n_restored", name, tokens);
}

kvarc_ret kvarc_server_touch(kvarc_server *s, unsigned slot, int32_t token)
{
	char body[160];
	json_t *j;
	if (!s)
		return KVARC_PROG;
	kvarc_ret ret = need_slot(s, slot);
	if (ret)
		return ret;
	snprintf(body, sizeof body,
	         "{\"prompt\":[%d],\"n_predict\":1,\"id_slot\":%u,\"cache_prompt\":true}",
	         (int)token, slot);
	ret = ask(s, "/completion", body, &j);
	json_decref(j);
	return ret;
}

#else

kvarc_ret kvarc_server_open(kvarc_server **s, const char *url, const kvarc_server_options *options)
{
	(void)url;
	if (!s)
		return KVARC_PROG;
	*s = NULL;
	return kvi_fail(options ? options->common.error : NULL, KVARC_OPTIONS,
	                "server: this needs " JANSSON_MISSING);
}

void kvarc_server_close(kvarc_server **s)
{
	(void)s;
}

void kvarc_server_get_info(const kvarc_server *s, kvarc_server_info *info)
{
	*info = s->info;
}

kvarc_ret kvi_server_slot(kvarc_server *s, unsigned slot, struct kvi_server_slot *state)
{
	(void)s;
	(void)slot;
	(void)state;
	return KVARC_OPTIONS;
}

kvarc_ret kvarc_server_save(kvarc_server *s, unsigned slot, const char *name, uint64_t *tokens)
{
	(void)s;
	(void)slot;
	(void)name;
	(void)tokens;
	return KVARC_PROG;
}

kvarc_ret kvarc_server_restore(kvarc_server *s, unsigned slot, const char *name, uint64_t *tokens)
{
	return kvarc_server_save(s, slot, name, tokens);
}

kvarc_ret kvarc_server_touch(kvarc_server *s, unsigned slot, int32_t token)
{
	(void)s;
	(void)slot;
	(void)token;
	return KVARC_PROG;
}

#endif
