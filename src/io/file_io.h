/* SPDX-License-Identifier: BSD-3-Clause */
/* file_io.h - sources and sinks on files */
#ifndef KVI_FILE_IO_H
#define KVI_FILE_IO_H

#include <stdint.h>

#include "kvarc.h"

/* The descriptor in the opaque pointer of a source or sink. */
static inline int kvi_opaque_fd(const void *opaque)
{
	return (int)(intptr_t)opaque;
}

#endif
