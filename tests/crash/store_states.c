/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * store_states.c - what a disk may hold after a power failure in a folder store:
 * store_states [STATES [SEED]]
 *
 * Sessions are saved, forked, removed, and gc removes and repacks, and all calls that change files
 * and folders are recorded. A failure behind any of them leaves
 * - of a file what was synchronised; of later writes any, each sector of 512 bytes alone, and any
 *   size between;
 * - of a folder the names that were synchronised; of later ones any, each alone.
 * Every prefix with nothing lost and STATES (3,000) random states are replayed. Every version that
 * was acknowledged, and that nobody had asked to remove, loads, with a new index and with one that
 * is of a later moment; in some states a session is saved again, gc runs, and no number is used
 * twice. The last line is "states: N, losses: M".
 */
#define _GNU_SOURCE /* readlink, struct stat */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../store_calls.h"
#include "../stores_made.h"

enum {
	SECTOR = 512,
	OPERATIONS_MOST = 8192,
	FILES_MOST = 1024,
	PATH_MOST = 600,
	PROMISES_MOST = 64,
	NONE = UINT32_MAX,
	LINES_MOST = 20
};

/* Something that changed the disk. Paths are behind the folder of the test. */
struct disk_change {
	enum { WRITE, SIZE, SYNC_FILE, NAME, FOLDER, GONE, MOVE, SYNC_FOLDER } kind;
	char *path, *to; /* to: of MOVE */
	int file;        /* of WRITE, SIZE, SYNC_FILE, NAME */
	uint64_t offset;
	size_t n;
	uint8_t *data;
	size_t durable; /* behind this many changes it is on the disk; SIZE_MAX: never */
};

/* A file, by the system's number of it as long as it has one. */
struct disk_file {
	ino_t inode;
	size_t synced; /* in the replay in hand: changes before this are on the disk */
};

/* A version that was acknowledged. */
struct promise {
	const char *session;
	uint64_t number;
	struct made_file f;
	bool encrypted;
	size_t from, until; /* changes at its acknowledgement; when somebody asked to remove it */
};

static struct disk_change changes[OPERATIONS_MOST];
static size_t n_changes;
static struct disk_file files[FILES_MOST];
static int n_files;
static struct promise promises[PROMISES_MOST];
static size_t n_promises;
static char base[PATH_MOST] = "/dev/shm/kvarc-states-XXXXXX", live[PATH_MOST], later[PATH_MOST],
	    state[PATH_MOST];
static uint64_t seed = 1, losses, states;
/* The store is in folders that are made with it. */
#define STORE "new/folders/store"

static uint64_t below(uint64_t n)
{
	return n ? kvi_splitmix64(&seed) % n : 0;
}

static _Noreturn void die(const char *what, const char *why)
{
	fprintf(stderr, "store_states: %s: %s\n", what, why);
	exit(1);
}

static void *checked(void *p)
{
	if (!p)
		die("memory", "there is none");
	return p;
}

/* ----- the record ------------------------------------------------ */

/* The path of a descriptor or of a name in a folder, behind `live`. False: it is elsewhere. */
static bool path_in_test(int fd, const char *name, char out[PATH_MOST])
{
	char link[64], path[PATH_MOST] = "";
	const size_t skip = strlen(live);
	if (!name || name[0] != '/') {
		if (fd == AT_FDCWD)
			return false;
		snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
		const ssize_t n = readlink(link, path, sizeof path - 1);
		if (n <= 0)
			return false;
		path[n] = 0;
	}
	if (strcmp(name ? name : ".", ".") != 0) {
		if (path[0])
			strncat(path, "/", sizeof path - strlen(path) - 1);
		strncat(path, name, sizeof path - strlen(path) - 1);
	}
	if (strncmp(path, live, skip) != 0 || (path[skip] && path[skip] != '/'))
		return false;
	snprintf(out, PATH_MOST, "%s", path[skip] ? path + skip + 1 : "");
	return true;
}

static struct disk_change *record(int kind, const char *path)
{
	if (n_changes == OPERATIONS_MOST)
		die("the record", "too many changes");
	struct disk_change *c = &changes[n_changes++];
	c->kind = kind;
	c->path = path ? checked(strdup(path)) : NULL;
	c->file = -1;
	return c;
}

/* -1: not a file of the test. */
static int file_of(int fd)
{
	struct stat st;
	if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode))
		return -1;
	for (int i = n_files; i-- > 0;)
		if (files[i].inode == st.st_ino)
			return i;
	return -1;
}

static bool new_file; /* the open in hand makes one */

static int before_call(const struct store_call *c)
{
	struct stat st;
	if (c->kind == STORE_CALL_OPEN)
		new_file = (c->flags & O_CREAT) &&
		           fstatat(c->fd, c->path, &st, AT_SYMLINK_NOFOLLOW) != 0;
	return 0;
}

static void opened(const struct store_call *c, int fd)
{
	char path[PATH_MOST];
	struct stat st;
	if (!new_file || !path_in_test(c->fd, c->path, path) || fstat(fd, &st) != 0)
		return;
	if (n_files == FILES_MOST)
		die("the record", "too many files");
	files[n_files].inode = st.st_ino;
	record(NAME, path)->file = n_files++;
}

static void written(const struct store_call *c, size_t n)
{
	const int file = file_of(c->fd);
	if (file < 0)
		return;
	struct disk_change *d = record(WRITE, NULL);
	d->file = file;
	d->offset = c->offset;
	d->n = n;
	d->data = checked(malloc(n + 1));
	memcpy(d->data, c->data, n);
}

static void synchronised(const struct store_call *c)
{
	char path[PATH_MOST];
	struct stat st;
	const int file = file_of(c->fd);
	if (file >= 0)
		record(SYNC_FILE, NULL)->file = file;
	else if (fstat(c->fd, &st) == 0 && S_ISDIR(st.st_mode) && path_in_test(c->fd, NULL, path))
		record(SYNC_FOLDER, path);
}

/* The file that has a name in a folder now. */
static int file_at(int fd, const char *path)
{
	struct stat st;
	if (fstatat(fd, path, &st, AT_SYMLINK_NOFOLLOW) == 0)
		for (int i = n_files; i-- > 0;)
			if (files[i].inode == st.st_ino)
				return i;
	return -1;
}

static void behind_call(const struct store_call *c, long result)
{
	char path[PATH_MOST], to[PATH_MOST];
	if (result < 0)
		return;
	switch (c->kind) {
	case STORE_CALL_OPEN:
		opened(c, (int)result);
		break;
	case STORE_CALL_WRITE:
		written(c, (size_t)result);
		break;
	case STORE_CALL_TRUNCATE:
		if (file_of(c->fd) >= 0) {
			struct disk_change *d = record(SIZE, NULL);
			d->file = file_of(c->fd);
			d->offset = c->offset;
		}
		break;
	case STORE_CALL_SYNC:
		synchronised(c);
		break;
	case STORE_CALL_MKDIR:
		if (path_in_test(c->fd, c->path, path))
			record(FOLDER, path);
		break;
	case STORE_CALL_LINK:
		if (path_in_test(c->to_fd, c->to, to))
			record(NAME, to)->file = file_at(c->to_fd, c->to);
		break;
	case STORE_CALL_UNLINK:
		if (path_in_test(c->fd, c->path, path))
			record(GONE, path);
		break;
	case STORE_CALL_RENAME:
		if (path_in_test(c->fd, c->path, path) && path_in_test(c->to_fd, c->to, to)) {
			struct disk_change *d = record(MOVE, path);
			d->to = checked(strdup(to));
			d->file = file_at(c->to_fd, c->to);
		}
	}
}

/* ----- when each change is on the disk ------------------------------------------------ */

static bool is_in(const char *folder, const char *path)
{
	const char *slash = strrchr(path, '/');
	const size_t n = slash ? (size_t)(slash - path) : 0;
	return strlen(folder) == n && strncmp(folder, path, n) == 0;
}

static bool syncs(const struct disk_change *s, const struct disk_change *c)
{
	if (c->kind == WRITE || c->kind == SIZE)
		return s->kind == SYNC_FILE && s->file == c->file;
	if (s->kind != SYNC_FOLDER || !c->path)
		return false;
	return is_in(s->path, c->path) || (c->to && is_in(s->path, c->to));
}

static void find_durable(void)
{
	for (size_t i = 0; i < n_changes; i++) {
		changes[i].durable = SIZE_MAX;
		for (size_t k = i + 1; k < n_changes && changes[i].durable == SIZE_MAX; k++)
			if (syncs(&changes[k], &changes[i]))
				changes[i].durable = k + 1;
	}
}

/* ----- a state ------------------------------------------------ */

/* A name that is on the disk. */
struct disk_name {
	const char *path;
	int file; /* -1: a folder */
};

static struct disk_name names[OPERATIONS_MOST];
static size_t n_names;
/* How likely it is that a change that was not synchronised is there, of 8: of names, of data. */
static unsigned names_there, data_there;

static void set_name(const char *path, int file, bool there)
{
	for (size_t i = 0; i < n_names; i++)
		if (strcmp(names[i].path, path) == 0) {
			names[i] = there ? (struct disk_name){ path, file } : names[--n_names];
			return;
		}
	if (there)
		names[n_names++] = (struct disk_name){ path, file };
}

static bool has_name(const char *path, size_t bytes)
{
	for (size_t i = 0; i < n_names; i++)
		if (names[i].file < 0 && strlen(names[i].path) == bytes &&
		    strncmp(names[i].path, path, bytes) == 0)
			return true;
	return false;
}

static bool is_reachable(const char *path)
{
	for (const char *slash = strchr(path, '/'); slash; slash = strchr(slash + 1, '/'))
		if (!has_name(path, (size_t)(slash - path)))
			return false;
	return true;
}

static void replay_names(size_t end)
{
	n_names = 0;
	for (size_t i = 0; i < end; i++) {
		const struct disk_change *c = &changes[i];
		if (c->kind < NAME || c->kind == SYNC_FOLDER ||
		    (c->durable > end && below(8) >= names_there))
			continue;
		if (c->kind == MOVE)
			set_name(c->path, -1, false);
		set_name(c->kind == MOVE ? c->to : c->path, c->kind == FOLDER ? -1 : c->file,
		         c->kind != GONE);
	}
}

/* Bytes of a file in hand. */
static struct {
	uint8_t *p;
	size_t n, capacity;
} content;

static void put(const uint8_t *data, size_t n, uint64_t at)
{
	const size_t end = (size_t)at + n;
	if (end > content.capacity) {
		content.capacity = 2 * end;
		content.p = checked(realloc(content.p, content.capacity));
	}
	if (end > content.n) {
		memset(content.p + content.n, 0, end - content.n);
		content.n = end;
	}
	if (n)
		memcpy(content.p + at, data, n);
}

static void put_torn(const struct disk_change *c)
{
	for (size_t i = 0; i < c->n;) {
		size_t n = SECTOR - (size_t)(c->offset + i) % SECTOR;
		n = n < c->n - i ? n : c->n - i;
		if (below(8) < data_there)
			put(c->data + i, n, c->offset + i);
		i += n;
	}
}

/* Whether anything of it was lost. */
static bool replay_file(int file, size_t end)
{
	bool lost = false;
	content.n = 0;
	for (size_t i = 0; i < end; i++) {
		const struct disk_change *c = &changes[i];
		if (c->file != file || (c->kind != WRITE && c->kind != SIZE))
			continue;
		const bool kept = c->durable <= end;
		if (c->kind == SIZE) {
			if (!kept && below(8) >= data_there)
				continue;
			if (c->offset < content.n)
				content.n = (size_t)c->offset;
			put(NULL, 0, c->offset);
		} else if (kept || data_there == 8) {
			put(c->data, c->n, c->offset);
		} else {
			put_torn(c);
			if (below(2)) /* the size is written by itself */
				put(NULL, 0, c->offset + below(c->n + 1));
			lost = true;
		}
	}
	return lost;
}

static void write_state_file(const char *path)
{
	const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	if (fd < 0 || write(fd, content.p, content.n) != (ssize_t)content.n)
		die(path, strerror(errno));
	close(fd);
}

static void write_state(size_t end)
{
	char path[2 * PATH_MOST];
	made_remove(state);
	mkdir(state, 0700);
	replay_names(end);
	/* folders before what is in them */
	for (size_t depth = 0, more = 1; more; depth++) {
		more = 0;
		for (size_t i = 0; i < n_names; i++) {
			size_t slashes = 0;
			for (const char *c = names[i].path; *c; c++)
				slashes += *c == '/';
			more |= slashes > depth;
			if (slashes != depth || !is_reachable(names[i].path))
				continue;
			snprintf(path, sizeof path, "%s/%s", state, names[i].path);
			if (names[i].file < 0) {
				mkdir(path, 0700);
				continue;
			}
			replay_file(names[i].file, end);
			write_state_file(path);
		}
	}
}

/* ----- what must hold ------------------------------------------------ */

static void lose(size_t end, const char *what, const char *session, uint64_t number,
                 const char *why)
{
	if (losses++ < LINES_MOST)
		fprintf(stderr,
		        "behind change %zu of %zu (%u of 8 names and %u of 8 sectors of what was "
		        "not synchronised): %s %s@%d: %s\n",
		        end, n_changes, names_there, data_there, what, session, (int)number, why);
}

static bool holds(const struct promise *p, size_t end)
{
	return p->from <= end && end <= p->until;
}

static void check_loads(struct made_store *m, size_t end, bool encrypted, const char *when)
{
	for (size_t i = 0; i < n_promises; i++) {
		const struct promise *p = &promises[i];
		if (p->encrypted == encrypted && holds(p, end) &&
		    made_check(m, p->session, p->number, p->f))
			lose(end, when, p->session, p->number, m->error.text);
	}
}

/* The store is used again: no number comes again, and what gc removes nobody needs. */
static void go_on(struct made_store *m, size_t end)
{
	const struct promise *p = &promises[below(n_promises)];
	const struct made_file f = { 170, 120 };
	kvarc_gc_options o = KVARC_GC_OPTIONS_INIT;
	kvarc_saved saved = { 0 };
	uint64_t used = 0;
	for (size_t i = 0; i < n_promises; i++)
		if (!strcmp(promises[i].session, p->session) && promises[i].from <= end &&
		    promises[i].number > used)
			used = promises[i].number;
	if (made_save(m, p->session, f, KVARC_SAVE_PLAIN, &saved))
		lose(end, "the next save", p->session, used + 1, m->error.text);
	else if (saved.version <= used)
		lose(end, "a number is used again", p->session, saved.version, "by the next save");
	else if (made_check(m, p->session, saved.version, f))
		lose(end, "load of the next save", p->session, saved.version, m->error.text);
	o.no_grace = 1;
	if (kvarc_store_gc(m->s, &o, NULL) != KVARC_OK && m->error.code != KVARC_DATA)
		lose(end, "gc", "", 0, m->error.text);
	check_loads(m, end, false, "behind gc, load of");
}

/* index: the store's own, which is new, or one that knows what came later. */
static void check_state(size_t end, bool ahead, bool go)
{
	struct made_store m;
	char url[PATH_MOST + 32], index[PATH_MOST + 32];
	struct made_place p = { .url = url,
		                .index = index,
		                .flags = KVARC_STORE_CREATE | KVARC_STORE_NO_SYNC };
	states++;
	snprintf(url, sizeof url, "%s/" STORE, state);
	snprintf(index, sizeof index, "%s/index", state);
	if (ahead) {
		content.n = 0;
		uint8_t part[1 << 14];
		ssize_t n;
		const int fd = open(later, O_RDONLY);
		while ((n = read(fd, part, sizeof part)) > 0)
			put(part, (size_t)n, content.n);
		close(fd);
		write_state_file(index);
	}
	for (int keyed = 0; keyed < 2; keyed++) {
		p.keyed = keyed;
		if (made_open(&m, &p)) {
			lose(end, "open", url, 0, m.error.text);
			continue;
		}
		check_loads(&m, end, keyed, ahead ? "with a later index, load of" : "load of");
		if (go && !keyed)
			go_on(&m, end);
		made_close(&m);
	}
}

/* ----- the sessions ------------------------------------------------ */

static struct made_store plain, keyed;

static void promise(const char *session, uint64_t number, struct made_file f, bool encrypted)
{
	if (n_promises == PROMISES_MOST)
		die("the record", "too many versions");
	promises[n_promises++] = (struct promise){ session,   number,    f,
		                                   encrypted, n_changes, SIZE_MAX };
}

/* Versions up to `last` may go from now on. */
static void ask_to_remove(const char *session, uint64_t last)
{
	for (size_t i = 0; i < n_promises; i++)
		if (!strcmp(promises[i].session, session) && promises[i].number <= last)
			promises[i].until = n_changes;
}

static void save(const char *session, uint32_t tokens, uint32_t other, bool encrypted)
{
	struct made_store *m = encrypted ? &keyed : &plain;
	const struct made_file f = { tokens, other };
	kvarc_saved saved = { 0 };
	if (made_save(m, session, f, encrypted ? KVARC_SAVE_ENCRYPT : KVARC_SAVE_PLAIN, &saved))
		die(session, m->error.text);
	promise(session, saved.version, f, encrypted);
}

static void fork_session(const char *from, uint64_t number, const char *to, struct made_file f)
{
	if (kvarc_store_fork(plain.s, from, number, to))
		die(to, plain.error.text);
	promise(to, 1, f, false);
}

static void remove_session(const char *session)
{
	ask_to_remove(session, UINT64_MAX);
	if (kvarc_store_remove(plain.s, session, NULL))
		die(session, plain.error.text);
}

/* keep 0: of each session all versions. */
static kvarc_gc_result collect(uint64_t keep)
{
	kvarc_gc_options o = KVARC_GC_OPTIONS_INIT;
	kvarc_gc_result r;
	o.no_grace = 1;
	o.keep = keep;
	if (kvarc_store_gc(plain.s, &o, &r))
		die("gc", plain.error.text);
	return r;
}

static void play(void)
{
	char url[PATH_MOST + 32];
	const struct made_place place = { .url = url, .index = later, .flags = KVARC_STORE_CREATE };
	struct made_place with_key = place;
	with_key.keyed = true;
	snprintf(url, sizeof url, "%s/" STORE, live);
	store_calls = (struct store_call_hooks){ before_call, behind_call };
	if (made_open(&plain, &place) || made_open(&keyed, &with_key))
		die(url, plain.error.text);
	save("a", 100, NONE, false);
	save("a", 140, NONE, false);
	save("long", 640, 0, false);
	save("short", 150, 0, false);
	fork_session("a", 1, "b/fork", (struct made_file){ 100, NONE });
	save("b/fork", 120, 100, false);
	save("e", 70, NONE, true);
	save("e", 100, NONE, true);
	remove_session("a");
	save("a", 150, 145, false);
	remove_session("long");
	kvarc_gc_result r = collect(0);
	if (!r.repacked)
		die("gc", "nothing was repacked");
	save("short", 160, 0, false);
	save("gone", 90, 10, false);
	remove_session("gone");
	ask_to_remove("short", 1);
	ask_to_remove("b/fork", 1);
	ask_to_remove("e", 1);
	r = collect(1);
	if (!r.removed)
		die("gc", "nothing was removed");
	save("a", 180, 145, false);
	store_calls = (struct store_call_hooks){ NULL, NULL };
	made_close(&plain);
	made_close(&keyed);
}

/* ----- all of it ------------------------------------------------ */

static void crash(size_t end, unsigned of_names, unsigned of_data, uint64_t number)
{
	names_there = of_names;
	data_there = of_data;
	write_state(end);
	check_state(end, number % 2 != 0, number % 6 == 0);
}

int main(int argc, char **argv)
{
	/* of 8: nothing, or all, or some of what was not synchronised */
	static const unsigned chances[][2] = { { 8, 8 }, { 0, 0 }, { 8, 0 }, { 0, 8 }, { 8, 4 },
		                               { 4, 8 }, { 4, 4 }, { 6, 6 }, { 2, 2 } };
	enum { CHANCES = sizeof chances / sizeof chances[0] };
	const uint64_t wanted = argc > 1 ? strtoull(argv[1], NULL, 10) : 3000;
	seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
	if (!mkdtemp(base))
		return 77; /* no memory as a file system */
	snprintf(live, sizeof live, "%.500s/live", base);
	snprintf(state, sizeof state, "%.500s/state", base);
	snprintf(later, sizeof later, "%.500s/later", base);
	mkdir(live, 0700);
	play();
	find_durable();
	for (size_t i = 0; i <= n_changes; i++)
		crash(i, 8, 8, i);
	for (uint64_t i = 0; i < wanted; i++) {
		const unsigned *c = chances[below(CHANCES)];
		crash((size_t)below(n_changes + 1), c[0], c[1], below(6));
	}
	made_remove(base);
	printf("%zu changes of %d files, %zu versions\n", n_changes, n_files, n_promises);
	printf("states: %d, losses: %d\n", (int)states, (int)losses);
	return losses != 0;
}
