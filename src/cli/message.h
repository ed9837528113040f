/* SPDX-License-Identifier: BSD-3-Clause */
/* message.h - lines on stderr, the exit status that they imply, and one moving line of progress */
#ifndef KVARC_CLI_MESSAGE_H
#define KVARC_CLI_MESSAGE_H

#include <stdint.h>
#include <stdio.h>

/* ==== One moving line on stderr, only if that is a terminal ==== */

/* Starts a line for a file; label lives until progress_stop. total is
 * used when the library does not know the total; KVARC_UNKNOWN: unknown. */
void progress_start(const char *label, uint64_t total);
/* A model goes through this number of tokens in the whole work: the rate is in tokens per second.
 * 0: none does. After progress_start. */
void progress_tokens(uint64_t tokens);
/* Names the phase of work that reads a file more than once: "fitting"; the text lives until
 * progress_stop. After progress_start. */
void progress_phase(const char *phase);
/* Counts work in a unit other than bytes, or "" for work of no unit, whose rate is not shown; unit
 * lives until progress_stop. After progress_start. */
void progress_unit(const char *unit);
/* A kvarc_progress; opaque is not used. Draws at most ten times a second. */
int progress_update(void *opaque, uint64_t done, uint64_t total);
/* Shows the progress of opening the model that opaque, a string, names; a kvarc_progress. It may
 * interrupt other work, whose line comes back after it. */
int progress_opening(void *opaque, uint64_t done, uint64_t total);
/* Removes the line and draws no more until the next start. */
void progress_stop(void);

/* ==== Human-readable lines on stderr, and the exit status they imply ==== */

/* Exit statuses (EXIT STATUS of the manual). */
enum { EXIT_OK = 0, EXIT_ERROR = 1, EXIT_WARNING = 2 };

/* level: -1 quiet (errors only), 0 normal, 1 and above verbose. */
void msg_init(int level);
/* Sets the name of the verb for msg_usage; it stays. */
void msg_set_verb(const char *name);
/* The level that msg_init was given. */
int msg_level(void);
/*
 * "kvarc: FILE: text" on stderr. file may be NULL. An error makes the exit
 * status 1, a warning 2 unless it is 1 already.
 */
void msg_error(const char *file, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Shows an error of the command line: the text stands behind the name of the verb, "kvarc: pack:
 * text". */
void msg_usage(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Shows a warning as msg_error does, and makes the exit status 2 unless there was an error. */
void msg_warning(const char *file, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* "FILE: text", shown on a terminal unless -q, elsewhere only with -v. */
void msg_note(const char *file, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* "FILE: text", shown unless -q, also where stderr is no terminal. */
void msg_result(const char *file, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The exit status so far. */
int msg_status(void);
/* Number of errors that were shown so far. */
unsigned long msg_errors(void);
/* "-" is shown as "(stdin)". */
const char *msg_name(const char *file);
/* Writes text that came from a file: control characters become \xNN, so that
 * an archive cannot talk to the terminal. */
void msg_put_safe(FILE *file, const char *text);
/* Flushes stdout, so that a message that follows comes after it. */
void msg_flush(void);
/* Closes stdout and says so if anything that was printed got lost. */
void msg_finish(void);

#endif
