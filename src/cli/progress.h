/* SPDX-License-Identifier: BSD-3-Clause */
/* progress.h - one moving line on stderr, only if that is a terminal */
#ifndef KVARC_CLI_PROGRESS_H
#define KVARC_CLI_PROGRESS_H

#include <stdint.h>

/* Starts a line for a file; label lives until progress_stop. total is
 * used when the library does not know the total; KVARC_UNKNOWN: unknown. */
void progress_start(const char *label, uint64_t total);
/* A model goes through this number of tokens in the whole work: the rate is in tokens per second.
 * 0: none does. After progress_start. */
void progress_tokens(uint64_t tokens);
/* What is being done, where a file is gone through more than once: "fitting"; lives until
 * progress_stop. After progress_start. */
void progress_phase(const char *phase);
/* What is done are no bytes, but unit, or "" for work of no unit, whose rate is not shown;
 * unit lives until progress_stop. After progress_start. */
void progress_unit(const char *unit);
/* A kvarc_progress; opaque is not used. Draws at most ten times a second. */
int progress_update(void *opaque, uint64_t done, uint64_t total);
/* The same for the model that opaque, a string, names: in the middle of other work, whose line
 * comes back after it. */
int progress_opening(void *opaque, uint64_t done, uint64_t total);
/* Removes the line if there is one. */
void progress_clear(void);
/* Removes the line and draws no more until the next start. */
void progress_stop(void);

#endif
