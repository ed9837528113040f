/* SPDX-License-Identifier: BSD-3-Clause */
/* bench_link.h - which level restores a cache soonest over a link or from a disk */
#ifndef KVARC_CLI_BENCH_LINK_H
#define KVARC_CLI_BENCH_LINK_H

#include <stdbool.h>
#include <stdint.h>

#include "bench_cache.h"
#include "options.h"

/* The link, and what was measured of the levels: sizes in bytes, times in seconds. */
struct bench_link {
	double speed; /* bytes per second; 0: no --link */
	struct link_row {
		int level; /* LINK_RAW, LINK_PREFILL, or a level */
		uint64_t bytes;
		double encode, transfer, decode;
		double restore; /* transfer, then decode */
		double piped;   /* both at once */
	} rows[16];
	size_t n;
};
/* What stands beside levels. */
enum { LINK_RAW = -1, LINK_PREFILL = -2 };

/* The speed of --link: bits per second, or the speed at which the disk of a folder reads, which is
 * measured and shown. false: a message was shown. */
bool bench_link_open(struct bench_link *l, const struct options *o);
/* Takes a level that was measured, and the archive of the cache at this level. */
void bench_link_add(struct bench_link *l, const struct bench_cache *c, const struct bench_run *run);
/* Reports raw bytes, a prefill if --prefill is given, and all levels, and says what is soonest and
 * at which speeds something else is. Forgets the levels. */
void bench_link_report(struct bench_link *l, const struct options *o, const char *file,
                       const struct bench_cache *c);

#endif
