/* SPDX-License-Identifier: BSD-3-Clause */
/* device_util.h - a device behind the stand-in of the driver, and memory for its plans */
#ifndef DEVICE_UTIL_H
#define DEVICE_UTIL_H

#include <stdbool.h>
#include <stdint.h>

#include <kvarc/device.h>

#include "../synth.h"

/* The stand-in (tests/device/driver_stand_in.cc), and a file that it takes for kernels. */
#define DRIVER "tests/device/.libs/driver_stand_in.so"
#define KERNELS "Makefile"

/* Tokens of a page, tokens of a segment. */
enum { PAGE = 16, SEGMENT = 96 };

/* An archive and the cache that it was made of. */
struct made_archive {
	struct synth_cache c;
	struct synth_file f;
};
/* Makes an archive of a level. profile: for levels 2 and 3, it is put into the archive; NULL: none.
 * alike: upper layers can be predicted from lower ones. */
void make_archive_with(struct made_archive *m, const struct synth_shape *shape, int level,
                       const kvarc_profile *profile, bool alike);
/* Without a profile. */
void make_archive(struct made_archive *m, const struct synth_shape *shape, int level);
void free_archive(struct made_archive *m);
/* Makes upper layers like the lowest one, so that they can be predicted from lower ones: but for
 * low bits. */
void make_alike(struct synth_cache *c);
/* A profile of a cache of a shape, for level 2 or 3, whose upper layers then are alike. The caller
 * closes it. */
kvarc_profile *train_profile(const struct synth_shape *shape, int level);

/* Of all handles of a test. */
extern kvarc_error error;
kvarc_device_options options_of(const char *driver, const char *kernels);
/* The stand-in. */
kvarc_device *open_device(void);
/* What a function of the stand-in returns. */
void *stand_in(const char *name);
/* What the driver has not got back. */
int left(void);
/* Does the work that is queued on streams, as time does. */
void settle(void);

/* "Device" memory: what a caller has for one plan. */
struct device_memory {
	void *staging, *work;
	uint32_t *status;
	kvarc_device_view views[16];
	uint8_t *elements[16];
	int32_t *pages;
	size_t bytes; /* of the elements of a tensor */
};
/* Memory that the caller frees, for addresses of 256 bytes. */
void *allocate(uint64_t bytes);
uint64_t address(const void *p);
/* Memory for `tokens` tokens: in pages, heads outside of tokens, or packed. */
void make_memory(struct device_memory *m, const kvarc_device_plan *p, const struct synth_cache *c,
                 uint32_t tokens, bool paged);
void free_memory(struct device_memory *m);
/* The row of a head in the memory of a tensor. */
uint8_t *place(const struct device_memory *m, size_t tensor, uint32_t token, uint32_t head);
/* Whether the tokens first .. end - 1 of a tensor are those of the cache; t0: token of row 0. */
bool holds(const struct device_memory *m, const struct synth_cache *c, size_t tensor, uint64_t t0,
           uint32_t first, uint32_t end);

#endif
