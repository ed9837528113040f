/* SPDX-License-Identifier: BSD-3-Clause */
/* gguf_import.h - the few metadata of a GGUF model file that describe its caches */
#ifndef KVI_GGUF_IMPORT_H
#define KVI_GGUF_IMPORT_H

#include <stdbool.h>
#include <stdint.h>

#include "kvarc.h"
#include "util/alloc.h"

/* Metadata of a GGUF model file that help to import a cache. */
struct kvi_gguf {
	bool present;
	char arch[32];
	char name[128];                        /* general.name, may be empty */
	uint32_t blocks;                       /* layers; 0: not known, as everywhere here */
	uint32_t heads;                        /* KV heads; 0 when they differ by layer */
	uint32_t key_channels, value_channels; /* channels of a head */
	uint32_t rotary;
	double theta;
	bool scaled;     /* RoPE scaling other than none or linear */
	double linear;   /* linear scaling factor, 1: none */
	uint8_t pairing; /* KVARC_ROPE_* of this architecture */
};

/*
 * Reads the metadata at the start of a GGUF file (versions 2 and 3). Needs
 * little memory whatever the file says.
 * Returns OK, FORMAT (not a GGUF), OPTIONS (version), DATA, IO, MEM, MEMLIMIT.
 */
kvarc_ret kvi_gguf_read(struct kvi_gguf *gguf, const struct kvi_alloc *alloc,
                        const kvarc_source *src);

#endif
