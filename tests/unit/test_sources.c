/* SPDX-License-Identifier: BSD-3-Clause */
/* test_sources.c - sources and sinks on paths, descriptors, FILEs and memory */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "io/file_io.h"
#include <stdbool.h>

#define LARGE ((uint64_t)5 << 30)

static kvarc_error error;
static const kvarc_common common = { .error = &error };

static char folder[] = "test-sources-XXXXXX";

static const char *path_of(const char *name)
{
	static char path[4][128];
	static int next;
	char *p = path[next++ % 4];
	snprintf(p, sizeof path[0], "%s/%s", folder, name);
	return p;
}

static void put(const kvarc_sink *s, const char *text, uint64_t offset)
{
	assert_int_equal(s->write(s->opaque, text, strlen(text), offset), 0);
}

/* All of a source, by calls for odd sizes. */
static void assert_holds(const kvarc_source *s, const char *text, uint64_t offset)
{
	char got[64];
	size_t n = strlen(text), have = 0;
	while (have < n) {
		int64_t k = s->read(s->opaque, got + have, n - have < 3 ? n - have : 3,
		                    offset + have);
		assert_true(k > 0);
		have += (size_t)k;
	}
	assert_memory_equal(got, text, n);
}

static void test_path(void **state)
{
	const char *path = path_of("path");
	kvarc_sink sink;
	kvarc_source source;
	struct stat st;
	char c;
	(void)state;
	assert_int_equal(kvarc_source_open_path(&source, path, &common), KVARC_IO);
	assert_non_null(strstr(error.text, strerror(ENOENT)));
	assert_non_null(strstr(error.text, path));
	assert_null(source.read);
	assert_int_equal(kvarc_sink_open_path(&sink, path, KVARC_SINK_KEEP, &common), KVARC_IO);
	assert_int_equal(kvarc_sink_open_path(&sink, path, 3, &common), KVARC_PROG);
	assert_int_equal(kvarc_sink_open_path(&sink, path, 4, &common), KVARC_PROG);
	assert_int_equal(kvarc_sink_open_path(&sink, path, 0, &common), KVARC_OK);
	put(&sink, "large", LARGE);
	put(&sink, "small", 1);
	assert_int_equal(sink.flush(sink.opaque), 0);
	assert_int_equal(kvarc_sink_close(&sink, NULL), KVARC_OK);
	assert_null(sink.write);

	assert_int_equal(kvarc_sink_open_path(&sink, path, 0, &common), KVARC_IO);
	assert_non_null(strstr(error.text, strerror(EEXIST)));
	assert_int_equal(kvarc_source_open_path(&source, path, &common), KVARC_OK);
	assert_int_equal(source.size, LARGE + 5);
	assert_holds(&source, "large", LARGE);
	assert_holds(&source, "small", 1);
	assert_int_equal(source.read(source.opaque, &c, 1, LARGE + 5), 0);
	errno = 0;
	assert_int_equal(source.read(source.opaque, &c, 1, UINT64_MAX), -1);
	assert_int_equal(errno, EOVERFLOW);
	int fd = kvi_opaque_fd(source.opaque);
	assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC);
	kvarc_source_close(&source);
	assert_int_equal(fcntl(fd, F_GETFD), -1);
	kvarc_source_close(&source);

	assert_int_equal(kvarc_sink_open_path(&sink, path, KVARC_SINK_KEEP, NULL), KVARC_OK);
	assert_int_equal(sink.truncate(sink.opaque, 6), 0);
	put(&sink, "er", 6);
	assert_int_equal(kvarc_sink_close(&sink, &error), KVARC_OK);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_size, 8);
	assert_int_equal(kvarc_sink_open_path(&sink, path, KVARC_SINK_TRUNCATE, NULL), KVARC_OK);
	assert_int_equal(kvarc_sink_close(&sink, &error), KVARC_OK);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_size, 0);
	assert_int_equal(kvarc_source_open_path(&source, folder, &common), KVARC_IO);
	assert_non_null(strstr(error.text, strerror(EISDIR)));
	assert_int_equal(kvarc_source_open_path(&source, NULL, &common), KVARC_PROG);
	assert_int_equal(kvarc_source_open_path(NULL, path, &common), KVARC_PROG);
	assert_int_equal(kvarc_sink_open_path(&sink, NULL, 0, &common), KVARC_PROG);
}

static const kvarc_track track = { 0 };
static const kvarc_tensor tensor = {
	.kind = KVARC_KEY, .dtype = KVARC_F16, .heads = 1, .channels = 32
};
static const kvarc_geometry one_tensor = {
	.n_tracks = 1, .tracks = &track, .n_tensors = 1, .tensors = &tensor
};

static void test_descriptor(void **state)
{
	int fd = open(path_of("fd"), O_RDWR | O_CREAT, 0600);
	kvarc_sink sink;
	kvarc_source source;
	(void)state;
	assert_true(fd >= 0);
	assert_int_equal(kvarc_sink_fd(&sink, fd, &common), KVARC_OK);
	put(&sink, "0123456789", 0);
	assert_int_equal(lseek(fd, 0, SEEK_CUR), 0);
	assert_int_equal(lseek(fd, 7, SEEK_SET), 7);
	assert_int_equal(kvarc_source_fd(&source, fd, &common), KVARC_OK);
	assert_int_equal(source.size, 10);
	assert_holds(&source, "0123456789", 0);
	assert_holds(&source, "45", 4);
	assert_int_equal(lseek(fd, 0, SEEK_CUR), 7);
	kvarc_source_close(&source);
	assert_int_equal(kvarc_sink_close(&sink, &error), KVARC_OK);
	assert_true(fcntl(fd, F_GETFD) >= 0);
	assert_int_equal(fcntl(fd, F_SETFL, O_APPEND), 0);
	assert_int_equal(kvarc_sink_fd(&sink, fd, &common), KVARC_PROG);
	assert_null(sink.write);
	close(fd);
	assert_int_equal(kvarc_source_fd(&source, fd, &common), KVARC_IO);
	assert_non_null(strstr(error.text, strerror(EBADF)));
	assert_int_equal(kvarc_sink_fd(&sink, fd, &common), KVARC_IO);
	fd = open("/dev/full", O_WRONLY);
	if (fd < 0)
		return;
	assert_int_equal(kvarc_sink_fd(&sink, fd, &common), KVARC_OK);
	assert_null(sink.truncate);
	kvarc_writer *w;
	const kvarc_writer_options o = { .common = common };
	assert_int_equal(kvarc_writer_open(&w, &sink, &o), KVARC_OK);
	assert_int_equal(kvarc_writer_set_geometry(w, &one_tensor), KVARC_IO);
	assert_non_null(strstr(error.text, strerror(ENOSPC)));
	kvarc_writer_abort(&w);
	close(fd);
}

static void ignore(int signal)
{
	(void)signal;
}

struct pipe_end {
	kvarc_sink sink;
	pthread_t reader;
	uint8_t *data;
	size_t bytes;
	int ret;
};

static void *write_pipe(void *opaque)
{
	struct pipe_end *p = opaque;
	p->ret = p->sink.write(p->sink.opaque, p->data, p->bytes, 0);
	for (int i = 0; i < 20; i++) {
		usleep(1000);
		pthread_kill(p->reader, SIGUSR1);
	}
	close(kvi_opaque_fd(p->sink.opaque));
	return NULL;
}

/* More than a pipe holds, in short counts, while signals come. */
static void test_pipe(void **state)
{
	enum { BYTES = 300000 };
	struct sigaction act = { .sa_handler = ignore };
	struct pipe_end end = { .data = malloc(BYTES), .bytes = BYTES, .reader = pthread_self() };
	uint8_t *got = malloc(BYTES + 1);
	kvarc_source source;
	pthread_t writer;
	size_t n = 0;
	int fds[2];
	int64_t k;
	(void)state;
	assert_true(end.data && got);
	assert_int_equal(sigaction(SIGUSR1, &act, NULL), 0);
	assert_int_equal(pipe(fds), 0);
	for (size_t i = 0; i < BYTES; i++)
		end.data[i] = (uint8_t)(i * 7 >> 3);
	assert_int_equal(kvarc_sink_fd(&end.sink, fds[1], &common), KVARC_OK);
	assert_null(end.sink.truncate);
	assert_int_equal(end.sink.flush(end.sink.opaque), 0);
	assert_int_equal(kvarc_source_fd(&source, fds[0], &common), KVARC_OK);
	assert_int_equal(source.size, KVARC_UNKNOWN);
	assert_int_equal(pthread_create(&writer, NULL, write_pipe, &end), 0);
	while ((k = source.read(source.opaque, got + n, BYTES + 1 - n, n)) > 0)
		n += (size_t)k;
	assert_int_equal(k, 0);
	pthread_join(writer, NULL);
	assert_int_equal(end.ret, 0);
	assert_int_equal(n, BYTES);
	assert_memory_equal(got, end.data, BYTES);
	close(fds[0]);
	free(got);
	free(end.data);
}

static void test_file(void **state)
{
	FILE *f = fopen(path_of("file"), "w+b");
	kvarc_sink sink;
	kvarc_source source;
	(void)state;
	assert_non_null(f);
	assert_int_equal(kvarc_sink_file(&sink, f, &common), KVARC_OK);
	put(&sink, "large", LARGE);
	put(&sink, "small", 1);
	assert_int_equal(kvarc_source_file(&source, f, &common), KVARC_OK);
	assert_int_equal(source.size, LARGE + 5);
	assert_holds(&source, "large", LARGE);
	assert_holds(&source, "small", 1);
	put(&sink, "ler", 5);
	assert_holds(&source, "smaller", 1);
	assert_int_equal(sink.flush(sink.opaque), 0);
	assert_int_equal(sink.truncate(sink.opaque, 8), 0);
	kvarc_source_close(&source);
	assert_int_equal(kvarc_source_file(&source, f, &common), KVARC_OK);
	assert_int_equal(source.size, 8);
	char c;
	assert_int_equal(source.read(source.opaque, &c, 1, 8), 0);
	assert_holds(&source, "smaller", 1);
	assert_int_equal(kvarc_sink_close(&sink, NULL), KVARC_OK);
	fclose(f);
	f = fopen(path_of("file"), "ab");
	assert_non_null(f);
	assert_int_equal(kvarc_sink_file(&sink, f, &common), KVARC_PROG);
	assert_int_equal(kvarc_source_file(&source, f, &common), KVARC_OK);
	errno = 0;
	assert_int_equal(source.read(source.opaque, &c, 1, 0), -1);
	assert_int_equal(errno, EBADF);
	fclose(f);
	assert_int_equal(kvarc_source_file(&source, NULL, &common), KVARC_PROG);
	f = popen("printf 'by a pipe'", "r");
	assert_non_null(f);
	assert_int_equal(kvarc_source_file(&source, f, &common), KVARC_OK);
	assert_int_equal(source.size, KVARC_UNKNOWN);
	assert_holds(&source, "by a pipe", 0);
	assert_int_equal(source.read(source.opaque, &c, 1, 9), 0);
	pclose(f);
}

/* The same bytes, whoever of several threads reads them. */
struct taker {
	const kvarc_source *source;
	bool good;
};

static void *take_all(void *opaque)
{
	struct taker *t = opaque;
	t->good = true;
	for (uint32_t i = 0; i < 4000; i++) {
		uint32_t at = i * 2654435761u % 4096, got;
		t->good = t->good && t->source->read(t->source->opaque, &got, 4, 4ull * at) == 4 &&
		          got == at;
	}
	return NULL;
}

static void assert_threads(const kvarc_source *source)
{
	pthread_t thread[4];
	struct taker taker[4];
	for (int i = 0; i < 4; i++) {
		taker[i] = (struct taker){ .source = source };
		assert_int_equal(pthread_create(&thread[i], NULL, take_all, &taker[i]), 0);
	}
	for (int i = 0; i < 4; i++) {
		pthread_join(thread[i], NULL);
		assert_true(taker[i].good);
	}
}

static void test_threads(void **state)
{
	kvarc_sink sink;
	kvarc_source source;
	kvarc_memory *m;
	FILE *f = fopen(path_of("threads"), "w+b");
	(void)state;
	assert_non_null(f);
	assert_int_equal(kvarc_sink_file(&sink, f, &common), KVARC_OK);
	for (uint32_t i = 0; i < 4096; i++)
		assert_int_equal(sink.write(sink.opaque, &i, 4, 4ull * i), 0);
	assert_int_equal(kvarc_source_file(&source, f, &common), KVARC_OK);
	assert_threads(&source);
	assert_int_equal(fflush(f), 0);
	assert_int_equal(kvarc_source_open_path(&source, path_of("threads"), &common), KVARC_OK);
	assert_threads(&source);
	kvarc_source_close(&source);
	fclose(f);
	assert_int_equal(kvarc_memory_open(&m, NULL), KVARC_OK);
	assert_int_equal(kvarc_memory_sink(m, &sink), KVARC_OK);
	for (uint32_t i = 0; i < 4096; i++)
		assert_int_equal(sink.write(sink.opaque, &i, 4, 4ull * i), 0);
	assert_int_equal(kvarc_memory_source(m, &source), KVARC_OK);
	assert_threads(&source);
	kvarc_memory_close(&m);
}

static void test_memory(void **state)
{
	const kvarc_common small = { .error = &error, .memlimit = 1 << 20 };
	kvarc_memory *m;
	kvarc_sink sink;
	kvarc_source source;
	(void)state;
	assert_int_equal(kvarc_memory_open(&m, &small), KVARC_OK);
	assert_null(kvarc_memory_data(m));
	assert_int_equal(kvarc_memory_source(m, &source), KVARC_OK);
	assert_int_equal(source.size, 0);
	char c;
	assert_int_equal(source.read(source.opaque, &c, 1, 0), 0);
	assert_int_equal(kvarc_memory_sink(m, &sink), KVARC_OK);
	put(&sink, "end", 10);
	put(&sink, "", 100);
	assert_int_equal(kvarc_memory_bytes(m), 13);
	assert_memory_equal(kvarc_memory_data(m), "\0\0\0\0\0\0\0\0\0\0end", 13);
	put(&sink, "begin", 0);
	assert_int_equal(sink.truncate(sink.opaque, 12), 0);
	assert_int_equal(sink.truncate(sink.opaque, 20), 0);
	assert_int_equal(kvarc_memory_source(m, &source), KVARC_OK);
	assert_int_equal(source.size, 12);
	assert_holds(&source, "en", 10);
	assert_ptr_equal(source.memory, kvarc_memory_data(m));
	/* What was behind a cut does not come back. */
	put(&sink, "x", 13);
	assert_memory_equal(kvarc_memory_data(m), "begin\0\0\0\0\0en\0x", 14);
	/* Nearly all of the limit, and no more. */
	put(&sink, "y", 900 << 10);
	const uint64_t beyond[] = { 1 << 20, (uint64_t)1 << 40, UINT64_MAX, UINT64_MAX - 1 };
	for (size_t i = 0; i < 4; i++) {
		errno = 0;
		assert_int_equal(sink.write(sink.opaque, "z", 1, beyond[i]), -1);
		assert_int_equal(errno, ENOMEM);
	}
	assert_int_equal(kvarc_memory_bytes(m), (900 << 10) + 1);
	kvarc_memory_close(&m);
	assert_null(m);
	kvarc_memory_close(&m);
	assert_null(kvarc_memory_data(NULL));
	assert_int_equal(kvarc_memory_bytes(NULL), 0);
	assert_int_equal(kvarc_memory_sink(NULL, &sink), KVARC_PROG);
	assert_int_equal(kvarc_memory_source(NULL, &source), KVARC_PROG);
	assert_int_equal(kvarc_memory_open(NULL, NULL), KVARC_PROG);
}

/* The reader's text has that of errno. */
static int64_t fail_read(void *opaque, void *buf, size_t bytes, uint64_t offset)
{
	(void)buf;
	(void)bytes;
	(void)offset;
	errno = *(int *)opaque;
	return -1;
}

static void test_error_text(void **state)
{
	int why = ETIMEDOUT;
	const kvarc_source source = { .read = fail_read, .opaque = &why, .size = 1000 };
	const kvarc_reader_options o = { .common = common };
	kvarc_reader *r;
	(void)state;
	assert_int_equal(kvarc_reader_open(&r, &source, &o), KVARC_IO);
	assert_non_null(strstr(error.text, strerror(ETIMEDOUT)));
	why = 0;
	assert_int_equal(kvarc_reader_open(&r, &source, &o), KVARC_IO);
	assert_null(strstr(error.text, "failed:"));
}

static int make_folder(void **state)
{
	(void)state;
	return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
	static const char *const names[] = { "path", "fd", "file", "threads" };
	(void)state;
	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		remove(path_of(names[i]));
	return rmdir(folder);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_path),       cmocka_unit_test(test_descriptor),
		cmocka_unit_test(test_pipe),       cmocka_unit_test(test_file),
		cmocka_unit_test(test_threads),    cmocka_unit_test(test_memory),
		cmocka_unit_test(test_error_text),
	};
	return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
