/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * store_processes.c - processes that save, load, fork, send, remove and gc in one store at once,
 * and that are killed and stopped
 *
 * store_processes [OPTION=VALUE...]:
 *   seconds=N   how long (5); url=URL of the store (a new folder); processes=N (4); seed=N
 *   indexes=N   index files, each of some of the processes (1)
 *   faults=1    calls may fail, as the service does: what is acknowledged must load all the same
 *   calm=COMMAND   run before the end, so that nothing fails any more
 *   every=N     seconds between two runs of what follows; run=COMMAND, restarts the service;
 *   void=COMMAND   empties it
 *   clocks=LIB  libfaketime, by which every other process is half an hour early, or late
 *
 * What was asked and acknowledged is in a ledger (store_ledger.h). Every acknowledged version that
 * nobody may have removed is loaded and compared, again and again, and all of them at the end: that
 * there is no such version is a failure. A load without a number gives none that is older than the
 * last that was acknowledged. Versions are encrypted at random, and one process has no key. The
 * last line is "acknowledged: N, lost: M".
 */
#include "config.h"

#include <errno.h>
#include <semaphore.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "store_calls.h"
#include "store_ledger.h"
#include "stores_made.h"

enum {
	PROCESSES_MOST = 16,
	SESSIONS = 4,
	TOKENS_MOST = 500,
	TEXTS = 5,
	LOADS_MOST = 8,   /* of a version that others may be removing */
	FAULTS_MOST = 40, /* loads of a version from a service that fails */
	RECENT = 60,      /* acknowledged versions that are asked for mostly */
	PATH_MOST = 300,
	LINES_MOST = 20,
	EARLY_SECONDS = 1800
};

/* What the command line says. */
static struct {
	unsigned seconds, processes, indexes, every;
	uint64_t seed;
	bool faults;
	const char *url, *calm, *run, *empty, *clocks;
	const char *folder; /* of the ledger and the indexes; a process that was started by another
	                     * one has that, */
	unsigned as;        /* and its number */
} config = { .seconds = 5, .processes = 4, .indexes = 1, .seed = 1 };

/* What all processes count. */
struct shared_counts {
	_Atomic uint64_t loads, gcs, refused, locked, lost, kills, stops;
};
static struct shared_counts *counts;
static volatile sig_atomic_t over;

/* One process. */
struct store_worker {
	struct made_store m;
	struct store_ledger ledger;
	uint64_t random;
	bool keyed;
};

static uint32_t below(struct store_worker *w, uint32_t n)
{
	return (uint32_t)(kvi_splitmix64(&w->random) % n);
}

static void session_name(char name[LEDGER_NAME], struct store_worker *w)
{
	snprintf(name, LEDGER_NAME, "s/%u", (unsigned)below(w, SESSIONS));
}

__attribute__((format(printf, 1, 2))) static void lose(const char *format, ...)
{
	va_list list;
	if (atomic_fetch_add(&counts->lost, 1) >= LINES_MOST)
		return;
	va_start(list, format);
	vfprintf(stderr, format, list);
	va_end(list);
	fputc('\n', stderr);
}

/* A call has failed: whether it may. */
static bool may_fail(struct store_worker *w, kvarc_ret ret)
{
	const char *text = w->m.error.text;
	atomic_fetch_add(&counts->refused, 1);
	if (ret == KVARC_AUTH && !w->keyed)
		return true;
	if (ret == KVARC_IO && strstr(text, "try again"))
		return true;
	return config.faults && ret != KVARC_PROG && ret != KVARC_OPTIONS;
}

/* ----- puts ------------------------------------------------ */

static void save(struct store_worker *w)
{
	const struct made_file f = { 1 + below(w, TOKENS_MOST), below(w, TEXTS) * 97 };
	/* without encryption, as the last version is, or with a key */
	const int encrypt = (int)below(w, w->keyed ? 3 : 2) - 1;
	kvarc_saved saved = { .tries = 0 };
	char name[LEDGER_NAME];
	session_name(name, w);
	ledger_begin(&w->ledger, LEDGER_PUT, name, 0);
	const kvarc_ret ret = made_save(&w->m, name, f, encrypt, &saved);
	if (!ret) {
		ledger_saved(&w->ledger, saved.version, made_digest(f));
		return;
	}
	ledger_end(&w->ledger);
	/* the last version is not encrypted: the caller has to say it */
	if (!(ret == KVARC_OPTIONS && w->keyed && !encrypt) && !may_fail(w, ret))
		lose("save %s: %s", name, w->m.error.text);
}

/* An acknowledged version that no emptying voids, of the last ones mostly; NULL: there is none. */
static struct ledger_operation *acknowledged(struct store_worker *w)
{
	ledger_read(&w->ledger);
	const size_t n = w->ledger.n - w->ledger.last_void, most = below(w, 4) ? RECENT : n;
	for (int tries = 0; n && tries < 20; tries++) {
		const size_t back = below(w, (uint32_t)(most < n ? most : n));
		struct ledger_operation *o = &w->ledger.list[w->ledger.n - 1 - back];
		if (o->kind == LEDGER_PUT && o->acknowledged && o->number &&
		    !ledger_voids(&w->ledger, o))
			return o;
	}
	return NULL;
}

static void fork_session(struct store_worker *w)
{
	const struct ledger_operation *found = acknowledged(w);
	char to[LEDGER_NAME];
	session_name(to, w);
	if (!found || strcmp(found->session, to) == 0)
		return;
	const struct ledger_operation from = *found; /* the list may move */
	ledger_begin(&w->ledger, LEDGER_PUT, to, 0);
	/* an emptying from here on voids the fork, too */
	const kvarc_ret ret = ledger_voids_by_now(&w->ledger, &from)
	                              ? KVARC_END
	                              : kvarc_store_fork(w->m.s, from.session, from.number, to);
	if (!ret) {
		ledger_forked(&w->ledger, from.session, from.number, from.digest);
		return;
	}
	ledger_end(&w->ledger);
	/* it is there, or what is forked is gone */
	if (ret != KVARC_END && ret != KVARC_OPTIONS && ret != KVARC_STORE && !may_fail(w, ret))
		lose("fork %s@%d: %s", from.session, (int)from.number, w->m.error.text);
}

/* A stream in memory. */
struct sent_bytes {
	uint8_t *p;
	size_t n, capacity;
};

static int take_stream(void *opaque, const void *data, size_t bytes, uint64_t offset)
{
	struct sent_bytes *x = opaque;
	const size_t end = (size_t)offset + bytes;
	if (end > x->capacity) {
		x->capacity = 2 * end;
		x->p = realloc(x->p, x->capacity);
		if (!x->p)
			abort();
	}
	memcpy(x->p + offset, data, bytes);
	x->n = end > x->n ? end : x->n;
	return 0;
}

static int64_t give_stream(void *opaque, void *data, size_t bytes, uint64_t offset)
{
	const struct sent_bytes *x = opaque;
	const size_t left = offset < x->n ? x->n - (size_t)offset : 0;
	bytes = bytes < left ? bytes : left;
	memcpy(data, x->p + offset, bytes);
	return (int64_t)bytes;
}

/* To another session of the same store: its archives are there, unless gc has removed them. */
static void send_session(struct store_worker *w)
{
	const struct ledger_operation *found = acknowledged(w);
	struct sent_bytes x = { NULL, 0, 0 };
	const kvarc_sink sink = { .write = take_stream, .opaque = &x };
	kvarc_received received = { .version = 0 };
	char to[LEDGER_NAME];
	session_name(to, w);
	if (!found || strcmp(found->session, to) == 0)
		return;
	const struct ledger_operation from = *found;
	kvarc_ret ret = kvarc_store_send(w->m.s, from.session, from.number, &sink, NULL, NULL,
	                                 NULL);
	/* an emptying from here on does not change what was sent */
	if (ret || ledger_voids_by_now(&w->ledger, &from)) {
		free(x.p);
		return;
	}
	const kvarc_source source = { .read = give_stream, .opaque = &x, .size = x.n };
	ledger_begin(&w->ledger, LEDGER_PUT, to, 0);
	ret = kvarc_store_receive(w->m.s, to, &source, &received);
	if (!ret && !received.was_here)
		ledger_saved(&w->ledger, received.version, from.digest);
	else
		ledger_end(&w->ledger);
	free(x.p);
	if (ret && ret != KVARC_STORE && !may_fail(w, ret))
		lose("receive %s: %s", to, w->m.error.text);
}

/* ----- removals ------------------------------------------------ */

static void remove_session(struct store_worker *w)
{
	char name[LEDGER_NAME];
	session_name(name, w);
	ledger_begin(&w->ledger, LEDGER_REMOVE, name, 0);
	const kvarc_ret ret = kvarc_store_remove(w->m.s, name, NULL);
	ledger_end(&w->ledger);
	if (ret && ret != KVARC_END && !may_fail(w, ret))
		lose("rm %s: %s", name, w->m.error.text);
}

/* budget: of one byte, which nothing that was saved lately has to go for. */
static void collect(struct store_worker *w, bool budget)
{
	kvarc_gc_options o = KVARC_GC_OPTIONS_INIT;
	o.no_grace = !budget;
	o.budget = budget;
	o.keep = budget ? 0 : 1 + below(w, 4);
	ledger_begin(&w->ledger, LEDGER_COLLECT, "", o.keep);
	const kvarc_ret ret = kvarc_store_gc(w->m.s, &o, NULL);
	ledger_end(&w->ledger);
	atomic_fetch_add(&counts->gcs, 1);
	if (ret && !may_fail(w, ret))
		lose("gc: %s", w->m.error.text);
}

/* ----- loads ------------------------------------------------ */

/* With a key a version that is not encrypted is refused. */
static bool is_locked(const struct store_worker *w, kvarc_ret ret)
{
	return (ret == KVARC_AUTH && !w->keyed) ||
	       (ret == KVARC_STORE && w->keyed && strstr(w->m.error.text, "is not encrypted"));
}

/* Loads until there is an answer: one that others remove meanwhile may be gone in the middle. */
static kvarc_ret load(struct store_worker *w, const char *name, uint64_t number,
                      kvarc_session_version *v, struct kvi_h128 *digest)
{
	const int most = config.faults ? FAULTS_MOST : LOADS_MOST;
	kvarc_ret ret = KVARC_STORE;
	for (int i = 0; i < most && ret != KVARC_OK && ret != KVARC_END; i++) {
		ret = made_load(&w->m, name, number, v, digest);
		if (is_locked(w, ret)) {
			atomic_fetch_add(&counts->locked, 1);
			return ret;
		}
		if (ret && config.faults)
			nanosleep(&(struct timespec){ 0, 20000000L }, NULL);
	}
	atomic_fetch_add(&counts->loads, 1);
	return ret;
}

/* One version that was acknowledged. calm: nothing fails any more. Returns whether it is there. */
static bool check_version(struct store_worker *w, const struct ledger_operation *asked, bool calm)
{
	const struct ledger_operation o = *asked; /* the list may move */
	struct kvi_h128 digest;
	const kvarc_ret ret = load(w, o.session, o.number, NULL, &digest);
	if (!ret && !kvi_h128_equal(digest, o.digest) && !ledger_voids_by_now(&w->ledger, &o))
		lose("wrong bytes: %s@%d of process %u (records %zu to %zu of %zu)", o.session,
		     (int)o.number, (unsigned)o.worker, o.begin, o.end, w->ledger.records);
	if (!ret || is_locked(w, ret) || (config.faults && !calm && ret != KVARC_END))
		return true;
	ledger_read(&w->ledger);
	if (ledger_excuses(&w->ledger, &o))
		return false;
	lose("lost: %s@%d of process %u (records %zu to %zu of %zu): %s", o.session, (int)o.number,
	     (unsigned)o.worker, o.begin, o.end, w->ledger.records, w->m.error.text);
	return false;
}

static void check_one(struct store_worker *w)
{
	const struct ledger_operation *o = acknowledged(w);
	if (o)
		(void)check_version(w, o, false);
}

/* No version behind the one that was loaded was acknowledged before, unless it may be gone. */
static void check_last(struct store_worker *w, const char *name, uint64_t number, uint64_t passed,
                       size_t records, const char *why)
{
	ledger_read(&w->ledger);
	for (size_t i = w->ledger.n; i-- > 0;) {
		const struct ledger_operation *o = &w->ledger.list[i];
		if (o->acknowledged && o->number > number && o->end < records &&
		    strcmp(o->session, name) == 0 && !ledger_excuses(&w->ledger, o)) {
			lose("%s: %d was loaded, %d passed over, and %d was acknowledged: %s", name,
			     (int)number, (int)passed, (int)o->number, number ? "" : why);
			return;
		}
	}
}

static void load_last(struct store_worker *w)
{
	kvarc_session_version v = { .number = 0 };
	struct made_file f;
	struct kvi_h128 digest;
	char name[LEDGER_NAME];
	session_name(name, w);
	ledger_read(&w->ledger);
	const size_t records = w->ledger.records;
	const kvarc_ret ret = load(w, name, 0, &v, &digest);
	char why[300];
	snprintf(why, sizeof why, "%d: %s", (int)ret, w->m.error.text);
	if (!ret && (!made_file_of(&f, &v) || !kvi_h128_equal(digest, made_digest(f))))
		lose("wrong bytes by its label: %s@%d, the last one", name, (int)v.number);
	/* The only version may be one that is not acknowledged yet, and whose save finds just now
	 * that gc has removed what it needs. */
	if (!ret || ret == KVARC_END || (ret == KVARC_STORE && !is_locked(w, ret)))
		check_last(w, name, ret ? 0 : v.number, ret ? 0 : v.passed_over, records, why);
	else if (!is_locked(w, ret) && !may_fail(w, ret))
		lose("load %s: %s", name, w->m.error.text);
}

/* ----- a process ------------------------------------------------ */

/* Of 100 operations. */
static void operate(struct store_worker *w)
{
	const uint32_t which = below(w, 100);
	if (which < 40)
		save(w);
	else if (which < 52)
		load_last(w);
	else if (which < 66)
		check_one(w);
	else if (which < 74)
		fork_session(w);
	else if (which < 78)
		send_session(w);
	else if (which < 86)
		remove_session(w);
	else
		collect(w, which == 86);
}

static void end_soon(int signal_number)
{
	(void)signal_number;
	over = 1;
}

static const char *path_in(const char *name, unsigned n)
{
	static char path[PATH_MOST];
	snprintf(path, sizeof path, "%s/%s.%u", config.folder, name, n);
	return path;
}

static kvarc_ret open_store(struct made_store *m, unsigned index, bool keyed)
{
	const struct made_place p = { .url = config.url,
		                      .index = path_in("index", index),
		                      .keyed = keyed,
		                      .flags = KVARC_STORE_CREATE | KVARC_STORE_NO_SYNC };
	kvarc_ret ret = KVARC_IO;
	for (int i = 0; i < FAULTS_MOST && ret == KVARC_IO; i++) {
		ret = made_open(m, &p);
		if (ret)
			nanosleep(&(struct timespec){ 0, 50000000L }, NULL);
	}
	return ret;
}

static int work(unsigned number)
{
	struct store_worker w = { .keyed = number % config.processes != 0,
		                  .random = config.seed * 7919 + number };
	signal(SIGTERM, end_soon);
	store_calls.before = store_calls_delay;
	if (open_store(&w.m, number % config.indexes, w.keyed)) {
		/* the service may be away */
		if (!config.faults)
			lose("open: %s", w.m.error.text);
		return 0;
	}
	ledger_open(&w.ledger, path_in("ledger", 0), number);
	while (!over)
		operate(&w);
	ledger_close(&w.ledger);
	made_close(&w.m);
	return 0;
}

static void map_counts(void)
{
	const int fd = open(path_in("counts", 0), O_RDWR | O_CREAT, 0600);
	if (fd < 0 || ftruncate(fd, sizeof *counts) != 0)
		abort();
	counts = mmap(NULL, sizeof *counts, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (counts == MAP_FAILED)
		abort();
	close(fd);
}

/* ----- all of them ------------------------------------------------ */

static pid_t pids[PROCESSES_MOST];
static unsigned numbers[PROCESSES_MOST], next_number;
static char **arguments;
static int n_arguments;

/* Another program, as libfaketime has to be loaded with it. */
static _Noreturn void work_elsewhen(unsigned number)
{
	char as[32], folder[PATH_MOST + 16], clock[32];
	char **argv = calloc((size_t)n_arguments + 3, sizeof *argv);
	if (!argv)
		abort();
	memcpy(argv, arguments, (size_t)n_arguments * sizeof *argv);
	snprintf(as, sizeof as, "as=%u", number);
	snprintf(folder, sizeof folder, "folder=%s", config.folder);
	snprintf(clock, sizeof clock, "%s%d", number % 4 < 2 ? "+" : "-", EARLY_SECONDS);
	argv[n_arguments] = as;
	argv[n_arguments + 1] = folder;
	setenv("LD_PRELOAD", config.clocks, 1);
	setenv("FAKETIME", clock, 1);
	setenv("FAKETIME_DONT_FAKE_MONOTONIC", "1", 1);
	execv("/proc/self/exe", argv);
	_exit(1);
}

static void start(unsigned i)
{
	fflush(NULL);
	numbers[i] = ++next_number;
	pids[i] = fork();
	if (pids[i])
		return;
	alarm(config.seconds + 600); /* a deadlock ends by a signal, which is a failure */
	if (config.clocks && numbers[i] % 2)
		work_elsewhen(numbers[i]);
	_exit(work(numbers[i]));
}

/* It was killed, or asked to end, perhaps before it could listen. */
static void end(unsigned i, int signal_number)
{
	int status = 0;
	const bool waited = waitpid(pids[i], &status, 0) == pids[i];
	if (!waited || (WIFSIGNALED(status) ? WTERMSIG(status) != signal_number : status != 0))
		lose("process %u ends with status %d", numbers[i], status);
}

/* libfaketime leaves these where its process is killed. */
static void remove_clock(pid_t pid)
{
	char name[64];
	snprintf(name, sizeof name, "/faketime_shm_%ld", (long)pid);
	shm_unlink(name);
	snprintf(name, sizeof name, "/faketime_sem_%ld", (long)pid);
	sem_unlink(name);
}

static void kill_one(struct store_worker *w, unsigned i)
{
	kill(pids[i], SIGKILL);
	end(i, SIGKILL);
	if (config.clocks)
		remove_clock(pids[i]);
	ledger_dead(&w->ledger, numbers[i]);
	atomic_fetch_add(&counts->kills, 1);
	start(i);
}

static double seconds_now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void wait_for(unsigned milliseconds)
{
	const struct timespec t = { milliseconds / 1000, (long)(milliseconds % 1000) * 1000000L };
	nanosleep(&t, NULL);
}

static void run_command(const char *command)
{
	if (system(command) != 0)
		lose("this fails: %s", command);
}

/* The service is restarted, or emptied. */
static void change_service(struct store_worker *w)
{
	if (config.run)
		run_command(config.run);
	if (config.empty) {
		ledger_begin(&w->ledger, LEDGER_VOID, "", 0);
		run_command(config.empty);
		ledger_end(&w->ledger);
	}
}

static void disturb(struct store_worker *w)
{
	const double end_time = seconds_now() + config.seconds;
	double next = seconds_now() + config.every;
	while (seconds_now() < end_time) {
		wait_for(50 + below(w, 300));
		const unsigned i = below(w, config.processes);
		int status;
		for (unsigned k = 0; k < config.processes; k++)
			if (waitpid(pids[k], &status, WNOHANG) == pids[k]) {
				if (status || !config.faults)
					lose("process %u ends with status %d", numbers[k], status);
				ledger_dead(&w->ledger, numbers[k]);
				start(k);
			}
		if (below(w, 3) == 0) {
			kill_one(w, i);
		} else if (below(w, 3) == 0) {
			kill(pids[i], SIGSTOP);
			wait_for(20 + below(w, 400));
			kill(pids[i], SIGCONT);
			atomic_fetch_add(&counts->stops, 1);
		}
		if (config.every && seconds_now() > next) {
			change_service(w);
			next = seconds_now() + config.every;
		}
	}
}

/* ----- the end ------------------------------------------------ */

struct fork_search {
	const struct ledger_operation *o;
	uint64_t numbers[64];
	size_t n;
};

static int see_version(void *opaque, const kvarc_session_version *v)
{
	struct fork_search *x = opaque;
	if (strcmp(v->parent, x->o->parent) == 0 && v->parent_number == x->o->parent_number &&
	    x->n < 64)
		x->numbers[x->n++] = v->number;
	return 0;
}

static void check_fork(struct store_worker *w, const struct ledger_operation *o)
{
	struct fork_search x = { .o = o };
	const kvarc_ret ret = kvarc_store_log(w->m.s, o->session, see_version, &x);
	for (size_t i = 0; i < x.n; i++) {
		struct kvi_h128 digest;
		const kvarc_ret loaded = load(w, o->session, x.numbers[i], NULL, &digest);
		if (is_locked(w, loaded) || (!loaded && kvi_h128_equal(digest, o->digest)))
			return;
	}
	if (!ledger_excuses(&w->ledger, o))
		lose("lost: %s, a fork of %s@%d by process %u (records %zu to %zu): %s", o->session,
		     o->parent, (int)o->parent_number, (unsigned)o->worker, o->begin, o->end,
		     ret || x.n ? w->m.error.text : "not listed");
}

/* The versions of a store at the end. */
struct version_there {
	char session[LEDGER_NAME];
	uint64_t number;
};
struct versions_there {
	struct version_there *list;
	size_t n, capacity;
};

static int see_listed(void *opaque, const kvarc_session_version *v)
{
	struct versions_there *all = opaque;
	if (all->n == all->capacity) {
		all->capacity = all->capacity * 2 + 64;
		all->list = realloc(all->list, all->capacity * sizeof *all->list);
		if (!all->list)
			abort();
	}
	struct version_there *x = &all->list[all->n++];
	snprintf(x->session, sizeof x->session, "%s", v->session);
	x->number = v->number;
	return 0;
}

/* Whether an acknowledged version that may be gone is gone. Its load would list the store twice,
 * which takes minutes for thousands of versions. */
static bool is_gone(const struct store_worker *w, const struct versions_there *all,
                    const struct ledger_operation *o)
{
	for (size_t i = 0; i < all->n; i++)
		if (all->list[i].number == o->number &&
		    strcmp(all->list[i].session, o->session) == 0)
			return false;
	return ledger_excuses(&w->ledger, o);
}

/* Lines of verify: versions that were never acknowledged may be incomplete, if their process was
 * killed; what a service had before it was emptied may have had their number. */
static void see_loss(void *opaque, const char *text)
{
	struct store_worker *w = opaque;
	char name[LEDGER_NAME];
	unsigned number;
	if (sscanf(text, "session %23[^@]@%u:", name, &number) != 2) {
		lose("verify: %s", text);
		return;
	}
	for (size_t i = 0; i < w->ledger.n; i++) {
		const struct ledger_operation *o = &w->ledger.list[i];
		if (o->acknowledged && o->number == number && strcmp(o->session, name) == 0 &&
		    !ledger_voids(&w->ledger, o)) {
			lose("verify: %s", text);
			return;
		}
	}
}

/* All that was acknowledged, with and without the key. */
static uint64_t check_all(unsigned index)
{
	uint64_t n = 0;
	for (int keyed = 0; keyed < 2; keyed++) {
		struct store_worker w = { .keyed = keyed };
		ledger_open(&w.ledger, path_in("ledger", 0), 0);
		ledger_read(&w.ledger);
		if (open_store(&w.m, index, keyed)) {
			lose("open: %s", w.m.error.text);
			return 0;
		}
		struct versions_there all = { 0 };
		for (int i = 0; i < SESSIONS; i++) {
			char name[LEDGER_NAME];
			snprintf(name, sizeof name, "s/%d", i);
			const kvarc_ret ret = kvarc_store_log(w.m.s, name, see_listed, &all);
			if (ret && ret != KVARC_END)
				lose("log %s: %s", name, w.m.error.text);
		}
		n = 0;
		for (size_t i = 0; i < w.ledger.n; i++) {
			const struct ledger_operation *o = &w.ledger.list[i];
			if (o->kind != LEDGER_PUT || !o->acknowledged)
				continue;
			n++;
			if (o->number && is_gone(&w, &all, o))
				continue;
			if (o->number)
				(void)check_version(&w, o, true);
			else
				check_fork(&w, o);
		}
		if (keyed && kvarc_store_verify(w.m.s, see_loss, &w, NULL))
			lose("verify: %s", w.m.error.text);
		free(all.list);
		made_close(&w.m);
		ledger_close(&w.ledger);
	}
	return n;
}

static int run(void)
{
	struct store_worker w = { .random = config.seed };
	ledger_open(&w.ledger, path_in("ledger", 0), 0);
	for (unsigned i = 0; i < config.processes; i++)
		start(i);
	disturb(&w);
	for (unsigned i = 0; i < config.processes; i++)
		kill(pids[i], SIGTERM);
	for (unsigned i = 0; i < config.processes; i++)
		end(i, SIGTERM);
	ledger_close(&w.ledger);
	if (config.calm)
		run_command(config.calm);
	/* with an index that was there, and a new one */
	(void)check_all(0);
	const uint64_t n = check_all(config.indexes);
	printf("%d loads, %d gcs, %d refused, %d without their key or plain, %d killed, "
	       "%d stopped\n",
	       (int)counts->loads, (int)counts->gcs, (int)counts->refused, (int)counts->locked,
	       (int)counts->kills, (int)counts->stops);
	printf("acknowledged: %d, lost: %d\n", (int)n, (int)counts->lost);
	return counts->lost != 0 || n == 0;
}

/* ----- options ------------------------------------------------ */

static const char *option(const char *argument, const char *name)
{
	const size_t n = strlen(name);
	return strncmp(argument, name, n) == 0 && argument[n] == '=' ? argument + n + 1 : NULL;
}

static bool take_text(const char *argument)
{
	static const struct {
		const char *name, **to;
	} texts[] = { { "url", &config.url },       { "calm", &config.calm },
		      { "run", &config.run },       { "void", &config.empty },
		      { "clocks", &config.clocks }, { "folder", &config.folder } };
	for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
		if (option(argument, texts[i].name)) {
			*texts[i].to = option(argument, texts[i].name);
			return true;
		}
	return false;
}

static bool take_number(const char *argument)
{
	static const struct {
		const char *name;
		unsigned *to;
	} values[] = { { "seconds", &config.seconds },
		       { "processes", &config.processes },
		       { "indexes", &config.indexes },
		       { "every", &config.every },
		       { "as", &config.as } };
	for (size_t i = 0; i < sizeof values / sizeof values[0]; i++)
		if (option(argument, values[i].name)) {
			*values[i].to = (unsigned)strtoul(option(argument, values[i].name), NULL,
			                                  10);
			return true;
		}
	if (option(argument, "seed"))
		config.seed = strtoull(option(argument, "seed"), NULL, 10);
	else if (option(argument, "faults"))
		config.faults = *option(argument, "faults") == '1';
	else
		return false;
	return true;
}

int main(int argc, char **argv)
{
	char folder[] = "/dev/shm/kvarc-processes-XXXXXX", url[PATH_MOST];
	for (int i = 1; i < argc; i++)
		if (!take_text(argv[i]) && !take_number(argv[i])) {
			fprintf(stderr, "store_processes: what is %s?\n", argv[i]);
			return 1;
		}
	if (config.processes < 1 || config.processes > PROCESSES_MOST || config.indexes < 1)
		return 1;
	arguments = argv;
	n_arguments = argc;
	const bool child = config.folder != NULL;
	if (!child && !(config.folder = mkdtemp(folder))) {
		fprintf(stderr, "no memory as a file system: %s\n", strerror(errno));
		return 77;
	}
	snprintf(url, sizeof url, "%s/store", config.folder);
	config.url = config.url ? config.url : url;
	map_counts();
	if (child)
		return work(config.as);
	const int bad = run();
	if (bad)
		fprintf(stderr, "the ledger is in %s\n", folder);
	else
		made_remove(folder);
	return bad;
}
