/* SPDX-License-Identifier: BSD-3-Clause */
/* damage_report.h - damage that verify and salvage found, as lines and as JSON */
#ifndef KVARC_CLI_DAMAGE_REPORT_H
#define KVARC_CLI_DAMAGE_REPORT_H

#include <stdbool.h>
#include <stddef.h>

#include "kvarc.h"
#include "report.h"

/* Damaged ranges as kvarc_reader_damage reports them, and their sums. Zero is an empty list. */
struct damage_list {
	kvarc_damage *items;
	size_t n;        /* number of all damaged ranges */
	size_t kept;     /* number in items: a hostile file must not fill memory */
	kvarc_loss loss; /* loss of the whole archive; after damage_sum */
};

/* Adds a damaged range; a kvarc_damage_fn, opaque is the list. */
void damage_collect(void *opaque, const kvarc_damage *damage);
/* Takes the sums from a reader that has salvaged or verified, or those of an archive without
 * losses. False, with a message: out of memory. */
bool damage_sum(struct damage_list *list, const char *file, kvarc_reader *r);
/* Lines on stderr, one for neighbouring layers that lost the same tokens, the first ones unless
 * -v; errors, or warnings. */
void damage_show(const char *file, const struct damage_list *list, const kvarc_geometry *geometry,
                 bool errors);
/* The last line: how much is lost, then what to do about it. */
void damage_show_sum(const char *file, const struct damage_list *list, bool error,
                     const char *advice);
/* Members damaged_places, whole_tokens, lost_tokens, lost_bytes, end_unknown, lost (layers and
 * tokens) and damage (single ranges) of a report. */
void damage_report(struct report *r, const struct damage_list *list,
                   const kvarc_geometry *geometry);
/* Leaves an empty list. */
void damage_free(struct damage_list *list);

#endif
