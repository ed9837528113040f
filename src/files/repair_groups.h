/* SPDX-License-Identifier: BSD-3-Clause */
/* repair_groups.h - finds rows of parity and restores what they cover (frames.md 12.2) */
#ifndef KVI_REPAIR_GROUPS_H
#define KVI_REPAIR_GROUPS_H

#include "repair_view.h"

/* The repair of an archive. */
struct kvi_repair {
	struct kvi_alloc alloc;
	kvarc_repair_options options;
	kvarc_error *error;
	struct kvi_repair_view view;
	kvarc_repair_report *report;
	struct kvi_list rows; /* struct kvi_repair_row, ascending */
};

/* A PARITY frame that may be used. */
struct kvi_repair_row {
	uint64_t offset, sequence, sync;
	uint32_t payload_bytes, row_bytes;
	uint16_t pieces, row, rows;
	bool done; /* of the first row of a group: nothing is left to be restored by it */
};

/* Restores what can be, as patches of the view. Returns OK, MEM, MEMLIMIT, IO. */
kvarc_ret kvi_repair_groups(struct kvi_repair *x);
/* Notes restored bytes. */
void kvi_repair_found(struct kvi_repair *x, uint64_t offset, uint64_t bytes, bool restored);

#endif
