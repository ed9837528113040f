/* SPDX-License-Identifier: BSD-3-Clause */
/* store_util.c - a store in a folder, sessions of made slots, and what others do meanwhile */
#include "config.h"

#include "store_util.h"

#include <fcntl.h>
#include <ftw.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ----- a folder ------------------------------------------------ */

static void take_note(void *opaque, const char *text)
{
	struct test_store *t = opaque;
	snprintf(t->note, sizeof t->note, "%s", text);
	t->notes++;
}

kvarc_ret store_again(struct test_store *t, const char *name_space)
{
	kvarc_store_options o = KVARC_STORE_OPTIONS_INIT;
	kvarc_store_close(&t->s);
	memset(&t->error, 0, sizeof t->error);
	t->notes = 0;
	o.common.error = &t->error;
	o.flags = KVARC_STORE_CREATE | KVARC_STORE_NO_SYNC;
	o.name_space = name_space;
	o.keys = t->keys;
	o.index = t->index;
	o.note = take_note;
	o.note_opaque = t;
	return kvarc_store_open(&t->s, t->folder, &o);
}

void store_new(struct test_store *t)
{
	memset(t, 0, sizeof *t);
	/* Memory, where there is some that is a file system. */
	strcpy(t->folder, access("/dev/shm", W_OK) == 0 ? "/dev/shm/kvarc-store-XXXXXX"
	                                                : "/tmp/kvarc-store-XXXXXX");
	assert_non_null(mkdtemp(t->folder));
	assert_int_equal(store_again(t, NULL), KVARC_OK);
}

void store_end(struct test_store *t)
{
	kvarc_store_close(&t->s);
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *w)
{
	(void)st;
	(void)type;
	(void)w;
	return remove(path);
}

void store_remove(struct test_store *t)
{
	store_end(t);
	nftw(t->folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static uint64_t n_packs;
static int count_one(const char *path, const struct stat *st, int type, struct FTW *w)
{
	(void)st;
	(void)w;
	n_packs += type == FTW_F && strstr(path, "/packs/") != NULL;
	return 0;
}

uint64_t store_packs(struct test_store *t)
{
	n_packs = 0;
	nftw(t->folder, count_one, 16, FTW_PHYS);
	return n_packs;
}

void store_file(struct test_store *t, const char *pattern, size_t i, char path[300])
{
	glob_t g;
	char all[300];
	snprintf(all, sizeof all, "%s/%s", t->folder, pattern);
	assert_int_equal(glob(all, 0, NULL, &g), 0);
	assert_true(i < g.gl_pathc);
	snprintf(path, 300, "%s", g.gl_pathv[i]);
	globfree(&g);
}

void store_flip(const char *path, long at)
{
	uint8_t b = 0;
	int fd = open(path, O_RDWR);
	assert_true(fd >= 0 && pread(fd, &b, 1, at) == 1);
	b ^= 0x10;
	assert_int_equal(pwrite(fd, &b, 1, at), 1);
	close(fd);
}

long store_bytes(const char *path)
{
	struct stat st;
	assert_int_equal(stat(path, &st), 0);
	return (long)st.st_size;
}

/* ----- slots ------------------------------------------------ */

static struct slot_made make_slot(uint32_t n, uint32_t other, uint32_t changed, uint64_t salt)
{
	struct slot_made s;
	int32_t *ids = calloc(n + 1, sizeof *ids);
	assert_non_null(ids);
	for (uint32_t i = 0; i < n; i++)
		ids[i] = (int32_t)(100 + i + (i >= other ? 5000 : 0));
	slot_make(&s, ids, n, changed, salt);
	free(ids);
	return s;
}

struct slot_made test_slot(uint32_t n, uint32_t other)
{
	return make_slot(n, other, UINT32_MAX, 0);
}

struct slot_made test_slot_changed(uint32_t n, uint32_t changed)
{
	return make_slot(n, UINT32_MAX, changed, 12345);
}

/* ----- save and load ------------------------------------------------ */

kvarc_ret store_save_bytes(kvarc_store *s, const char *session, struct slot_made *file,
                           const kvarc_save_options *o, kvarc_saved *saved)
{
	kvarc_source source = slot_source(file);
	kvarc_import_options io = KVARC_IMPORT_OPTIONS_INIT;
	kvarc_import *im;
	io.rope = "none"; /* a search takes longer than all the rest */
	assert_int_equal(kvarc_import_open(&im, &source, "slot.bin", &io), KVARC_OK);
	kvarc_ret ret = kvarc_store_save(s, session, im, o, saved);
	kvarc_import_close(&im);
	return ret;
}

kvarc_saved store_save_slot(kvarc_store *s, const char *session, struct slot_made slot)
{
	kvarc_saved saved;
	kvarc_ret ret = store_save_bytes(s, session, &slot, NULL, &saved);
	if (ret)
		print_message("%s\n", s->error->text);
	assert_int_equal(ret, KVARC_OK);
	slot_free(&slot);
	return saved;
}

/* Bytes that come at any offset. */
struct taken {
	uint8_t *p;
	uint64_t n;
};

static int take_bytes(void *opaque, const void *buf, size_t bytes, uint64_t offset)
{
	struct taken *t = opaque;
	assert_true(offset <= t->n && bytes <= t->n - offset);
	memcpy(t->p + offset, buf, bytes);
	return 0;
}

static int take_item(void *opaque, const kvarc_item *item, kvarc_sink *sink)
{
	struct taken *t = opaque;
	assert_null(t->p);
	t->n = item->bytes;
	t->p = calloc(t->n + 1, 1);
	*sink = (kvarc_sink){ .write = take_bytes, .opaque = t };
	return 0;
}

static int discard(void *opaque, const void *data, size_t bytes, uint64_t offset)
{
	(void)opaque;
	(void)data;
	(void)bytes;
	(void)offset;
	return 0;
}

static int open_nowhere(void *opaque, const kvarc_item *item, kvarc_sink *sink)
{
	(void)opaque;
	(void)item;
	*sink = (kvarc_sink){ .write = discard };
	return 0;
}

kvarc_session_version store_load_nowhere(kvarc_store *s, const char *session)
{
	kvarc_session_version v;
	assert_int_equal(kvarc_store_load(s, session, 0, open_nowhere, NULL, &v), KVARC_OK);
	return v;
}

kvarc_ret store_compare(kvarc_store *s, const char *session, uint64_t number,
                        const struct slot_made *file)
{
	struct taken t = { NULL, 0 };
	kvarc_ret ret = kvarc_store_load(s, session, number, take_item, &t, NULL);
	if (!ret) {
		assert_int_equal(t.n, file->n);
		assert_memory_equal(t.p, file->p, file->n);
	}
	free(t.p);
	return ret;
}

void store_check_slot(kvarc_store *s, const char *session, uint64_t number, struct slot_made slot)
{
	kvarc_ret ret = store_compare(s, session, number, &slot);
	if (ret)
		print_message("%s@%d: %s\n", session, (int)number, s->error->text);
	assert_int_equal(ret, KVARC_OK);
	slot_free(&slot);
}

static void print_loss(void *opaque, const char *text)
{
	(void)opaque;
	(void)text;
}

uint64_t store_losses(kvarc_store *s)
{
	uint64_t n;
	assert_int_equal(kvarc_store_verify(s, print_loss, NULL, &n), KVARC_OK);
	return n;
}

kvarc_gc_result store_gc_now(kvarc_store *s)
{
	kvarc_gc_options o = KVARC_GC_OPTIONS_INIT;
	kvarc_gc_result result;
	o.no_grace = 1;
	kvarc_ret ret = kvarc_store_gc(s, &o, &result);
	if (ret)
		print_message("%s\n", s->error->text);
	assert_int_equal(ret, KVARC_OK);
	return result;
}

/* ----- what comes between ------------------------------------------------ */

/* Returns whether the call is to fail. */
static bool called(struct kvi_backend *b)
{
	struct test_hook *h = (struct test_hook *)b;
	if (h->calls++ == h->at && h->fn)
		h->fn(h->opaque);
	return h->fails && h->calls > h->at;
}

static struct kvi_backend *inner(struct kvi_backend *b)
{
	return ((struct test_hook *)b)->inner;
}

static kvarc_ret refuse(kvarc_error *e)
{
	return kvi_fail(e, KVARC_IO, "the disk is full");
}

static kvarc_ret hook_get(struct kvi_backend *b, const char *key, uint64_t offset, void *data,
                          size_t n, size_t *got, kvarc_error *e)
{
	*got = 0;
	return called(b) ? refuse(e) : inner(b)->calls->get(inner(b), key, offset, data, n, got, e);
}

static kvarc_ret hook_put(struct kvi_backend *b, const char *key, const kvarc_source *source,
                          kvarc_error *e)
{
	return called(b) ? refuse(e) : inner(b)->calls->put(inner(b), key, source, e);
}

static kvarc_ret hook_stat(struct kvi_backend *b, const char *key, struct kvi_object *object,
                           kvarc_error *e)
{
	return called(b) ? refuse(e) : inner(b)->calls->stat(inner(b), key, object, e);
}

static kvarc_ret hook_remove(struct kvi_backend *b, const char *key, kvarc_error *e)
{
	return called(b) ? refuse(e) : inner(b)->calls->remove(inner(b), key, e);
}

static kvarc_ret hook_remove_if(struct kvi_backend *b, const char *key, const void *data, size_t n,
                                kvarc_error *e)
{
	return called(b) ? refuse(e) : inner(b)->calls->remove_if(inner(b), key, data, n, e);
}

static kvarc_ret hook_list(struct kvi_backend *b, const char *prefix, kvi_object_fn fn,
                           void *opaque, kvarc_error *e)
{
	return called(b) ? refuse(e) : inner(b)->calls->list(inner(b), prefix, fn, opaque, e);
}

void hook_start(struct test_hook *h, kvarc_store *s, int at, void (*fn)(void *opaque), void *opaque)
{
	static const struct kvi_backend_calls calls = { .get = hook_get,
		                                        .put = hook_put,
		                                        .stat = hook_stat,
		                                        .remove = hook_remove,
		                                        .remove_if = hook_remove_if,
		                                        .list = hook_list };
	*h = (struct test_hook){
		.base = { &calls }, .inner = s->backend, .at = at, .fn = fn, .opaque = opaque
	};
	s->backend = &h->base;
}

void hook_end(struct test_hook *h, kvarc_store *s)
{
	/* Archives that are open read through the hook. */
	for (size_t i = 0; i < KVI_OPEN_PACKS; i++)
		if (s->packs[i].r)
			kvi_pack_forget(s, s->packs[i].id);
	s->backend = h->inner;
}
