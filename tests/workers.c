/* SPDX-License-Identifier: BSD-3-Clause */
/* workers.c - divides a test among processes, so that a crash of one fails it */
#include "workers.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "synth.h"

enum { RESULT_MAX = 512, QUICK = 29 };

unsigned workers_run(workers_task *task, const void *opaque, void *results, size_t bytes)
{
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);
	unsigned count = cpus < 1 ? 1 : cpus > WORKERS_MAX ? WORKERS_MAX : (unsigned)cpus;
	int fd[WORKERS_MAX][2];
	REQUIRE(bytes <= RESULT_MAX);
	fflush(stdout);
	for (unsigned w = 0; w < count; w++) {
		uint64_t result[RESULT_MAX / sizeof(uint64_t)] = { 0 };
		REQUIRE(pipe(fd[w]) == 0);
		pid_t pid = fork();
		REQUIRE(pid >= 0);
		if (pid)
			continue;
		task(opaque, w, count, result);
		REQUIRE(write(fd[w][1], result, bytes) == (ssize_t)bytes);
		_exit(0);
	}
	for (unsigned w = 0; w < count; w++) {
		close(fd[w][1]);
		REQUIRE(read(fd[w][0], (char *)results + w * bytes, bytes) == (ssize_t)bytes);
		close(fd[w][0]);
	}
	for (unsigned w = 0; w < count; w++) {
		int status;
		REQUIRE(wait(&status) > 0);
		REQUIRE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	}
	return count;
}

void workers_quick(unsigned *w, unsigned *count)
{
	if (!getenv("KV_QUICK"))
		return;
	*w *= QUICK;
	*count *= QUICK;
}
