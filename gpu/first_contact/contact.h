/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * contact.h - what gpu_facts and gpu_speed share: the driver, times, and an object of JSON on the
 * standard output, which a failure ends, too
 */
#ifndef KVI_GPU_CONTACT_H
#define KVI_GPU_CONTACT_H

#include <stddef.h>
#include <stdint.h>

/* Calls of the driver, and the stream in which all is done. */
extern struct contact {
	int (*wait)(void *), (*get_device)(int *, int), (*attribute)(int *, int, int);
	int (*name)(char *, int, int), (*version)(int *);
	int (*load)(void **, const void *), (*function)(void **, void *, const char *);
	int (*set_attribute)(void *, int, int);
	int (*launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
	              void *, void **, void **);
	int (*alloc)(uint64_t *, size_t), (*host_alloc)(void **, size_t, unsigned);
	int (*to_device)(uint64_t, const void *, size_t, void *);
	int (*to_host)(void *, uint64_t, size_t, void *);
	int (*capture_begin)(void *, int), (*capture_end)(void *, void **);
	int (*graph_launch)(void *, void *);
	/* NULL behind the stand-in */
	int (*instantiate)(void **, void *, unsigned long long);
	int (*in_device)(uint64_t, uint64_t, size_t, void *);
	int (*count)(unsigned *, void *), (*functions)(void **, unsigned, void *);
	int (*function_attribute)(int *, int, void *), (*function_name)(const char **, void *);
	void *stream;
} cu;

/* Loads libcuda.so.1; the primary context of GPU 0 is current then. */
void contact_open(void);
/* Ends the object and the program. */
__attribute__((noreturn)) void contact_fail(const char *what, int code, const char *text);
/* Ends both unless the driver's result is 0. */
void contact_need(int result, const char *what);
/* A member of the object. */
void contact_number(const char *name, double x);
/* Memory of zeros, which nobody frees on failure. */
void *contact_memory(size_t n, size_t size);
/* Seconds of a clock that only goes forward. */
double contact_now(void);
/* Seconds from the call to the end of the stream's work: the median of n calls, 99 at most. */
double contact_timed(void (*call)(const void *), const void *opaque, uint32_t n);

#endif
