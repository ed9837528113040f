/* SPDX-License-Identifier: BSD-3-Clause */
/* store_gc.h - removes what no version needs: steps of gc, archives written again */
#ifndef KVI_STORE_GC_H
#define KVI_STORE_GC_H

#include <stdint.h>

#include "kvarc.h"
#include "kvarc/store.h"
#include "store/store_map.h"
#include "util/list.h"

struct kvarc_store;
struct kvi_store_index;

/* A gc on its way. */
struct kvi_gc {
	struct kvarc_store *s;
	const kvarc_gc_options *o;
	kvarc_gc_result *result;
	struct kvi_store_index *own; /* meanwhile the store has one from archives alone */
	struct kvi_store_map map;
	int64_t now; /* when it began, seconds since 1970 */
	/* State of the last look at the manifests: H128 of the keys that were seen, ascending;
	 * archives that had a tombstone; when it began and how long it took, in milliseconds. */
	struct kvi_list seen, retired;
	int64_t looked, took;
};
/* Frees the members that are lists. */
void kvi_gc_free(struct kvi_gc *gc);
/* Puts the tombstone of an archive, which is then pack->retired; one of another gc is left alone,
 * unless that gc must have ended long ago. Returns OK, IO, MEM. */
kvarc_ret kvi_gc_retire(struct kvi_gc *gc, struct kvi_map_pack *pack);
/* Lists all manifests again: archives are needed that hold what no archive without a tombstone
 * holds. Returns OK; DATA: a manifest cannot be read; IO, MEM. */
kvarc_ret kvi_gc_look_again(struct kvi_gc *gc);
/* Deletes the archives that are retired and that nothing needs, and their tombstones. Before each
 * the manifests are listed again, unless that was done just before: those that were put meanwhile
 * keep what they need, also where their savers have died. Returns as kvi_gc_look_again. */
kvarc_ret kvi_gc_delete(struct kvi_gc *gc);
/* Removes the tombstones of archives that stay. */
kvarc_ret kvi_gc_undo(struct kvi_gc *gc);

#endif
