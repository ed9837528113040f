/* SPDX-License-Identifier: BSD-3-Clause */
/* checkpoint_fields.h - what reports say of every checkpoint */
#ifndef KVARC_CLI_CHECKPOINT_FIELDS_H
#define KVARC_CLI_CHECKPOINT_FIELDS_H

#include "kvarc.h"
#include "report.h"
#include "times.h"

/* Texts of a checkpoint, which must stay until the report is printed. */
struct checkpoint_texts {
	char *label; /* the caller frees it */
	char time[TIMES_BYTES], when[32];
};
/* The fields number, time, label and .when; unknown: what .when is without a time. */
void checkpoint_fields(struct report *report, const kvarc_checkpoint *checkpoint,
                       const char *unknown, struct checkpoint_texts *texts);

#endif
