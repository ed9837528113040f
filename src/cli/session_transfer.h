/* SPDX-License-Identifier: BSD-3-Clause */
/* session_transfer.h - kvarc session send and receive, kvarc store have */
#ifndef KVARC_CLI_SESSION_TRANSFER_H
#define KVARC_CLI_SESSION_TRANSFER_H

#include "store_access.h"

/* Each shows its report and messages. version: "NAME" or "NAME@N". */
void session_send(const struct options *o, struct store_access *a, const char *version);
/* file: NULL: standard input. */
void session_receive(const struct options *o, struct store_access *a, const char *name,
                     const char *file);
/* Prints the ids of all archives, a line each, for --have of another host. */
void store_have(const struct options *o, struct store_access *a);

#endif
