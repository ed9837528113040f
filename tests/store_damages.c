/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * store_damages.c - every object of a store in a folder is damaged, one at a time
 *
 * store_damages [N [SEED]]: N damages (60) of those that there are; 0: all.
 *
 * The store has sessions with shared prefixes, a fork, archives that only others need, and an
 * encrypted session. Each archive is cut at each boundary of its frames, archives and manifests
 * elsewhere, too; ends are zeroed, 16 bytes inserted, bits flipped, objects emptied or removed, two
 * archives exchanged, half of them with the time of the file as it was; the index loses rows, is
 * lost, or is an older one. After each damage
 * - verify names the object; a load gives the bytes that were saved, or fails;
 * - gc removes nothing that is needed once the object is there again, unless it was missing;
 * - without it, sessions are saved again, and load, with the index as it is and with a new one.
 * Damages of the index change no answer. The last line is "damages: N, failures: M".
 */
#include "config.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#ifdef HAVE_SQLITE3
#include <sqlite3.h>
#endif

#include "format/frame.h"
#include "format/superblock.h"
#include "stores_made.h"

enum {
	OBJECTS_MOST = 64,
	VERSIONS_MOST = 32,
	PATH_MOST = 512,
	ELSEWHERE = 200, /* cuts at other offsets */
	NONE = UINT32_MAX,
	INSERTED = 16,
	LINES_MOST = 40 /* of failures, the first one of each damage */
};

/* A file of the store, relative to its folder. */
struct store_object {
	char path[128];
	char id[33]; /* of an archive; "": it is none */
	uint8_t *p;
	size_t n;
	struct timespec time;
};

/* A version that was saved. */
struct saved_version {
	const char *session;
	uint64_t number;
	struct made_file f;
	bool encrypted;
};

enum damage_kind {
	CUT,
	ZEROED,
	INSERTION,
	EMPTY,
	MISSING,
	EXCHANGED,
	CONCEALED, /* exchanged, one that is encrypted and one that is not */
	FLIPPED,
	/* of the index */
	ROWS,
	LOST,
	OLDER,
	DAMAGE_KINDS
};
static const char *const kind_names[DAMAGE_KINDS] = {
	"cut",        "zeroed end", "inserted bytes",       "empty",
	"missing",    "exchanged",  "exchanged, encrypted", "bit",
	"index rows", "lost index", "older index"
};

struct store_damage {
	enum damage_kind kind;
	size_t object, other; /* the second one of an exchange */
	size_t at;            /* byte, or random number */
	bool rot;             /* the time of the file stays */
};

static struct store_object objects[OBJECTS_MOST];
static size_t n_objects, n_archives;
static struct saved_version versions[VERSIONS_MOST];
static size_t n_versions;
static uint8_t *old_index; /* of an earlier state of the store */
static size_t old_index_bytes;
static char base[] = "/dev/shm/kvarc-damages-XXXXXX";
static char master[PATH_MOST], work[PATH_MOST];
static uint64_t seed = 1, failures, seen[DAMAGE_KINDS], failed[DAMAGE_KINDS];
static const struct store_damage *now; /* in hand, */
static bool now_failed;                /* and whether something did not hold behind it */

static uint64_t below(uint64_t n)
{
	return n ? kvi_splitmix64(&seed) % n : 0;
}

static _Noreturn void die(const char *what)
{
	fprintf(stderr, "store_damages: %s\n", what);
	exit(1);
}

__attribute__((format(printf, 1, 2))) static void fail(const char *format, ...)
{
	va_list list;
	const struct store_object *o = &objects[now->object];
	if (!now_failed && failures < LINES_MOST) {
		fprintf(stderr, "%s at %zu of %s (%zu bytes): ", kind_names[now->kind], now->at,
		        now->kind < ROWS ? o->path : "the index", now->kind < ROWS ? o->n : 0);
		va_start(list, format);
		vfprintf(stderr, format, list);
		va_end(list);
		fprintf(stderr, "\n");
	}
	now_failed = true;
}

/* ----- files ------------------------------------------------ */

static uint8_t *read_file(const char *path, size_t *n)
{
	struct stat st;
	int fd = open(path, O_RDONLY);
	if (fd < 0 || fstat(fd, &st) != 0)
		die(path);
	uint8_t *p = malloc((size_t)st.st_size + 1);
	if (!p || read(fd, p, (size_t)st.st_size) != st.st_size)
		die(path);
	close(fd);
	*n = (size_t)st.st_size;
	return p;
}

static void write_bytes(const char *path, const void *p, size_t n)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	if (fd < 0 || write(fd, p, n) != (ssize_t)n)
		die(path);
	close(fd);
}

/* Makes the folders above a path. */
static void make_above(const char *path)
{
	char above[PATH_MOST];
	snprintf(above, sizeof above, "%s", path);
	for (char *slash = strchr(above + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
		*slash = 0;
		mkdir(above, 0700);
		*slash = '/';
	}
}

static void in_folder(char path[PATH_MOST], const char *folder, const char *name)
{
	if (snprintf(path, PATH_MOST, "%s/%s", folder, name) >= PATH_MOST)
		die("a long path");
}

static void put_time(const char *path, const struct store_object *o)
{
	const struct timespec times[2] = { o->time, o->time };
	utimensat(AT_FDCWD, path, times, 0);
}

/* An object as it was, with its time. */
static void put_object(const struct store_object *o)
{
	char path[PATH_MOST];
	in_folder(path, work, o->path);
	make_above(path);
	write_bytes(path, o->p, o->n);
	put_time(path, o);
}

/* The store as it was before the damage. */
static void restore_all(void)
{
	made_remove(work);
	for (size_t i = 0; i < n_objects; i++)
		put_object(&objects[i]);
}

static void note_object(const char *relative)
{
	struct store_object *o = &objects[n_objects++];
	char path[PATH_MOST];
	struct stat st;
	if (n_objects == OBJECTS_MOST)
		die("too many objects");
	in_folder(path, master, relative);
	snprintf(o->path, sizeof o->path, "%s", relative);
	if (stat(path, &st) != 0)
		die(path);
	o->time = st.st_mtim;
	o->p = read_file(path, &o->n);
	if (strncmp(relative, "packs/", 6) == 0)
		snprintf(o->id, sizeof o->id, "%.32s", relative + 9);
}

static void note_objects(const char *relative)
{
	char path[PATH_MOST], name[PATH_MOST];
	const struct dirent *e;
	in_folder(path, master, relative);
	DIR *d = opendir(path);
	while (d && (e = readdir(d))) {
		struct stat st;
		if (e->d_name[0] == '.')
			continue;
		in_folder(name, relative, e->d_name);
		in_folder(path, master, name);
		if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
			note_objects(name);
		else
			note_object(name);
	}
	if (d)
		closedir(d);
}

/* ----- the store ------------------------------------------------ */

/* A store that is open twice: sessions that are not encrypted load without a key alone. */
struct opened_store {
	struct made_store plain, keyed;
};

static void open_both(struct opened_store *o, const char *folder, const char *index)
{
	struct made_place p = { .url = folder,
		                .index = index,
		                .flags = KVARC_STORE_CREATE | KVARC_STORE_NO_SYNC };
	if (made_open(&o->plain, &p))
		die(o->plain.error.text);
	p.keyed = true;
	if (made_open(&o->keyed, &p))
		die(o->keyed.error.text);
}

static void close_both(struct opened_store *o)
{
	made_close(&o->plain);
	made_close(&o->keyed);
}

static struct made_store *handle_of(struct opened_store *o, const struct saved_version *v)
{
	return v->encrypted ? &o->keyed : &o->plain;
}

static struct saved_version save_new(struct opened_store *o, const char *session,
                                     struct made_file f, bool encrypted)
{
	struct saved_version v = { session, 0, f, encrypted };
	kvarc_saved saved;
	struct made_store *m = handle_of(o, &v);
	if (made_save(m, session, f, encrypted ? KVARC_SAVE_ENCRYPT : KVARC_SAVE_PLAIN, &saved))
		die(m->error.text);
	v.number = saved.version;
	return v;
}

static void keep(struct saved_version v)
{
	versions[n_versions++] = v;
}

static void make_master(void)
{
	struct opened_store o;
	char path[PATH_MOST];
	open_both(&o, master, NULL);
	/* "gone" is removed: others need what it saved, as a whole and a small part of it */
	save_new(&o, "gone", (struct made_file){ 200, NONE }, false);
	save_new(&o, "long", (struct made_file){ 500, 0 }, false);
	keep(save_new(&o, "a", (struct made_file){ 260, NONE }, false));
	keep(save_new(&o, "a", (struct made_file){ 300, 290 }, false));
	in_folder(path, master, "index.sqlite");
	close_both(&o);
	old_index = read_file(path, &old_index_bytes);
	open_both(&o, master, NULL);
	keep(save_new(&o, "a", (struct made_file){ 350, 290 }, false));
	if (kvarc_store_fork(o.plain.s, "a", 2, "b/fork"))
		die(o.plain.error.text);
	keep((struct saved_version){ "b/fork", 1, { 300, 290 }, false });
	keep(save_new(&o, "b/fork", (struct made_file){ 340, 310 }, false));
	keep(save_new(&o, "c", (struct made_file){ 150, 0 }, false));
	keep(save_new(&o, "e", (struct made_file){ 180, NONE }, true));
	keep(save_new(&o, "e", (struct made_file){ 230, NONE }, true));
	if (kvarc_store_remove(o.plain.s, "gone", NULL) ||
	    kvarc_store_remove(o.plain.s, "long", NULL))
		die(o.plain.error.text);
	close_both(&o);
	note_objects("packs");
	n_archives = n_objects;
	note_objects("sessions");
	note_object("index.sqlite");
}

/* ----- damages ------------------------------------------------ */

/* Rows that are lost, or that are about another state of their archive. */
static void damage_rows(const char *path, const struct store_damage *d)
{
#ifdef HAVE_SQLITE3
	static const char *const statements[] = {
		"DELETE FROM packs WHERE rowid %% %d = %d",
		"DELETE FROM segments WHERE rowid %% %d = %d",
		"DELETE FROM refs WHERE rowid %% %d = %d",
		"UPDATE packs SET bytes = bytes + 16 WHERE rowid %% %d = %d",
		"UPDATE packs SET time = time - 100 WHERE rowid %% %d = %d"
	};
	enum { STATEMENTS = sizeof statements / sizeof statements[0] };
	char sql[200];
	sqlite3 *db;
	const int every = 1 + (int)(d->at / STATEMENTS % 7);
	if (sqlite3_open(path, &db) != SQLITE_OK)
		die("the index cannot be opened");
	/* every row, or each of those that leave that remainder */
	snprintf(sql, sizeof sql, statements[d->at % STATEMENTS], every,
	         (int)(d->at / STATEMENTS / 7) % every);
	if (sqlite3_exec(db, sql, NULL, NULL, NULL) != SQLITE_OK)
		die(sqlite3_errmsg(db));
	sqlite3_close(db);
#else
	(void)path;
	(void)d;
#endif
}

static void damage_object(const struct store_damage *d, const char *path)
{
	const struct store_object *o = &objects[d->object];
	uint8_t *p = malloc(o->n + INSERTED);
	size_t n = o->n;
	if (!p)
		die("no memory");
	memcpy(p, o->p, n);
	if (d->kind == CUT) {
		n = d->at;
	} else if (d->kind == ZEROED) {
		memset(p + d->at, 0, n - d->at);
	} else if (d->kind == INSERTION) {
		memmove(p + d->at + INSERTED, p + d->at, n - d->at);
		memset(p + d->at, 0x5a, INSERTED);
		n += INSERTED;
	} else if (d->kind == EMPTY) {
		n = 0;
	} else {
		p[d->at] ^= (uint8_t)(1 << (d->at * 7 + d->other) % 8);
	}
	if (n == o->n && memcmp(p, o->p, n) == 0)
		p[n - 1] ^= 1; /* zeros are zeroed */
	write_bytes(path, p, n);
	free(p);
}

static bool is_exchange(enum damage_kind kind)
{
	return kind == EXCHANGED || kind == CONCEALED;
}

static void make_damage(const struct store_damage *d)
{
	char path[PATH_MOST], other[PATH_MOST], index[PATH_MOST];
	restore_all();
	in_folder(path, work, objects[d->object].path);
	in_folder(index, work, "index.sqlite");
	if (d->kind == MISSING) {
		unlink(path);
	} else if (is_exchange(d->kind)) {
		in_folder(other, work, objects[d->other].path);
		write_bytes(path, objects[d->other].p, objects[d->other].n);
		write_bytes(other, objects[d->object].p, objects[d->object].n);
		if (d->rot)
			put_time(other, &objects[d->other]);
	} else if (d->kind == ROWS) {
		damage_rows(index, d);
	} else if (d->kind == LOST) {
		unlink(index);
	} else if (d->kind == OLDER) {
		write_bytes(index, old_index, old_index_bytes);
	} else {
		damage_object(d, path);
	}
	if (d->rot && d->kind < ROWS && d->kind != MISSING)
		put_time(path, &objects[d->object]);
}

/* ----- what must hold ------------------------------------------------ */

struct named_losses {
	uint64_t n;
	bool named;
};

static void see_loss(void *opaque, const char *text)
{
	struct named_losses *l = opaque;
	const struct store_object *o = &objects[now->object], *other = &objects[now->other];
	l->n++;
	if (*o->id)
		l->named |= strstr(text, o->id) ||
		            (is_exchange(now->kind) && strstr(text, other->id));
	else
		l->named |= strstr(text, o->path) != NULL;
}

static void check_verify(struct opened_store *o)
{
	struct named_losses l = { 0, false };
	uint64_t n = 0;
	if (kvarc_store_verify(o->keyed.s, see_loss, &l, &n)) {
		fail("verify: %s", o->keyed.error.text);
	} else if (now->kind >= ROWS) {
		if (n)
			fail("verify says that %d objects are lost", (int)n);
	} else if (!n) {
		fail("verify says nothing");
	} else if (!l.named && now->kind != MISSING) {
		/* archives name segments of others, and not the others */
		fail("verify does not name it");
	}
}

/* All versions load; may_fail: or fail. */
static void check_loads(struct opened_store *o, bool may_fail, const char *when)
{
	for (size_t i = 0; i < n_versions; i++) {
		struct made_store *m = handle_of(o, &versions[i]);
		const kvarc_ret ret = made_check(m, versions[i].session, versions[i].number,
		                                 versions[i].f);
		if (m->other_bytes || (ret && !may_fail))
			fail("%s: load of %s@%d: %s", when, versions[i].session,
			     (int)versions[i].number, m->error.text);
		m->other_bytes = false;
	}
}

/* Whether size or time show that an archive was changed. Other damage nobody sees before it is
 * read. */
static bool shows_itself(const struct store_damage *d)
{
	const size_t n = objects[d->object].n, other = objects[d->other].n;
	const bool same_size = d->kind == FLIPPED || d->kind == ZEROED ||
	                       (is_exchange(d->kind) && n == other);
	return d->kind != FLIPPED && (!same_size || !d->rot);
}

/* Whatever is left of it, an encrypted session is not saved without its key, and the answer says
 * that the key is missing, or that it is not known whether it is. */
static void check_locked(struct opened_store *o, const char *when)
{
	const kvarc_ret ret = made_save(&o->plain, "e", (struct made_file){ 240, NONE }, 0, NULL);
	if (ret != KVARC_AUTH && ret != KVARC_OPTIONS)
		fail("%s: a save without the key returns %d: %s", when, (int)ret,
		     ret ? o->plain.error.text : "it was saved");
}

/* Sessions are saved again, the last files and longer ones, and a new one that shares all. */
static void check_saves(struct opened_store *o, const char *when)
{
	static const char *const names[] = { "a", "b/fork", "c", "e", "new", "a", "e", "new" };
	static const struct made_file files[] = { { 350, 290 },  { 340, 310 },  { 150, 0 },
		                                  { 230, NONE }, { 200, NONE }, { 400, 290 },
		                                  { 300, NONE }, { 370, 290 } };
	enum { SAVES = sizeof files / sizeof files[0] };
	struct saved_version done[SAVES];
	size_t n = 0;
	check_locked(o, when);
	for (size_t i = 0; i < SAVES; i++) {
		struct saved_version v = { names[i], 0, files[i], *names[i] == 'e' };
		struct made_store *m = handle_of(o, &v);
		kvarc_ret ret = KVARC_DATA;
		for (int again = 0; again < 2 && ret; again++) {
			kvarc_saved saved = { 0 };
			if (made_save(m, v.session, v.f,
			              v.encrypted ? KVARC_SAVE_ENCRYPT : KVARC_SAVE_PLAIN,
			              &saved)) {
				fail("%s: save of %s: %s", when, v.session, m->error.text);
				break;
			}
			v.number = saved.version;
			ret = made_check(m, v.session, v.number, v.f);
			if (ret && (again || m->other_bytes || shows_itself(now)))
				fail("%s: load %d behind a save of %s@%d: %s", when, again + 1,
				     v.session, (int)v.number, m->error.text);
			m->other_bytes = false;
		}
		if (!ret)
			done[n++] = v;
	}
	for (size_t i = 0; i < n; i++) {
		struct made_store *m = handle_of(o, &done[i]);
		if (made_check(m, done[i].session, done[i].number, done[i].f))
			fail("%s: load at the end of %s@%d: %s", when, done[i].session,
			     (int)done[i].number, m->error.text);
		m->other_bytes = false;
	}
}

/* Nothing goes that is needed when the object is there again. */
static void check_gc(void)
{
	struct opened_store o;
	kvarc_gc_options go = KVARC_GC_OPTIONS_INIT;
	kvarc_gc_result r;
	go.no_grace = 1;
	make_damage(now);
	open_both(&o, work, NULL);
	const kvarc_ret ret = kvarc_store_gc(o.plain.s, &go, &r);
	if (ret && (ret != KVARC_DATA || now->kind >= ROWS))
		fail("gc: %s", o.plain.error.text);
	close_both(&o);
	if (now->kind < ROWS) {
		put_object(&objects[now->object]);
		if (is_exchange(now->kind))
			put_object(&objects[now->other]);
	}
	open_both(&o, work, NULL);
	/* what a missing archive needs is not known, and does not keep gc from its work */
	check_loads(&o, now->kind == MISSING, "there again, behind gc");
	close_both(&o);
}

/* verify teaches the index, or nobody has looked, or there is no index. */
static void check_heals(int how)
{
	static const char *const when[] = { "behind verify", "at once", "with a new index" };
	struct opened_store o;
	char path[PATH_MOST];
	make_damage(now);
	in_folder(path, work, "index.sqlite");
	if (how == 2)
		unlink(path);
	open_both(&o, work, NULL);
	if (how == 0) {
		check_loads(&o, now->kind < ROWS, "before");
		check_verify(&o);
	}
	check_saves(&o, when[how]);
	close_both(&o);
}

static void check_damage(const struct store_damage *d)
{
	now = d;
	now_failed = false;
	for (int how = 0; how < 3; how++)
		check_heals(how);
	check_gc();
	seen[d->kind]++;
	failures += now_failed;
	failed[d->kind] += now_failed;
}

/* ----- all of them ------------------------------------------------ */

static struct store_damage *list;
static size_t n_list, list_capacity;

static void add(enum damage_kind kind, size_t object, size_t other, size_t at)
{
	if (n_list == list_capacity) {
		list_capacity = 2 * list_capacity + 1000;
		list = realloc(list, list_capacity * sizeof *list);
		if (!list)
			die("no memory");
	}
	list[n_list++] = (struct store_damage){ kind, object, other, at, below(2) != 0 };
}

static bool is_encrypted(size_t object)
{
	struct kvi_superblock sb;
	return kvi_superblock_parse(&sb, objects[object].p) == KVARC_OK &&
	       (sb.incompat & KVI_INCOMPAT_ENCRYPTED);
}

/* At the start of each frame and at its end. */
static void add_frames(size_t object)
{
	const struct store_object *o = &objects[object];
	struct kvi_superblock sb;
	struct kvi_frame_head h;
	if (kvi_superblock_parse(&sb, o->p) == KVARC_FORMAT)
		die("an archive has no superblock");
	const uint64_t sync = kvi_frame_sync(sb.file_id);
	size_t at = KVI_SUPERBLOCK_BYTES, frames = 0;
	while (at + KVI_FRAME_HEAD_BYTES <= o->n && kvi_frame_head_parse(&h, o->p + at, sync, at)) {
		add(CUT, object, 0, at);
		add(ZEROED, object, 0, at);
		add(INSERTION, object, 0, at);
		add(FLIPPED, object, 1, at + below(KVI_FRAME_HEAD_BYTES));
		add(FLIPPED, object, 1,
		    at + KVI_FRAME_HEAD_BYTES + below(kvi_frame_padded(h.payload_bytes) + 16));
		at += kvi_frame_bytes(h.payload_bytes);
		frames++;
	}
	if (at != o->n || frames < 5)
		die("frames of an archive were not found");
}

/* What a mark of used numbers holds says nothing, its name does. */
static bool is_mark(const struct store_object *o)
{
	return strstr(o->path, "/=") != NULL;
}

static void list_damages(void)
{
	for (size_t i = 0; i < n_objects - 1; i++) {
		if (is_mark(&objects[i]))
			continue;
		/* a manifest that is gone is a version that was removed */
		if (i < n_archives) {
			add_frames(i);
			add(MISSING, i, 0, 0);
		}
		add(EMPTY, i, 0, 0);
		for (int k = 0; k < 8; k++) {
			add(ZEROED, i, 0, objects[i].n - 1 - below(objects[i].n / 2));
			add(FLIPPED, i, 0, below(objects[i].n));
			add(INSERTION, i, 0, below(objects[i].n / 16) * 16);
		}
	}
	for (int i = 0; i < ELSEWHERE; i++) {
		const size_t object = below(n_objects - 1);
		if (!is_mark(&objects[object]))
			add(CUT, object, 0, 1 + below(objects[object].n - 1));
	}
	for (size_t i = 0; i < n_archives; i++)
		for (size_t k = i + 1; k < n_archives; k++)
			add(is_encrypted(i) == is_encrypted(k) ? EXCHANGED : CONCEALED, i, k, 0);
	for (size_t i = 0; i < 245; i++)
		add(ROWS, n_objects - 1, 0, i);
	add(LOST, n_objects - 1, 0, 0);
	add(OLDER, n_objects - 1, 0, 0);
}

/* Before the rest: of each kind one, whatever comes first. */
static void shuffle(void)
{
	for (size_t i = n_list; i > 1; i--) {
		const size_t k = below(i);
		const struct store_damage d = list[i - 1];
		list[i - 1] = list[k];
		list[k] = d;
	}
	for (size_t kind = 0; kind < DAMAGE_KINDS; kind++)
		for (size_t i = kind; i < n_list; i++)
			if (list[i].kind == kind) {
				const struct store_damage d = list[i];
				list[i] = list[kind];
				list[kind] = d;
				break;
			}
}

int main(int argc, char **argv)
{
	size_t n = argc > 1 ? strtoull(argv[1], NULL, 10) : 60;
	seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
	if (!mkdtemp(base))
		return 77; /* no memory as a file system */
	in_folder(master, base, "master");
	in_folder(work, base, "work");
	make_master();
	list_damages();
	shuffle();
	n = n == 0 || n > n_list ? n_list : n;
	for (size_t i = 0; i < n; i++)
		check_damage(&list[i]);
	printf("%zu archives, %zu manifests, %zu versions\n", n_archives,
	       n_objects - 1 - n_archives, n_versions);
	for (size_t i = 0; i < DAMAGE_KINDS; i++)
		printf("%s: %d, of which failed %d\n", kind_names[i], (int)seen[i], (int)failed[i]);
	made_remove(base);
	printf("damages: %zu, failures: %d\n", n, (int)failures);
	return failures != 0;
}
