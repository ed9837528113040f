/* SPDX-License-Identifier: BSD-3-Clause */
/* paths.h - which file is made from which */
#ifndef KVARC_CLI_PATHS_H
#define KVARC_CLI_PATHS_H

#include <stdbool.h>
#include <sys/types.h>

#include "options.h"

/* Checks the operands of a verb that reads: at least one file, and standard input alone. false: a
 * message was shown. */
bool paths_check_reading(const struct options *options);
/* Rules that pack, unpack and cut share; false: a message was shown. */
bool paths_check_operands(const struct options *options);
/* Whether the output goes to standard output. */
bool paths_to_stdout(const struct options *options);
/* Whether the path names the file that is open as fd. */
bool paths_is_open(const char *path, int fd);
/* Whether -o names a folder: it exists as one, or ends with a slash. */
bool paths_is_folder(const char *path);

/* Makes the folder of -o where it ends with a slash and is not there yet. false: a message was
 * shown. */
bool paths_make_folder(const char *output);

/* OUTPUT_FORCE (-f), and OUTPUT_NEW unless -o names the file itself (outfile.h). */
unsigned paths_output_flags(const struct options *options);

/* Allocated; NULL when out of memory. "-" is standard output. */
char *paths_pack_target(const char *file, const char *output);
/* "a.kva" -> "a", "a.bin" -> "a.bin.out", with another ending when given. */
char *paths_stem(const char *file, const char *ending);
/* folder "/" name; NULL or "" folder: name. */
char *paths_join(const char *folder, const char *name);
/* Path up to the last slash, "" for none; allocated. */
char *paths_folder(const char *file);
/* A path below the folder of the user that the environment variable names, or below a folder in the
 * home folder; allocated. NULL: there is neither, or out of memory. */
char *paths_of_user(const char *variable, const char *below_home, const char *name);
/* Makes all folders above the last component of a path, which is changed and comes back as it was.
 * false: a message was shown. */
bool paths_make_above(char *path, mode_t mode);
/* Folder of temporary files: $TMPDIR, or /var/tmp or /tmp where they can be written; not to be
 * freed. NULL: there is none, as in a root with nothing but the command, and memory has to do. */
const char *paths_temporary_folder(void);

/* Whether the environment names folders of models, and no model is given. */
bool paths_have_models(const char *model, const struct verb *verb);
/* A name from an archive that is safe as one path component. */
bool paths_safe_name(const char *name);
/* A relative path of safe components. */
bool paths_safe_path(const char *path);
/* Whether a path ends with this, behind at least one other character. */
bool paths_ends_with(const char *path, const char *end);
/* Part of a path behind the last slash. */
const char *paths_base(const char *path);

#endif
