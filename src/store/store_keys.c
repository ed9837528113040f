/* SPDX-License-Identifier: BSD-3-Clause */
/* store_keys.c - the keys of a store's archives; a passphrase is derived once for all of them */
#include "store_state.h"

#include <string.h>

#include "format/crypt.h"

#define SALT_FIRST "kvarc-salt=1\n"
enum { SALT_TEXT = sizeof SALT_FIRST - 1 + 32 + 1, SALT_BYTES = KVI_AEAD_SALT_BYTES };

/* ----- the salt ------------------------------------------------ */

/* The salt under its key. Returns OK, END (there is none), DATA, IO, MEM. */
static kvarc_ret read_salt(struct kvarc_store *s, uint8_t salt[SALT_BYTES])
{
	char text[SALT_TEXT + 1];
	size_t got;
	kvarc_ret ret = s->backend->calls->get(s->backend, KVI_SALT, 0, text, sizeof text, &got,
	                                       s->error);
	if (ret)
		return ret;
	if (got == SALT_TEXT && memcmp(text, SALT_FIRST, sizeof SALT_FIRST - 1) == 0 &&
	    kvi_unhex(salt, text + sizeof SALT_FIRST - 1) && text[SALT_TEXT - 1] == '\n')
		return KVARC_OK;
	return kvi_fail(s->error, KVARC_DATA,
	                "store: " KVI_SALT
	                " is damaged; remove it, and the next save makes another "
	                "one");
}

static int64_t read_text(void *opaque, void *buf, size_t bytes, uint64_t offset)
{
	memcpy(buf, (const char *)opaque + offset, bytes);
	return (int64_t)bytes;
}

/* Of two savers both use the one that was put first. */
static kvarc_ret make_salt(struct kvarc_store *s, uint8_t salt[SALT_BYTES])
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
	kvarc_ret ret = s->backend->calls->put(s->backend, KVI_SALT, &source, s->error);
	return ret == KVARC_END ? read_salt(s, salt) : ret;
}

/* ----- passphrases ------------------------------------------------ */

static kvarc_ret derive(struct kvarc_store *s, const kvarc_key *k, uint8_t *to,
                        const uint8_t salt[SALT_BYTES])
{
	const uint32_t passes = k->passes ? k->passes : KVI_PASSES_DEFAULT;
	const uint32_t kib = k->memory_kib ? k->memory_kib : KVI_MEMORY_DEFAULT;
	const uint64_t limit = s->options.common.memlimit;
	if (limit && (uint64_t)kib << 10 > limit)
		return kvi_fail(s->error, KVARC_MEMLIMIT,
		                "the passphrase needs %u MiB of memory, which is more than "
		                "the limit allows; raise it",
		                (unsigned)((kib + 1023) >> 10));
	memcpy(to, salt, SALT_BYTES);
	if (kvi_aead_derive(to + SALT_BYTES, k->bytes, k->n, salt, passes, kib))
		return kvi_fail(s->error, KVARC_MEM, "out of memory for a passphrase");
	return KVARC_OK;
}

/* All passphrases for the salt of the store (NULL: it has none), in front of themselves, which are
 * for archives with other salts. */
static kvarc_ret derive_all(struct kvarc_store *s, const uint8_t *salt)
{
	const kvarc_keys *keys = s->options.keys;
	size_t n = s->n_given, n_derived = 0;
	for (size_t i = 0; salt && i < keys->n; i++) {
		const kvarc_key *k = &keys->list[i];
		uint8_t *to = s->derived[n_derived];
		if (k->kind != KVARC_KEY_PASSPHRASE)
			continue;
		kvarc_ret ret = derive(s, k, to, salt);
		if (ret)
			return ret;
		n_derived++;
		s->keys[n++] = (kvarc_key){ .kind = KVARC_KEY_DERIVED,
			                    .passes = k->passes ? k->passes : KVI_PASSES_DEFAULT,
			                    .memory_kib = k->memory_kib ? k->memory_kib
			                                                : KVI_MEMORY_DEFAULT,
			                    .bytes = to,
			                    .n = KVARC_KEY_DERIVED_BYTES };
	}
	for (size_t i = 0; i < keys->n; i++)
		if (keys->list[i].kind == KVARC_KEY_PASSPHRASE) {
			s->keys[n] = keys->list[i];
			s->keys[n].passes = s->keys[n].memory_kib = 0;
			n++;
		}
	s->ready = (kvarc_keys){ .list = s->keys, .n = n };
	s->keys_complete = true;
	s->salted = salt != NULL;
	return KVARC_OK;
}

kvarc_ret kvi_store_keys_complete(struct kvarc_store *s, bool make)
{
	uint8_t salt[SALT_BYTES] = { 0 };
	if (s->keys_complete && (s->salted || !make))
		return KVARC_END;
	kvarc_ret ret = read_salt(s, salt);
	if (ret == KVARC_END && make)
		ret = make_salt(s, salt);
	/* Archives have it, too: without it only their number costs time. */
	const bool none = !make && (ret == KVARC_END || ret == KVARC_DATA);
	return ret && !none ? ret : derive_all(s, none ? NULL : salt);
}

/* ----- all keys ------------------------------------------------ */

kvarc_ret kvi_store_keys_open(struct kvarc_store *s)
{
	const kvarc_keys *keys = s->options.keys;
	kvarc_ret ret = kvi_crypt_check(s->error, "kvarc_store_open", keys, true);
	if (ret || !keys)
		s->keys_complete = true;
	if (ret || !keys)
		return ret;
	if (keys->n > KVI_STORE_KEYS)
		return kvi_fail(s->error, KVARC_PROG, "kvarc_store_open: more than %d keys",
		                KVI_STORE_KEYS);
	for (size_t i = 0; i < keys->n; i++)
		if (keys->list[i].kind != KVARC_KEY_PASSPHRASE)
			s->keys[s->n_given++] = keys->list[i];
	s->ready = (kvarc_keys){ .list = s->keys, .n = s->n_given };
	s->keys_complete = s->n_given == keys->n;
	return KVARC_OK;
}

void kvi_store_keys_close(struct kvarc_store *s)
{
	if (!s->options.keys)
		return;
	kvi_aead_wipe(s->derived, sizeof s->derived);
	kvi_aead_wipe(&s->save_veil, sizeof s->save_veil);
}

kvarc_ret kvi_store_save_key(struct kvarc_store *s, kvarc_key *key)
{
	const kvarc_keys *keys = s->options.keys;
	const uint8_t *outer;
	if (!keys)
		return kvi_fail(s->error, KVARC_PROG,
		                "kvarc_store_save: the store was opened without a key");
	/* The salt must be there, so that the next ones use it, too. */
	kvarc_ret ret = keys->list[0].kind == KVARC_KEY_PASSPHRASE
	                        ? kvi_store_keys_complete(s, true)
	                        : KVARC_OK;
	if (ret && ret != KVARC_END)
		return ret;
	*key = keys->list[0].kind == KVARC_KEY_PASSPHRASE ? s->keys[s->n_given] : keys->list[0];
	outer = key->bytes;
	kvi_crypt_domain(s->save_veil.key,
	                 key->kind == KVARC_KEY_DERIVED ? outer + SALT_BYTES : outer);
	s->save_veil.on = true;
	return KVARC_OK;
}
