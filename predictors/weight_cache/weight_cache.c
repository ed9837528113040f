/* SPDX-License-Identifier: BSD-3-Clause */
/* weight_cache.c - converted weights in files of their own, below a size */
#include "config.h"

#include "weight_cache.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "exact/tensor_parts.h"
#include "util/bytes.h"
#include "util/ckd.h"
#include "util/hash.h"

/* ==== The file of converted weights: its layout, reading, writing (weight_cache.h) ==== */

/* Size of the magic number in front of a weight cache file. */
enum { WEIGHT_CACHE_MAGIC_BYTES = 8 };

static const uint8_t weight_cache_magic[WEIGHT_CACHE_MAGIC_BYTES] = { 0x89, 'K',  'V',  'W',
	                                                              '\r', '\n', 0x1a, '\n' };

enum {
	AT_VERSION = 8,
	AT_ORDER = 12,
	AT_KEY = 16,
	AT_DIGEST = 32,
	AT_PARTS = 48,
	AT_BYTES = 56,
	AT_TABLE = 64,
	ENTRY = 16,
	CHECK = 8,
	PAGE = 4096
};

/* ---------------------------------------------------- all parts in order */

/* A walk over all parts of an engine in the order of the file. */
struct walk {
	struct kvi_engine *e;
	struct kvi_engine_part parts[KVI_LAYER_PARTS];
	struct kvi_part_form form; /* layout of the current part */
	uint32_t layer;
	size_t n, i;
	bool fits;
};

static const struct kvi_engine_part *next_part(struct walk *w)
{
	while (w->i == w->n) {
		if (w->layer == w->e->file->n_layers)
			return NULL;
		w->n = kvi_engine_parts(w->e, w->layer++, w->parts);
		w->i = 0;
	}
	w->fits = w->fits && kvi_engine_part_form(w->e, &w->parts[w->i], &w->form);
	return w->fits ? &w->parts[w->i++] : NULL;
}

static struct walk walk_begin(struct kvi_engine *engine)
{
	return (struct walk){ .e = engine, .fits = true };
}

static const void *memory_of(const struct kvi_engine_part *part)
{
	if (part->vector)
		return *part->vector;
	return part->operand->e4m3 ? (const void *)part->operand->e4m3 : part->operand->w[0];
}

bool kvi_weight_cache_parts(struct kvi_engine *engine,
                            bool (*put)(void *opaque, const void *p, size_t n), void *opaque)
{
	struct walk w = walk_begin(engine);
	for (const struct kvi_engine_part *p; (p = next_part(&w));)
		if (!put(opaque, memory_of(p), w.form.bytes))
			return false;
	return w.fits;
}

/* -------------------------------------------------------------- layout */

/* The key covers files, version of the library, and the layout of each part: two arithmetics with
 * equal parts share a file. */
bool kvi_weight_cache_layout(struct kvi_engine *engine, const struct kvi_h128 *stamp,
                             struct kvi_weight_cache_layout *layout)
{
	const char *version = kvarc_version();
	struct walk w = walk_begin(engine);
	uint8_t form[16] = { 0 };
	size_t table;
	*layout = (struct kvi_weight_cache_layout){ .key = *stamp };
	layout->key = kvi_h128_2(&layout->key, sizeof layout->key, version, strlen(version));
	while (next_part(&w)) {
		kvi_store64(form, w.form.bytes);
		kvi_store32(form + 8, w.form.group);
		form[12] = (uint8_t)w.form.planes;
		form[13] = w.form.minima;
		form[14] = w.form.e4m3;
		layout->key = kvi_h128_2(&layout->key, sizeof layout->key, form, sizeof form);
		layout->parts++;
		w.fits = !kvi_add(layout->bytes, w.form.bytes, &layout->bytes);
	}
	if (!w.fits || kvi_mul(layout->parts, ENTRY, &table) ||
	    kvi_add(table, AT_TABLE + CHECK + PAGE - 1, &table))
		return false;
	layout->header = table / PAGE * PAGE;
	return !kvi_add(layout->bytes, layout->header, &layout->bytes);
}

/* -------------------------------------------------------------- checks */

struct piece {
	const uint8_t *p;
	size_t bytes;
	uint64_t hash;
};

struct pieces {
	struct piece *list;
	size_t n;
};

static void hash_piece(void *opaque, size_t i, unsigned worker)
{
	struct pieces *pieces = opaque;
	struct piece *p = &pieces->list[i];
	(void)worker;
	p->hash = kvi_h64(p->p, p->bytes);
}

static bool add_piece(void *opaque, const void *p, size_t n)
{
	struct pieces *pieces = opaque;
	pieces->list[pieces->n++] = (struct piece){ p, n, 0 };
	return true;
}

static void put_head(const struct kvi_engine *engine, const struct kvi_weight_cache_layout *layout,
                     uint8_t *header)
{
	const uint32_t one = 1;
	memcpy(header, weight_cache_magic, sizeof weight_cache_magic);
	kvi_store32(header + AT_VERSION, KVI_WEIGHT_CACHE_VERSION);
	memcpy(header + AT_ORDER, &one, sizeof one);
	kvi_store_h128(header + AT_KEY, layout->key);
	kvi_store_h128(header + AT_DIGEST, engine->digest);
	kvi_store64(header + AT_PARTS, layout->parts);
	kvi_store64(header + AT_BYTES, layout->bytes);
}

bool kvi_weight_cache_header(struct kvi_engine *engine,
                             const struct kvi_weight_cache_layout *layout, uint8_t *header,
                             struct kvi_pool *pool)
{
	struct pieces pieces = { kvi_array(engine->alloc, layout->parts, sizeof *pieces.list), 0 };
	if (!pieces.list)
		return false;
	kvi_weight_cache_parts(engine, add_piece, &pieces);
	kvi_parallel(pool, pieces.n, hash_piece, &pieces);
	memset(header, 0, layout->header);
	put_head(engine, layout, header);
	for (size_t i = 0; i < pieces.n; i++) {
		kvi_store64(header + AT_TABLE + ENTRY * i, pieces.list[i].bytes);
		kvi_store64(header + AT_TABLE + ENTRY * i + 8, pieces.list[i].hash);
	}
	kvi_store64(header + layout->header - CHECK, kvi_h64(header, layout->header - CHECK));
	kvi_free(engine->alloc, pieces.list);
	return true;
}

/* Whether everything in front of the table, and the check, are those of this engine. */
static bool head_is(const struct kvi_engine *engine, const struct kvi_weight_cache_layout *layout,
                    const uint8_t *p, size_t n)
{
	uint8_t head[AT_TABLE];
	if (n != layout->bytes ||
	    kvi_load64(p + layout->header - CHECK) != kvi_h64(p, layout->header - CHECK))
		return false;
	put_head(engine, layout, head);
	return memcmp(head, p, AT_DIGEST) == 0 &&
	       memcmp(head + AT_PARTS, p + AT_PARTS, AT_TABLE - AT_PARTS) == 0;
}

/* Whether the sizes in the table, and the hashes of all parts, are right. */
static bool parts_are(struct kvi_engine *engine, const struct kvi_weight_cache_layout *layout,
                      const uint8_t *p, struct pieces *pieces, struct kvi_pool *pool)
{
	struct walk w = walk_begin(engine);
	size_t at = layout->header;
	bool same = true;
	while (next_part(&w)) {
		const uint8_t *entry = p + AT_TABLE + ENTRY * pieces->n;
		same = same && kvi_load64(entry) == w.form.bytes;
		add_piece(pieces, p + at, w.form.bytes);
		at += w.form.bytes;
	}
	if (same)
		kvi_parallel(pool, pieces->n, hash_piece, pieces);
	for (size_t i = 0; same && i < pieces->n; i++)
		same = kvi_load64(p + AT_TABLE + ENTRY * i + 8) == pieces->list[i].hash;
	return same;
}

bool kvi_weight_cache_read(struct kvi_engine *engine, const struct kvi_weight_cache_layout *layout,
                           const uint8_t *p, size_t n, struct kvi_pool *pool)
{
	struct pieces pieces = { NULL, 0 };
	struct walk w = walk_begin(engine);
	size_t at = layout->header;
	if (!head_is(engine, layout, p, n))
		return false;
	pieces.list = kvi_array(engine->alloc, layout->parts, sizeof *pieces.list);
	bool good = pieces.list && parts_are(engine, layout, p, &pieces, pool);
	kvi_free(engine->alloc, pieces.list);
	for (const struct kvi_engine_part *part; good && (part = next_part(&w));) {
		kvi_engine_part_at(part, &w.form, p + at);
		at += w.form.bytes;
	}
	if (good)
		engine->digest = kvi_load_h128(p + AT_DIGEST);
	return good;
}

/* ==== A folder of converted weights stays below its size ==== */

enum { ABANDONED = 3600 }; /* seconds after the last write */

struct found {
	uint64_t bytes; /* bytes of all files */
	char oldest[NAME_MAX + 1];
	struct timespec used; /* last use of the oldest file; an empty name: there is none */
};

static bool ends_with(const char *name, const char *end)
{
	size_t n = strlen(name), m = strlen(end);
	return n > m && memcmp(name + n - m, end, m) == 0;
}

static bool has_magic(int folder, const char *name)
{
	uint8_t magic[WEIGHT_CACHE_MAGIC_BYTES];
	int fd = openat(folder, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (fd < 0)
		return false;
	ssize_t n = read(fd, magic, sizeof magic);
	close(fd);
	return n == (ssize_t)sizeof magic && memcmp(magic, weight_cache_magic, sizeof magic) == 0;
}

static bool is_older(const struct timespec *time, const struct timespec *when)
{
	return time->tv_sec != when->tv_sec ? time->tv_sec < when->tv_sec
	                                    : time->tv_nsec < when->tv_nsec;
}

/* Counts a file of the folder, or removes it if it is abandoned. */
static void look_at(int folder, const char *name, struct found *found)
{
	bool unfinished = ends_with(name, ".tmp");
	struct stat st;
	if ((!unfinished && !ends_with(name, ".kvw")) || strlen(name) > NAME_MAX ||
	    fstatat(folder, name, &st, AT_SYMLINK_NOFOLLOW) || !S_ISREG(st.st_mode) ||
	    st.st_uid != geteuid() || !has_magic(folder, name))
		return;
	if (unfinished && time(NULL) - st.st_mtim.tv_sec > ABANDONED &&
	    unlinkat(folder, name, 0) == 0)
		return;
	found->bytes += (uint64_t)st.st_size;
	if (unfinished || (found->oldest[0] && !is_older(&st.st_mtim, &found->used)))
		return;
	strcpy(found->oldest, name);
	found->used = st.st_mtim;
}

static bool look_around(int folder, struct found *found)
{
	int fd = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	*found = (struct found){ .bytes = 0 };
	if (!d) {
		if (fd >= 0)
			close(fd);
		return false;
	}
	for (const struct dirent *entry; (entry = readdir(d));)
		look_at(folder, entry->d_name, found);
	closedir(d);
	return true;
}

/* Removes the least recently used of our files in a folder until they take at most `bytes` bytes,
 * and the temporary files of killed writers. False: there are still more. */
static bool weight_cache_evict(int folder, uint64_t bytes)
{
	struct found f;
	while (look_around(folder, &f)) {
		if (f.bytes <= bytes)
			return true;
		if (!f.oldest[0] || unlinkat(folder, f.oldest, 0))
			return false;
	}
	return false;
}

/* ==== Finds and keeps files of converted weights in a folder ==== */

#define DEFAULT_BYTES ((uint64_t)8 << 30)

enum { NAME_BYTES = 64, WRITE_MAX = 1 << 30 };

static void report(const struct kvi_engine_options *options, kvarc_weights what, uint64_t bytes,
                   const char *why)
{
	const kvarc_weight_cache *c = options->cache;
	if (c->report)
		c->report(c->opaque, what, bytes, why);
}

static uint64_t limit(const struct kvi_engine_options *options)
{
	return options->cache->max_bytes ? options->cache->max_bytes : DEFAULT_BYTES;
}

static bool layout_of(struct kvi_engine *engine, const struct kvi_engine_options *options,
                      struct kvi_weight_cache_layout *layout)
{
	struct kvi_h128 stamp;
	return options->cache && options->cache->folder &&
	       kvi_model_file_stamp(options->file, &stamp) &&
	       kvi_weight_cache_layout(engine, &stamp, layout);
}

static void name_of(const struct kvi_weight_cache_layout *layout, char name[NAME_BYTES])
{
	snprintf(name, NAME_BYTES, "%016llx%016llx.kvw", (unsigned long long)layout->key.hi,
	         (unsigned long long)layout->key.lo);
}

static int open_folder(const char *path, bool make)
{
	int folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (folder < 0 && errno == ENOENT && make && (mkdir(path, 0700) == 0 || errno == EEXIST))
		folder = open_folder(path, false);
	return folder;
}

/* ------------------------------------------------------------- finding */

/* Whether a file of this size is the user's, and no other user can write it. */
static bool is_private(int fd, size_t bytes)
{
	struct stat st;
	return fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == geteuid() &&
	       !(st.st_mode & 022) && (uintmax_t)st.st_size == bytes;
}

static bool map(struct kvi_engine *engine, const struct kvi_engine_options *options,
                const struct kvi_weight_cache_layout *layout, int fd)
{
	void *p = mmap(NULL, layout->bytes, PROT_READ, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED)
		return false;
	if (!kvi_weight_cache_read(engine, layout, p, layout->bytes, options->pool)) {
		munmap(p, layout->bytes);
		return false;
	}
	engine->cached = p;
	engine->cached_bytes = layout->bytes;
	return true;
}

static bool find(struct kvi_engine *engine, const struct kvi_engine_options *options)
{
	struct kvi_weight_cache_layout l;
	char name[NAME_BYTES];
	if (!layout_of(engine, options, &l))
		return false;
	name_of(&l, name);
	int folder = open_folder(options->cache->folder, false);
	if (folder < 0)
		return false;
	int fd = openat(folder, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	bool good = fd >= 0 && is_private(fd, l.bytes) && map(engine, options, &l, fd);
	if (good) {
		/* Records the last use; where that is not allowed, the file is evicted sooner. */
		int ignored = futimens(fd, NULL);
		(void)ignored;
		report(options, KVARC_WEIGHTS_FOUND, l.bytes, "");
	}
	if (fd >= 0)
		close(fd);
	close(folder);
	return good;
}

/* ------------------------------------------------------------- keeping */

static bool write_all(void *opaque, const void *p, size_t n)
{
	const int *fd = opaque;
	for (const uint8_t *at = p; n;) {
		ssize_t k = write(*fd, at, n < WRITE_MAX ? n : WRITE_MAX);
		if (k < 0 && errno == EINTR)
			continue;
		if (k <= 0)
			return false;
		at += k;
		n -= (size_t)k;
	}
	return true;
}

/* A name that no other process or thread has. */
static void temporary(const struct kvi_engine *engine, char name[NAME_BYTES])
{
	struct {
		const void *engine;
		struct timespec now;
		pid_t pid;
	} unique;
	memset(&unique, 0, sizeof unique);
	unique.engine = engine;
	unique.pid = getpid();
	clock_gettime(CLOCK_REALTIME, &unique.now);
	snprintf(name, NAME_BYTES, "%016llx.tmp",
	         (unsigned long long)kvi_h64(&unique, sizeof unique));
}

/* Writes a temporary file and renames it. Returns NULL, or the reason of a failure. */
static const char *write_and_rename(struct kvi_engine *engine,
                                    const struct kvi_weight_cache_layout *layout,
                                    const uint8_t *header, int folder)
{
	char name[NAME_BYTES], temp[NAME_BYTES];
	name_of(layout, name);
	temporary(engine, temp);
	int fd = openat(folder, temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		return strerror(errno);
	bool good = write_all(&fd, header, layout->header) &&
	            kvi_weight_cache_parts(engine, write_all, &fd);
	int code = errno;
	if (close(fd) && good) {
		good = false;
		code = errno;
	}
	if (good && renameat(folder, temp, folder, name) == 0)
		return NULL;
	code = good ? errno : code;
	unlinkat(folder, temp, 0);
	return strerror(code);
}

static bool disk_has_room(int folder, uint64_t bytes)
{
	struct statvfs s;
	return fstatvfs(folder, &s) || (uint64_t)s.f_bavail >= bytes / s.f_frsize + 1;
}

/* Whether a file may have that size: a write beyond the limit raises a signal, which ends a
 * process. */
static bool may_be_so_long(uint64_t bytes)
{
	struct rlimit r;
	return getrlimit(RLIMIT_FSIZE, &r) || r.rlim_cur == RLIM_INFINITY || bytes <= r.rlim_cur;
}

static const char *store_in(struct kvi_engine *engine, const struct kvi_engine_options *options,
                            const struct kvi_weight_cache_layout *layout, int folder)
{
	if (!may_be_so_long(layout->bytes))
		return strerror(EFBIG);
	if (!weight_cache_evict(folder, limit(options) - layout->bytes))
		return "others cannot be removed";
	if (!disk_has_room(folder, layout->bytes))
		return strerror(ENOSPC);
	/* made before the file, so that an unfinished file begins with the magic number */
	uint8_t *header = kvi_malloc(engine->alloc, layout->header);
	const char *why = header && kvi_weight_cache_header(engine, layout, header, options->pool)
	                          ? write_and_rename(engine, layout, header, folder)
	                          : strerror(ENOMEM);
	kvi_free(engine->alloc, header);
	return why;
}

static void store(struct kvi_engine *engine, const struct kvi_engine_options *options)
{
	struct kvi_weight_cache_layout l;
	const char *why = "more than all may have";
	if (!options->cache || !options->cache->folder)
		return;
	if (!layout_of(engine, options, &l)) {
		report(options, KVARC_WEIGHTS_NOT_KEPT, 0, "the model has just been written");
		return;
	}
	if (l.bytes <= limit(options)) {
		int folder = open_folder(options->cache->folder, true);
		why = folder < 0 ? strerror(errno) : store_in(engine, options, &l, folder);
		if (folder >= 0)
			close(folder);
	}
	report(options, why ? KVARC_WEIGHTS_NOT_KEPT : KVARC_WEIGHTS_KEPT, l.bytes, why ? why : "");
}

kvarc_ret kvi_cached_engine(struct kvi_engine **engine, const struct kvi_engine_options *options)
{
	kvarc_ret ret = kvi_engine_begin(engine, options);
	if (ret || find(*engine, options))
		return ret;
	ret = kvi_engine_convert(engine, options);
	if (!ret)
		store(*engine, options);
	return ret;
}
