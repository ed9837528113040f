/* SPDX-License-Identifier: BSD-3-Clause */
/* gc_steps.h - the steps in which gc removes an archive while others save (docs/store.md) */
#ifndef KVI_GC_STEPS_H
#define KVI_GC_STEPS_H

#include "store_map.h"

/* A gc on its way. */
struct kvi_gc {
	struct kvarc_store *s;
	const kvarc_gc_options *o;
	kvarc_gc_result *result;
	struct kvi_store_index *own; /* meanwhile the store has one from archives alone */
	struct kvi_store_map map;
	int64_t now; /* when it began, seconds since 1970 */
	/* Of the last look at the manifests: H128 of the keys that were seen, ascending; archives
	 * that had a tombstone; when it began and how long it took, in milliseconds. */
	struct kvi_list seen, retired;
	int64_t looked, took;
};
/* Frees the members that are lists. */
void kvi_gc_free(struct kvi_gc *g);

/* The grace period in seconds. */
int64_t kvi_gc_grace(const struct kvi_gc *g);
/* Whether an archive is older than the grace period, as far as its time is known. */
bool kvi_gc_is_old(const struct kvi_gc *g, const struct kvi_map_pack *p);
/* Whether an archive has the tombstone of another gc that may be at work. */
bool kvi_gc_is_taken(struct kvi_gc *g, const struct kvi_map_pack *p);
/* Puts the tombstone of an archive, which is then p->retired; one of another gc is left alone,
 * unless that gc must have ended long ago. Returns OK, IO, MEM. */
kvarc_ret kvi_gc_retire(struct kvi_gc *g, struct kvi_map_pack *p);
/* Whether a version that was listed is there, still: else it is no loss that its archive is not. */
bool kvi_gc_version_there(struct kvi_gc *g, const struct kvi_map_version *v);
/* Whether the archive of a version that is lost is there, but cannot be read: what it names is not
 * known. Of one that is gone nothing can be loaded any more, whatever it has named. */
bool kvi_gc_is_unreadable(struct kvi_gc *g, const struct kvi_map_version *v);
/* Lists all manifests again: archives are needed that hold what no archive without a tombstone
 * holds. Returns OK; DATA: a manifest cannot be read; IO, MEM. */
kvarc_ret kvi_gc_look_again(struct kvi_gc *g);
/* Deletes the archives that are retired and that nothing needs, and their tombstones. Before each
 * the manifests are listed again, unless that was done just before: those that were put meanwhile
 * keep what they need, also where their savers have died. Returns as kvi_gc_look_again. */
kvarc_ret kvi_gc_delete(struct kvi_gc *g);
/* Removes the tombstones of archives that stay. */
kvarc_ret kvi_gc_undo(struct kvi_gc *g);
/* Removes old tombstones of archives that are gone. */
kvarc_ret kvi_gc_sweep(struct kvi_gc *g);

#endif
