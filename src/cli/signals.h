/* SPDX-License-Identifier: BSD-3-Clause */
/* signals.h - temporary files vanish when the command is interrupted */
#ifndef KVARC_CLI_SIGNALS_H
#define KVARC_CLI_SIGNALS_H

#include <stdbool.h>

/*
 * Call once, before any other thread starts. SIGINT, SIGTERM and SIGHUP, unless
 * they are ignored, go to a thread that waits for them, removes the remembered
 * files and lets the signal end the process.
 */
void signals_init(void);

/* No file is removed between these two; hold them while a temporary file comes
 * or goes together with its registration. */
void signals_hold(void);
void signals_release(void);

/* dirfd and name stay until _forget. Call both while held. false: out of memory. */
bool signals_remember(int dirfd, const char *name);
void signals_forget(const char *name);

#endif
