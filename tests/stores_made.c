/* SPDX-License-Identifier: BSD-3-Clause */
/* stores_made.c - stores of made slots */
#include "config.h"

#include "stores_made.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

enum { TEXT_IDS = 100000 }; /* ids of one text */

struct slot_made made_slot(struct made_file f)
{
	struct slot_made s;
	int32_t *ids = calloc(MADE_TOKENS_MOST + 1, sizeof *ids);
	if (!ids || f.tokens > MADE_TOKENS_MOST)
		abort();
	for (uint32_t i = 0; i < f.tokens; i++)
		ids[i] = (int32_t)(100 + i + (i >= f.other ? TEXT_IDS * (1 + f.other % 1000) : 0));
	slot_make(&s, ids, f.tokens, UINT32_MAX, 0);
	free(ids);
	return s;
}

kvarc_ret made_open(struct made_store *m, const struct made_place *place)
{
	static const uint8_t bytes[KVARC_KEY_BYTES] = "of all sessions";
	static const kvarc_key key = { .kind = KVARC_KEY_GIVEN, .bytes = bytes, .n = sizeof bytes };
	static const kvarc_keys keys = { .list = &key, .n = 1 };
	kvarc_store_options o = KVARC_STORE_OPTIONS_INIT;
	memset(m, 0, sizeof *m);
	o.common.error = &m->error;
	o.keys = place->keyed ? &keys : NULL;
	o.flags = place->flags;
	o.index = place->index;
	return kvarc_store_open(&m->s, place->url, &o);
}

void made_close(struct made_store *m)
{
	kvarc_store_close(&m->s);
}

kvarc_ret made_save(struct made_store *m, const char *session, struct made_file f, int encrypt,
                    kvarc_saved *saved)
{
	struct slot_made slot = made_slot(f);
	kvarc_source source = slot_source(&slot);
	kvarc_save_options o = KVARC_SAVE_OPTIONS_INIT;
	kvarc_import_options io = KVARC_IMPORT_OPTIONS_INIT;
	kvarc_import *im;
	char label[32];
	snprintf(label, sizeof label, "%u %u", (unsigned)f.tokens, (unsigned)f.other);
	o.label = label;
	o.time = (uint64_t)time(NULL) * 1000;
	o.writer.level = KVARC_LEVEL(0);
	o.writer.segment_tokens = 64;
	o.encrypt = encrypt;
	io.rope = "none"; /* a search takes longer than all the rest */
	if (kvarc_import_open(&im, &source, NULL, &io))
		abort();
	kvarc_ret ret = kvarc_store_save(m->s, session, im, &o, saved);
	kvarc_import_close(&im);
	slot_free(&slot);
	return ret;
}

/* Bytes of a load. */
struct made_bytes {
	uint8_t *p;
	uint64_t n;
};

static int take_bytes(void *opaque, const void *data, size_t bytes, uint64_t offset)
{
	struct made_bytes *x = opaque;
	if (offset > x->n || bytes > x->n - offset)
		return -1;
	memcpy(x->p + offset, data, bytes);
	return 0;
}

static int take_item(void *opaque, const kvarc_item *item, kvarc_sink *sink)
{
	struct made_bytes *x = opaque;
	free(x->p);
	x->n = item->bytes;
	x->p = calloc(x->n + 1, 1);
	*sink = (kvarc_sink){ .write = take_bytes, .opaque = x };
	return x->p ? 0 : -1;
}

kvarc_ret made_load(struct made_store *m, const char *session, uint64_t number,
                    kvarc_session_version *v, struct kvi_h128 *digest)
{
	struct made_bytes x = { NULL, 0 };
	kvarc_ret ret = kvarc_store_load(m->s, session, number, take_item, &x, v);
	if (!ret && digest)
		*digest = kvi_h128(x.p, x.n);
	free(x.p);
	return ret;
}

bool made_file_of(struct made_file *f, const kvarc_session_version *v)
{
	unsigned tokens, other;
	if (sscanf(v->label, "%u %u", &tokens, &other) != 2 || tokens > MADE_TOKENS_MOST)
		return false;
	*f = (struct made_file){ tokens, other };
	return true;
}

struct kvi_h128 made_digest(struct made_file f)
{
	struct slot_made s = made_slot(f);
	const struct kvi_h128 digest = kvi_h128(s.p, s.n);
	slot_free(&s);
	return digest;
}

kvarc_ret made_check(struct made_store *m, const char *session, uint64_t number, struct made_file f)
{
	struct kvi_h128 digest;
	kvarc_ret ret = made_load(m, session, number, NULL, &digest);
	if (ret || kvi_h128_equal(digest, made_digest(f)))
		return ret;
	m->other_bytes = true;
	snprintf(m->error.text, sizeof m->error.text, "%s: other bytes than were saved", session);
	return KVARC_DATA;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *f)
{
	(void)st;
	(void)type;
	(void)f;
	return remove(path);
}

void made_remove(const char *folder)
{
	nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}
