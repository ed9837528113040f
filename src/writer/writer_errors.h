/* SPDX-License-Identifier: BSD-3-Clause */
/* writer_errors.h - failures of a writer that stay, and what it refuses */
#ifndef KVI_WRITER_ERRORS_H
#define KVI_WRITER_ERRORS_H

#include <stdbool.h>

#include "kvarc.h"

/* Whether no call can use the writer any more: w->sticky then says why, an earlier failure or a
 * fork. */
bool kvi_writer_refuses(kvarc_writer *w);
/* Makes ret stick and returns it. */
kvarc_ret kvi_writer_set_error(kvarc_writer *w, kvarc_ret ret);

#endif
