/* SPDX-License-Identifier: BSD-3-Clause */
/* describe.h - the lines and JSON members that list and info share */
#ifndef KVARC_CLI_DESCRIBE_H
#define KVARC_CLI_DESCRIBE_H

#include "json_out.h"
#include "kvarc.h"
#include "shape.h"

/* Prints format, source, number of tokens, sizes and state of an archive on standard output. */
void describe_head(const char *file, const struct shape *s, kvarc_reader *r);
/* Writes the same as members of the object that is open in j. */
void describe_json(struct json *j, const char *file, const struct shape *s, kvarc_reader *r);
/* Prints the predictors, or "none". */
void describe_predictors(kvarc_reader *r);
/* Writes the predictors as an array member of the object that is open in j. */
void describe_predictors_json(struct json *j, kvarc_reader *r);
/* What reading a layer costs: 0 that layer alone, 2 a value its key as well, 3 the
 * layers below as well, 4 these and all tokens before, by the model. */
unsigned describe_reach(const struct shape *s, kvarc_reader *r);
/* Prints identity, size and contents of a profile on standard output. */
void describe_profile(const char *file, const kvarc_profile *p);
/* Writes the same as one JSON object and a line end. */
void describe_profile_json(const char *file, const kvarc_profile *p);
/* Channels of a head as a model counts them, also of a block type's plane. */
uint32_t describe_channels(const kvarc_tensor *t);
/* Writes a RoPE description to out (size bytes): "half-split pairs, 64 channels, theta 100000" */
void describe_rope(char *out, size_t size, const kvarc_rope *rope);

#endif
