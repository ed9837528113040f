/* SPDX-License-Identifier: BSD-3-Clause */
/* tar_stream.h - pax tars of objects of a store, through pipes, in both directions */
#ifndef KVI_TAR_STREAM_H
#define KVI_TAR_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kvarc/store.h"

struct kvarc_store;

/* A tar that is written; its members are those of tar_stream.c. */
struct kvi_tar_out {
	struct kvarc_store *s;
	const kvarc_sink *sink;
	uint64_t offset; /* bytes that were written */
	struct archive *tar;
	uint8_t *block;
};

/* Begins a tar; the sink takes writes in order, and stays until close. To be closed, also on
 * failure. Returns OK, OPTIONS (no libarchive), IO, MEM, MEMLIMIT. */
kvarc_ret kvi_tar_out_open(struct kvi_tar_out *x, struct kvarc_store *s, const kvarc_sink *sink);
/* One entry: all bytes of a source of known size. Returns OK, IO, MEM, MEMLIMIT. */
kvarc_ret kvi_tar_put(struct kvi_tar_out *x, const char *name, const kvarc_source *source);
/* The same of n bytes in memory. */
kvarc_ret kvi_tar_put_text(struct kvi_tar_out *x, const char *name, const char *text, size_t n);
/* The same of an archive of the store, under its key; counts it. Returns also STORE (missing). */
kvarc_ret kvi_tar_put_pack(struct kvi_tar_out *x, const uint8_t id[16], uint64_t *archives,
                           uint64_t *archive_bytes);
/* Writes the end unless `ret` is a failure, which is returned then, and frees. */
kvarc_ret kvi_tar_out_close(struct kvi_tar_out *x, kvarc_ret ret);

/* A tar that is read, once, from its start to its end. */
struct kvi_tar_in {
	struct kvarc_store *s;
	const kvarc_source *source;
	uint64_t offset;
	struct archive *tar;
	uint8_t *block;
	uint64_t entry_offset; /* of the entry in hand */
	bool cut;              /* it ended before its size */
};

/* As kvi_tar_out_open. */
kvarc_ret kvi_tar_in_open(struct kvi_tar_in *x, struct kvarc_store *s, const kvarc_source *source);
/* The next entry, a regular file; *name stays until the next call. Returns OK; END: there is none;
 * DATA (another kind of entry), IO (damaged, or the pipe broke). */
kvarc_ret kvi_tar_next(struct kvi_tar_in *x, const char **name, uint64_t *bytes);
/* The bytes of that entry, to be read once, in order. */
kvarc_source kvi_tar_entry(struct kvi_tar_in *x, uint64_t bytes);
/* All bytes of that entry, at most `capacity`. Returns OK; DATA: more; IO. */
kvarc_ret kvi_tar_text(struct kvi_tar_in *x, uint64_t bytes, char *text, size_t capacity);
/* Puts that entry, an archive under its key, into the store. Returns as kvi_arrive_pack; DATA: the
 * name is no key of one. */
kvarc_ret kvi_tar_take_pack(struct kvi_tar_in *x, const char *name, uint64_t bytes,
                            kvarc_received *n);
/* Frees. */
void kvi_tar_in_close(struct kvi_tar_in *x);

#endif
