/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * map_while.c - runs a command while a file is mapped writable, and written to without a trace
 *
 * usage: map_while FILE COMMAND ARGUMENT...
 * All pages are written first, so that later writes change no time of the file. The file is not
 * open otherwise. Exits as the command does; 77: the file system gives no leases.
 */
#define _GNU_SOURCE /* F_SETLEASE */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static int has_leases(const char *file)
{
#ifdef F_SETLEASE
	int fd = open(file, O_RDONLY | O_CLOEXEC);
	int has = fd >= 0 && fcntl(fd, F_SETLEASE, F_RDLCK) == 0;

	close(fd);
	return has;
#else
	(void)file;
	return 0;
#endif
}

int main(int argc, char **argv)
{
	enum { PAGE = 4096 };
	volatile char *p;
	struct stat st;
	int fd, status;
	pid_t child;

	if (argc < 3)
		return 99;
	if (!has_leases(argv[1]))
		return 77;
	fd = open(argv[1], O_RDWR | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) != 0)
		return 99;
	p = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED)
		return 99;
	close(fd);
	for (off_t i = 0; i < st.st_size; i += PAGE)
		p[i] = p[i];
	child = fork();
	if (child == 0) {
		execvp(argv[2], argv + 2);
		_exit(99);
	}
	if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status))
		return 99;
	p[st.st_size - 1] = (char)(p[st.st_size - 1] + 1);
	return WEXITSTATUS(status);
}
