/* SPDX-License-Identifier: BSD-3-Clause */
/* kvarc/io.h - sources, sinks, tensor views, options common to all handles */
#ifndef KVARC_H_INTERNAL
#error Include <kvarc.h> instead of this file.
#endif
#ifndef KVARC_IO_H
#define KVARC_IO_H

/* Bytes [offset, offset + bytes) of a source, and where they go; NULL in a plan
 * (kvarc_reader_plan). */
typedef struct kvarc_byte_range {
	uint64_t offset, bytes;
	void *buf;
	uint64_t reserved[1]; /* zero */
} kvarc_byte_range;

/*
 * Where bytes come from; kvarc/sources.h has ready-made ones. read fills buf with up to bytes bytes
 * from the given offset and returns how many it got, 0 only at the end, -1 on failure (short
 * counts are fine, it is called again). If it sets errno when it fails, kvarc_error has its text.
 * size is the total size in bytes, or KVARC_UNKNOWN for a pipe: then offsets only ever go forward
 * without gaps.
 * With threads > 1 or overlap, and a known size, read may be called from several threads.
 * memory: NULL, or all size bytes, in memory or mapped. A kvarc_reader then takes
 * them from there without a copy and never calls read, which may be NULL. What was checked is not
 * kept: the bytes must stay where and as they are until the reader is closed. A kvarc_import copies
 * elements from there, and calls read for the rest; other handles need read, too. Of a mapped file
 * that becomes shorter the caller gets SIGBUS, in any thread that reads; with read it is
 * KVARC_DATA.
 * read_ranges: NULL, or fills all of n ranges in one call, for sources where a request takes long:
 * they ascend and do not overlap. 0 is success, anything else failure, with errno as for read. A
 * kvarc_reader calls it for what it reads ahead (kvarc_reader_plan), and read for the rest.
 */
typedef struct kvarc_source {
	int64_t (*read)(void *opaque, void *buf, size_t bytes, uint64_t offset);
	void *opaque;
	uint64_t size;
	const void *memory;
	int (*read_ranges)(void *opaque, const kvarc_byte_range *ranges, size_t n);
	uint64_t reserved[2]; /* zero */
} kvarc_source;

/*
 * Where bytes go; kvarc/sources.h has ready-made ones. write takes all bytes at the given offset;
 * 0 is success, anything else failure, with errno as for a source. An archive is written strictly
 * forward; a restored file (kvarc/file.h) at any offset inside its size. flush may be NULL; it is
 * called by kvarc_writer_commit and kvarc_writer_close, not after every segment, and in front of
 * and behind a checkpoint. truncate may be NULL; it makes the file shorter, for
 * kvarc_writer_open_append.
 */
typedef struct kvarc_sink {
	int (*write)(void *opaque, const void *buf, size_t bytes, uint64_t offset);
	int (*flush)(void *opaque);
	void *opaque;
	int (*truncate)(void *opaque, uint64_t bytes);
	uint64_t reserved[2]; /* zero */
} kvarc_sink;

/*
 * A tensor in memory. Element (token t, channel c of the width) is at
 * data + t*token_stride + (c / block_elems)*block_stride + (c % block_elems)*elem_stride,
 * all strides in bytes. [tokens][heads][channels] packed: block_elems = width,
 * elem_stride = element bytes, token_stride = width * element bytes.
 * [heads][tokens][channels]: block_elems = channels, block_stride = bytes of one head.
 * block_elems divides the width, and no two elements share a byte: along tokens, blocks and
 * elements of a block, from the shortest stride on, each one goes past all that lies within (the
 * stride of a single one does not matter). Another view is PROG, whether it is read into or
 * written from.
 */
typedef struct kvarc_view {
	union {
		void *data;             /* of a view that is read into */
		const void *const_data; /* the same of a view that is only written from */
	};
	uint64_t token_stride;
	uint64_t block_stride;
	uint32_t block_elems;
	uint32_t elem_stride;
	uint64_t reserved[2]; /* zero */
} kvarc_view;

/*
 * Fills dst with n tokens, from token t0 of the track on, of heads
 * [head, head + heads) of a tensor: packed, token-major (spec 7). Returns 0,
 * anything else fails the append with KVARC_IO. Called from worker threads, with overlap by the
 * caller's.
 */
typedef int (*kvarc_fetch)(void *opaque, uint32_t tensor, uint32_t head, uint32_t heads,
                           uint64_t t0, uint32_t n, void *dst);

/* Callback for elements on their way out: takes a decoded, checked block. Called from worker
 * threads, with overlap by the caller's, never for the same block twice. */
typedef int (*kvarc_deliver)(void *opaque, uint32_t tensor, uint32_t head, uint32_t heads,
                             uint64_t t0, uint32_t n, const void *src);

/* Progress: raw bytes done so far and in all (KVARC_UNKNOWN if not known).
 * Return 0 to go on, anything else to stop with KVARC_IO. One thread at a time. */
typedef int (*kvarc_progress)(void *opaque, uint64_t done, uint64_t total);

/*
 * The weight cache: a folder with the weights of models as the integers that predictors compute
 * with. They are converted once, which takes a second to minutes, and later mapped, which takes a
 * hundredth of that time, in memory that processes share. Without a folder nothing is written.
 * Files take 1.1 bytes per weight, 2.2 where weights have 15 bits, and are for this machine and
 * version; each has mode 0600, and any may be removed at any time. A file that is damaged, that was
 * made from other model files (paths, inodes, sizes, times), or that another user owns or may
 * write, is not used but replaced. When the folder fails in any way, the weights are converted in
 * memory as without it. A process that can write as this user can make a model answer wrongly.
 */
typedef enum kvarc_weights {
	KVARC_WEIGHTS_FOUND = 0,   /* they come from the folder */
	KVARC_WEIGHTS_KEPT = 1,    /* converted, and kept there */
	KVARC_WEIGHTS_NOT_KEPT = 2 /* converted, but not kept: why, in a few words */
} kvarc_weights;
/* A folder in which converted weights of models are kept from run to run. */
typedef struct kvarc_weight_cache {
	const char *folder; /* made, with mode 0700, when it is missing; NULL: no cache */
	/* of all such files in it, 0: 8 GiB. The least recently used ones are removed for new
	 * ones; no other file is ever removed */
	uint64_t max_bytes;
	/* NULL, or called with what became of a model's weights, and the size of their file. */
	void (*report)(void *opaque, kvarc_weights what, uint64_t bytes, const char *why);
	void *opaque;
	uint64_t reserved[4]; /* zero */
} kvarc_weight_cache;

/*
 * Options that all handles have in common.
 *
 * A handle belongs to the process that opened it. What a forked child may do with a handle that
 * it inherits: close or abort it, which frees its memory in the child, waits for no thread and
 * writes nothing; and, if no call of it was at work at the fork, read with a reader, which then
 * works in the calling thread, over a source whose reads have an offset (kvarc_source_open_path).
 * Profiles and predictors can be used. A writer answers PROG to everything else, and so does its
 * close: its parent continues to write. Handles of stores, which have connections, are not for
 * children.
 */
typedef struct kvarc_common {
	const kvarc_allocator *allocator; /* NULL: malloc */
	kvarc_error *error;               /* NULL, or filled on failure; must outlive the handle */
	uint64_t memlimit;                /* bytes, 0: the default, 256 MiB */
	unsigned threads;                 /* 0 or 1: none but the caller's, see overlap */
	uint32_t isa_mask;                /* 0: KVARC_ISA_ALL */
	kvarc_progress progress;          /* may be NULL */
	void *progress_opaque;
	/* of handles that take a model; must outlive them. NULL: none */
	const kvarc_weight_cache *weight_cache;
	/* For writers and readers. Not 0: one thread more, so that the caller calls fetch,
	 * deliver and sinks while `threads` others code; none at level 0, which is faster. */
	uint64_t overlap;
	uint64_t reserved[2]; /* zero */
} kvarc_common;
#define KVARC_COMMON_INIT KVARC_ZERO

#endif
