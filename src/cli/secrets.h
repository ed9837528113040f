/* SPDX-License-Identifier: BSD-3-Clause */
/* secrets.h - keys and passphrases: from files, or from the terminal without showing them */
#ifndef KVI_SECRETS_H
#define KVI_SECRETS_H

#include <stdbool.h>

#include "kvarc.h"
#include "cli/options.h"

/* Reads the files of --key-file and --passphrase-file. false: a message was shown. */
bool keys_open(const struct key_options *options);
/* Wipes all keys. */
void keys_close(void);
/* Returns all keys so far; NULL: none. They stay until keys_close. */
const kvarc_keys *keys_given(void);
/* Asks for the passphrase of an archive, once in a run and only where no key was given and there is
 * a terminal. false: nobody was asked, or a message was shown. */
bool keys_ask(const char *archive);
/* Sets the keys that an archive is encrypted with: NULL in *keys for one that is not. Without a key
 * file a new passphrase is asked for, twice. encrypted: the source archive is. false: a message was
 * shown. */
bool keys_writer(const struct key_options *options, bool encrypted, const kvarc_keys **keys);
/* Notes that keys were given for an archive that is not encrypted. */
void keys_note(const char *archive, const kvarc_reader *r);

#endif
