/* SPDX-License-Identifier: BSD-3-Clause */
/* reader_errors.h - failures of a reader that stick */
#ifndef KVI_READER_ERRORS_H
#define KVI_READER_ERRORS_H

#include "reader_internal.h"

/* Makes ret stick (all but OK, END, MEMLIMIT and STORE) and returns it. */
kvarc_ret kvi_reader_set_error(kvarc_reader *r, kvarc_ret ret);

#endif
