/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * device_trial.h - what programs share that run archives through libkvarc-device and the kernels
 * of gpu/ on the host, behind the stand-in of the driver: the device, files, and what was wrong
 *
 * They run in the build folder, with one thread. Environment variables may name other files:
 * DRIVER, KVARC_KERNELS, KVARC_ENCODERS, KVARC_EXACT.
 */
#ifndef KVI_TEST_DEVICE_TRIAL_H
#define KVI_TEST_DEVICE_TRIAL_H

#include <stddef.h>
#include <stdint.h>

#include <kvarc/device.h>

/* The stand-in. */
#define DRIVER "tests/device/.libs/driver_stand_in.so"

/* Bytes of memory that nobody has written to. */
enum { UNTOUCHED = 0xa5 };

/* The program's own state. */
extern struct device_trial {
	kvarc_device *d;
	kvarc_error error;          /* of all calls */
	kvarc_profile *profile;     /* of all readers; NULL: none */
	kvarc_predictor *predictor; /* likewise */
	uint32_t reader_flags;      /* of all readers */
	uint64_t random;            /* what below() takes its numbers from */
	const char *file;           /* in hand */
	unsigned long wrong;        /* how often wrong() was called */
} trial;

/* Prints the file and what is wrong with it, a line, and counts it. */
void wrong(const char *text, ...) __attribute__((format(printf, 1, 2)));
/* The next number below n, of any size but 0. */
uint32_t below(uint32_t n);
/* Memory, aligned to 256, of which all bytes are UNTOUCHED; free() it. Ends the program when there
 * is none. */
void *memory(uint64_t bytes);
/* An address of memory as a device has it. */
uint64_t address(const void *p);

/* Opens the device, with or without kernels that encode, and a profile unless the name is NULL.
 * Ends the program with a line when that fails. */
void trial_open(const char *profile, int encodes);
/* Waits for what was queued on the default stream. */
void settle(void);
/* Opens a model for all readers. */
void trial_open_model(const char *path);
/* Calls `check` for each track of each of n files; those that the reader refuses are left out. */
void trial_files(char *const names[], size_t n, void (*check)(kvarc_reader *r, uint32_t track));
/* Closes both; returns the exit status of the program. */
int trial_close(void);

#endif
