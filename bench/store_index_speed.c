/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * store_index_speed.c - look-ups in the index of a store, and its making from archives
 *
 * store_index [FOLDER [ROWS [ARCHIVES]]]: prints look-ups per second of one core in an index of
 * ROWS segments (1,000,000), and segments per second of a rebuild from ARCHIVES (32) of 4,096 each.
 */
#include "config.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "store/store_state.h"
#include "util/bytes.h"
#include "util/hash.h"

enum { SEGMENT = 32, SEGMENTS = 4096, LOOK_UPS = 400000, PATH_BYTES = 4096 };

/* Seconds of this process on its core: others may use the machine, too. */
static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void must(kvarc_ret ret, const char *what, const kvarc_error *e)
{
	if (ret == KVARC_OK)
		return;
	fprintf(stderr, "store_index: %s: %s %s\n", what, kvarc_strerror(ret), e->text);
	exit(1);
}

static void random_hash(uint8_t hash[16], uint64_t i, uint64_t salt)
{
	uint64_t state = i * 0x9e3779b97f4a7c15 + salt;
	kvi_store64(hash, kvi_splitmix64(&state));
	kvi_store64(hash + 8, kvi_splitmix64(&state));
}

/* ----- look-ups ------------------------------------------------ */

/* Chains of 32 segments: row i follows row i - 1. */
static void add_rows(struct kvi_store_index *x, uint64_t rows, const kvarc_error *e)
{
	struct kvi_index_pack pack = { .bytes = 1 };
	must(kvi_index_begin_change(x), "begin", e);
	must(kvi_index_bulk(x, true), "bulk", e);
	for (uint64_t i = 0; i < rows; i++) {
		struct kvi_index_row r = { .name_space = 7, .n = 256, .has_chain = true };
		uint8_t before[16];
		if (i % 32 == 0) {
			random_hash(pack.id, i, 3);
			must(kvi_index_add_pack(x, &pack), "pack", e);
		}
		random_hash(before, i ? i - 1 : UINT64_MAX, 1);
		random_hash(r.chain, i, 1);
		random_hash(r.digest, i, 2);
		r.pack = pack.pack;
		r.parent = kvi_load64(before);
		r.t0 = i % 32 * 256;
		r.has_digest = r.has_first = true;
		must(kvi_index_add_row(x, &r), "row", e);
	}
	must(kvi_index_bulk(x, false), "indices", e);
	must(kvi_index_end_change(x, KVARC_OK), "commit", e);
}

static void look_up(struct kvi_store_index *x, uint64_t rows, const kvarc_error *e)
{
	uint64_t state = 5, found = 0;
	double start = now();
	for (int i = 0; i < LOOK_UPS; i++) {
		struct kvi_index_row r[4];
		uint8_t before[16], chain[16];
		size_t n;
		/* every tenth is not there */
		uint64_t k = 1 + kvi_splitmix64(&state) % (rows + rows / 10);
		random_hash(before, k - 1, 1);
		random_hash(chain, k, 1);
		must(kvi_index_match(x, 7, kvi_load64(before), chain, r, 4, &n), "match", e);
		found += n;
	}
	double seconds = now() - start;
	printf("look-ups    %9.0f /s   (%d in %llu segments, %llu found, %.2f s)\n",
	       LOOK_UPS / seconds, LOOK_UPS, (unsigned long long)rows, (unsigned long long)found,
	       seconds);
}

/* ----- rebuild ------------------------------------------------ */

static int fetch_zeros(void *opaque, uint32_t tensor, uint32_t head, uint32_t heads, uint64_t t0,
                       uint32_t n, void *dst)
{
	(void)opaque;
	(void)tensor;
	(void)head;
	(void)heads;
	memset(dst, (int)(t0 % 251), 2 * (size_t)n);
	return 0;
}

/* An archive of one small tensor. */
static void put_archive(struct kvarc_store *s, uint64_t number)
{
	static int32_t ids[SEGMENT * SEGMENTS];
	const kvarc_track track = { .kind = KVARC_TRACK_SELF };
	const kvarc_tensor tensor = { .dtype = KVARC_F16, .heads = 1, .channels = 1 };
	const kvarc_geometry g = {
		.n_tracks = 1, .n_tensors = 1, .tracks = &track, .tensors = &tensor
	};
	static const char *const keys[] = { "namespace" }, *const values[] = { "default" };
	kvarc_writer_options o = KVARC_WRITER_OPTIONS_INIT;
	kvarc_memory *memory;
	kvarc_source source;
	kvarc_writer *w;
	kvarc_sink sink;
	char key[KVI_PACK_KEY];
	for (int i = 0; i < SEGMENT * SEGMENTS; i++)
		ids[i] = (int32_t)(number * 1000 + (uint64_t)i);
	o.level = KVARC_LEVEL(0);
	o.segment_tokens = SEGMENT;
	random_hash(o.file_id, number, 9);
	must(kvarc_memory_open(&memory, NULL), "memory", s->error);
	must(kvarc_memory_sink(memory, &sink), "memory", s->error);
	must(kvarc_writer_open(&w, &sink, &o), "writer", s->error);
	must(kvarc_writer_set_geometry(w, &g), "geometry", s->error);
	must(kvarc_writer_identity(w, 1, keys, values), "identity", s->error);
	must(kvarc_writer_append_fetch(w, 0, SEGMENT * SEGMENTS, ids, NULL, fetch_zeros, NULL),
	     "append", s->error);
	must(kvarc_writer_close(&w), "close", s->error);
	must(kvarc_memory_source(memory, &source), "memory", s->error);
	kvi_pack_key(key, o.file_id);
	must(s->backend->calls->put(s->backend, key, &source, s->error), "put", s->error);
	kvarc_memory_close(&memory);
}

static void rebuild(struct kvarc_store *s, uint64_t archives)
{
	uint64_t packs, segments;
	for (uint64_t i = 0; i < archives; i++)
		put_archive(s, i);
	double start = now();
	must(kvarc_store_rebuild(s, &packs, &segments), "rebuild", s->error);
	double seconds = now() - start;
	printf("rebuild     %9.0f segments/s   (%llu of %llu archives, %.2f s)\n",
	       (double)segments / seconds, (unsigned long long)segments, (unsigned long long)packs,
	       seconds);
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *f)
{
	(void)st;
	(void)type;
	(void)f;
	return remove(path);
}

int main(int argc, char **argv)
{
	const char *below = argc > 1 ? argv[1] : "/dev/shm";
	const uint64_t rows = argc > 2 ? strtoull(argv[2], NULL, 10) : 1000000;
	const uint64_t archives = argc > 3 ? strtoull(argv[3], NULL, 10) : 32;
	kvarc_error e = { .text = "" };
	kvarc_store_options o = KVARC_STORE_OPTIONS_INIT;
	char folder[PATH_BYTES], path[PATH_BYTES + 16];
	struct kvi_store_index *x;
	kvarc_store *s;
	bool made;
	const char *why;
	snprintf(folder, sizeof folder, "%s/kvarc-index-XXXXXX", below);
	if (!mkdtemp(folder)) {
		perror(folder);
		return 1;
	}
	o.common.error = &e;
	o.flags = KVARC_STORE_NO_SYNC;
	snprintf(path, sizeof path, "%s/rows.sqlite", folder);
	must(kvi_index_open(&x, path, NULL, &made, &why, &e), "index", &e);
	add_rows(x, rows, &e);
	look_up(x, rows, &e);
	kvi_index_close(&x);
	must(kvarc_store_open(&s, folder, &o), "store", &e);
	rebuild(s, archives);
	kvarc_store_close(&s);
	nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
	return 0;
}
