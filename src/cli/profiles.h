/* SPDX-License-Identifier: BSD-3-Clause */
/* profiles.h - the profiles of --profile, and those that are looked for by digest */
#ifndef KVARC_CLI_PROFILES_H
#define KVARC_CLI_PROFILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "infile.h"
#include "kvarc.h"
#include "options.h"

/* Opens the files of --profile; work stays until profiles_close. false: a message was shown. */
bool profiles_open(const struct coding_options *coding, const struct work_options *work);
/* Closes all profiles. */
void profiles_close(void);

/* Takes an open profile in place of --profile, for the next file; path: its file. false: it was
 * closed, a message was shown. */
bool profiles_take(kvarc_profile *profile, const char *path);
/* Ends that: --profile counts alone. */
void profiles_drop_taken(void);

/* The profiles of --profile, in their order. */
const kvarc_profile *const *profiles_given(size_t *n);
/* Lets a reader use them, and others that are found by digest. */
void profiles_reader(kvarc_reader_options *ro);
/*
 * Level, profile, name and flags of a writer for a cache of this geometry. needed: profiles of
 * which none has models for the writer are wrong. false: a message was shown.
 */
bool profiles_writer(const struct coding_options *coding, const kvarc_geometry *geometry,
                     bool needed, kvarc_writer_options *wo);
/* Warns once, after a writer with these options, when its profile was trained for other weights
 * than those of the model, which model names. */
void profiles_check_weights(const char *model, const kvarc_writer_options *wo);
/* Why no profile predicts anything of a cache: it is quantised, or there is none; NULL: some
 * may. */
const char *profiles_why_unused(const kvarc_geometry *geometry);
/* Returns the level of the archive, after a writer with these options for the file: 1 when its
 * profile predicts nothing of this geometry, which is said with the reason. */
int profiles_level_used(const char *file, const kvarc_writer_options *wo,
                        const kvarc_geometry *geometry);
/* The profile that a tier needs, if it does. false: there is none, a message was shown. */
bool profiles_tier(const kvarc_lossy *tier, const kvarc_geometry *geometry,
                   kvarc_writer_options *wo);
/* The first one of --profile with models of a level for this geometry; NULL: none. */
const kvarc_profile *profiles_fitting(int level, const kvarc_geometry *geometry);
/* The highest level, up to 3 without a model, that the profile has models for; 0: none. */
int profiles_highest_level(const kvarc_profile *profile);
/* Whether a level is asked for that needs a profile, and none is given. */
bool profiles_fit_wanted(const struct coding_options *coding);
/* Level 2 and 3 need a profile, unless the verb fits one (fits_one): said before any work. false: a
 * message was shown. */
bool profiles_check_level(const struct coding_options *coding, bool fits_one);

/* Folder i of those where profiles are looked for, in out (size bytes); false: past the last. */
bool profiles_folder(size_t i, char *out, size_t size);
/* Path of the profile with this digest, "": it was not found. */
const char *profiles_where(const uint8_t digest[16]);

/* Opens a profile from an input; NULL: a message was shown. */
kvarc_profile *profiles_read(const struct work_options *work, struct input *in);
/* Whether the file starts like a profile; needs a seekable input. */
bool profiles_is_one(struct input *in);

#endif
