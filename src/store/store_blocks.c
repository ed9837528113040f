/* SPDX-License-Identifier: BSD-3-Clause */
/* store_blocks.c - blocks of engines, as stat and verify of a store see them */
#include "store_map.h"

#include <string.h>

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

kvarc_ret kvi_blocks_count(struct kvarc_store *s, kvarc_store_sizes *n)
{
	return s->backend->calls->list(s->backend, KVI_BLOCKS, count_block, n, s->error);
}

struct block_names {
	struct kvarc_store *s;
	struct kvi_list keys; /* char[KVI_BLOCK_KEY] */
	kvarc_ret ret;
};

static int add_block(void *opaque, const struct kvi_object *object)
{
	struct block_names *b = opaque;
	char name[KVI_BLOCK_NAME + 1];
	if (!kvi_block_key_parse(name, object->key))
		return 0;
	char *to = kvi_list_add(&b->keys, &b->s->alloc, KVI_BLOCK_KEY);
	if (!to)
		b->ret = kvi_fail_alloc(b->s->error, &b->s->alloc);
	else
		memcpy(to, object->key, strlen(object->key) + 1);
	return b->ret != KVARC_OK;
}

kvarc_ret kvi_blocks_verify(struct kvarc_store *s, void (*loss)(void *opaque, const char *text),
                            void *opaque)
{
	struct block_names b = { .s = s };
	kvarc_ret ret = s->backend->calls->list(s->backend, KVI_BLOCKS, add_block, &b, s->error);
	if (b.ret)
		ret = b.ret;
	for (size_t i = 0; i < b.keys.n && !ret; i++) {
		ret = kvi_block_check(s, (const char *)b.keys.p + i * KVI_BLOCK_KEY);
		if (!ret || ret == KVARC_MEM || ret == KVARC_MEMLIMIT || ret == KVARC_IO)
			continue;
		if (ret != KVARC_END) /* removed meanwhile */
			loss(opaque, s->error->text);
		ret = KVARC_OK;
	}
	kvi_free(&s->alloc, b.keys.p);
	return ret;
}
