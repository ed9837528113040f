/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * store_race.c - two and three calls on one session at the same moment, over and over
 *
 * store_race [ROUNDS [SEED]]: of all scenarios together (180). Each thread has a handle of its own
 * on a store in a folder, and system calls that change names are delayed at random. A version that
 * a save or fork has acknowledged, and that nobody was asked to remove, must load; and a number is
 * used once, also behind a removal. Then a saver that is killed between its manifest and its last
 * look, while gc removes what it shares. The last line is "rounds: N, lost: M".
 */
#include "config.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "store_calls.h"
#include "stores_made.h"

enum { ACTORS = 3, ROUNDS_OF_A_STORE = 40, NONE = UINT32_MAX, DEATHS_EVERY = 30, SESSION = 32 };

/* What one thread does in a round, and what came of it. */
struct actor {
	struct made_store m;
	void (*act)(struct actor *a);
	pthread_t thread;
	bool no_grace;
	int fails; /* errno of its links to manifests, or of the fsync behind them */
	kvarc_ret ret;
	uint64_t number, removed; /* of the version that it saved; versions that it removed */
	struct made_file f;
};

static struct actor actors[ACTORS];
static struct made_store main_store;
static pthread_barrier_t start;
static char folder[] = "/dev/shm/kvarc-race-XXXXXX", url[64], session[SESSION];
static uint64_t lost, rounds, excused, seed = 1;
static const char *scenario;
static _Thread_local struct actor *self;

static uint64_t below(uint64_t n)
{
	return kvi_splitmix64(&seed) % n;
}

static void lose(const char *what, const char *why)
{
	if (lost++ < 20)
		fprintf(stderr, "%s, %s: %s: %s\n", scenario, session, what, why);
}

/* ----- what threads do ------------------------------------------------ */

static bool is_manifest(const struct store_call *c)
{
	return c->kind == STORE_CALL_LINK && strncmp(c->to, "sessions/", 9) == 0;
}

/* Calls wait at random; those of an actor may fail. */
static int before_call(const struct store_call *c)
{
	(void)store_calls_delay(c);
	return self && self->fails && is_manifest(c) ? self->fails : 0;
}

static void save(struct actor *a)
{
	kvarc_saved saved = { 0 };
	a->ret = made_save(&a->m, session, a->f, 0, &saved);
	a->number = a->ret ? 0 : saved.version;
}

static void remove_all(struct actor *a)
{
	a->ret = kvarc_store_remove(a->m.s, session, &a->removed);
	if (a->ret != KVARC_OK && a->ret != KVARC_END)
		lose("rm fails", a->m.error.text);
}

static void remove_and_save(struct actor *a)
{
	remove_all(a);
	save(a);
}

static void collect(struct actor *a)
{
	kvarc_gc_options o = KVARC_GC_OPTIONS_INIT;
	o.keep = 1;
	o.no_grace = a->no_grace;
	a->ret = kvarc_store_gc(a->m.s, &o, NULL);
	if (a->ret)
		lose("gc fails", a->m.error.text);
}

static void fork_source(struct actor *a)
{
	a->ret = kvarc_store_fork(a->m.s, "source", 1, session);
}

static void remove_and_fork(struct actor *a)
{
	remove_all(a);
	fork_source(a);
}

static void nothing(struct actor *a)
{
	a->ret = KVARC_END;
}

static void *run_actor(void *opaque)
{
	self = opaque;
	pthread_barrier_wait(&start);
	self->act(self);
	return NULL;
}

/* ----- what must hold ------------------------------------------------ */

static void must_save(const struct actor *a, uint64_t used)
{
	if (a->ret)
		lose("save fails", a->m.error.text);
	else if (a->number <= used)
		lose("a number is used again", "it was that of another version");
}

static void must_load(uint64_t number, struct made_file f)
{
	if (made_check(&main_store, session, number, f))
		lose("an acknowledged version is lost", main_store.error.text);
}

/* Whether one of the versions is a fork of "source" that loads. */
struct fork_look {
	uint64_t number;
};

static int see_version(void *opaque, const kvarc_session_version *v)
{
	struct fork_look *x = opaque;
	if (strcmp(v->parent, "source") == 0)
		x->number = v->number;
	return 0;
}

static void must_have_fork(void)
{
	struct fork_look x = { 0 };
	const kvarc_ret ret = kvarc_store_log(main_store.s, session, see_version, &x);
	if (ret || !x.number)
		lose("an acknowledged fork is lost", ret ? main_store.error.text : "not listed");
	else
		must_load(x.number, (struct made_file){ 30, 0 });
}

/* A session of `n` versions, and actors that have done nothing yet. */
static void begin(uint64_t n)
{
	const uint32_t text = 1 + (uint32_t)below(900);
	snprintf(session, sizeof session, "r/%llu", (unsigned long long)rounds);
	for (uint32_t i = 0; i < n; i++)
		if (made_save(&main_store, session, (struct made_file){ 20 + 10 * i, 0 }, 0, NULL))
			lose("save fails", main_store.error.text);
	for (uint32_t i = 0; i < ACTORS; i++) {
		actors[i].act = nothing;
		actors[i].no_grace = below(2) != 0;
		actors[i].fails = 0;
		actors[i].number = actors[i].removed = 0;
		actors[i].f = (struct made_file){ 70 + 10 * i, below(2) ? text % 60 : 0 };
	}
}

static void all_at_once(void)
{
	for (int i = 0; i < ACTORS; i++)
		if (pthread_create(&actors[i].thread, NULL, run_actor, &actors[i]))
			abort();
	for (int i = 0; i < ACTORS; i++)
		pthread_join(actors[i].thread, NULL);
}

static void gc_and_new_version(void)
{
	begin(3);
	actors[0].act = collect;
	actors[1].act = remove_and_save;
	all_at_once();
	must_save(&actors[1], 3);
	must_load(actors[1].number, actors[1].f);
	must_load(0, actors[1].f);
}

/* The version may be gone only if a removal has counted it. */
static void two_removals(void)
{
	begin(3);
	actors[0].act = remove_all;
	actors[1].act = remove_and_save;
	all_at_once();
	must_save(&actors[1], 3);
	if (actors[0].removed + actors[1].removed <= 3)
		must_load(actors[1].number, actors[1].f);
	else
		excused++;
}

static void fork_and_save(void)
{
	begin(0);
	actors[0].act = fork_source;
	actors[0].fails = below(2) ? ENOSPC : 0;
	actors[1].act = save;
	all_at_once();
	must_save(&actors[1], 0);
	must_load(actors[1].number, actors[1].f);
	if (actors[0].ret == KVARC_OK)
		must_have_fork();
	else if (!actors[0].fails && actors[0].ret != KVARC_OPTIONS)
		lose("fork fails", actors[0].m.error.text);
}

static void fork_behind_removal(void)
{
	begin(2);
	actors[0].act = remove_and_fork;
	actors[1].act = save;
	all_at_once();
	must_save(&actors[1], 2);
	if (actors[0].removed <= 2)
		must_load(actors[1].number, actors[1].f);
	else
		excused++;
	if (actors[0].ret == KVARC_OK)
		must_have_fork();
}

static void saves_and_failure(void)
{
	begin(1);
	actors[0].act = actors[1].act = actors[2].act = save;
	actors[0].fails = ENOSPC;
	all_at_once();
	if (actors[0].ret != KVARC_IO)
		lose("a save without its manifest", "is acknowledged");
	for (int i = 1; i < ACTORS; i++) {
		must_save(&actors[i], 1);
		must_load(actors[i].number, actors[i].f);
	}
}

static void saves_and_gc(void)
{
	begin(1);
	actors[0].act = collect;
	actors[1].act = actors[2].act = save;
	all_at_once();
	must_save(&actors[1], 1);
	must_save(&actors[2], 1);
	const struct actor *last = &actors[actors[1].number > actors[2].number ? 1 : 2];
	must_load(last->number, last->f);
	must_load(0, last->f);
}

/* ----- a saver that dies ------------------------------------------------ */

static int to_parent[2], to_child[2];
static pid_t saver;

static void pass(int fd)
{
	if (write(fd, "g", 1) != 1)
		abort();
}

static int before_of_saver(const struct store_call *c)
{
	char byte;
	if (is_manifest(c) && strcmp(c->to, "sessions/chat/2") == 0) {
		pass(to_parent[1]);
		if (read(to_child[0], &byte, 1) != 1)
			_exit(1);
	}
	return 0;
}

static void behind_of_saver(const struct store_call *c, long result)
{
	if (is_manifest(c) && strcmp(c->to, "sessions/chat/2") == 0 && result == 0)
		kill(getpid(), SIGKILL);
}

static void let_saver_die(void)
{
	int status;
	if (!saver)
		return;
	pass(to_child[1]);
	waitpid(saver, &status, 0);
	saver = 0;
}

/* All looks of gc are over where it removes the first archive. */
static int before_of_gc(const struct store_call *c)
{
	if ((c->kind == STORE_CALL_UNLINK || c->kind == STORE_CALL_RENAME) &&
	    strncmp(c->path, "packs/", 6) == 0)
		let_saver_die();
	return 0;
}

static kvarc_ret open_store(struct made_store *m)
{
	const struct made_place p = { .url = url,
		                      .flags = KVARC_STORE_CREATE | KVARC_STORE_NO_SYNC };
	return made_open(m, &p);
}

static void start_saver(void)
{
	struct made_store m;
	if (pipe(to_parent) || pipe(to_child))
		abort();
	saver = fork();
	if (saver)
		return;
	alarm(60);
	store_calls = (struct store_call_hooks){ before_of_saver, behind_of_saver };
	if (open_store(&m) || made_save(&m, "chat", (struct made_file){ 160, NONE }, 0, NULL))
		fprintf(stderr, "the saver that is to die: %s\n", m.error.text);
	_exit(1);
}

static void saver_dies(void)
{
	kvarc_gc_options o = KVARC_GC_OPTIONS_INIT;
	struct made_store m;
	char byte;
	strcpy(session, "chat");
	if (open_store(&m) || made_save(&m, "chat", (struct made_file){ 10, 0 }, 0, NULL) ||
	    made_save(&m, "other", (struct made_file){ 130, NONE }, 0, NULL) ||
	    kvarc_store_remove(m.s, "other", NULL))
		lose("the setup", m.error.text);
	start_saver();
	const bool waits = read(to_parent[0], &byte, 1) == 1;
	store_calls = (struct store_call_hooks){ before_of_gc, NULL };
	o.no_repack = 1;
	o.no_grace = 1;
	if (!waits || kvarc_store_gc(m.s, &o, NULL))
		lose("gc", m.error.text);
	let_saver_die();
	store_calls = (struct store_call_hooks){ before_call, NULL };
	close(to_parent[0]), close(to_parent[1]), close(to_child[0]), close(to_child[1]);
	kvarc_session_version v = { .number = 0 };
	kvarc_ret ret = made_load(&m, "chat", 0, &v, NULL);
	if (ret)
		lose("the session does not load behind a saver that died", m.error.text);
	else if (v.number == 1 && v.passed_over != 2)
		lose("a version is passed over", "and the answer does not say it");
	if (made_check(&m, "chat", 1, (struct made_file){ 10, 0 }))
		lose("version 1", m.error.text);
	kvarc_saved saved = { 0 };
	ret = made_save(&m, "chat", (struct made_file){ 170, NONE }, 0, &saved);
	if (ret || made_check(&m, "chat", 0, (struct made_file){ 170, NONE }) || saved.version != 3)
		lose("the next save", ret ? m.error.text : "is not loaded as version 3");
	made_close(&m);
}

/* ----- all of it ------------------------------------------------ */

static void end_store(void)
{
	made_close(&main_store);
	for (int i = 0; i < ACTORS; i++)
		made_close(&actors[i].m);
	if (*url)
		made_remove(url);
}

static void new_store(uint64_t n)
{
	if (n)
		end_store();
	snprintf(url, sizeof url, "%s/%llu", folder, (unsigned long long)n);
	kvarc_ret ret = open_store(&main_store);
	for (int i = 0; i < ACTORS && !ret; i++)
		ret = open_store(&actors[i].m);
	if (!ret)
		ret = made_save(&main_store, "source", (struct made_file){ 30, 0 }, 0, NULL);
	if (ret) {
		fprintf(stderr, "store_race: %s\n", main_store.error.text);
		exit(1);
	}
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*fn)(void);
	} scenarios[] = { { "rm and save beside gc", gc_and_new_version },
		          { "rm and save beside rm", two_removals },
		          { "fork beside save", fork_and_save },
		          { "rm and fork beside save", fork_behind_removal },
		          { "saves beside one that fails", saves_and_failure },
		          { "saves beside gc", saves_and_gc } };
	enum { SCENARIOS = sizeof scenarios / sizeof scenarios[0] };
	uint64_t losses[SCENARIOS + 1] = { 0 };
	const uint64_t n = argc > 1 ? strtoull(argv[1], NULL, 10) : 180;
	seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
	if (!mkdtemp(folder))
		return 77; /* no memory as a file system */
	alarm(60 + (unsigned)n);
	pthread_barrier_init(&start, NULL, ACTORS);
	store_calls.before = before_call;
	for (; rounds < n; rounds++) {
		const uint64_t was = lost;
		if (rounds % ROUNDS_OF_A_STORE == 0)
			new_store(rounds);
		scenario = scenarios[rounds % SCENARIOS].name;
		scenarios[rounds % SCENARIOS].fn();
		losses[rounds % SCENARIOS] += lost != was;
	}
	end_store();
	scenario = "a saver dies";
	for (uint64_t i = 0; i * DEATHS_EVERY < n; i++) {
		const uint64_t was = lost;
		snprintf(url, sizeof url, "%s/death-%llu", folder, (unsigned long long)i);
		saver_dies();
		made_remove(url);
		losses[SCENARIOS] += lost != was;
	}
	for (size_t i = 0; i < SCENARIOS; i++)
		printf("%s: lost in %d rounds\n", scenarios[i].name, (int)losses[i]);
	printf("%s: lost in %d rounds\n", scenario, (int)losses[SCENARIOS]);
	printf("removals that were asked for: %d\n", (int)excused);
	made_remove(folder);
	printf("rounds: %llu, lost: %llu\n", (unsigned long long)rounds, (unsigned long long)lost);
	return lost != 0;
}
