/* SPDX-License-Identifier: BSD-3-Clause */
/* server_slots.h - kvarc session save, load, check with a running llama.cpp server */
#ifndef KVARC_CLI_SERVER_SLOTS_H
#define KVARC_CLI_SERVER_SLOTS_H

#include "store_access.h"

/* Saves a slot as the next version of a session; shows its report and messages. */
void server_slots_save(const struct options *options, struct store_access *access,
                       const char *name);
/* Lists the sessions that begin as a slot does, or shows a message. */
void server_slots_find(const struct options *options, struct store_access *access);
/* Shows whether a version, "NAME" or "NAME@N", could be restored, and the next request would use
 * it. */
void server_slots_check(const struct options *options, struct store_access *access,
                        const char *version);
/* Loads a version into the server, if it fits; shows a report or a message. */
void server_slots_load(const struct options *options, struct store_access *access,
                       const char *version);

#endif
