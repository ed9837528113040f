/* SPDX-License-Identifier: BSD-3-Clause */
/* signals.c - temporary files are removed when the command is interrupted */
#include "config.h"

#include "signals.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "message.h"
#include "checked.h"

static const int caught[] = { SIGINT, SIGTERM, SIGHUP };
enum { N_CAUGHT = sizeof(caught) / sizeof(caught[0]) };

static struct temporary {
	int dirfd, fd;
	const char *name;
	const unsigned *n_files; /* number of files in the folder fd; NULL: not a folder */
} * list;
static size_t n_list, cap_list;
/* Spin lock in place of a mutex: the handler of SIGBUS takes it, too. A thread that has it never
 * touches a mapped file, so that the handler does not wait for the thread that it interrupted. */
static atomic_flag is_held = ATOMIC_FLAG_INIT;
static sigset_t waited;
static _Atomic(void (*)(void)) at_end;
static const char *bus_error; /* the message; NULL: none */
/* Mapped files whose pages are replaced when they are gone; NULL: none. */
static struct mapped_file *_Atomic mapped[4];
enum { N_MAPPED = sizeof(mapped) / sizeof(mapped[0]) };
static uintptr_t page_bytes;

/* Removes a file of a folder; like remove_one, calls nothing that is not safe in a handler. */
static void remove_numbered(int dirfd, unsigned number)
{
	char digits[16], *name = digits + sizeof(digits) - 1;

	*name = '\0';
	do {
		*--name = (char)('0' + number % 10);
		number /= 10;
	} while (number);
	unlinkat(dirfd, name, 0);
}

static void remove_one(const struct temporary *t)
{
	for (unsigned i = 0; t->n_files && i < *t->n_files; i++)
		remove_numbered(t->fd, i);
	unlinkat(t->dirfd, t->name, t->n_files ? AT_REMOVEDIR : 0);
}

static void remove_all(void)
{
	for (size_t i = 0; i < n_list; i++)
		remove_one(&list[i]);
}

static void *wait_for_signal(void *unused)
{
	int sig;

	(void)unused;
	if (sigwait(&waited, &sig) != 0)
		return NULL;
	/* Never released: nothing may be created from here on. */
	signals_hold();
	remove_all();
	if (at_end)
		at_end();
	/* Ends by the default action, so that the parent sees the signal. */
	signal(sig, SIG_DFL);
	pthread_sigmask(SIG_UNBLOCK, &waited, NULL);
	raise(sig);
	return NULL;
}

/* Puts zeros in place of a mapped file from a page on. False: the page is of none of them. mmap is
 * a system call like those that are safe in a handler. */
static bool put_zeros(const void *page)
{
	const uintptr_t at = (uintptr_t)page / page_bytes * page_bytes;

	for (size_t i = 0; i < N_MAPPED; i++) {
		struct mapped_file *m = atomic_load(&mapped[i]);
		if (!m || at < (uintptr_t)m->p || at - (uintptr_t)m->p >= m->bytes)
			continue;
		/* before others can read the zeros */
		atomic_store(&m->gone, true);
		return mmap((char *)m->p + (at - (uintptr_t)m->p),
		            m->bytes - (at - (uintptr_t)m->p), PROT_READ,
		            MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED;
	}
	return false;
}

/* Calls nothing that is not safe in a handler. */
static void on_bus_error(int sig, siginfo_t *info, void *context)
{
	const int error = errno;

	(void)sig, (void)context;
	if (info->si_code == BUS_ADRERR && put_zeros(info->si_addr)) {
		errno = error;
		return;
	}
	if (info->si_code != BUS_ADRERR || !bus_error) {
		/* The instruction is repeated, and ends the process. */
		signal(SIGBUS, SIG_DFL);
		return;
	}
	signals_hold();
	remove_all();
	ssize_t ignored = write(STDERR_FILENO, bus_error, strlen(bus_error));
	(void)ignored;
	_exit(EXIT_ERROR);
}

static void catch_bus_error(void)
{
	struct sigaction act = { .sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO };

	page_bytes = (uintptr_t)sysconf(_SC_PAGESIZE);
	sigemptyset(&act.sa_mask);
	sigaction(SIGBUS, &act, NULL);
}

void signals_explain_bus_error(const char *message)
{
	bus_error = message;
	catch_bus_error();
}

bool signals_map(struct mapped_file *map, int fd, size_t bytes)
{
	void *p;
	size_t i = 0;

	*map = (struct mapped_file){ .p = NULL };
	while (i < N_MAPPED && atomic_load(&mapped[i]))
		i++;
	if (i == N_MAPPED || !bytes)
		return false;
	p = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED)
		return false;
	map->p = p;
	map->bytes = bytes;
	atomic_store(&mapped[i], map);
	catch_bus_error();
	return true;
}

void signals_unmap(struct mapped_file *map)
{
	if (!map->p)
		return;
	for (size_t i = 0; i < N_MAPPED; i++) {
		if (atomic_load(&mapped[i]) == map)
			atomic_store(&mapped[i], NULL);
	}
	munmap(map->p, map->bytes);
	map->p = NULL;
}

void signals_init(void)
{
	struct sigaction old;
	pthread_t thread;
	int n = 0;

	/* A file size limit shall fail the write, which is reported. */
	signal(SIGXFSZ, SIG_IGN);
	sigemptyset(&waited);
	for (int i = 0; i < N_CAUGHT; i++) {
		if (sigaction(caught[i], NULL, &old) == 0 && old.sa_handler != SIG_IGN)
			n += sigaddset(&waited, caught[i]) == 0;
	}
	if (n == 0)
		return;
	/* Threads that start later inherit the mask. */
	pthread_sigmask(SIG_BLOCK, &waited, NULL);
	if (pthread_create(&thread, NULL, wait_for_signal, NULL) != 0)
		pthread_sigmask(SIG_UNBLOCK, &waited, NULL);
	else
		pthread_detach(thread);
}

void signals_at_end(void (*fn)(void))
{
	at_end = fn;
}

void signals_hold(void)
{
	while (atomic_flag_test_and_set(&is_held))
		poll(NULL, 0, 1);
}

void signals_release(void)
{
	atomic_flag_clear(&is_held);
}

bool signals_remember(int dirfd, const char *name, int fd, const unsigned *n_files)
{
	if (n_list == cap_list) {
		size_t cap = cap_list ? 2 * cap_list : 8, bytes;
		struct temporary *p;
		if (checked_mul(cap, sizeof(*list), &bytes))
			return false;
		p = realloc(list, bytes);
		if (!p)
			return false;
		list = p;
		cap_list = cap;
	}
	list[n_list++] = (struct temporary){ dirfd, fd, name, n_files };
	return true;
}

static void forget(const char *name, bool remove)
{
	for (size_t i = 0; i < n_list; i++) {
		if (list[i].name == name) {
			if (remove)
				remove_one(&list[i]);
			list[i] = list[--n_list];
			break;
		}
	}
	if (n_list == 0) {
		free(list);
		list = NULL;
		cap_list = 0;
	}
}

void signals_forget(const char *name)
{
	forget(name, false);
}

void signals_remove(const char *name)
{
	signals_hold();
	forget(name, true);
	signals_release();
}
