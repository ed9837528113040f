/* SPDX-License-Identifier: BSD-3-Clause */
/* cmd_bench.c - kvarc bench: speed and size, over links and disks */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "checked.h"
#include "commands.h"
#include "engine_files.h"
#include "gpu.h"
#include "infile.h"
#include "library.h"
#include "message.h"
#include "models.h"
#include "paths.h"
#include "profiles.h"
#include "readers.h"
#include "report.h"
#include "shape.h"
#include "tiers.h"
#include "units.h"

/* ==== How fast the disk of a folder reads ==== */

enum { PIECE = 1 << 20, PIECES = 128 };

/* Fills a piece with words that a disk can neither compress nor skip. */
static void fill(uint64_t *words, uint64_t *state)
{
	for (size_t i = 0; i < PIECE / sizeof(*words); i++) {
		*state ^= *state << 13;
		*state ^= *state >> 7;
		*state ^= *state << 17;
		words[i] = *state;
	}
}

static int write_all(int fd, uint64_t *words)
{
	uint64_t state = 88172645463325252;

	for (int i = 0; i < PIECES; i++) {
		const char *p = (const char *)words;

		fill(words, &state);
		for (size_t left = PIECE; left;) {
			ssize_t n = write(fd, p, left);
			if (n < 0 && errno == EINTR)
				continue;
			if (n <= 0)
				return n < 0 ? errno : EIO;
			p += n;
			left -= (size_t)n;
		}
	}
	return fsync(fd) == 0 || errno == EINVAL ? 0 : errno;
}

static int read_disk(int fd, void *buf, double *speed)
{
	double start;
	uint64_t all = 0;

	(void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
	start = units_now();
	while (all < (uint64_t)PIECE * PIECES) {
		ssize_t n = pread(fd, buf, PIECE, (off_t)all);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? errno : EIO;
		all += (uint64_t)n;
	}
	double now = (double)all / (units_now() - start);
	*speed = now > *speed ? now : *speed;
	return 0;
}

static int open_unnamed(const char *folder)
{
	char *path = paths_join(folder, ".kvarc-XXXXXX");
	int fd = path ? mkstemp(path) : -1;

	if (fd >= 0)
		unlink(path);
	free(path);
	return fd;
}

/* Writes a file without a name of 128 MB, of random bytes, to the folder, has the system forget
 * it, and reads it again, twice. Returns the bytes per second of the faster time; 0: a message was
 * shown. */
static double disk_speed(const char *folder)
{
	uint64_t *words = malloc(PIECE);
	int fd = words ? open_unnamed(folder) : -1;
	int error = fd >= 0 ? write_all(fd, words) : words ? errno : ENOMEM;
	double speed = 0;

	for (int i = 0; i < 2 && error == 0; i++)
		error = read_disk(fd, words, &speed);
	if (error)
		msg_error(folder, "cannot measure the disk: %s", strerror(error));
	if (fd >= 0)
		close(fd);
	free(words);
	return error ? 0 : speed;
}

/* ==== A cache held in memory, and one timed way through the library ==== */

enum { PIECE_TOKENS = 256 };

/* A cache in memory, its decoded copy and its archive. bench_cache_free releases everything. */
struct bench_cache {
	const kvarc_geometry *geometry; /* lives in the two handles below */
	kvarc_import *im;
	kvarc_reader *reader;
	uint64_t *tokens; /* numbers of tokens, by track */
	struct bench_tokens {
		int32_t *ids, *positions; /* ids may be NULL */
	} * of;                           /* tokens by track */
	kvarc_view *views;                /* views by tensor, packed */
	kvarc_view *decoded;              /* buffers for decoded elements, by tensor */
	uint8_t *data, *decoded_data;
	uint64_t raw_bytes, elements;
	uint8_t *archive;
	uint64_t archive_bytes, archive_capacity;
	uint64_t held_bytes; /* bytes of data, decoded_data and archive together, at most */
};

/* Settings of a measurement, then its results (times in seconds). */
struct bench_run {
	int level;
	const struct tier *tier;      /* NULL: the level's */
	const kvarc_profile *profile; /* levels 2 to 7 */
	uint32_t isa_mask;
	const char *device; /* "cuda:0": coded there, and not by the threads; NULL */
	unsigned threads;
	double encode_seconds, decode_seconds; /* the fastest */
	uint64_t memory_bytes;                 /* peak memory of the library, or of the GPU */
	uint64_t chunks, host_chunks;          /* device: encoded; of these by the host */
};

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

/* Whether what is held fits below -M beside what the library needs; without -M it is not limited.
 * An archive is hardly ever larger than the cache. */
static bool check_limit(struct bench_cache *cache, const struct work_options *work,
                        const char *file)
{
	enum { LEAST = 8 << 20 }; /* bytes for the library */
	char needed[32];

	cache->held_bytes = 3 * cache->raw_bytes;
	if (!work->memlimit || cache->held_bytes + LEAST <= work->memlimit)
		return true;
	units_bytes(needed, sizeof(needed), cache->held_bytes + LEAST);
	msg_error(file,
	          "'bench' holds the cache three times in memory, which takes %s: raise the limit "
	          "with -M, or give a smaller file",
	          needed);
	return false;
}

/* Packed views of all tensors, one after another, in both areas. */
static bool make_views(struct bench_cache *cache, const struct work_options *work, const char *file)
{
	const kvarc_geometry *g = cache->geometry;
	size_t at = 0;

	cache->views = calloc(g->n_tensors + 1, sizeof(*cache->views));
	cache->decoded = calloc(g->n_tensors + 1, sizeof(*cache->decoded));
	for (size_t i = 0; i < g->n_tensors; i++) {
		const kvarc_tensor *t = &g->tensors[i];
		uint64_t n = cache->tokens[t->track], width, bytes;

		width = (uint64_t)t->heads * t->channels;
		if (checked_mul(n, width * kvarc_dtype_bytes(t->dtype), &bytes) ||
		    checked_add(cache->raw_bytes, bytes, &cache->raw_bytes) ||
		    cache->raw_bytes > SIZE_MAX / 4) {
			msg_error(file, "is too large to hold in memory");
			return false;
		}
		cache->elements += n * width;
	}
	if (cache->elements == 0) {
		msg_error(file, "holds no tensors that could be measured");
		return false;
	}
	if (!check_limit(cache, work, file))
		return false;
	cache->archive_capacity = kvarc_encode_bound(g, cache->tokens[0]);
	if (cache->archive_capacity < cache->raw_bytes + cache->raw_bytes / 8 + (16 << 20))
		cache->archive_capacity = cache->raw_bytes + cache->raw_bytes / 8 + (16 << 20);
	cache->data = malloc(cache->raw_bytes);
	cache->decoded_data = malloc(cache->raw_bytes);
	cache->archive = malloc(cache->archive_capacity);
	if (!cache->views || !cache->decoded || !cache->data || !cache->decoded_data ||
	    !cache->archive) {
		msg_error(file, "out of memory; 'bench' holds the cache three times");
		return false;
	}
	for (size_t i = 0; i < g->n_tensors; i++) {
		const kvarc_tensor *t = &g->tensors[i];
		uint32_t bytes = (uint32_t)kvarc_dtype_bytes(t->dtype);
		uint32_t width = t->heads * t->channels;

		cache->views[i] = (kvarc_view){ .data = cache->data + at,
			                        .token_stride = (uint64_t)width * bytes,
			                        .block_elems = width,
			                        .elem_stride = bytes };
		cache->decoded[i] = cache->views[i];
		cache->decoded[i].data = cache->decoded_data + at;
		at += cache->tokens[t->track] * width * bytes;
	}
	return true;
}

static bool read_elements(struct bench_cache *cache, kvarc_reader *r, const kvarc_view *views,
                          kvarc_ret *ret)
{
	*ret = KVARC_OK;
	for (size_t i = 0; i < cache->geometry->n_tracks && *ret == KVARC_OK; i++) {
		kvarc_range range = KVARC_RANGE_ALL((uint32_t)i);
		if (cache->tokens[i])
			*ret = kvarc_reader_read(r, &range, views);
	}
	return *ret == KVARC_OK;
}

static bool fetch_all(struct bench_cache *cache)
{
	for (size_t i = 0; i < cache->geometry->n_tensors; i++) {
		const kvarc_tensor *t = &cache->geometry->tensors[i];
		uint64_t n = cache->tokens[t->track];

		for (uint64_t t0 = 0; t0 < n; t0 += PIECE_TOKENS) {
			uint32_t piece = n - t0 < PIECE_TOKENS ? (uint32_t)(n - t0) : PIECE_TOKENS;
			uint8_t *dst = (uint8_t *)cache->views[i].data +
			               t0 * cache->views[i].token_stride;
			if (kvarc_import_fetch(cache->im, (uint32_t)i, 0, t->heads, t0, piece,
			                       dst) != 0)
				return false;
		}
	}
	return true;
}

static kvarc_ret read_tokens(struct bench_cache *cache, uint32_t track, int32_t *ids,
                             int32_t *positions)
{
	if (cache->reader)
		return kvarc_reader_read_tokens(cache->reader, track, 0, cache->tokens[track], ids,
		                                positions);
	return kvarc_import_read_tokens(cache->im, track, 0, cache->tokens[track], ids, positions);
}

/* Ids and positions of a track. */
static kvarc_ret load_tokens(struct bench_cache *cache, uint32_t track)
{
	struct bench_tokens *t = &cache->of[track];
	kvarc_ret ret;

	t->ids = calloc(cache->tokens[track] + 1, sizeof(*t->ids));
	t->positions = calloc(cache->tokens[track] + 1, sizeof(*t->positions));
	if (!t->ids || !t->positions)
		return KVARC_MEM;
	ret = read_tokens(cache, track, t->ids, NULL);
	if (ret == KVARC_OPTIONS) { /* the file has no ids */
		free(t->ids);
		t->ids = NULL;
		ret = KVARC_OK;
	}
	return ret ? ret : read_tokens(cache, track, NULL, t->positions);
}

static bool open_handles(struct bench_cache *cache, const struct options *options, struct input *in,
                         kvarc_source *source, kvarc_error *error)
{
	kvarc_import_options io = KVARC_IMPORT_OPTIONS_INIT;
	struct engine_file pages;
	kvarc_ret ret;

	if (input_is_archive(in)) {
		cache->reader = readers_open(&options->work, &options->reading, in, 0, error);
		if (cache->reader)
			cache->geometry = kvarc_reader_geometry(cache->reader);
		return cache->reader != NULL;
	}
	readers_import_options(&options->work, &options->import, &io, error);
	io.profiles = profiles_given(&io.n_profiles);
	io.members = 1; /* compressed ones as well */
	if (!engine_file_options(&options->import, in->name, &pages, &io))
		return false;
	*source = input_source(in);
	ret = kvarc_import_open(&cache->im, source, NULL, &io);
	if (ret != KVARC_OK) {
		library_error(in->name, ret, error, in, NULL);
		return false;
	}
	if (kvarc_import_note(cache->im))
		msg_warning(in->name, "%s", kvarc_import_note(cache->im));
	cache->geometry = kvarc_import_geometry(cache->im);
	return true;
}

static bool load(struct bench_cache *cache, const struct options *options, struct input *in,
                 kvarc_source *source, kvarc_error *error)
{
	kvarc_ret ret;

	if (!open_handles(cache, options, in, source, error))
		return false;
	cache->tokens = calloc(cache->geometry->n_tracks + 1, sizeof(*cache->tokens));
	cache->of = calloc(cache->geometry->n_tracks + 1, sizeof(*cache->of));
	if (!cache->tokens || !cache->of) {
		msg_error(NULL, "out of memory");
		return false;
	}
	for (size_t i = 0; i < cache->geometry->n_tracks; i++)
		cache->tokens[i] = cache->im ? kvarc_import_tokens(cache->im, (uint32_t)i)
		                             : kvarc_reader_tokens(cache->reader, (uint32_t)i);
	for (size_t i = 0; i < cache->geometry->n_tracks; i++) {
		ret = load_tokens(cache, (uint32_t)i);
		if (ret != KVARC_OK) {
			library_error(in->name, ret, NULL, in, NULL);
			return false;
		}
	}
	if (!make_views(cache, &options->work, in->name))
		return false;
	if (cache->reader) {
		if (read_elements(cache, cache->reader, cache->views, &ret))
			return true;
		library_error(in->name, ret, error, in, NULL);
		return false;
	}
	if (fetch_all(cache))
		return true;
	library_error(in->name, KVARC_IO, NULL, in, NULL);
	return false;
}

static void bench_cache_free(struct bench_cache *cache);

/* Imports a file, or reads an archive, into memory. false: a message was shown. */
static bool bench_cache_load(struct bench_cache *cache, const struct options *options,
                             const char *file)
{
	struct input in;
	kvarc_source source;
	kvarc_error error;
	bool ok;

	memset(cache, 0, sizeof(*cache));
	if (!input_open(&in, file, true))
		return false;
	ok = load(cache, options, &in, &source, &error);
	if (!ok)
		bench_cache_free(cache);
	/* The handles stay for their geometry, and read no more. */
	input_close(&in);
	return ok;
}

static bool is_lossy(const struct bench_run *run)
{
	return run->tier && run->tier->lossy.tier;
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

/* Opens a writer of the archive; sink stays while it is open. */
static kvarc_ret open_writer(struct bench_cache *cache, const kvarc_common *common,
                             const struct bench_run *run, kvarc_sink *sink, kvarc_writer **w)
{
	kvarc_writer_options wo = KVARC_WRITER_OPTIONS_INIT;
	kvarc_ret ret;

	cache->archive_bytes = 0;
	*sink = (kvarc_sink){ .write = write_memory, .opaque = cache };
	wo.common = *common;
	wo.level = KVARC_LEVEL(run->level);
	wo.profile = run->profile;
	wo.lossy = is_lossy(run) ? &run->tier->lossy : NULL;
	wo.predictor = models_given();
	wo.predictor_name = models_name();
	ret = kvarc_writer_open(w, sink, &wo);
	return ret ? ret : kvarc_writer_set_geometry(*w, cache->geometry);
}

/* Closes it, or gives up after an error. */
static kvarc_ret close_writer(kvarc_writer **w, kvarc_ret ret)
{
	if (!ret)
		return kvarc_writer_close(w);
	kvarc_writer_abort(w);
	return ret;
}

static kvarc_ret open_archive(const struct bench_cache *cache, const kvarc_common *common,
                              kvarc_reader **r)
{
	kvarc_reader_options ro = KVARC_READER_OPTIONS_INIT;
	kvarc_source source = { .size = cache->archive_bytes, .memory = cache->archive };

	ro.common = *common;
	profiles_reader(&ro);
	ro.predictor = models_given();
	ro.flags = KVARC_READ_ALLOW_LOSSY; /* an archive of a tier of ours */
	return kvarc_reader_open(r, &source, &ro);
}

static kvarc_ret encode(struct bench_cache *cache, const kvarc_common *common,
                        const struct bench_run *run)
{
	kvarc_sink sink;
	kvarc_writer *w;
	kvarc_ret ret = open_writer(cache, common, run, &sink, &w);

	for (size_t i = 0; i < cache->geometry->n_tracks && ret == KVARC_OK; i++) {
		if (cache->tokens[i])
			ret = kvarc_writer_append(w, (uint32_t)i, cache->tokens[i],
			                          cache->of[i].ids, cache->of[i].positions,
			                          cache->views);
	}
	return close_writer(&w, ret);
}

static kvarc_ret decode(struct bench_cache *cache, const kvarc_common *common)
{
	kvarc_reader *r;
	kvarc_ret ret = open_archive(cache, common, &r);

	if (ret == KVARC_OK)
		read_elements(cache, r, cache->decoded, &ret);
	kvarc_reader_close(&r);
	return ret;
}

static void keep_fastest(double *best, double seconds)
{
	if (*best == 0 || seconds < *best)
		*best = seconds;
}

static bool is_same(const struct bench_cache *cache, const char *file, const char *decoded)
{
	if (memcmp(cache->data, cache->decoded_data, cache->raw_bytes) == 0)
		return true;
	msg_error(file, "what %s differs from the input; this is a bug in kvarc, please report it",
	          decoded);
	return false;
}

/* Encodes and decodes once, and compares; records the fastest times in run. */
static bool bench_cache_run(struct bench_cache *cache, const struct work_options *work,
                            const char *file, struct bench_run *run)
{
	struct bench_counter counter = { 0, 0 };
	kvarc_allocator allocator = { .alloc = counted_alloc,
		                      .free = counted_free,
		                      .opaque = &counter };
	kvarc_common common;
	kvarc_error error;
	kvarc_ret ret;
	double start;

	library_common(work, &common, &error);
	common.allocator = &allocator;
	common.progress = NULL;
	common.threads = run->threads;
	common.overlap = false;
	common.isa_mask = run->isa_mask;
	if (work->memlimit) /* check_limit */
		common.memlimit = work->memlimit - cache->held_bytes;
	start = units_now();
	ret = encode(cache, &common, run);
	keep_fastest(&run->encode_seconds, units_now() - start);
	if (ret == KVARC_OK) {
		memset(cache->decoded_data, 0, cache->raw_bytes);
		start = units_now();
		ret = decode(cache, &common);
		keep_fastest(&run->decode_seconds, units_now() - start);
	}
	if (ret != KVARC_OK) {
		library_error(file, ret, &error, NULL, NULL);
		return false;
	}
	if (!is_lossy(run) && !is_same(cache, file, "was decoded"))
		return false;
	if (counter.peak > run->memory_bytes)
		run->memory_bytes = counter.peak;
	return true;
}

/* Releases what bench_cache_load made. */
static void bench_cache_free(struct bench_cache *cache)
{
	for (size_t i = 0; cache->of && i < cache->geometry->n_tracks; i++) {
		free(cache->of[i].ids);
		free(cache->of[i].positions);
	}
	kvarc_import_close(&cache->im);
	kvarc_reader_close(&cache->reader);
	free(cache->of);
	free(cache->tokens);
	free(cache->views);
	free(cache->decoded);
	free(cache->data);
	free(cache->decoded_data);
	free(cache->archive);
	memset(cache, 0, sizeof(*cache));
}

/* ==== A cache in the memory of a GPU, coded there ==== */

/* A cache and its copies in the memory of the GPU. */
struct device_cache {
	struct bench_cache *c;
	struct gpu *gpu;
	struct gpu_memory from, to;
	kvarc_device_view *views; /* one per tensor */
	uint64_t chunks, host_chunks;
};

/* Sets the views to the tokens of a track from t0 on, in one of the copies. */
static void set_views(struct device_cache *cache, const struct gpu_memory *memory, uint32_t track,
                      uint64_t t0)
{
	const struct bench_cache *c = cache->c;
	const kvarc_geometry *g = c->geometry;

	for (size_t i = 0; i < g->n_tensors; i++) {
		const kvarc_tensor *t = &g->tensors[i];
		const kvarc_view *v = &c->views[i];
		const uint64_t at = (uint64_t)((const uint8_t *)v->data - c->data);
		const uint64_t row = t->track == track ? t0 * v->token_stride : 0;

		cache->views[i] = (kvarc_device_view){
			.base = memory->at + at + row,
			.bytes = c->tokens[t->track] * v->token_stride - row,
			.token_stride = v->token_stride,
			.head_stride = (uint64_t)t->channels * v->elem_stride,
			.elem_stride = v->elem_stride,
		};
	}
}

/* Encodes tokens t0 to t0 + n - 1 of a track from the GPU and appends them. */
static kvarc_ret device_append(struct device_cache *cache, kvarc_writer *w, uint32_t track,
                               uint64_t t0, uint64_t n)
{
	const struct bench_tokens *t = &cache->c->of[track];
	kvarc_device_plan_info info;
	kvarc_ret ret;

	set_views(cache, &cache->from, track, t0);
	ret = gpu_write(cache->gpu, w, track, n, t->ids ? t->ids + t0 : NULL, t->positions + t0,
	                cache->views, &info);
	cache->chunks += ret ? 0 : info.chunks;
	cache->host_chunks += ret ? 0 : info.host_chunks;
	return ret;
}

/* Appends all tokens of a track. */
static kvarc_ret encode_track(struct device_cache *cache, kvarc_writer *w, uint32_t track)
{
	const uint64_t all = cache->c->tokens[track];
	kvarc_ret ret = KVARC_OK;

	for (uint64_t t = 0, n; t < all && !ret; t += n) {
		n = gpu_batch(w, track, t, all - t);
		ret = device_append(cache, w, track, t, n);
	}
	return ret;
}

/* Encodes the cache into its archive and times it, without opening the writer. */
static kvarc_ret device_encode(struct device_cache *cache, const kvarc_common *common,
                               struct bench_run *run)
{
	struct bench_cache *c = cache->c;
	kvarc_sink sink;
	kvarc_writer *w;
	kvarc_ret ret = open_writer(c, common, run, &sink, &w);
	const double start = units_now();

	cache->chunks = cache->host_chunks = 0;
	for (uint32_t i = 0; i < c->geometry->n_tracks && !ret; i++)
		ret = encode_track(cache, w, i);
	ret = close_writer(&w, ret);
	keep_fastest(&run->encode_seconds, units_now() - start);
	return ret;
}

static kvarc_ret device_decode(struct device_cache *cache, const kvarc_common *common)
{
	struct bench_cache *c = cache->c;
	kvarc_device_plan_info info;
	kvarc_reader *r;
	kvarc_ret ret = open_archive(c, common, &r);

	for (uint32_t i = 0; i < c->geometry->n_tracks && !ret; i++) {
		for (uint64_t t = 0, n; t < c->tokens[i] && !ret; t += n) {
			/* GPU_TOKENS bounds the memory of the GPU */
			n = c->tokens[i] - t < GPU_TOKENS ? c->tokens[i] - t : GPU_TOKENS;
			const kvarc_range range = {
				.track = i, .n_layers = UINT32_MAX, .t0 = t, .n = n
			};
			set_views(cache, &cache->to, i, t);
			ret = gpu_read(cache->gpu, r, &range, cache->views, &info);
		}
	}
	kvarc_reader_close(&r);
	return ret;
}

/* Uploads, encodes, decodes and fetches once. */
static kvarc_ret measure(struct device_cache *cache, const kvarc_common *common,
                         struct bench_run *run)
{
	struct bench_cache *c = cache->c;
	struct gpu *g = cache->gpu;
	double start;
	kvarc_ret ret;

	memset(c->decoded_data, 0, c->raw_bytes); /* elements that are not decoded differ */
	ret = gpu_reserve(g, &cache->from, c->raw_bytes);
	if (!ret)
		ret = gpu_reserve(g, &cache->to, c->raw_bytes);
	if (!ret)
		ret = kvarc_device_send(g->d, cache->from.at, c->data, c->raw_bytes, NULL);
	if (!ret)
		ret = kvarc_device_send(g->d, cache->to.at, c->decoded_data, c->raw_bytes, NULL);
	if (ret)
		return ret;
	ret = device_encode(cache, common, run);
	if (ret)
		return ret;
	start = units_now();
	ret = device_decode(cache, common);
	keep_fastest(&run->decode_seconds, units_now() - start);
	run->memory_bytes = cache->from.bytes + cache->to.bytes + g->staging.bytes + g->work.bytes +
	                    g->status.bytes;
	run->host_chunks = cache->host_chunks;
	run->chunks = cache->chunks;
	return ret ? ret
	           : kvarc_device_fetch(g->d, c->decoded_data, cache->to.at, c->raw_bytes, NULL);
}

/*
 * Copies a cache to the GPU, encodes it from there, decodes it into other memory of the GPU, and
 * compares. Lowers the times of run (0: none yet); sets its memory of the GPU, its chunks, and
 * those that the host encoded. file: name for messages. false: a message was shown.
 */
static bool bench_device_run(struct bench_cache *cache, const struct work_options *work,
                             const char *file, struct gpu *gpu, struct bench_run *run)
{
	struct device_cache x = { .c = cache, .gpu = gpu };
	kvarc_common common;
	kvarc_error error;
	kvarc_ret ret;

	library_common(work, &common, &error);
	memset(&gpu->error, 0, sizeof(gpu->error)); /* an error of an earlier call */
	common.progress = NULL;
	common.threads = run->threads;
	x.views = calloc(cache->geometry->n_tensors, sizeof(*x.views));
	ret = x.views ? measure(&x, &common, run) : KVARC_MEM;
	free(x.views);
	kvarc_device_free(gpu->d, x.from.at);
	kvarc_device_free(gpu->d, x.to.at);
	if (ret) {
		library_error(file, ret, gpu->error.code ? &gpu->error : &error, NULL, NULL);
		return false;
	}
	return is_same(cache, file, "the GPU decoded");
}

/* ==== Which level restores a cache soonest over a link or from a disk ==== */

/* The link, and what was measured of the levels: sizes in bytes, times in seconds. */
struct bench_link {
	double speed; /* bytes per second; 0: no --link */
	struct link_row {
		int level; /* LINK_RAW, LINK_PREFILL, or a level */
		uint64_t bytes;
		double encode, transfer, decode;
		double restore; /* transfer, then decode */
		double piped;   /* seconds for both at once */
	} rows[16];
	size_t n;
};
/* Numbers of rows that are no levels. */
enum { LINK_RAW = -1, LINK_PREFILL = -2 };

/* "2.5 Gbit/s (312 MB/s)" */
static void put_speed(char *out, size_t size, double bytes_per_second)
{
	static const char *const names[] = { "kbit", "Mbit", "Gbit", "Tbit" };
	double bits = 8 * bytes_per_second / 1e3;
	char rate[32];
	size_t i = 0;

	while (bits >= 999.5 && i < 3) {
		bits /= 1e3;
		i++;
	}
	units_rate(rate, sizeof(rate), bytes_per_second);
	snprintf(out, size, "%.3g %s/s (%s)", bits, names[i], rate);
}

/* The speed of --link: bits per second, or the speed at which the disk of a folder reads, which is
 * measured and shown. false: a message was shown. */
static bool bench_link_open(struct bench_link *bench_link, const char *link)
{
	char speed[64];

	memset(bench_link, 0, sizeof(*bench_link));
	if (!link)
		return true;
	if (paths_is_folder(link)) {
		bench_link->speed = disk_speed(link);
		put_speed(speed, sizeof(speed), bench_link->speed);
		if (bench_link->speed > 0)
			msg_note(link, "the disk reads %s", speed);
		return bench_link->speed > 0;
	}
	if (units_parse_bits(link, &bench_link->speed))
		return true;
	msg_usage("'%s' is not a value for --link; give bits per second, such as 100M, 1G or 2.5G, "
	          "or a folder",
	          link);
	return false;
}

/* The time of a level over a link of another speed. */
static double restore_at(const struct link_row *r, double speed)
{
	return (double)r->bytes / speed + r->decode;
}

static void add_row(struct bench_link *bench_link, struct link_row row)
{
	if (bench_link->n == sizeof(bench_link->rows) / sizeof(bench_link->rows[0]))
		return;
	row.transfer = (double)row.bytes / bench_link->speed;
	row.restore = row.transfer + row.decode;
	row.piped = row.transfer > row.decode ? row.transfer : row.decode;
	bench_link->rows[bench_link->n++] = row;
}

/* Takes a level that was measured, and the archive of the cache at this level. */
static void bench_link_add(struct bench_link *bench_link, const struct bench_cache *cache,
                           const struct bench_run *run)
{
	add_row(bench_link, (struct link_row){ .level = run->level,
	                                       .bytes = cache->archive_bytes,
	                                       .encode = run->encode_seconds,
	                                       .decode = run->decode_seconds });
}

static uint64_t tokens_of(const struct bench_cache *cache)
{
	uint64_t most = 0;

	for (size_t i = 0; i < cache->geometry->n_tracks; i++)
		most = cache->tokens[i] > most ? cache->tokens[i] : most;
	return most;
}

static void put_name(char *out, size_t size, int level)
{
	if (level == LINK_RAW)
		snprintf(out, size, "raw");
	else if (level == LINK_PREFILL)
		snprintf(out, size, "prefill");
	else
		snprintf(out, size, "%d", level);
}

static const struct link_row *soonest(const struct bench_link *bench_link, bool piped)
{
	const struct link_row *best = &bench_link->rows[0];

	for (size_t i = 1; i < bench_link->n; i++) {
		const struct link_row *r = &bench_link->rows[i];
		if (piped ? r->piped < best->piped : r->restore < best->restore)
			best = r;
	}
	return best;
}

/* Milliseconds, or none for what does not happen. */
static double milliseconds(double seconds)
{
	return seconds > 0 ? 1e3 * seconds : NAN;
}

static void report_row(bool json, const char *file, const struct bench_link *bench_link,
                       const struct link_row *r)
{
	const double decode = r->level == LINK_PREFILL ? 0 : r->decode;
	char name[16];
	struct report x;

	put_name(name, sizeof(name), r->level);
	report_start(&x, json);
	report_string(&x, "file", file);
	report_string(&x, "level", name);
	report_real(&x, "link_bytes_per_second", bench_link->speed, 0);
	report_u64(&x, "bytes", r->level == LINK_PREFILL ? KVARC_UNKNOWN : r->bytes);
	report_real(&x, "encode_seconds", r->encode > 0 ? r->encode : NAN, 6);
	report_real(&x, "transfer_seconds", r->transfer > 0 ? r->transfer : NAN, 6);
	report_real(&x, "decode_seconds", decode > 0 ? decode : NAN, 6);
	report_real(&x, "restore_seconds", r->restore, 6);
	report_real(&x, "piped_seconds", r->piped, 6);
	report_bool(&x, "soonest", r == soonest(bench_link, false));
	report_real(&x, ".encode", milliseconds(r->encode), 0);
	report_real(&x, ".transfer", milliseconds(r->transfer), 0);
	report_real(&x, ".decode", milliseconds(decode), 0);
	report_real(&x, ".restore", milliseconds(r->restore), 0);
	report_real(&x, ".piped", milliseconds(r->piped), 0);
	report_print(&x, "{level:-7}  {bytes:9B}  {.encode:9.1f}  {.transfer:9.1f}  "
	                 "{.decode:9.1f}  {.restore:9.1f}  {.piped:9.1f}\n");
	report_end(&x);
}

/* "level 1", "a prefill" */
static const char *describe(char out[24], const struct link_row *r)
{
	if (r->level >= 0)
		snprintf(out, 24, "level %d", r->level);
	else
		snprintf(out, 24, r->level == LINK_RAW ? "raw bytes" : "a prefill");
	return out;
}

/* The speed above which raw bytes are sooner than every level; 0: they always are. */
static double raw_from(const struct bench_link *bench_link)
{
	const struct link_row *raw = &bench_link->rows[bench_link->n - 1];
	double from = 0;

	for (size_t i = 0; i < bench_link->n; i++) {
		const struct link_row *r = &bench_link->rows[i];
		double even = (double)raw->bytes - (double)r->bytes;
		if (r->level >= 0 && even > 0 && even / r->decode > from)
			from = even / r->decode;
	}
	return from;
}

/* The speed below which a prefill is sooner than everything else; 0: it never is; infinite: it
 * always is. */
static double prefill_to(const struct bench_link *bench_link, double seconds)
{
	double to = INFINITY;

	for (size_t i = 0; i < bench_link->n; i++) {
		const struct link_row *r = &bench_link->rows[i];
		double left = seconds - r->decode;
		double even = left > 0 ? (double)r->bytes / left : INFINITY;
		if (r->level != LINK_PREFILL && even < to)
			to = even;
	}
	return to;
}

static void print_verdict(const struct bench_link *bench_link, double prefill)
{
	const struct link_row *best = soonest(bench_link, false),
			      *piped = soonest(bench_link, true);
	const struct link_row *raw = &bench_link->rows[bench_link->n - 1];
	char name[24], speed[64];
	double from = raw_from(bench_link);

	printf("soonest: %s, %.1f ms", describe(name, best), 1e3 * best->restore);
	if (best != raw)
		printf(" (raw bytes %.1f ms)", 1e3 * restore_at(raw, bench_link->speed));
	if (piped != best)
		printf("; through a pipe %s, %.1f ms", describe(name, piped), 1e3 * piped->piped);
	putchar('\n');
	put_speed(speed, sizeof(speed), from);
	if (from > 0)
		printf("raw bytes are sooner from %s on\n", speed);
	if (prefill <= 0)
		return;
	put_speed(speed, sizeof(speed), prefill_to(bench_link, prefill));
	if (isfinite(prefill_to(bench_link, prefill)))
		printf("a prefill is sooner below %s\n", speed);
	else
		printf("a prefill is always sooner\n");
}

/* Reports raw bytes, a prefill if --prefill is given, and all levels, and says what is soonest and
 * at which speeds something else is. Forgets the levels. */
static void bench_link_report(struct bench_link *bench_link, const struct options *options,
                              const char *file, const struct bench_cache *cache)
{
	const double prefill = options->bench.prefill
	                               ? (double)tokens_of(cache) / (double)options->bench.prefill
	                               : 0;
	char size[32], speed[64], tokens[32];

	if (prefill > 0) {
		add_row(bench_link, (struct link_row){ .level = LINK_PREFILL, .decode = prefill });
	}
	add_row(bench_link, (struct link_row){ .level = LINK_RAW, .bytes = cache->raw_bytes });
	if (!options->json) {
		units_bytes(size, sizeof(size), cache->raw_bytes);
		put_speed(speed, sizeof(speed), bench_link->speed);
		msg_put_safe(stdout, msg_name(file));
		printf(": %s of tensors, %s tokens, over %s, %u thread%s, fastest of %u, times in "
		       "ms\n%-7s  %9s  %9s  %9s  %9s  %9s  %9s\n",
		       size, units_count(tokens, tokens_of(cache)), speed, options->work.threads,
		       options->work.threads == 1 ? "" : "s", options->bench.repeat, "level",
		       "size", "encode", "transfer", "decode", "restore", "piped");
	}
	for (size_t i = 0; i < bench_link->n; i++)
		report_row(options->json, file, bench_link, &bench_link->rows[i]);
	if (!options->json)
		print_verdict(bench_link, prefill);
	bench_link->n = 0;
}

/* ==== kvarc bench: speed and size by level, kernels and threads ==== */

static void bench_report(const struct options *options, const char *file,
                         const struct bench_cache *cache, const struct bench_run *run)
{
	double raw = (double)cache->raw_bytes;
	struct report r;

	report_start(&r, options->json);
	report_string(&r, "file", file);
	if (run->tier)
		report_string(&r, "tier", run->tier->name);
	else
		report_u64(&r, "level", (uint64_t)run->level);
	report_string(&r, "isa", run->device ? run->device : kvarc_isa_name(run->isa_mask));
	report_u64(&r, "threads", run->threads);
	report_real(&r, "encode_bytes_per_second", raw / run->encode_seconds, 0);
	report_real(&r, "decode_bytes_per_second", raw / run->decode_seconds, 0);
	report_real(&r, "bits_per_element", shape_bits(cache->archive_bytes, cache->elements), 4);
	report_real(&r, ".ratio", raw / (double)cache->archive_bytes, 0);
	report_u64(&r, "memory_bytes", run->memory_bytes);
	report_u64(&r, "raw_bytes", cache->raw_bytes);
	report_u64(&r, "file_bytes", cache->archive_bytes);
	report_u64(&r, "elements", cache->elements);
	if (run->device) {
		report_u64(&r, "device_chunks", run->chunks);
		report_u64(&r, "host_chunks", run->host_chunks);
	}
	report_u64(&r, "repeat", options->bench.repeat);
	report_print(&r, run->tier ? "{tier:-12}" : "{level:5}");
	report_print(&r, "  {isa:-7} {threads:7}  {encode_bytes_per_second:11R}  "
	                 "{decode_bytes_per_second:11R}  {bits_per_element:8.3f}  {.ratio:7.3fx}  "
	                 "{memory_bytes:9B}\n");
	if (run->device && run->host_chunks)
		report_print(&r,
		             "       of {device_chunks} chunks the host encoded {host_chunks}\n");
	report_end(&r);
}

static bool run_one(const struct options *options, const char *file, struct bench_cache *cache,
                    struct bench_run run)
{
	for (unsigned i = 0; i < options->bench.repeat; i++) {
		if (!bench_cache_run(cache, &options->work, file, &run))
			return false;
	}
	bench_report(options, file, cache, &run);
	msg_flush();
	return true;
}

static bool run_threads(const struct options *options, const char *file, struct bench_cache *cache,
                        struct bench_run run)
{
	long cores = sysconf(_SC_NPROCESSORS_ONLN);

	run.threads = options->work.threads_given ? options->work.threads : 1;
	if (!run_one(options, file, cache, run))
		return false;
	run.threads = (unsigned)cores;
	return options->work.threads_given || cores < 2 || run_one(options, file, cache, run);
}

static bool run_sets(const struct options *options, const char *file, struct bench_cache *cache,
                     struct bench_run run)
{
	static const uint32_t sets[] = { KVARC_ISA_AVX512, KVARC_ISA_AVX2, KVARC_ISA_NEON,
		                         KVARC_ISA_SCALAR };
	uint32_t wanted = kvarc_isa_available();

	if (options->work.isa_mask)
		wanted &= options->work.isa_mask;
	for (size_t i = 0; i < sizeof(sets) / sizeof(sets[0]); i++) {
		run.isa_mask = sets[i];
		if ((wanted & sets[i]) && !run_threads(options, file, cache, run))
			return false;
	}
	return true;
}

/* Whether the level is measured, and then with which profile. */
static bool is_measured(const struct coding_options *coding, const struct bench_cache *cache,
                        int level, struct bench_run *run)
{
	*run = (struct bench_run){ .level = level };
	if (level > 1)
		run->profile = profiles_fitting(level, cache->geometry);
	if (coding->level_given)
		return level == coding->level;
	return level != LEVEL_PREDICTED && /* as level 7, a little slower */
	       (level <= 1 || run->profile) && (level < LEVEL_MODEL || models_given());
}

static bool run_levels(const struct options *options, const char *file, struct bench_cache *cache)
{
	struct bench_run run;

	for (int level = 0; level <= KVARC_LEVEL_MAX; level++) {
		if (is_measured(&options->coding, cache, level, &run) &&
		    !run_sets(options, file, cache, run))
			return false;
	}
	return true;
}

/* Measures all levels on the GPU; the host encodes those with a model. */
static bool run_device(const struct options *options, const char *file, struct bench_cache *cache,
                       struct gpu *gpu)
{
	char name[32];

	snprintf(name, sizeof(name), "cuda:%" PRIu64, options->device.number);
	for (int level = 0; level <= KVARC_LEVEL_MAX; level++) {
		struct bench_run run;

		if (!is_measured(&options->coding, cache, level, &run))
			continue;
		run.device = name;
		run.threads = options->work.threads;
		for (unsigned i = 0; i < options->bench.repeat; i++)
			if (!bench_device_run(cache, &options->work, file, gpu, &run))
				return false;
		bench_report(options, file, cache, &run);
		msg_flush();
	}
	return true;
}

/* Measures as unpack decodes: all kernels, the threads of the command line. */
static bool run_link(const struct options *options, const char *file, struct bench_cache *cache,
                     struct bench_link *link)
{
	struct bench_run run;

	for (int level = 0; level <= KVARC_LEVEL_MAX; level++) {
		if (!is_measured(&options->coding, cache, level, &run))
			continue;
		run.isa_mask = options->work.isa_mask;
		run.threads = options->work.threads;
		for (unsigned i = 0; i < options->bench.repeat; i++) {
			if (!bench_cache_run(cache, &options->work, file, &run))
				return false;
		}
		bench_link_add(link, cache, &run);
	}
	bench_link_report(link, options, file, cache);
	return true;
}

static bool run_tiers(const struct options *options, const char *file, struct bench_cache *cache,
                      const struct tiers *tiers)
{
	for (size_t i = 0; i < tiers->n; i++) {
		const struct tier *t = &tiers->list[i];
		struct bench_run run = { .level = t->writer.level < 0 ? 0 : t->writer.level,
			                 .profile = t->writer.profile,
			                 .tier = t };
		if (!run_sets(options, file, cache, run))
			return false;
	}
	return true;
}

static void print_title(const char *file, const struct bench_cache *cache,
                        const struct options *options)
{
	char size[32];

	units_bytes(size, sizeof(size), cache->raw_bytes);
	msg_put_safe(stdout, msg_name(file));
	printf(": %s of tensors, in memory, fastest of %u\n", size, options->bench.repeat);
	printf("%*s  %-7s %7s  %11s  %11s  %8s  %7s  %9s\n", options->lossy.tiers.n ? -12 : 5,
	       options->lossy.tiers.n ? "tier" : "level", "kernels", "threads", "encode", "decode",
	       "bits/el.", "ratio", "memory");
}

void cmd_bench(const struct options *options)
{
	struct tiers tiers = { 0 };
	struct bench_link link;
	struct gpu gpu;

	if (!paths_check_reading(options) || !profiles_check_level(&options->coding, false))
		return;
	if (!bench_link_open(&link, options->bench.link))
		return;
	if (!tiers_parse(&tiers, &options->lossy.tiers) ||
	    !gpu_open(&gpu, &options->device, &options->work)) {
		tiers_free(&tiers);
		return;
	}
	for (size_t i = 0; i < options->n_files; i++) {
		struct bench_cache c;

		if (!bench_cache_load(&c, options, options->files[i]))
			continue;
		if (!options->json && !options->bench.link)
			print_title(options->files[i], &c, options);
		if (options->bench.link)
			run_link(options, options->files[i], &c, &link);
		else if (tiers.n)
			run_tiers(options, options->files[i], &c, &tiers);
		else if (run_levels(options, options->files[i], &c) && gpu.d)
			run_device(options, options->files[i], &c, &gpu);
		bench_cache_free(&c);
	}
	gpu_close(&gpu);
	tiers_free(&tiers);
}
