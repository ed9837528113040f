/* SPDX-License-Identifier: BSD-3-Clause */
/* server_check.c - whether a server can take a slot file, before it reads it */
#include "config.h"

#include "server_state.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "util/error.h"

/* Keys of the identity that kvarc_server_identity records. */
#define KEY_MODEL "model"
#define KEY_QUANTIZATION "quantization"
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
static void refuse(struct check *c, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void refuse(struct check *c, const char *format, ...)
{
	va_list args;
	va_start(args, format);
	clause(c->v->refuse, sizeof c->v->refuse, format, args);
	va_end(args);
}
static void warn(struct check *c, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void warn(struct check *c, const char *format, ...)
{
	va_list args;
	va_start(args, format);
	clause(c->v->warn, sizeof c->v->warn, format, args);
	va_end(args);
}

/* The recorded value of a key; NULL: none. */
static const char *recorded(const struct check *c, const char *key)
{
	const char *value = c->identity ? c->identity(c->opaque, key) : NULL;
	return value && *value ? value : NULL;
}

static void check_model(struct check *c)
{
	const kvarc_server_info *i = &c->s->info;
	const char *model = recorded(c, KEY_MODEL), *parameters = recorded(c, KEY_PARAMETERS);
	const char *bytes = recorded(c, KEY_BYTES), *version = recorded(c, KEY_VERSION);
	if (parameters && i->parameters && strtoull(parameters, NULL, 10) != i->parameters)
		refuse(c, "it was computed by a model of %s parameters (%s), the server has %s",
		       parameters, model ? model : "no name", i->model);
	if (bytes && i->model_bytes && strtoull(bytes, NULL, 10) != i->model_bytes)
		refuse(c, "it was computed by other weights (%s), the server has %s",
		       model ? model : "no name", i->model);
	if (model && i->model[0] && strcmp(model, i->model) != 0)
		refuse(c, "it was computed by the model %s, the server has %s", model, i->model);
	if (!parameters && !model)
		warn(c, "it does not say which model it comes from");
	if (version && i->build[0] && strcmp(version, i->build) != 0)
		warn(c, "it was saved by build %s of the server, this one is %s", version,
		     i->build);
}

/* Every cell of the slot, and that all ids are of the vocabulary. */
static kvarc_ret check_tokens(struct check *c, unsigned slot, const kvarc_import *file)
{
	enum { SOME = 1024 };
	struct kvi_server_slot state;
	int32_t ids[SOME];
	kvarc_ret ret = kvi_server_slot(c->s, slot, &state);
	if (ret)
		return ret;
	uint64_t context = state.context ? state.context : c->s->info.context;
	if (state.busy)
		refuse(c, "slot %u is at work", slot);
	if (context && c->v->tokens > context)
		refuse(c, "it has %llu tokens, the slot holds %llu (-c of the server)",
		       (unsigned long long)c->v->tokens, (unsigned long long)context);
	else if (context && c->v->tokens == context)
		warn(c, "it fills the slot, which leaves nothing for the next token");
	for (uint64_t t0 = 0; t0 < c->v->tokens && c->s->info.vocabulary; t0 += SOME) {
		uint64_t left = c->v->tokens - t0, n = left < SOME ? left : SOME;
		if (kvarc_import_read_tokens(file, 0, t0, n, ids, NULL) != KVARC_OK)
			break;
		for (uint64_t i = 0; i < n; i++) {
			if (ids[i] >= 0 && (uint64_t)ids[i] >= c->s->info.vocabulary)
				refuse(c, "token %llu has the id %d, the vocabulary ends at %llu",
				       (unsigned long long)(t0 + i), (int)ids[i],
				       (unsigned long long)c->s->info.vocabulary);
		}
	}
	return KVARC_OK;
}

/* What distinguishes two tensors. */
static int same_tensor(const kvarc_tensor *a, const kvarc_tensor *b)
{
	return a->layer == b->layer && a->kind == b->kind && a->role == b->role &&
	       a->dtype == b->dtype && a->source_type == b->source_type && a->heads == b->heads &&
	       a->channels == b->channels && a->track == b->track &&
	       (a->flags & KVARC_TENSOR_HADAMARD) == (b->flags & KVARC_TENSOR_HADAMARD);
}

static void compare_tensors(struct check *c, const kvarc_tensor *a, const kvarc_tensor *b)
{
	if (same_tensor(a, b))
		return;
	if (a->dtype != b->dtype || a->source_type != b->source_type || a->role != b->role)
		refuse(c,
		       "its caches are of another type than the server's: set the server's "
		       "-ctk and -ctv");
	else if ((a->flags ^ b->flags) & KVARC_TENSOR_HADAMARD)
		refuse(c, "the server %s its caches (LLAMA_ATTN_ROT_DISABLE), this file %s",
		       b->flags & KVARC_TENSOR_HADAMARD ? "rotates" : "does not rotate",
		       a->flags & KVARC_TENSOR_HADAMARD ? "is rotated" : "is not");
	else
		refuse(c, "layer %u has %u heads of %u channels, the server's has %u of %u",
		       a->layer, a->heads, a->channels, b->heads, b->channels);
}

static void check_layout(struct check *c, const kvarc_import *file, const kvarc_import *probe)
{
	const kvarc_geometry *a = kvarc_import_geometry(file), *b = kvarc_import_geometry(probe);
	const char *one = kvarc_import_layout(file), *other = kvarc_import_layout(probe);
	if (a->n_tracks != b->n_tracks)
		refuse(c, "it has %zu memories, the server's caches have %zu (--swa-full?)",
		       a->n_tracks, b->n_tracks);
	if (kvarc_import_streams(file) != kvarc_import_streams(probe))
		refuse(c,
		       "its server had caches of %u streams, this one has %u: set the server's "
		       "-np, or -kvu",
		       (unsigned)kvarc_import_streams(file), (unsigned)kvarc_import_streams(probe));
	for (size_t i = 0; i < a->n_tensors && i < b->n_tensors; i++)
		compare_tensors(c, &a->tensors[i], &b->tensors[i]);
	if (a->n_tensors != b->n_tensors)
		refuse(c, "it has %zu tensors, the server's caches have %zu: another model",
		       a->n_tensors, b->n_tensors);
	if (strcmp(one, other) != 0)
		refuse(c, "it lies in another way (%s; the server's: %s): set the server's -fa",
		       one, other);
	if (strcmp(kvarc_import_format(file), kvarc_import_format(probe)) != 0)
		refuse(c, "it is a %s, the server writes a %s", kvarc_import_format(file),
		       kvarc_import_format(probe));
}

/* Such a track cannot be shortened: what it forgot is in no slot file. */
static int cannot_rewind(const kvarc_track *t)
{
	return t->kind == KVARC_TRACK_WINDOW || t->kind == KVARC_TRACK_STATE;
}

static void check_rewinds(struct check *c, const kvarc_geometry *g)
{
	for (size_t i = 0; i < g->n_tracks; i++) {
		if (cannot_rewind(&g->tracks[i]))
			warn(c,
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
