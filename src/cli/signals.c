/* SPDX-License-Identifier: BSD-3-Clause */
/* signals.c - temporary files are removed when the command is interrupted */
#include "signals.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "message.h"
#include "util/ckd.h"

static const int caught[] = { SIGINT, SIGTERM, SIGHUP };
enum { N_CAUGHT = sizeof(caught) / sizeof(caught[0]) };

static struct temporary {
	int dirfd;
	const char *name;
} * list;
static size_t n_list, cap_list;
/* No mutex: the handler of SIGBUS takes it, too. A thread that has it never touches a mapped file,
 * so that the handler does not wait for the thread that it interrupted. */
static atomic_flag is_held = ATOMIC_FLAG_INIT;
static sigset_t waited;
static const char *bus_error; /* the message */

static void remove_all(void)
{
	for (size_t i = 0; i < n_list; i++)
		unlinkat(list[i].dirfd, list[i].name, 0);
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
	/* By the default action, so that the parent sees why we ended. */
	signal(sig, SIG_DFL);
	pthread_sigmask(SIG_UNBLOCK, &waited, NULL);
	raise(sig);
	return NULL;
}

/* Calls nothing that is not safe in a handler. */
static void on_bus_error(int sig, siginfo_t *info, void *context)
{
	(void)sig, (void)context;
	if (info->si_code != BUS_ADRERR) {
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

void signals_explain_bus_error(const char *message)
{
	struct sigaction act = { .sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO };

	bus_error = message;
	sigemptyset(&act.sa_mask);
	sigaction(SIGBUS, &act, NULL);
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

void signals_hold(void)
{
	while (atomic_flag_test_and_set(&is_held))
		poll(NULL, 0, 1);
}

void signals_release(void)
{
	atomic_flag_clear(&is_held);
}

bool signals_remember(int dirfd, const char *name)
{
	if (n_list == cap_list) {
		size_t cap = cap_list ? 2 * cap_list : 8, bytes;
		struct temporary *p;
		if (kvi_mul(cap, sizeof(*list), &bytes))
			return false;
		p = realloc(list, bytes);
		if (!p)
			return false;
		list = p;
		cap_list = cap;
	}
	list[n_list].dirfd = dirfd;
	list[n_list].name = name;
	n_list++;
	return true;
}

void signals_forget(const char *name)
{
	for (size_t i = 0; i < n_list; i++) {
		if (list[i].name == name) {
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
