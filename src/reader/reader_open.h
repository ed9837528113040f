/* SPDX-License-Identifier: BSD-3-Clause */
/* reader_open.h - a second reader of the same file */
#ifndef KVI_READER_OPEN_H
#define KVI_READER_OPEN_H

#include "format/crypt.h"
#include "kvarc.h"

/* As kvarc_reader_open; known: NULL, or the file key of another reader of the same file. */
kvarc_ret kvi_reader_open_known(kvarc_reader **out, const kvarc_source *source,
                                const kvarc_reader_options *options, const struct kvi_crypt *known);
/* A second, independent reader on the same source (verify.c), which decodes lossy chunks too: the
 * position of r in the file stays what it was. */
kvarc_ret kvi_reader_open_again(kvarc_reader *r, unsigned flags, kvarc_reader **to);

#endif
