/* SPDX-License-Identifier: BSD-3-Clause */
/* signals.c - temporary files vanish when the command is interrupted */
#include "signals.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "util/ckd.h"

static const int caught[] = { SIGINT, SIGTERM, SIGHUP };
enum { N_CAUGHT = sizeof(caught) / sizeof(caught[0]) };

static struct temporary {
	int dirfd;
	const char *name;
} *list;
static size_t n_list, cap_list;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static sigset_t waited;

static void *wait_for_signal(void *unused)
{
	int sig;

	(void)unused;
	if (sigwait(&waited, &sig) != 0)
		return NULL;
	/* Never released: nothing may be created from here on. */
	pthread_mutex_lock(&lock);
	for (size_t i = 0; i < n_list; i++)
		unlinkat(list[i].dirfd, list[i].name, 0);
	/* By the default action, so that the parent sees why we ended. */
	signal(sig, SIG_DFL);
	pthread_sigmask(SIG_UNBLOCK, &waited, NULL);
	raise(sig);
	return NULL;
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
		if (sigaction(caught[i], NULL, &old) == 0 &&
		    old.sa_handler != SIG_IGN)
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
	pthread_mutex_lock(&lock);
}

void signals_release(void)
{
	pthread_mutex_unlock(&lock);
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
