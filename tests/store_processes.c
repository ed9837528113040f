/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * store_processes.c - several processes save, load, fork, remove and gc in one store at once
 *
 * store_processes [OPERATIONS [URL]]: of 4 processes together (2,000), in a store (a new folder).
 * What a version must hold is in its label, so that every load can be compared byte for byte.
 * Versions are encrypted at random, and one process has no key.
 */
#include "config.h"

#include <errno.h>
#include <ftw.h>
#include <inttypes.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kvarc/store.h"
#include "slots_made.h"
#include "util/hash.h"

enum {
	PROCESSES = 4,
	SESSIONS = 6,
	TOKENS_MOST = 700,
	BRANCHES = 5,
	LOADS_MOST = 6, /* of a version that others may be removing */
	TIME_MOST = 3600
};

/* One process. */
struct store_worker {
	kvarc_store *s;
	kvarc_error error;
	uint64_t random;
	bool keyed;
	uint64_t saves, loads, forks, removals, gcs, tries, refused, locked, plain, wrong;
};

static uint32_t below(struct store_worker *w, uint32_t n)
{
	return (uint32_t)(kvi_splitmix64(&w->random) % n);
}

static void session_name(char name[16], struct store_worker *w)
{
	snprintf(name, 16, "s/%u", (unsigned)below(w, SESSIONS));
}

static void complain(struct store_worker *w, const char *what, const char *name, uint64_t number)
{
	fprintf(stderr, "%s %s@%" PRIu64 ": %s\n", what, name, number, w->error.text);
	w->wrong++;
}

/* Branches share their first tokens, up to a token of their own. */
static struct slot_made slot_of(uint32_t n, uint32_t branch)
{
	static int32_t ids[TOKENS_MOST];
	struct slot_made s;
	for (uint32_t i = 0; i < n; i++)
		ids[i] = (int32_t)(i + (i >= branch * 97 ? branch * 1000 : 0));
	slot_make(&s, ids, n, UINT32_MAX, 0);
	return s;
}

/* ----- operations ------------------------------------------------ */

static void save(struct store_worker *w)
{
	const uint32_t n = 1 + below(w, TOKENS_MOST - 1), branch = below(w, BRANCHES);
	struct slot_made slot = slot_of(n, branch);
	kvarc_source source = slot_source(&slot);
	kvarc_save_options o = KVARC_SAVE_OPTIONS_INIT;
	kvarc_saved saved = { .tries = 0 };
	kvarc_import_options io = KVARC_IMPORT_OPTIONS_INIT;
	kvarc_import *im;
	char name[16], label[32];
	session_name(name, w);
	snprintf(label, sizeof label, "%u %u", (unsigned)n, (unsigned)branch);
	o.writer.level = KVARC_LEVEL(0);
	o.label = label;
	/* without encryption, as the last version is, or with a key */
	o.encrypt = (int)below(w, w->keyed ? 3 : 2) - 1;
	io.rope = "none"; /* a search takes longer than all the rest */
	if (kvarc_import_open(&im, &source, NULL, &io))
		abort();
	kvarc_ret ret = kvarc_store_save(w->s, name, im, &o, &saved);
	kvarc_import_close(&im);
	slot_free(&slot);
	w->saves++;
	w->tries += saved.tries > 1;
	if (ret == KVARC_IO && strstr(w->error.text, "try again"))
		w->refused++;
	else if (ret == KVARC_AUTH && !w->keyed)
		w->locked++;
	else if (ret == KVARC_OPTIONS && w->keyed && !o.encrypt)
		w->plain++; /* the last version is not encrypted: the caller has to say it */
	else if (ret)
		complain(w, "save", name, 0);
}

/* Bytes of a load. */
struct loaded_file {
	uint8_t *p;
	uint64_t n;
};

static int take_bytes(void *opaque, const void *buf, size_t bytes, uint64_t offset)
{
	struct loaded_file *x = opaque;
	if (offset > x->n || bytes > x->n - offset)
		return -1;
	memcpy(x->p + offset, buf, bytes);
	return 0;
}

static int take_item(void *opaque, const kvarc_item *item, kvarc_sink *sink)
{
	struct loaded_file *x = opaque;
	x->n = item->bytes;
	x->p = malloc(x->n + 1);
	*sink = (kvarc_sink){ .write = take_bytes, .opaque = x };
	return x->p ? 0 : -1;
}

static void compare(struct store_worker *w, const char *name, const kvarc_session_version *v,
                    const struct loaded_file *x)
{
	unsigned n, branch;
	if (sscanf(v->label, "%u %u", &n, &branch) != 2) {
		complain(w, "label", name, v->number);
		return;
	}
	struct slot_made slot = slot_of(n, branch);
	if (slot.n != x->n || memcmp(slot.p, x->p, slot.n) != 0)
		complain(w, "wrong bytes", name, v->number);
	slot_free(&slot);
}

/* With a key a version that is not encrypted is refused. */
static bool is_plain(const struct store_worker *w, kvarc_ret ret)
{
	return ret == KVARC_STORE && w->keyed && strstr(w->error.text, "is not encrypted");
}

static bool is_answer(const struct store_worker *w, kvarc_ret ret)
{
	return ret == KVARC_OK || ret == KVARC_END || (ret == KVARC_AUTH && !w->keyed) ||
	       is_plain(w, ret);
}

/* A version that others remove meanwhile may be gone in the middle of a load: it is gone the next
 * time, or there is another one. */
static void load(struct store_worker *w)
{
	kvarc_ret ret = KVARC_STORE;
	kvarc_session_version v = { .number = 0 };
	char name[16];
	session_name(name, w);
	for (int i = 0; i < LOADS_MOST && !is_answer(w, ret); i++) {
		struct loaded_file x = { NULL, 0 };
		ret = kvarc_store_load(w->s, name, 0, take_item, &x, &v);
		if (!ret)
			compare(w, name, &v, &x);
		free(x.p);
	}
	w->loads++;
	w->locked += ret == KVARC_AUTH && !w->keyed;
	w->plain += is_plain(w, ret);
	if (!is_answer(w, ret))
		complain(w, "load", name, v.number);
}

static void fork_session(struct store_worker *w)
{
	char from[16], to[16];
	session_name(from, w);
	session_name(to, w);
	kvarc_ret ret = kvarc_store_fork(w->s, from, 0, to);
	w->forks++;
	if (ret != KVARC_OK && ret != KVARC_END && ret != KVARC_OPTIONS && ret != KVARC_STORE)
		complain(w, "fork", from, 0);
}

static void remove_session(struct store_worker *w)
{
	char name[16];
	session_name(name, w);
	kvarc_ret ret = kvarc_store_remove(w->s, name, NULL);
	w->removals++;
	if (ret != KVARC_OK && ret != KVARC_END)
		complain(w, "rm", name, 0);
}

static void collect(struct store_worker *w)
{
	kvarc_gc_options o = KVARC_GC_OPTIONS_INIT;
	o.no_grace = 1;
	o.keep = 1 + below(w, 4);
	kvarc_ret ret = kvarc_store_gc(w->s, &o, NULL);
	w->gcs++;
	if (ret)
		complain(w, "gc", "", 0);
}

/* Of 100 operations. */
static void operate(struct store_worker *w)
{
	const uint32_t which = below(w, 100);
	if (which < 45)
		save(w);
	else if (which < 85)
		load(w);
	else if (which < 92)
		fork_session(w);
	else if (which < 95)
		remove_session(w);
	else
		collect(w);
}

/* ----- processes ------------------------------------------------ */

static kvarc_ret open_store(struct store_worker *w, const char *url)
{
	static const uint8_t bytes[KVARC_KEY_BYTES] = "of all sessions";
	static const kvarc_key key = { .kind = KVARC_KEY_GIVEN, .bytes = bytes, .n = sizeof bytes };
	static const kvarc_keys keys = { .list = &key, .n = 1 };
	kvarc_store_options o = KVARC_STORE_OPTIONS_INIT;
	w->keyed = w->keyed && kvarc_has_encryption();
	o.keys = w->keyed ? &keys : NULL;
	o.common.error = &w->error;
	o.flags = KVARC_STORE_CREATE | KVARC_STORE_NO_SYNC;
	return kvarc_store_open(&w->s, url, &o);
}

static int work(const char *url, uint64_t operations, uint64_t seed)
{
	struct store_worker w = { .random = seed, .keyed = seed % PROCESSES != 0 };
	if (open_store(&w, url)) {
		fprintf(stderr, "open: %s\n", w.error.text);
		return 1;
	}
	for (uint64_t i = 0; i < operations && !w.wrong; i++)
		operate(&w);
	kvarc_store_close(&w.s);
	printf("%" PRIu64 " saves (%" PRIu64 " tried again, %" PRIu64 " refused), %" PRIu64
	       " loads, %" PRIu64 " forks, %" PRIu64 " removals, %" PRIu64 " gcs, %" PRIu64
	       " without their key, %" PRIu64 " plain although there is a key, %" PRIu64 " wrong\n",
	       w.saves, w.tries, w.refused, w.loads, w.forks, w.removals, w.gcs, w.locked, w.plain,
	       w.wrong);
	return w.wrong != 0;
}

static void print_loss(void *opaque, const char *text)
{
	(void)opaque;
	fprintf(stderr, "loss: %s\n", text);
}

static int check_all(const char *url)
{
	struct store_worker w = { .random = 0, .keyed = true };
	uint64_t losses = 0;
	kvarc_ret ret = open_store(&w, url);
	if (!ret)
		ret = kvarc_store_verify(w.s, print_loss, NULL, &losses);
	if (ret)
		fprintf(stderr, "verify: %s\n", w.error.text);
	kvarc_store_close(&w.s);
	return ret != KVARC_OK || losses != 0;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *f)
{
	(void)st;
	(void)type;
	(void)f;
	return remove(path);
}

static int run(const char *url, uint64_t operations)
{
	pid_t pids[PROCESSES];
	int bad = 0, status;
	fflush(stdout);
	for (int i = 0; i < PROCESSES; i++) {
		pids[i] = fork();
		if (pids[i] == 0) {
			alarm(TIME_MOST); /* a deadlock ends by a signal, which is a failure */
			status = work(url, operations / PROCESSES, (uint64_t)i * 7919 + 1);
			fflush(stdout);
			_exit(status);
		}
	}
	for (int i = 0; i < PROCESSES; i++)
		bad |= pids[i] < 0 || waitpid(pids[i], &status, 0) != pids[i] || status != 0;
	return bad | check_all(url);
}

int main(int argc, char **argv)
{
	char folder[] = "/dev/shm/kvarc-processes-XXXXXX";
	const uint64_t operations = argc > 1 ? strtoull(argv[1], NULL, 10) : 2000;
	if (argc > 2)
		return run(argv[2], operations);
	if (!mkdtemp(folder)) {
		fprintf(stderr, "no memory as a file system: %s\n", strerror(errno));
		return 77;
	}
	int bad = run(folder, operations);
	nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
	return bad;
}
