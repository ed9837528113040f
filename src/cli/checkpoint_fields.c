/* SPDX-License-Identifier: BSD-3-Clause */
/* checkpoint_fields.c - what reports say of every checkpoint */
#include "config.h"

#include "checkpoint_fields.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void checkpoint_fields(struct report *report, const kvarc_checkpoint *checkpoint,
                       const char *unknown, struct checkpoint_texts *texts)
{
	const struct timespec t = { .tv_sec = (time_t)(checkpoint->time / 1000),
		                    .tv_nsec = (long)(checkpoint->time % 1000) * 1000000 };

	texts->time[0] = '\0';
	snprintf(texts->when, sizeof(texts->when), "%s", unknown);
	texts->label = strndup(checkpoint->label, checkpoint->label_bytes);
	if (checkpoint->time) {
		times_local(texts->when, sizeof(texts->when), t);
		if (!times_write(texts->time, t))
			texts->time[0] = '\0';
	}
	report_u64(report, "number", checkpoint->number);
	report_string(report, "time", texts->time);
	report_string(report, "label", texts->label ? texts->label : "");
	report_string(report, ".when", texts->when);
}
