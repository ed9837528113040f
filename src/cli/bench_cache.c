/* SPDX-License-Identifier: BSD-3-Clause */
/* bench_cache.c - a cache held in memory, and one timed way through the library */
#include "config.h"

#include "bench_cache.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "infile.h"
#include "engine_files.h"
#include "library.h"
#include "message.h"
#include "models.h"
#include "paths.h"
#include "profiles.h"
#include "progress.h"
#include "units.h"
#include "checked.h"

enum { PIECE_TOKENS = 256 };

/* An allocator that knows how much is held at most. */
struct bench_counter {
	_Atomic uint64_t held, peak;
};

static void *counted_alloc(void *opaque, size_t bytes)
{
	struct bench_counter *c = opaque;
	max_align_t *p;
	uint64_t now, peak;

	if (bytes > SIZE_MAX - sizeof(*p))
		return NULL;
	p = malloc(bytes + sizeof(*p));
	if (!p)
		return NULL;
	*(size_t *)p = bytes;
	now = atomic_fetch_add(&c->held, bytes) + bytes;
	peak = atomic_load(&c->peak);
	while (now > peak && !atomic_compare_exchange_weak(&c->peak, &peak, now))
		;
	return p + 1;
}

static void counted_free(void *opaque, void *ptr)
{
	struct bench_counter *c = opaque;
	max_align_t *p = ptr;

	if (!p)
		return;
	atomic_fetch_sub(&c->held, *(size_t *)(p - 1));
	free(p - 1);
}

static int write_memory(void *opaque, const void *buf, size_t bytes, uint64_t offset)
{
	struct bench_cache *c = opaque;

	if (offset > c->archive_capacity || bytes > c->archive_capacity - offset)
		return -1;
	memcpy(c->archive + offset, buf, bytes);
	if (offset + bytes > c->archive_bytes)
		c->archive_bytes = offset + bytes;
	return 0;
}

kvarc_sink bench_cache_sink(struct bench_cache *c)
{
	c->archive_bytes = 0;
	return (kvarc_sink){ .write = write_memory, .opaque = c };
}

/* Whether what is held fits below -M beside what the library needs; without -M it is not limited.
 * An archive is hardly ever larger than the cache. */
static bool check_limit(struct bench_cache *c, const struct options *o, const char *file)
{
	enum { LEAST = 8 << 20 }; /* for the library */
	char needed[32];

	c->held_bytes = 3 * c->raw_bytes;
	if (!o->memlimit || c->held_bytes + LEAST <= o->memlimit)
		return true;
	units_bytes(needed, sizeof(needed), c->held_bytes + LEAST);
	msg_error(file,
	          "'bench' holds the cache three times in memory, which takes %s: raise the limit "
	          "with -M, or give a smaller file",
	          needed);
	return false;
}

/* Packed views of all tensors, one after another, in both areas. */
static bool make_views(struct bench_cache *c, const struct options *o, const char *file)
{
	const kvarc_geometry *g = c->geometry;
	size_t at = 0;

	c->views = calloc(g->n_tensors + 1, sizeof(*c->views));
	c->decoded = calloc(g->n_tensors + 1, sizeof(*c->decoded));
	for (size_t i = 0; i < g->n_tensors; i++) {
		const kvarc_tensor *t = &g->tensors[i];
		uint64_t n = c->tokens[t->track], width, bytes;

		width = (uint64_t)t->heads * t->channels;
		if (checked_mul(n, width * kvarc_dtype_bytes(t->dtype), &bytes) ||
		    checked_add(c->raw_bytes, bytes, &c->raw_bytes) ||
		    c->raw_bytes > SIZE_MAX / 4) {
			msg_error(file, "is too large to hold in memory");
			return false;
		}
		c->elements += n * width;
	}
	if (c->elements == 0) {
		msg_error(file, "holds no tensors that could be measured");
		return false;
	}
	if (!check_limit(c, o, file))
		return false;
	c->archive_capacity = kvarc_encode_bound(g, c->tokens[0]);
	if (c->archive_capacity < c->raw_bytes + c->raw_bytes / 8 + (16 << 20))
		c->archive_capacity = c->raw_bytes + c->raw_bytes / 8 + (16 << 20);
	c->data = malloc(c->raw_bytes);
	c->decoded_data = malloc(c->raw_bytes);
	c->archive = malloc(c->archive_capacity);
	if (!c->views || !c->decoded || !c->data || !c->decoded_data || !c->archive) {
		msg_error(file, "out of memory; 'bench' holds the cache three times");
		return false;
	}
	for (size_t i = 0; i < g->n_tensors; i++) {
		const kvarc_tensor *t = &g->tensors[i];
		uint32_t bytes = (uint32_t)kvarc_dtype_bytes(t->dtype);
		uint32_t width = t->heads * t->channels;

		c->views[i] = (kvarc_view){ .data = c->data + at,
			                    .token_stride = (uint64_t)width * bytes,
			                    .block_elems = width,
			                    .elem_stride = bytes };
		c->decoded[i] = c->views[i];
		c->decoded[i].data = c->decoded_data + at;
		at += c->tokens[t->track] * width * bytes;
	}
	return true;
}

static bool read_all(struct bench_cache *c, kvarc_reader *r, const kvarc_view *views,
                     kvarc_ret *ret)
{
	*ret = KVARC_OK;
	for (size_t i = 0; i < c->geometry->n_tracks && *ret == KVARC_OK; i++) {
		kvarc_range range = KVARC_RANGE_ALL((uint32_t)i);
		if (c->tokens[i])
			*ret = kvarc_reader_read(r, &range, views);
	}
	return *ret == KVARC_OK;
}

static bool fetch_all(struct bench_cache *c)
{
	for (size_t i = 0; i < c->geometry->n_tensors; i++) {
		const kvarc_tensor *t = &c->geometry->tensors[i];
		uint64_t n = c->tokens[t->track];

		for (uint64_t t0 = 0; t0 < n; t0 += PIECE_TOKENS) {
			uint32_t piece = n - t0 < PIECE_TOKENS ? (uint32_t)(n - t0) : PIECE_TOKENS;
			uint8_t *dst = (uint8_t *)c->views[i].data + t0 * c->views[i].token_stride;
			if (kvarc_import_fetch(c->im, (uint32_t)i, 0, t->heads, t0, piece, dst) !=
			    0)
				return false;
		}
	}
	return true;
}

static kvarc_ret read_tokens(struct bench_cache *c, uint32_t track, int32_t *ids,
                             int32_t *positions)
{
	if (c->reader)
		return kvarc_reader_read_tokens(c->reader, track, 0, c->tokens[track], ids,
		                                positions);
	return kvarc_import_read_tokens(c->im, track, 0, c->tokens[track], ids, positions);
}

/* Ids and positions of a track. */
static kvarc_ret load_tokens(struct bench_cache *c, uint32_t track)
{
	struct bench_tokens *t = &c->of[track];
	kvarc_ret ret;

	t->ids = calloc(c->tokens[track] + 1, sizeof(*t->ids));
	t->positions = calloc(c->tokens[track] + 1, sizeof(*t->positions));
	if (!t->ids || !t->positions)
		return KVARC_MEM;
	ret = read_tokens(c, track, t->ids, NULL);
	if (ret == KVARC_OPTIONS) { /* it has none */
		free(t->ids);
		t->ids = NULL;
		ret = KVARC_OK;
	}
	return ret ? ret : read_tokens(c, track, NULL, t->positions);
}

static bool open_handles(struct bench_cache *c, const struct options *o, struct input *in,
                         kvarc_source *source, kvarc_error *error)
{
	kvarc_import_options io = KVARC_IMPORT_OPTIONS_INIT;
	struct engine_file pages;
	kvarc_ret ret;

	if (input_is_archive(in)) {
		c->reader = library_open(o, in, 0, error);
		if (c->reader)
			c->geometry = kvarc_reader_geometry(c->reader);
		return c->reader != NULL;
	}
	library_import_options(o, &io, error);
	io.profiles = profiles_given(&io.n_profiles);
	io.members = 1; /* compressed ones as well */
	if (!engine_file_options(o, in->name, &pages, &io))
		return false;
	*source = input_source(in);
	ret = kvarc_import_open(&c->im, source, NULL, &io);
	if (ret != KVARC_OK) {
		library_error(in->name, ret, error, in, NULL);
		return false;
	}
	if (kvarc_import_note(c->im))
		msg_warning(in->name, "%s", kvarc_import_note(c->im));
	c->geometry = kvarc_import_geometry(c->im);
	return true;
}

static bool load(struct bench_cache *c, const struct options *o, struct input *in,
                 kvarc_source *source, kvarc_error *error)
{
	kvarc_ret ret;

	if (!open_handles(c, o, in, source, error))
		return false;
	c->tokens = calloc(c->geometry->n_tracks + 1, sizeof(*c->tokens));
	c->of = calloc(c->geometry->n_tracks + 1, sizeof(*c->of));
	if (!c->tokens || !c->of) {
		msg_error(NULL, "out of memory");
		return false;
	}
	for (size_t i = 0; i < c->geometry->n_tracks; i++)
		c->tokens[i] = c->im ? kvarc_import_tokens(c->im, (uint32_t)i)
		                     : kvarc_reader_tokens(c->reader, (uint32_t)i);
	for (size_t i = 0; i < c->geometry->n_tracks; i++) {
		ret = load_tokens(c, (uint32_t)i);
		if (ret != KVARC_OK) {
			library_error(in->name, ret, NULL, in, NULL);
			return false;
		}
	}
	if (!make_views(c, o, in->name))
		return false;
	if (c->reader) {
		if (read_all(c, c->reader, c->views, &ret))
			return true;
		library_error(in->name, ret, error, in, NULL);
		return false;
	}
	if (fetch_all(c))
		return true;
	library_error(in->name, KVARC_IO, NULL, in, NULL);
	return false;
}

bool bench_cache_load(struct bench_cache *c, const struct options *o, const char *file)
{
	struct input in;
	kvarc_source source;
	kvarc_error error;
	bool ok;

	memset(c, 0, sizeof(*c));
	if (!input_open(&in, file, true))
		return false;
	ok = load(c, o, &in, &source, &error);
	if (!ok)
		bench_cache_free(c);
	/* The handles stay for their geometry, and read no more. */
	input_close(&in);
	return ok;
}

static bool is_lossy(const struct bench_run *run)
{
	return run->tier && run->tier->lossy.tier;
}

static kvarc_ret encode(struct bench_cache *c, const kvarc_common *common,
                        const struct bench_run *run)
{
	kvarc_writer_options wo = KVARC_WRITER_OPTIONS_INIT;
	const kvarc_sink sink = bench_cache_sink(c);
	kvarc_writer *w;
	kvarc_ret ret;

	wo.common = *common;
	wo.level = KVARC_LEVEL(run->level);
	wo.profile = run->profile;
	wo.lossy = is_lossy(run) ? &run->tier->lossy : NULL;
	wo.predictor = models_given();
	wo.predictor_name = models_name();
	ret = kvarc_writer_open(&w, &sink, &wo);
	if (ret == KVARC_OK)
		ret = kvarc_writer_set_geometry(w, c->geometry);
	for (size_t i = 0; i < c->geometry->n_tracks && ret == KVARC_OK; i++) {
		if (c->tokens[i])
			ret = kvarc_writer_append(w, (uint32_t)i, c->tokens[i], c->of[i].ids,
			                          c->of[i].positions, c->views);
	}
	if (ret == KVARC_OK)
		return kvarc_writer_close(&w);
	kvarc_writer_abort(&w);
	return ret;
}

static kvarc_ret decode(struct bench_cache *c, const kvarc_common *common)
{
	kvarc_reader_options ro = KVARC_READER_OPTIONS_INIT;
	kvarc_source source = { .size = c->archive_bytes, .memory = c->archive };
	kvarc_reader *r;
	kvarc_ret ret;

	ro.common = *common;
	profiles_reader(&ro);
	ro.predictor = models_given();
	ro.flags = KVARC_READ_ALLOW_LOSSY; /* an archive of a tier of ours */
	ret = kvarc_reader_open(&r, &source, &ro);
	if (ret == KVARC_OK)
		read_all(c, r, c->decoded, &ret);
	kvarc_reader_close(&r);
	return ret;
}

static void keep_fastest(double *best, double seconds)
{
	if (*best == 0 || seconds < *best)
		*best = seconds;
}

bool bench_cache_run(struct bench_cache *c, const struct options *o, const char *file,
                     struct bench_run *run)
{
	struct bench_counter counter = { 0, 0 };
	kvarc_allocator allocator = { .alloc = counted_alloc,
		                      .free = counted_free,
		                      .opaque = &counter };
	kvarc_common common;
	kvarc_error error;
	kvarc_ret ret;
	double start;

	library_common(o, &common, &error);
	common.allocator = &allocator;
	common.progress = NULL;
	common.threads = run->threads;
	common.overlap = false;
	common.isa_mask = run->isa_mask;
	if (o->memlimit) /* check_limit */
		common.memlimit = o->memlimit - c->held_bytes;
	start = units_now();
	ret = encode(c, &common, run);
	keep_fastest(&run->encode_seconds, units_now() - start);
	if (ret == KVARC_OK) {
		memset(c->decoded_data, 0, c->raw_bytes);
		start = units_now();
		ret = decode(c, &common);
		keep_fastest(&run->decode_seconds, units_now() - start);
	}
	if (ret != KVARC_OK) {
		library_error(file, ret, &error, NULL, NULL);
		return false;
	}
	if (!is_lossy(run) && memcmp(c->data, c->decoded_data, c->raw_bytes) != 0) {
		msg_error(file, "what was decoded differs from the input; "
		                "this is a bug in kvarc, please report it");
		return false;
	}
	if (counter.peak > run->memory_bytes)
		run->memory_bytes = counter.peak;
	return true;
}

void bench_cache_free(struct bench_cache *c)
{
	for (size_t i = 0; c->of && i < c->geometry->n_tracks; i++) {
		free(c->of[i].ids);
		free(c->of[i].positions);
	}
	kvarc_import_close(&c->im);
	kvarc_reader_close(&c->reader);
	free(c->of);
	free(c->tokens);
	free(c->views);
	free(c->decoded);
	free(c->data);
	free(c->decoded_data);
	free(c->archive);
	memset(c, 0, sizeof(*c));
}
