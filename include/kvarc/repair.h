/* SPDX-License-Identifier: BSD-3-Clause */
/* kvarc/repair.h - parity: bytes from which a damaged archive gets back what it has lost */
#ifndef KVARC_H_INTERNAL
#error Include <kvarc.h> instead of this file.
#endif
#ifndef KVARC_REPAIR_H
#define KVARC_REPAIR_H

/*
 * How much parity a writer adds: `rows` rows for each `pieces` frames of the longest size, or more
 * short ones, from which any `rows` lost ones of a group come back. Neighbouring frames are of
 * different groups, 4 in turns (2 in front of a commit of few frames), so that lost bytes in a row
 * cost each group one piece. A writer holds the largest frame of each of the 4, with more than one
 * row all of their frames; larger frames than 4 MiB are several pieces.
 */
typedef struct kvarc_parity {
	uint32_t pieces;      /* 1 to 255; 0: 16 */
	uint32_t rows;        /* 1 to 256 - pieces; 0: 1, which is 6.25 % with 16 pieces */
	uint64_t reserved[2]; /* zero */
} kvarc_parity;
#define KVARC_PARITY_INIT KVARC_ZERO

/* INDEX and FOOTER, which parity does not cover, are made again where everything before them is
 * good. An archive whose end is lost ends at its last commit then. */
#define KVARC_REPAIR_END 0x1u

/* Called for each range of bytes that was restored, then for each that is still damaged. */
typedef void (*kvarc_repair_fn)(void *opaque, uint64_t offset, uint64_t bytes, int restored);

/* How an archive is repaired; set unused members to 0. */
typedef struct kvarc_repair_options {
	kvarc_common common;
	unsigned flags; /* KVARC_REPAIR_* */
	/* for KVARC_REPAIR_END of an encrypted archive alone; NULL: none */
	const kvarc_keys *keys;
	kvarc_repair_fn found; /* may be NULL */
	void *opaque;
	uint64_t reserved[4]; /* zero */
} kvarc_repair_options;
#define KVARC_REPAIR_OPTIONS_INIT KVARC_ZERO

/* Account of a repair. */
typedef struct kvarc_repair_report {
	uint64_t file_bytes;                      /* of the repaired archive */
	uint64_t groups, rows;                    /* of parity that was found */
	uint64_t restored_pieces, restored_bytes; /* also rows that were lost */
	uint64_t lost_places, lost_bytes;         /* that are still damaged */
	uint64_t emptied_rows; /* damaged PARITY frames that restore nothing any more */
	int end_made;          /* INDEX and FOOTER were made again */
	uint64_t reserved[5];
} kvarc_repair_report;

/*
 * Writes an archive once more, with the bytes that its PARITY frames restore; a piece is written
 * only with its own hash. It needs no superblock and no key. Restored bytes are held in memory,
 * within the limit, until all of the archive is written, in order. The sink must not be the source.
 * options may be NULL.
 * Returns OK, also where nothing was damaged or something is lost (see report); FORMAT (nothing
 * that looks like an archive is left), MEM, MEMLIMIT, IO, PROG, OPTIONS (a pipe).
 */
KVARC_API KVARC_MUST_CHECK kvarc_ret kvarc_repair(const kvarc_source *source,
                                                  const kvarc_sink *sink,
                                                  const kvarc_repair_options *options,
                                                  kvarc_repair_report *report);

#endif
