/* SPDX-License-Identifier: BSD-3-Clause */
/* pack_files.h - an import becomes an archive that will grow */
#ifndef KVI_PACK_FILES_H
#define KVI_PACK_FILES_H

#include "kvarc.h"

/* The checkpoint behind the last token. */
struct kvi_pack_checkpoint {
	const char *label; /* NULL: none */
	uint64_t time;     /* milliseconds since 1970, UTC; 0: not known */
	uint64_t number;   /* out */
};

/* As kvarc_pack, with a checkpoint behind the last token, and with a random file id unless the
 * options give one. */
kvarc_ret kvi_pack_checkpoint(kvarc_import *im, const kvarc_sink *sink,
                              const kvarc_writer_options *options,
                              struct kvi_pack_checkpoint *checkpoint, kvarc_writer_stats *stats);

/* Tokens from .. to - 1 of a track of an import, to - 1 at most its last one. shift: the writer's
 * token that is the import's first. */
struct kvi_pack_range {
	uint32_t track;
	uint64_t from, to, shift;
};

/*
 * Appends tokens of an import to a writer whose track has those before. A segment ends with the
 * last one. Returns what kvarc_writer_append_fetch does; IO: of the import, too.
 */
kvarc_ret kvi_pack_tokens(kvarc_import *im, kvarc_writer *w, const kvarc_writer_options *options,
                          const struct kvi_pack_range *range);

#endif
