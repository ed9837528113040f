/* SPDX-License-Identifier: BSD-3-Clause */
/* store_keys.c - the keys of a store's archives; a passphrase is derived once for all of them */
#include "store_state.h"

#include <string.h>

#include "format/crypt.h"

#define SALT_FIRST "kvarc-salt=1\n"
enum { SALT_TEXT = sizeof SALT_FIRST - 1 + 32 + 1, SALT_BYTES = KVI_AEAD_SALT_BYTES };

/* ----- the salt ------------------------------------------------ */

/* The salt under its key. Returns OK, END (there is none), DATA, IO, MEM. */
static kvarc_ret read_salt(struct kvarc_store *store, uint8_t salt[SALT_BYTES])
{
	char text[SALT_TEXT + 1];
	size_t got;
	kvarc_ret ret = store->backend->calls->get(store->backend, KVI_SALT, 0, text, sizeof text,
	                                           &got, store->error);
	if (ret)
		return ret;
	if (got == SALT_TEXT && memcmp(text, SALT_FIRST, sizeof SALT_FIRST - 1) == 0 &&
	    kvi_unhex(salt, text + sizeof SALT_FIRST - 1) && text[SALT_TEXT - 1] == '\n')
		return KVARC_OK;
	return kvi_fail(store->error, KVARC_DATA,
	                "store: " KVI_SALT
	                " is damaged; remove it, and the next save makes another "
	                "one");
}

static int64_t read_text(void *opaque, void *buf, size_t bytes, uint64_t offset)
{
	memcpy(buf, (const char *)opaque + offset, bytes);
	return (int64_t)bytes;
}

/* Puts a salt. When two savers make one at once, both use the one that was put first. */
static kvarc_ret make_salt(struct kvarc_store *store, uint8_t salt[SALT_BYTES])
{
	char text[SALT_TEXT + 1], hex[33];
	kvarc_source source = {
		.read = read_text, .opaque = text, .size = SALT_TEXT, .memory = text
	};
	kvi_aead_random(salt, SALT_BYTES);
	kvi_hex(hex, salt);
	strcpy(text, SALT_FIRST);
	strcat(text, hex);
	strcat(text, "\n");
	kvarc_ret ret = store->backend->calls->put(store->backend, KVI_SALT, &source, store->error);
	return ret == KVARC_END ? read_salt(store, salt) : ret;
}

/* ----- passphrases ------------------------------------------------ */

static kvarc_ret derive(struct kvarc_store *store, const kvarc_key *key, uint8_t *to,
                        const uint8_t salt[SALT_BYTES])
{
	const uint32_t passes = key->passes ? key->passes : KVI_PASSES_DEFAULT;
	const uint32_t kib = key->memory_kib ? key->memory_kib : KVI_MEMORY_DEFAULT;
	const uint64_t limit = store->options.common.memlimit;
	if (limit && (uint64_t)kib << 10 > limit)
		return kvi_fail(store->error, KVARC_MEMLIMIT,
		                "the passphrase needs %u MiB of memory, which is more than "
		                "the limit allows; raise it",
		                (unsigned)((kib + 1023) >> 10));
	memcpy(to, salt, SALT_BYTES);
	if (kvi_aead_derive(to + SALT_BYTES, key->bytes, key->n, salt, passes, kib))
		return kvi_fail(store->error, KVARC_MEM, "out of memory for a passphrase");
	return KVARC_OK;
}

/* Derives all passphrases for the salt of the store (NULL: it has none), and puts the results in
 * front of the passphrases themselves, which are for archives with other salts. */
static kvarc_ret derive_all(struct kvarc_store *store, const uint8_t *salt)
{
	const kvarc_keys *keys = store->options.keys;
	size_t n = store->n_given, n_derived = 0;
	for (size_t i = 0; salt && i < keys->n; i++) {
		const kvarc_key *k = &keys->list[i];
		uint8_t *to = store->derived[n_derived];
		if (k->kind != KVARC_KEY_PASSPHRASE)
			continue;
		kvarc_ret ret = derive(store, k, to, salt);
		if (ret)
			return ret;
		n_derived++;
		store->keys[n++] = (kvarc_key){
			.kind = KVARC_KEY_DERIVED,
			.passes = k->passes ? k->passes : KVI_PASSES_DEFAULT,
			.memory_kib = k->memory_kib ? k->memory_kib : KVI_MEMORY_DEFAULT,
			.bytes = to,
			.n = KVARC_KEY_DERIVED_BYTES
		};
	}
	for (size_t i = 0; i < keys->n; i++)
		if (keys->list[i].kind == KVARC_KEY_PASSPHRASE) {
			store->keys[n] = keys->list[i];
			store->keys[n].passes = store->keys[n].memory_kib = 0;
			n++;
		}
	store->ready = (kvarc_keys){ .list = store->keys, .n = n };
	store->keys_complete = true;
	store->salted = salt != NULL;
	return KVARC_OK;
}

kvarc_ret kvi_store_keys_complete(struct kvarc_store *store, bool make)
{
	uint8_t salt[SALT_BYTES] = { 0 };
	if (store->keys_complete && (store->salted || !make))
		return KVARC_END;
	kvarc_ret ret = read_salt(store, salt);
	if (ret == KVARC_END && make)
		ret = make_salt(store, salt);
	/* Archives have it, too: without it only their number costs time. */
	const bool none = !make && (ret == KVARC_END || ret == KVARC_DATA);
	return ret && !none ? ret : derive_all(store, none ? NULL : salt);
}

/* ----- all keys ------------------------------------------------ */

kvarc_ret kvi_store_keys_open(struct kvarc_store *store)
{
	const kvarc_keys *keys = store->options.keys;
	kvarc_ret ret = kvi_crypt_check(store->error, "kvarc_store_open", keys, true);
	if (ret || !keys)
		store->keys_complete = true;
	if (ret || !keys)
		return ret;
	if (keys->n > KVI_STORE_KEYS)
		return kvi_fail(store->error, KVARC_PROG, "kvarc_store_open: more than %d keys",
		                KVI_STORE_KEYS);
	for (size_t i = 0; i < keys->n; i++)
		if (keys->list[i].kind != KVARC_KEY_PASSPHRASE)
			store->keys[store->n_given++] = keys->list[i];
	store->ready = (kvarc_keys){ .list = store->keys, .n = store->n_given };
	store->keys_complete = store->n_given == keys->n;
	return KVARC_OK;
}

void kvi_store_keys_close(struct kvarc_store *store)
{
	if (!store->options.keys)
		return;
	kvi_aead_wipe(store->derived, sizeof store->derived);
	kvi_aead_wipe(&store->save_veil, sizeof store->save_veil);
}

kvarc_ret kvi_store_save_key(struct kvarc_store *store, kvarc_key *key)
{
	const kvarc_keys *keys = store->options.keys;
	const uint8_t *outer;
	if (!keys)
		return kvi_fail(store->error, KVARC_PROG,
		                "kvarc_store_save: the store was opened without a key");
	/* The salt must be there, so that the next ones use it, too. */
	kvarc_ret ret = keys->list[0].kind == KVARC_KEY_PASSPHRASE
	                        ? kvi_store_keys_complete(store, true)
	                        : KVARC_OK;
	if (ret && ret != KVARC_END)
		return ret;
	*key = keys->list[0].kind == KVARC_KEY_PASSPHRASE ? store->keys[store->n_given]
	                                                  : keys->list[0];
	outer = key->bytes;
	kvi_crypt_domain(store->save_veil.key,
	                 key->kind == KVARC_KEY_DERIVED ? outer + SALT_BYTES : outer);
	store->save_veil.on = true;
	return KVARC_OK;
}
