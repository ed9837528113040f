/* SPDX-License-Identifier: BSD-3-Clause */
/* manifest.h - the text that a store keeps for each version of a session */
#ifndef KVI_MANIFEST_H
#define KVI_MANIFEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "session_names.h"

/* Limits. */
enum {
	KVI_LABEL_MAX = 1000,                        /* bytes of a label */
	KVI_NEEDS_MAX = 256,                         /* archives that an encrypted one names */
	KVI_MANIFEST_MAX = 8192 + 33 * KVI_NEEDS_MAX /* bytes of a manifest */
};

/* Archive of a version, and, of an encrypted version, the archives that it names: so gc needs no
 * key. */
struct kvi_needs {
	uint8_t pack[16];
	bool encrypted;
	uint32_t n;
	uint8_t others[KVI_NEEDS_MAX][16];
};

/*
 * Lines KEY=VALUE, the first one "kvarc-session=1", the last one "check=" and the H128 of all lines
 * before it. In values bytes below 0x20, 0x7F and '%' are %XX. Lines with other keys are skipped.
 */
struct kvi_manifest {
	struct kvi_needs needs;
	uint64_t tokens, time, bytes;
	uint64_t pack_bytes; /* bytes of its archive; 0: not known */
	uint64_t mode;       /* permission bits of the file; 0: not known */
	bool has_chain;
	uint8_t chain[16]; /* chain value of the last token of the first track that has one */
	char label[KVI_LABEL_MAX + 1];
	char parent[KVI_SESSION_MAX + 1]; /* "": none */
	uint64_t parent_number;
	uint8_t digest[16]; /* digest of its text as it was read or put (kvi_manifest_digest) */
};

/* H128 of the text of a manifest. */
void kvi_manifest_digest(uint8_t digest[16], const char *text, size_t n);

/* Writes the text of a manifest, terminated. Returns its bytes. */
size_t kvi_manifest_write(char text[KVI_MANIFEST_MAX], const struct kvi_manifest *manifest);
/* Parses the text of a manifest. Returns OK; OPTIONS: made by a newer version; DATA: damaged. */
kvarc_ret kvi_manifest_parse(struct kvi_manifest *manifest, const char *text, size_t bytes);

#endif
