/* SPDX-License-Identifier: BSD-3-Clause */
/* llama_server.c - slots of a running llama.cpp server, by its HTTP interface */
#include "config.h"

#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libcurl.h"
#include "url.h"
#include "files/track_labels.h"
#include "kvarc/server.h"
#include "parse/json_text.h"
#include "util/alloc.h"
#include "util/arguments.h"
#include "util/error.h"
#include "util/jansson_calls.h"

/* ==== Requests to a server that answers with JSON, by libcurl ==== */

/* The largest answer that anybody has a use for. */
enum { HTTP_ANSWER_MAX = 16 << 20 };

struct http_connection;

#ifdef HAVE_JANSSON
static void http_close(struct http_connection **connection); /* NULL-safe */
#endif

#if defined(HAVE_JANSSON) && defined(HAVE_LIBCURL)

enum { CONNECT_SECONDS = 10, URL_MAX = 1024, KEY_MAX = 512 };

struct http_connection {
	struct kvi_alloc alloc;
	CURL *curl;
	struct curl_slist *headers;
	uint64_t timeout;
	char url[URL_MAX], shown[URL_MAX]; /* shown: for messages */
	char *text;
	size_t n, capacity, answer_max;
	int too_large;
	char why[CURL_ERROR_SIZE];
};

static size_t take_answer(char *p, size_t size, size_t n, void *opaque)
{
	struct http_connection *h = opaque;
	size_t bytes = size * n, need = h->n + bytes + 1;
	if (need > h->answer_max) {
		h->too_large = 1;
		return 0;
	}
	if (need > h->capacity) {
		char *text = kvi_malloc(&h->alloc, 2 * need);
		if (!text)
			return 0;
		if (h->n)
			memcpy(text, h->text, h->n);
		kvi_free(&h->alloc, h->text);
		h->text = text;
		h->capacity = 2 * need;
	}
	memcpy(h->text + h->n, p, bytes);
	h->n += bytes;
	h->text[h->n] = 0;
	return bytes;
}

/* The headers of all requests. False: no memory. */
static int make_headers(struct http_connection *connection, const char *api_key)
{
	char line[KEY_MAX + 32];
	connection->headers = curl_slist_append(NULL, "Content-Type: application/json");
	if (!connection->headers || !api_key)
		return connection->headers != NULL;
	snprintf(line, sizeof line, "Authorization: Bearer %s", api_key);
	struct curl_slist *longer = curl_slist_append(connection->headers, line);
	memset(line, 0, sizeof line);
	return longer != NULL;
}

/* Returns OK, MEM, OPTIONS (the URL is not valid; without libcurl). Strings are copied; api_key may
 * be NULL. An answer of more than answer_max bytes is refused as soon as it is longer. */
static kvarc_ret http_open(struct http_connection **out, const char *url, const char *api_key,
                           uint64_t timeout, size_t answer_max, const kvarc_allocator *allocator,
                           kvarc_error *error)
{
	struct http_connection *h;
	kvarc_common common = { .allocator = allocator, .error = error };
	size_t n = strlen(url);
	*out = NULL;
	while (n && url[n - 1] == '/')
		n--;
	if (n >= URL_MAX || (strncmp(url, "http://", 7) != 0 && strncmp(url, "https://", 8) != 0))
		return kvi_fail(error, KVARC_OPTIONS, "server: write http://HOST:PORT");
	if (!kvi_url_secret_is_plain(url))
		return kvi_fail(error, KVARC_OPTIONS, "server: %s", KVI_URL_NOT_PLAIN);
	if (api_key && (strlen(api_key) > KEY_MAX || strpbrk(api_key, "\r\n")))
		return kvi_fail(error, KVARC_OPTIONS, "server: the API key is not valid");
	if (!kvi_libcurl(error))
		return KVARC_OPTIONS;
	kvarc_ret ret = kvi_handle_new(&h, sizeof *h, offsetof(struct http_connection, alloc),
	                               &common, 0);
	if (ret)
		return ret;
	memcpy(h->url, url, n);
	kvi_url_shown(h->shown, sizeof h->shown, h->url);
	h->timeout = timeout;
	h->answer_max = answer_max;
	h->curl = curl_easy_init();
	if (!h->curl || !make_headers(h, api_key))
		ret = kvi_fail(error, KVARC_MEM, "server: libcurl cannot be started");
	*out = h;
	if (ret)
		http_close(out);
	return ret;
}

static void http_close(struct http_connection **connection)
{
	struct http_connection *x = *connection;
	if (!x)
		return;
	if (x->curl)
		curl_easy_cleanup(x->curl);
	curl_slist_free_all(x->headers);
	kvi_free(&x->alloc, x->text);
	kvi_free(&x->alloc, x);
	*connection = NULL;
}

/*
 * Sends body (JSON, NULL: a GET without one) to a path. *answer gets the text of the answer, of the
 * connection, until the next request. *status is that of HTTP. Returns OK, IO, MEM, MEMLIMIT.
 */
static kvarc_ret http_send(struct http_connection *connection, const char *path, const char *body,
                           long *status, const char **answer, size_t *bytes, kvarc_error *error)
{
	char url[URL_MAX + 128];
	*answer = "";
	*bytes = 0;
	*status = 0;
	connection->n = 0;
	connection->too_large = 0;
	connection->why[0] = 0;
	snprintf(url, sizeof url, "%s%s", connection->url, path);
	curl_easy_reset(connection->curl);
	curl_easy_setopt(connection->curl, CURLOPT_URL, url);
	curl_easy_setopt(connection->curl, CURLOPT_PROTOCOLS_STR, "http,https");
	curl_easy_setopt(connection->curl, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(connection->curl, CURLOPT_ERRORBUFFER, connection->why);
	curl_easy_setopt(connection->curl, CURLOPT_CONNECTTIMEOUT, (long)CONNECT_SECONDS);
	/* limit for the whole answer: a server that sends a byte a second does not hold its
	 * client */
	curl_easy_setopt(connection->curl, CURLOPT_TIMEOUT, (long)connection->timeout);
	curl_easy_setopt(connection->curl, CURLOPT_HTTPHEADER, connection->headers);
	curl_easy_setopt(connection->curl, CURLOPT_WRITEFUNCTION, take_answer);
	curl_easy_setopt(connection->curl, CURLOPT_WRITEDATA, connection);
	if (body)
		curl_easy_setopt(connection->curl, CURLOPT_POSTFIELDS, body);
	CURLcode code = curl_easy_perform(connection->curl);
	if (connection->too_large)
		return connection->answer_max < HTTP_ANSWER_MAX
		               ? kvi_fail(error, KVARC_MEMLIMIT,
		                          "server %.80s%s: its answer is longer than %zu KB, "
		                          "which is what the memory limit allows",
		                          connection->shown, path, connection->answer_max >> 10)
		               : kvi_fail(error, KVARC_IO,
		                          "server %.80s%s: its answer is longer than %zu KB",
		                          connection->shown, path, connection->answer_max >> 10);
	if (code != CURLE_OK)
		return kvi_fail(error, KVARC_IO, "server %.80s%s: %s", connection->shown, path,
		                connection->why[0] ? connection->why : curl_easy_strerror(code));
	curl_easy_getinfo(connection->curl, CURLINFO_RESPONSE_CODE, status);
	*answer = connection->n ? connection->text : "";
	*bytes = connection->n;
	return KVARC_OK;
}

#elif defined(HAVE_JANSSON)

static kvarc_ret http_open(struct http_connection **connection, const char *url,
                           const char *api_key, uint64_t timeout, size_t answer_max,
                           const kvarc_allocator *allocator, kvarc_error *error)
{
	(void)api_key;
	(void)timeout;
	(void)answer_max;
	(void)allocator;
	*connection = NULL;
	(void)url;
	return kvi_fail(error, KVARC_OPTIONS, "server: kvarc was built without libcurl");
}

static void http_close(struct http_connection **connection)
{
	*connection = NULL;
}

static kvarc_ret http_send(struct http_connection *connection, const char *path, const char *body,
                           long *status, const char **answer, size_t *bytes, kvarc_error *error)
{
	(void)connection;
	(void)body;
	*status = 0;
	*answer = "";
	*bytes = 0;
	return kvi_fail(error, KVARC_OPTIONS, "server %s: kvarc was built without libcurl", path);
}

#endif

/* ==== Whether a server can take a slot file, before it reads it ==== */

/* A server. One thread uses it at a time. */
struct kvarc_server {
	struct kvi_alloc alloc;
	kvarc_error *error;
	struct http_connection *http;
	char model[256], quantization[64], build[128];
	kvarc_server_info info;
};

struct server_slot;
/* Asks for one. Returns OK, OPTIONS (there is none, or the server lists no slots), IO, MEM. */
static kvarc_ret server_slot(kvarc_server *server, unsigned slot, struct server_slot *state);

/* A slot as the server lists it. */
struct server_slot {
	uint64_t context;
	int busy;
};

/* Keys of the identity that kvarc_server_identity records. None is one of those that chain values
 * depend on (spec 5.3), so that tokens of a server and of a file are the same ones for a store. */
#define KEY_MODEL "engine_model"
#define KEY_MODEL_GIVEN "model" /* of --identity; of a server where there are parameters, too */
#define KEY_QUANTIZATION "engine_quantization"
#define KEY_VERSION "engine_version"
#define KEY_PARAMETERS "model_parameters"
#define KEY_BYTES "model_bytes"

/* A comparison on its way: what the first clauses are stays. */
struct check {
	kvarc_server *s;
	kvarc_server_verdict *v;
	const char *(*identity)(void *opaque, const char *key);
	void *opaque;
};

static void clause(char *to, size_t capacity, const char *format, va_list args)
{
	if (!to[0])
		vsnprintf(to, capacity, format, args);
}

static void refuse(struct check *check, const char *format, ...)
{
	va_list args;
	va_start(args, format);
	clause(check->v->refuse, sizeof check->v->refuse, format, args);
	va_end(args);
}

static void warn(struct check *check, const char *format, ...)
{
	va_list args;
	va_start(args, format);
	clause(check->v->warn, sizeof check->v->warn, format, args);
	va_end(args);
}

/* The recorded value of a key; NULL: none. */
static const char *recorded(const struct check *check, const char *key)
{
	const char *value = check->identity ? check->identity(check->opaque, key) : NULL;
	return value && *value ? value : NULL;
}

static void check_model(struct check *check)
{
	const kvarc_server_info *i = &check->s->info;
	const char *parameters = recorded(check, KEY_PARAMETERS);
	const char *by_server = recorded(check, KEY_MODEL), *model = by_server;
	const char *bytes = recorded(check, KEY_BYTES), *version = recorded(check, KEY_VERSION);
	if (!model)
		model = recorded(check, KEY_MODEL_GIVEN);
	if (!by_server && parameters)
		by_server = model;
	if (parameters && i->parameters && strtoull(parameters, NULL, 10) != i->parameters)
		refuse(check, "it was computed by a model of %s parameters (%s), the server has %s",
		       parameters, model ? model : "no name", i->model);
	if (bytes && i->model_bytes && strtoull(bytes, NULL, 10) != i->model_bytes)
		refuse(check, "it was computed by other weights (%s), the server has %s",
		       model ? model : "no name", i->model);
	if (by_server && i->model[0] && strcmp(by_server, i->model) != 0)
		refuse(check, "it was computed by the model %s, the server has %s", by_server,
		       i->model);
	else if (model && i->model[0] && strcmp(model, i->model) != 0)
		warn(check, "it is said to be of the model %s, the server has %s", model, i->model);
	if (!parameters && !model)
		warn(check, "it does not say which model it comes from");
	if (version && i->build[0] && strcmp(version, i->build) != 0)
		warn(check, "it was saved by build %s of the server, this one is %s", version,
		     i->build);
}

/* Every cell of the slot, and that all ids are of the vocabulary. */
static kvarc_ret check_tokens(struct check *check, unsigned slot, const kvarc_import *file)
{
	enum { SOME = 1024 };
	struct server_slot state;
	int32_t ids[SOME];
	kvarc_ret ret = server_slot(check->s, slot, &state);
	if (ret)
		return ret;
	uint64_t context = state.context ? state.context : check->s->info.context;
	if (state.busy)
		refuse(check, "slot %u is at work", slot);
	if (context && check->v->tokens > context)
		refuse(check, "it has %llu tokens, the slot holds %llu (-c of the server)",
		       (unsigned long long)check->v->tokens, (unsigned long long)context);
	else if (context && check->v->tokens == context)
		warn(check, "it fills the slot, which leaves nothing for the next token");
	for (uint64_t t0 = 0; t0 < check->v->tokens && check->s->info.vocabulary; t0 += SOME) {
		uint64_t left = check->v->tokens - t0, n = left < SOME ? left : SOME;
		if (kvarc_import_read_tokens(file, 0, t0, n, ids, NULL) != KVARC_OK)
			break;
		for (uint64_t i = 0; i < n; i++) {
			if (ids[i] >= 0 && (uint64_t)ids[i] >= check->s->info.vocabulary)
				refuse(check,
				       "token %llu has the id %d, the vocabulary ends at %llu",
				       (unsigned long long)(t0 + i), (int)ids[i],
				       (unsigned long long)check->s->info.vocabulary);
		}
	}
	return KVARC_OK;
}

/* Compares the fields that distinguish tensors. */
static int same_tensor(const kvarc_tensor *tensor, const kvarc_tensor *b)
{
	return tensor->layer == b->layer && tensor->kind == b->kind && tensor->role == b->role &&
	       tensor->dtype == b->dtype && tensor->source_type == b->source_type &&
	       tensor->heads == b->heads && tensor->channels == b->channels &&
	       tensor->track == b->track &&
	       (tensor->flags & KVARC_TENSOR_HADAMARD) == (b->flags & KVARC_TENSOR_HADAMARD);
}

static void compare_tensors(struct check *check, const kvarc_tensor *tensor, const kvarc_tensor *b)
{
	if (same_tensor(tensor, b))
		return;
	if (tensor->dtype != b->dtype || tensor->source_type != b->source_type ||
	    tensor->role != b->role)
		refuse(check, "its caches are of another type than the server's: set the server's "
		              "-ctk and -ctv");
	else if ((tensor->flags ^ b->flags) & KVARC_TENSOR_HADAMARD)
		refuse(check, "the server %s its caches (LLAMA_ATTN_ROT_DISABLE), this file %s",
		       b->flags & KVARC_TENSOR_HADAMARD ? "rotates" : "does not rotate",
		       tensor->flags & KVARC_TENSOR_HADAMARD ? "is rotated" : "is not");
	else
		refuse(check, "layer %u has %u heads of %u channels, the server's has %u of %u",
		       tensor->layer, tensor->heads, tensor->channels, b->heads, b->channels);
}

/* Whether formats are the same, however many checkpoints the files have. */
static bool same_format(const char *format, const char *other)
{
	const char *end = strstr(format, ", with"), *other_end = strstr(other, ", with");
	const size_t n = end ? (size_t)(end - format) : strlen(format);
	return n == (other_end ? (size_t)(other_end - other) : strlen(other)) &&
	       memcmp(format, other, n) == 0;
}

static size_t count_memories(const kvarc_geometry *geometry)
{
	size_t count = 0;
	for (size_t i = 0; i < geometry->n_tracks; i++)
		count += !kvi_is_checkpoint_track(&geometry->tracks[i]);
	return count;
}

/* The next tensor that no checkpoint has, from *at on, which is moved behind it; NULL: there is
 * none. */
static const kvarc_tensor *next_tensor(const kvarc_geometry *geometry, size_t *at)
{
	while (*at < geometry->n_tensors) {
		const kvarc_tensor *t = &geometry->tensors[(*at)++];
		if (!kvi_is_checkpoint_track(&geometry->tracks[t->track]))
			return t;
	}
	return NULL;
}

static void compare_all(struct check *check, const kvarc_geometry *file,
                        const kvarc_geometry *probe)
{
	size_t at = 0, probe_at = 0;
	const kvarc_tensor *t = next_tensor(file, &at), *p = next_tensor(probe, &probe_at);
	while (t && p) {
		compare_tensors(check, t, p);
		t = next_tensor(file, &at);
		p = next_tensor(probe, &probe_at);
	}
	if (t || p)
		refuse(check, "it has %s tensors than the server's caches: another model",
		       t ? "more" : "fewer");
}

static void check_layout(struct check *check, const kvarc_import *file, const kvarc_import *probe)
{
	const kvarc_geometry *a = kvarc_import_geometry(file), *b = kvarc_import_geometry(probe);
	const char *one = kvarc_import_layout(file), *other = kvarc_import_layout(probe);
	if (count_memories(a) != count_memories(b))
		refuse(check, "it has %zu memories, the server's caches have %zu (--swa-full?)",
		       count_memories(a), count_memories(b));
	if (kvarc_import_streams(file) != kvarc_import_streams(probe))
		refuse(check,
		       "its server had caches of %u streams, this one has %u: set the server's "
		       "-np, or -kvu",
		       (unsigned)kvarc_import_streams(file), (unsigned)kvarc_import_streams(probe));
	compare_all(check, a, b);
	if (strcmp(one, other) != 0)
		refuse(check, "it lies in another way (%s; the server's: %s): set the server's -fa",
		       one, other);
	if (!same_format(kvarc_import_format(file), kvarc_import_format(probe)))
		refuse(check, "it is a %s, the server writes a %s", kvarc_import_format(file),
		       kvarc_import_format(probe));
}

/* Tracks that cannot be shortened: the tokens that they forgot are in no slot file. */
static int cannot_rewind(const kvarc_track *track)
{
	return track->kind == KVARC_TRACK_WINDOW || track->kind == KVARC_TRACK_STATE;
}

static void check_rewinds(struct check *check, const kvarc_geometry *geometry)
{
	for (size_t i = 0; i < geometry->n_tracks; i++) {
		if (cannot_rewind(&geometry->tracks[i]))
			warn(check,
			     "its model has a sliding window or a state: only a request that "
			     "begins with all of its tokens is continued");
	}
}

kvarc_ret kvarc_server_check(kvarc_server *s, unsigned slot, const kvarc_import *file,
                             const kvarc_import *probe,
                             const char *(*identity)(void *opaque, const char *key), void *opaque,
                             kvarc_server_verdict *verdict)
{
	struct check c = { s, verdict, identity, opaque };
	if (!s || !file || !verdict)
		return KVARC_PROG;
	*verdict = (kvarc_server_verdict){ .tokens = kvarc_import_tokens(file, 0) };
	if (strncmp(kvarc_import_format(file), "llama.cpp", 9) != 0)
		refuse(&c, "it is no slot of llama.cpp (%s)", kvarc_import_format(file));
	else if (!kvarc_import_geometry(file)->n_tensors)
		refuse(&c, "its slot has a form that is not known, and is not checked");
	check_model(&c);
	kvarc_ret ret = check_tokens(&c, slot, file);
	if (!ret && probe)
		check_layout(&c, file, probe);
	else if (!ret)
		warn(&c, "the server's caches could not be looked at");
	if (!ret)
		check_rewinds(&c, kvarc_import_geometry(file));
	return ret;
}

/* Records a number that is known. */
static kvarc_ret record_number(kvarc_import *import, const char *key, uint64_t v)
{
	char text[24];
	snprintf(text, sizeof text, "%llu", (unsigned long long)v);
	return v ? kvarc_import_identity(import, key, text) : KVARC_OK;
}

kvarc_ret kvarc_server_identity(const kvarc_server *s, kvarc_import *import)
{
	if (!s || !import)
		return KVARC_PROG;
	kvarc_ret ret = kvarc_import_identity(import, KEY_MODEL, s->model);
	if (!ret)
		ret = kvarc_import_identity(import, KEY_QUANTIZATION, s->quantization);
	if (!ret)
		ret = kvarc_import_identity(import, KEY_VERSION, s->build);
	if (!ret)
		ret = record_number(import, KEY_PARAMETERS, s->info.parameters);
	return ret ? ret : record_number(import, KEY_BYTES, s->info.model_bytes);
}

/* ==== Slots of a running llama.cpp server, by its HTTP interface ==== */

#ifdef HAVE_JANSSON

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
static kvarc_ret fail_answer(const kvarc_server *server, const char *path, long status,
                             const json_t *j)
{
	char words[160];
	copy_text(words, sizeof words, json_object_get(j, "error"), "message");
	return kvi_fail(server->error, status / 100 == 4 ? KVARC_OPTIONS : KVARC_IO,
	                "server: %s: it answers %ld%s%s", path, status, words[0] ? ": " : "",
	                words);
}

/* Sends a request; *j is the answer, which the caller releases. */
static kvarc_ret ask(kvarc_server *server, const char *path, const char *body, json_t **j)
{
	const char *answer;
	size_t bytes;
	long status;
	*j = NULL;
	kvarc_ret ret = http_send(server->http, path, body, &status, &answer, &bytes,
	                          server->error);
	if (ret)
		return ret;
	/* the connection has refused what would not fit; what is no JSON has no root */
	uint64_t budget = server->alloc.limit;
	(void)!kvi_json_parse(answer, bytes, &budget, j);
	if (status != HTTP_OK)
		ret = fail_answer(server, path, status, *j);
	else if (!*j)
		ret = kvi_fail(server->error, KVARC_IO,
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

static kvarc_ret learn(kvarc_server *server)
{
	json_t *props, *models;
	kvarc_ret ret = ask(server, "/props", NULL, &props);
	if (ret)
		return ret;
	if (!json_is_string(json_object_get(props, "build_info"))) {
		json_decref(props);
		return kvi_fail(server->error, KVARC_IO,
		                "server: /props does not say what llama.cpp says; is it one?");
	}
	copy_text(server->model, sizeof server->model, props, "model_path");
	shorten(server->model);
	copy_text(server->build, sizeof server->build, props, "build_info");
	server->info.slots = number_of(props, "total_slots");
	server->info.context = number_of(json_object_get(props, "default_generation_settings"),
	                                 "n_ctx");
	json_decref(props);
	ret = ask(server, "/v1/models", NULL, &models);
	if (ret)
		return ret;
	const json_t *meta = json_object_get(json_array_get(json_object_get(models, "data"), 0),
	                                     "meta");
	copy_text(server->quantization, sizeof server->quantization, meta, "ftype");
	server->info.vocabulary = number_of(meta, "n_vocab");
	server->info.parameters = number_of(meta, "n_params");
	server->info.model_bytes = number_of(meta, "size");
	json_decref(models);
	server->info.model = server->model;
	server->info.quantization = server->quantization;
	server->info.build = server->build;
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
	ret = http_open(&s->http, url, o->api_key, o->timeout ? o->timeout : TIMEOUT_DEFAULT,
	                fits < HTTP_ANSWER_MAX ? (size_t)fits : HTTP_ANSWER_MAX,
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
	http_close(&x->http);
	kvi_free(&x->alloc, x);
	*s = NULL;
}

void kvarc_server_get_info(const kvarc_server *s, kvarc_server_info *info)
{
	*info = s->info;
}

static kvarc_ret server_slot(kvarc_server *server, unsigned slot, struct server_slot *state)
{
	json_t *slots;
	kvarc_ret ret = ask(server, "/slots", NULL, &slots);
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
	return ret ? kvi_fail(server->error, ret,
	                      "server: it has no slot %u; it has %llu, from 0 on", slot,
	                      (unsigned long long)server->info.slots)
	           : ret;
}

/* A slot that can be used now. */
static kvarc_ret need_slot(kvarc_server *server, unsigned slot)
{
	struct server_slot state;
	kvarc_ret ret = server_slot(server, slot, &state);
	if (!ret && state.busy)
		ret = kvi_fail(server->error, KVARC_OPTIONS,
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
static kvarc_ret slot_action(kvarc_server *server, unsigned slot, const char *action,
                             const char *key, const char *name, uint64_t *tokens)
{
	char path[64], body[NAME_MAX_BYTES + 32];
	json_t *j;
	if (!server || !name)
		return KVARC_PROG;
	if (!name_valid(name))
		return kvi_fail(server->error, KVARC_PROG,
		                "server: the name of a file has letters, digits, '.', '_' and '-'");
	kvarc_ret ret = need_slot(server, slot);
	if (ret)
		return ret;
	snprintf(path, sizeof path, "/slots/%u?action=%s", slot, action);
	snprintf(body, sizeof body, "{\"filename\":\"%s\"}", name);
	ret = ask(server, path, body, &j);
	if (ret)
		return ret;
	if (!json_is_integer(json_object_get(j, key)))
		ret = kvi_fail(server->error, KVARC_IO, "server: %s: its answer lacks %s", path,
		               key);
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

/* The request that computes the tokens, and names the words that may follow. */
static void put_request(char *to, size_t size, unsigned slot, const int32_t *ids, size_t n)
{
	size_t at = (size_t)snprintf(to, size,
	                             "{\"n_predict\":1,\"id_slot\":%u,\"cache_prompt\":false,"
	                             "\"temperature\":0,\"n_probs\":%d,\"prompt\":[",
	                             slot, KVARC_CANARY_WORDS);
	for (size_t i = 0; i < n; i++)
		at += (size_t)snprintf(to + at, size - at, "%s%d", i ? "," : "", (int)ids[i]);
	snprintf(to + at, size - at, "]}");
}

/* The words of an answer, where it has some. */
static void take_words(const json_t *answer, kvarc_next_words *next)
{
	const json_t *first = json_array_get(json_object_get(answer, "completion_probabilities"),
	                                     0);
	const json_t *words = json_object_get(first, "top_logprobs");
	next->n = 0;
	for (size_t i = 0; i < json_array_size(words) && next->n < KVARC_CANARY_WORDS; i++) {
		const json_t *id = json_object_get(json_array_get(words, i), "id");
		const json_t *logprob = json_object_get(json_array_get(words, i), "logprob");
		if (!json_is_integer(id) || !json_is_number(logprob) ||
		    json_integer_value(id) < 0 || json_integer_value(id) > INT32_MAX ||
		    !(fabs(json_number_value(logprob)) < 1e6))
			continue;
		next->ids[next->n] = (int32_t)json_integer_value(id);
		next->logprobs[next->n++] = json_number_value(logprob);
	}
}

kvarc_ret kvarc_server_compute(kvarc_server *s, unsigned slot, const int32_t *ids, size_t n,
                               kvarc_next_words *next)
{
	char body[160 + KVARC_SERVER_COMPUTES * 12];
	json_t *j;
	if (!s || !ids || !n || n > KVARC_SERVER_COMPUTES)
		return KVARC_PROG;
	kvarc_ret ret = need_slot(s, slot);
	if (ret)
		return ret;
	put_request(body, sizeof body, slot, ids, n);
	ret = ask(s, "/completion", body, &j);
	if (ret)
		return ret;
	/* Rows that were there before would be compared with themselves. */
	const json_t *timings = json_object_get(j, "timings");
	if (number_of(timings, "prompt_n") != n || number_of(timings, "cache_n"))
		ret = kvi_fail(s->error, KVARC_IO,
		               "server: it was asked to compute %zu tokens, and computed %llu", n,
		               (unsigned long long)number_of(timings, "prompt_n"));
	else if (next)
		take_words(j, next);
	json_decref(j);
	return ret;
}

kvarc_ret kvarc_server_erase(kvarc_server *s, unsigned slot)
{
	char path[64];
	json_t *j;
	if (!s)
		return KVARC_PROG;
	kvarc_ret ret = need_slot(s, slot);
	if (ret)
		return ret;
	snprintf(path, sizeof path, "/slots/%u?action=erase", slot);
	ret = ask(s, path, "{}", &j);
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

static kvarc_ret server_slot(kvarc_server *server, unsigned slot, struct server_slot *state)
{
	(void)server;
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

kvarc_ret kvarc_server_compute(kvarc_server *s, unsigned slot, const int32_t *ids, size_t n,
                               kvarc_next_words *next)
{
	(void)s;
	(void)slot;
	(void)ids;
	(void)n;
	(void)next;
	return KVARC_PROG;
}

kvarc_ret kvarc_server_erase(kvarc_server *s, unsigned slot)
{
	(void)s;
	(void)slot;
	return KVARC_PROG;
}

#endif
