/* SPDX-License-Identifier: BSD-3-Clause */
/* kvarc/sources.h - ready-made sources and sinks: paths, descriptors, FILE, memory */
#ifndef KVARC_H_INTERNAL
#error Include <kvarc.h> instead of this file.
#endif
#ifndef KVARC_SOURCES_H
#define KVARC_SOURCES_H

/*
 * All of them take files of any size, go on after short counts and interrupted calls, and leave
 * errno as it was when they fail: the kvarc_error of the handle that uses them has its text. Of
 * common, which may be NULL, `error` is used, by kvarc_memory_open also `allocator` and `memlimit`.
 * A call that fails leaves its source or sink all zero. Returns OK, IO (the system refuses: the
 * text says what), PROG (an argument is NULL, unknown flags), others where they are named.
 */

/*
 * The file at a path, opened to read. A regular file, or a block device, is read with pread, from
 * any number of threads; its size is that of now. Anything else (a FIFO, a terminal) has the size
 * KVARC_UNKNOWN and is read forward. kvarc_source_close closes it.
 */
KVARC_API KVARC_MUST_CHECK kvarc_ret kvarc_source_open_path(kvarc_source *source, const char *path,
                                                            const kvarc_common *common);

/* Makes a source of a descriptor, which stays the caller's and must stay open. Offset 0 is the
 * first byte of a regular file, whatever the descriptor's own position, which is neither used
 * nor moved; of a pipe or a socket the next byte that comes. */
KVARC_API KVARC_MUST_CHECK kvarc_ret kvarc_source_fd(kvarc_source *source, int fd,
                                                     const kvarc_common *common);

/*
 * The same for a FILE, which stays the caller's and must stay open. What was written to it and is
 * in its buffer is read, too. Threads take turns (flockfile). Its position moves.
 */
KVARC_API KVARC_MUST_CHECK kvarc_ret kvarc_source_file(kvarc_source *source, FILE *file,
                                                       const kvarc_common *common);

/* NULL-safe. Closes what kvarc_source_open_path has opened, and makes any source all zero. After
 * the handles that use it. */
KVARC_API void kvarc_source_close(kvarc_source *source);

/* Treatment of a file that exists by kvarc_sink_open_path; without a flag it is not touched, and
 * the call fails. */
#define KVARC_SINK_TRUNCATE 0x1u /* its content is dropped */
#define KVARC_SINK_KEEP 0x2u     /* its content stays, for an append; it must exist */

/*
 * The file at a path, opened to write: made with mode 0666 less the umask unless it exists. flush
 * is fsync, which is where most of the time of a commit goes: set the member to NULL to do without.
 * truncate is ftruncate. kvarc_sink_close closes it.
 */
KVARC_API KVARC_MUST_CHECK kvarc_ret kvarc_sink_open_path(kvarc_sink *sink, const char *path,
                                                          unsigned flags,
                                                          const kvarc_common *common);

/* Makes a sink of a descriptor, which stays the caller's and must stay open; offsets as of
 * kvarc_source_fd. On a pipe or a socket bytes go out in the order of the calls, flush does
 * nothing, and truncate is NULL. PROG also when the descriptor has O_APPEND, with which offsets
 * mean nothing. */
KVARC_API KVARC_MUST_CHECK kvarc_ret kvarc_sink_fd(kvarc_sink *sink, int fd,
                                                   const kvarc_common *common);

/* Makes a sink of a FILE, which stays the caller's and must stay open, and not in append mode.
 * flush is fflush and fsync. Its position moves. */
KVARC_API KVARC_MUST_CHECK kvarc_ret kvarc_sink_file(kvarc_sink *sink, FILE *file,
                                                     const kvarc_common *common);

/* NULL-safe. Closes what kvarc_sink_open_path has opened, and makes any sink all zero. After the
 * handles that use it. error may be NULL. Returns OK, IO (what was written may not be there). */
KVARC_API KVARC_MUST_CHECK kvarc_ret kvarc_sink_close(kvarc_sink *sink, kvarc_error *error);

/* Memory that grows as it is written to. One thread writes; what is written may be read by any. */
typedef struct kvarc_memory kvarc_memory;

/* Empty memory. common->memlimit (0: the default) is for all of it: a write beyond that fails, with
 * ENOMEM. Returns OK, MEM, MEMLIMIT, PROG. */
KVARC_API KVARC_MUST_CHECK kvarc_ret kvarc_memory_open(kvarc_memory **memory,
                                                       const kvarc_common *common);

/* NULL-safe; sets *memory to NULL. After the handles that use it. */
KVARC_API void kvarc_memory_close(kvarc_memory **memory);

/* First byte of the memory; NULL: it is empty. Valid until the next write, truncate or close. */
KVARC_API const void *kvarc_memory_data(const kvarc_memory *memory);

/* How many bytes it has. */
KVARC_API uint64_t kvarc_memory_bytes(const kvarc_memory *memory);

/* A sink that writes to it, at any offset: a gap is filled with zeros. Returns OK, PROG. */
KVARC_API KVARC_MUST_CHECK kvarc_ret kvarc_memory_sink(kvarc_memory *memory, kvarc_sink *sink);

/* A source of the bytes that it has now, which readers take without a copy: nothing may be written
 * while it is used. Returns OK, PROG. */
KVARC_API KVARC_MUST_CHECK kvarc_ret kvarc_memory_source(kvarc_memory *memory,
                                                         kvarc_source *source);

#endif
