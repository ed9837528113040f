/* SPDX-License-Identifier: BSD-3-Clause */
/* disk_speed.h - how fast the disk of a folder reads */
#ifndef KVARC_CLI_DISK_SPEED_H
#define KVARC_CLI_DISK_SPEED_H

/* Writes a file without a name of 128 MB, of random bytes, to the folder, has the system forget
 * it, and reads it again, twice. Returns the bytes per second of the faster time; 0: a message was
 * shown. */
double disk_speed(const char *folder);

#endif
