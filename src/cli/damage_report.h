/* SPDX-License-Identifier: BSD-3-Clause */
/* damage_report.h - the damaged places that verify and salvage tell */
#ifndef KVARC_CLI_DAMAGE_REPORT_H
#define KVARC_CLI_DAMAGE_REPORT_H

#include <stdbool.h>
#include <stddef.h>

#include "json_out.h"
#include "kvarc.h"

struct damage_list {
	kvarc_damage *items;
	size_t n;     /* all that were told */
	size_t kept;  /* in items */
};

/* A kvarc_damage_fn; opaque is the list. */
void damage_collect(void *opaque, const kvarc_damage *damage);
/* One line each on stderr, the first ones unless -v; errors, or warnings. */
void damage_show(const char *file, const struct damage_list *list,
                 const kvarc_geometry *geometry, bool errors);
void damage_json(struct json *j, const char *key,
                 const struct damage_list *list);
void damage_free(struct damage_list *list);

#endif
