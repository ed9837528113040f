/* SPDX-License-Identifier: BSD-3-Clause */
/* store_stat.c - what a store holds, and its index made again */
#include "store_map.h"

#include <string.h>

static void add_up(const struct kvi_store_map *map, kvarc_store_sizes *n)
{
	for (size_t i = 0; i < map->versions.n; i++) {
		const struct kvi_map_version *v = KVI_LIST(struct kvi_map_version, map->versions,
		                                           i);
		n->versions++;
		n->sessions += v->last;
		n->file_bytes += v->bytes;
	}
	for (size_t i = 0; i < map->packs.n; i++) {
		const struct kvi_map_pack *p = KVI_LIST(struct kvi_map_pack, map->packs, i);
		n->archives++;
		n->archive_bytes += p->bytes;
		n->encrypted += p->encrypted;
		n->unnamed += !p->needed;
		n->unnamed_bytes += p->needed ? 0 : p->bytes;
	}
}

static int count_block(void *opaque, const struct kvi_object *object)
{
	kvarc_store_sizes *n = opaque;
	char name[KVI_BLOCK_NAME + 1];
	if (kvi_block_key_parse(name, object->key)) {
		n->blocks++;
		n->block_bytes += object->bytes;
	}
	return 0;
}

static kvarc_ret count_blocks(struct kvarc_store *store, kvarc_store_sizes *n)
{
	return store->backend->calls->list(store->backend, KVI_BLOCKS, count_block, n,
	                                   store->error);
}

static kvarc_ret find_sizes(struct kvarc_store *store, kvarc_store_sizes *sizes)
{
	struct kvi_store_map m = { 0 };
	uint64_t packs;
	memset(sizes, 0, sizeof *sizes);
	kvarc_ret ret = kvi_map_make(&m, store, store->index, NULL, NULL, NULL);
	if (!ret)
		ret = kvi_index_counts(store->index, &packs, &sizes->segments);
	if (!ret) {
		sizes->unreadable = m.unreadable + m.unreadable_packs;
		add_up(&m, sizes);
		ret = count_blocks(store, sizes);
	}
	kvi_map_free(&m);
	return ret;
}

kvarc_ret kvarc_store_stat(kvarc_store *s, kvarc_store_sizes *sizes)
{
	if (!s)
		return KVARC_PROG;
	if (!sizes)
		return kvi_fail(s->error, KVARC_PROG, "kvarc_store_stat: sizes is NULL");
	kvarc_ret ret = find_sizes(s, sizes);
	return kvi_store_mend(s, ret) ? find_sizes(s, sizes) : ret;
}

kvarc_ret kvarc_store_rebuild(kvarc_store *s, uint64_t *archives, uint64_t *segments)
{
	uint64_t unreadable = 0, n[2] = { 0, 0 };
	if (!s)
		return KVARC_PROG;
	kvarc_ret ret = kvi_index_begin_change(s->index);
	if (!ret)
		ret = kvi_index_end_change(s->index, kvi_index_clear(s->index));
	if (!ret)
		ret = kvi_index_refresh(s, s->index, s->options.note, s->options.note_opaque,
		                        &unreadable);
	if (kvi_store_mend(s, ret))
		ret = KVARC_OK;
	if (!ret)
		ret = kvi_index_counts(s->index, &n[0], &n[1]);
	if (archives)
		*archives = n[0];
	if (segments)
		*segments = n[1];
	return ret;
}
