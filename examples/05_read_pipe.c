/* SPDX-License-Identifier: BSD-3-Clause */
/* 05_read_pipe.c - segments in order from a source that cannot seek */
#define _POSIX_C_SOURCE 200809L
#include "example.h"

#include <sys/wait.h>
#include <unistd.h>

/* The other end of the pipe: a process that writes an archive as it comes. */
static void send_archive(int fd)
{
	enum { TOKENS = 600 };
	kvarc_writer_options wo = KVARC_WRITER_OPTIONS_INIT;
	kvarc_track track;
	kvarc_tensor tensors[2 * LAYERS];
	kvarc_geometry geometry;
	kvarc_view views[2 * LAYERS];
	uint16_t *cache = example_cache(TOKENS);
	kvarc_sink sink;
	kvarc_writer *w;

	example_geometry(&geometry, &track, tensors);
	example_views(views, cache, TOKENS, 0);
	wo.flags = KVARC_WRITE_STREAMABLE;
	CHECK(kvarc_sink_fd(&sink, fd, NULL));
	CHECK(kvarc_writer_open(&w, &sink, &wo));
	CHECK(kvarc_writer_set_geometry(w, &geometry));
	CHECK(kvarc_writer_append(w, 0, TOKENS, NULL, NULL, views));
	CHECK(kvarc_writer_close(&w));
	free(cache);
}

/* A kvarc_deliver: n tokens of some heads of a tensor, decoded and checked. */
static int take_block(void *opaque, uint32_t tensor, uint32_t head, uint32_t heads, uint64_t t0,
                      uint32_t n, const void *src)
{
	uint64_t *elements = opaque;

	(void)tensor;
	(void)head;
	(void)t0;
	(void)src;
	*elements += (uint64_t)heads * CHANNELS * n;
	return 0;
}

int main(void)
{
	kvarc_source source;
	kvarc_segment segment;
	uint64_t elements = 0, tokens = 0;
	kvarc_reader *r;
	kvarc_ret ret;
	int fds[2];
	pid_t child;

	EXPECT(pipe(fds) == 0);
	child = fork();
	EXPECT(child >= 0);
	if (child == 0) {
		send_archive(fds[1]);
		return 0;
	}
	close(fds[1]);

	CHECK(kvarc_source_fd(&source, fds[0], NULL));
	EXPECT(source.size == KVARC_UNKNOWN);
	CHECK(kvarc_reader_open(&r, &source, NULL));
	while ((ret = kvarc_reader_next_segment(r, &segment)) == KVARC_OK) {
		CHECK(kvarc_reader_segment_deliver(r, take_block, &elements));
		tokens += segment.n;
		printf("tokens %llu to %llu\n", (unsigned long long)segment.t0,
		       (unsigned long long)(segment.t0 + segment.n - 1));
	}
	EXPECT(ret == KVARC_END);
	EXPECT(tokens == 600);
	EXPECT(elements == (uint64_t)2 * LAYERS * tokens * WIDTH);
	kvarc_reader_close(&r);
	close(fds[0]);
	EXPECT(waitpid(child, NULL, 0) == child);
	return 0;
}
