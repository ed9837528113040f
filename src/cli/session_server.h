/* SPDX-License-Identifier: BSD-3-Clause */
/* session_server.h - kvarc session save, load, check with a running llama.cpp server */
#ifndef KVARC_CLI_SESSION_SERVER_H
#define KVARC_CLI_SESSION_SERVER_H

#include "store_access.h"

/* Each shows its report and messages. version: "NAME" or "NAME@N". */
void session_save_slot(const struct options *o, struct store_access *a, const char *name);
/* Into the server, if it fits. */
void session_load_slot(const struct options *o, struct store_access *a, const char *version);
/* Whether a version could be restored, and the next request would use it. */
void session_check_slot(const struct options *o, struct store_access *a, const char *version);

#endif
