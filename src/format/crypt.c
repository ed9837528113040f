/* SPDX-License-Identifier: BSD-3-Clause */
/* crypt.c - the file key, and frames that are opened and sealed with it (frames.md 12.1) */
#include "crypt.h"

#include <string.h>

#include "util/arguments.h"
#include "util/bytes.h"

/* Offsets in a KEY payload. */
enum {
	KEY_PASSES = 8,
	KEY_MEMORY = 12,
	KEY_SALT = 16,
	KEY_FILE_ID = 32,
	KEY_ID = 48,
	KEY_NONCE = 80,
	KEY_SEALED = 104,
	KEY_TAG = 136
};
enum { PASSES_MAX = 64, MEMORY_MIN = 8, MEMORY_MAX = 1 << 22 };
enum { PASSPHRASE_MAX = 4096 };
/* Passes x KiB of Argon2id for all of a file, and what a run counts at least (rule R12.6): 3.5 to
 * 5 s of a core of 2024. */
enum { WORK_MAX = 1 << 22, WORK_MIN = 1 << 10 };
/* Bytes of the associated data of a file key and of a frame. */
enum { SALT = KVI_AEAD_SALT_BYTES };
enum { LABEL = 16, KEY_AD = LABEL + KEY_NONCE, FRAME_AD = 76 };

static const char *wrong_key(const kvarc_key *key, bool writes)
{
	if (key->kind < KVARC_KEY_GIVEN || key->kind > KVARC_KEY_DERIVED)
		return "a key is neither given nor derived nor a passphrase";
	if (!key->bytes ||
	    (key->kind == KVARC_KEY_GIVEN     ? key->n != KVARC_KEY_BYTES
	     : key->kind == KVARC_KEY_DERIVED ? key->n != KVARC_KEY_DERIVED_BYTES
	                                      : key->n < 1 || key->n > PASSPHRASE_MAX))
		return "a key does not have 32 bytes, a derived one 48, or a passphrase 1 to 4096";
	if (writes && (key->passes > PASSES_MAX || key->memory_kib > MEMORY_MAX ||
	               (key->memory_kib && key->memory_kib < MEMORY_MIN)))
		return "passes or memory of a passphrase are out of range";
	return NULL;
}

kvarc_ret kvi_crypt_check(kvarc_error *error, const char *call, const kvarc_keys *keys, bool writes)
{
	const char *wrong = NULL;
	if (!keys)
		return KVARC_OK;
	kvarc_ret ret = KVI_CHECK_RESERVED(error, call, "kvarc_keys", keys);
	if (!ret && (!keys->list || !keys->n || keys->n > KVARC_KEYS_MAX))
		wrong = "keys are 1 to 64";
	for (size_t i = 0; !ret && !wrong && i < keys->n; i++) {
		ret = KVI_CHECK_RESERVED(error, call, "kvarc_key", &keys->list[i]);
		wrong = ret ? NULL : wrong_key(&keys->list[i], writes);
	}
	if (wrong)
		return kvi_fail(error, KVARC_PROG, "%s: %s", call, wrong);
	return ret;
}

static kvarc_ret crypt_make(struct kvi_crypt **crypt, const struct kvi_alloc *alloc,
                            const uint8_t file_id[16], kvarc_error *error)
{
	*crypt = kvi_calloc(alloc, 1, sizeof **crypt);
	if (!*crypt)
		return kvi_fail_alloc(error, alloc);
	(*crypt)->alloc = alloc;
	memcpy((*crypt)->file_id, file_id, sizeof(*crypt)->file_id);
	return KVARC_OK;
}

kvarc_ret kvi_crypt_open(struct kvi_crypt **crypt, const struct kvi_alloc *alloc,
                         const uint8_t file_id[16], const kvarc_keys *keys, kvarc_error *error)
{
	kvarc_ret ret = crypt_make(crypt, alloc, file_id, error);
	if (!ret && keys)
		(*crypt)->keys = *keys;
	return ret;
}

kvarc_ret kvi_crypt_open_known(struct kvi_crypt **crypt, const struct kvi_alloc *alloc,
                               const struct kvi_crypt *known, kvarc_error *error)
{
	kvarc_ret ret = crypt_make(crypt, alloc, known->file_id, error);
	if (ret)
		return ret;
	memcpy((*crypt)->file_key, known->file_key, sizeof known->file_key);
	memcpy((*crypt)->domain, known->domain, sizeof known->domain);
	(*crypt)->known = known->known;
	return KVARC_OK;
}

void kvi_crypt_close(struct kvi_crypt **crypt)
{
	if (!*crypt)
		return;
	const struct kvi_alloc *alloc = (*crypt)->alloc;
	kvi_aead_wipe(*crypt, sizeof **crypt);
	kvi_free(alloc, *crypt);
	*crypt = NULL;
}

static uint64_t work_of(const uint8_t *payload)
{
	const uint64_t work = (uint64_t)kvi_load32(payload + KEY_PASSES) *
	                      kvi_load32(payload + KEY_MEMORY);
	return work < WORK_MIN ? WORK_MIN : work;
}

/* The key of a passphrase; its memory is compared with what the limit still allows. */
static kvarc_ret derive(const struct kvi_crypt *crypt, uint8_t outer[KVI_AEAD_KEY_BYTES],
                        const kvarc_key *key, const uint8_t *salt, uint32_t passes, uint32_t memory,
                        kvarc_error *error)
{
	const struct kvi_alloc *alloc = crypt->alloc->counted;
	const uint64_t bytes = (uint64_t)memory << 10, used = atomic_load(&alloc->used);
	if (bytes > alloc->limit || used > alloc->limit - bytes) {
		kvarc_ret ret = kvi_fail(error, KVARC_MEMLIMIT,
		                         "the passphrase of the archive needs %llu MiB of memory, "
		                         "which is more than the limit allows; raise it",
		                         (unsigned long long)((bytes + (1 << 20) - 1) >> 20));
		if (error)
			error->bytes_needed = used + bytes;
		return ret;
	}
	if (kvi_aead_derive(outer, key->bytes, key->n, salt, passes, memory))
		return kvi_fail(error, KVARC_MEM, "out of memory for a passphrase");
	return KVARC_OK;
}

static void make_key_id(uint8_t id[32], const uint8_t file_id[16],
                        const uint8_t outer[KVI_AEAD_KEY_BYTES])
{
	uint8_t in[LABEL + 16];
	memcpy(in, "kvarc key id 1.0", LABEL);
	memcpy(in + LABEL, file_id, 16);
	kvi_aead_keyed_hash(id, in, sizeof in, outer);
}

void kvi_crypt_domain(uint8_t domain[KVI_AEAD_KEY_BYTES], const uint8_t outer[KVI_AEAD_KEY_BYTES])
{
	kvi_aead_keyed_hash(domain, "kvarc domain 1.0", LABEL, outer);
}

static void file_key_ad(uint8_t ad[KEY_AD], const uint8_t *payload)
{
	memcpy(ad, "kvarc file key 1", LABEL);
	memcpy(ad + LABEL, payload, KEY_NONCE);
}

/* Computes the outer key of a KEY payload from a key or passphrase. Returns OK, MEM, MEMLIMIT. */
static kvarc_ret outer_key(const struct kvi_crypt *crypt, uint8_t outer[KVI_AEAD_KEY_BYTES],
                           const kvarc_key *key, const uint8_t *payload, kvarc_error *error)
{
	if (key->kind == KVARC_KEY_PASSPHRASE)
		return derive(crypt, outer, key, payload + KEY_SALT,
		              kvi_load32(payload + KEY_PASSES), kvi_load32(payload + KEY_MEMORY),
		              error);
	memcpy(outer, (const uint8_t *)key->bytes + (key->kind == KVARC_KEY_DERIVED ? SALT : 0),
	       KVI_AEAD_KEY_BYTES);
	return KVARC_OK;
}

static kvarc_ret key_payload(const struct kvi_crypt *crypt, uint8_t *p, const kvarc_key *key,
                             kvarc_error *error)
{
	uint8_t outer[KVI_AEAD_KEY_BYTES], ad[KEY_AD];
	memset(p, 0, KVI_KEY_PAYLOAD_BYTES);
	p[0] = key->kind == KVARC_KEY_GIVEN ? KVARC_KEY_GIVEN : KVARC_KEY_PASSPHRASE;
	if (p[0] == KVARC_KEY_PASSPHRASE) {
		kvi_store32(p + KEY_PASSES, key->passes ? key->passes : KVI_PASSES_DEFAULT);
		kvi_store32(p + KEY_MEMORY, key->memory_kib ? key->memory_kib : KVI_MEMORY_DEFAULT);
		kvi_aead_random(p + KEY_SALT, SALT);
	}
	if (key->kind == KVARC_KEY_DERIVED)
		memcpy(p + KEY_SALT, key->bytes, SALT);
	kvarc_ret ret = outer_key(crypt, outer, key, p, error);
	if (ret)
		return ret;
	memcpy(p + KEY_FILE_ID, crypt->file_id, sizeof crypt->file_id);
	make_key_id(p + KEY_ID, crypt->file_id, outer);
	kvi_aead_random(p + KEY_NONCE, KVI_AEAD_NONCE_BYTES);
	file_key_ad(ad, p);
	kvi_aead_seal(p + KEY_SEALED, crypt->file_key, sizeof crypt->file_key, ad, sizeof ad,
	              p + KEY_NONCE, outer);
	kvi_aead_wipe(outer, sizeof outer);
	return KVARC_OK;
}

/* Passes x KiB that a reader with a passphrase does until the last KEY frame. */
static uint64_t work_of_keys(const kvarc_keys *keys)
{
	uint64_t sum = 0;
	for (size_t i = 0; i < keys->n; i++) {
		const kvarc_key *k = &keys->list[i];
		if (k->kind != KVARC_KEY_GIVEN)
			sum += (uint64_t)(k->passes ? k->passes : KVI_PASSES_DEFAULT) *
			       (k->memory_kib ? k->memory_kib : KVI_MEMORY_DEFAULT);
	}
	return sum;
}

kvarc_ret kvi_crypt_new(struct kvi_crypt **crypt, const struct kvi_alloc *alloc,
                        const uint8_t file_id[16], const kvarc_keys *keys, kvarc_error *error)
{
	*crypt = NULL;
	if (work_of_keys(keys) > WORK_MAX)
		return kvi_fail(error, KVARC_PROG,
		                "the passphrases of a file ask for more than 4 GiB x passes "
		                "together, which no reader does: use keys for some of them");
	kvarc_ret ret = crypt_make(crypt, alloc, file_id, error);
	if (ret)
		return ret;
	kvi_aead_random((*crypt)->file_key, sizeof(*crypt)->file_key);
	(*crypt)->known = true;
	for (size_t i = 0; i < keys->n && !ret; i++)
		ret = key_payload(*crypt, (*crypt)->payloads[(*crypt)->n_payloads++],
		                  &keys->list[i], error);
	if (ret)
		kvi_crypt_close(crypt);
	return ret;
}

static kvarc_ret bad(const struct kvi_frame *frame, kvarc_error *error, const char *what)
{
	return kvi_reason(error, KVARC_REASON_SALVAGE,
	                  kvi_fail_at(error, KVARC_DATA, frame->offset, frame->head.sequence,
	                              "%s frame %llu at offset %llu is not valid: %s",
	                              kvi_frame_name(frame->head.type),
	                              (unsigned long long)frame->head.sequence,
	                              (unsigned long long)frame->offset, what));
}

/* Rules R12.4 and R12.5; NULL: all is well. Only for kinds 1 and 2. */
static const char *wrong_payload(const struct kvi_crypt *crypt, const struct kvi_frame *frame)
{
	const uint8_t *p = frame->payload;
	if (frame->head.payload_bytes != KVI_KEY_PAYLOAD_BYTES)
		return "its size";
	const uint32_t passes = kvi_load32(p + KEY_PASSES), memory = kvi_load32(p + KEY_MEMORY);
	if (p[0] == KVARC_KEY_GIVEN ? !kvi_all_zero(p + 1, KEY_FILE_ID - 1)
	                            : !kvi_all_zero(p + 1, KEY_PASSES - 1))
		return "its reserved fields";
	if (p[0] == KVARC_KEY_PASSPHRASE &&
	    (passes < 1 || passes > PASSES_MAX || memory < MEMORY_MIN || memory > MEMORY_MAX))
		return "its passes or its memory";
	return memcmp(p + KEY_FILE_ID, crypt->file_id, sizeof crypt->file_id) ? "its file id"
	                                                                      : NULL;
}

/* Whether a key is of the kind of a KEY frame. A passphrase need not be derived for a salt for
 * which the caller has done it. */
static bool may_fit(const struct kvi_crypt *crypt, const kvarc_key *key, const uint8_t *p)
{
	if (key->kind == KVARC_KEY_DERIVED)
		return p[0] == KVARC_KEY_PASSPHRASE && memcmp(key->bytes, p + KEY_SALT, SALT) == 0;
	for (size_t i = 0; key->kind == KVARC_KEY_PASSPHRASE && i < crypt->keys.n; i++)
		if (crypt->keys.list[i].kind == KVARC_KEY_DERIVED &&
		    memcmp(crypt->keys.list[i].bytes, p + KEY_SALT, SALT) == 0)
			return false;
	return key->kind == p[0];
}

/* Whether one of the keys is that of a KEY frame, and the file key if it is (rule R12.6). */
static kvarc_ret try_key(struct kvi_crypt *crypt, const kvarc_key *key,
                         const struct kvi_frame *frame, kvarc_error *error)
{
	const uint8_t *p = frame->payload;
	uint8_t outer[KVI_AEAD_KEY_BYTES], id[32], ad[KEY_AD];
	uint8_t sealed[KVI_AEAD_KEY_BYTES + KVI_AEAD_TAG_BYTES];
	if (!may_fit(crypt, key, p))
		return KVARC_OK;
	if (key->kind == KVARC_KEY_PASSPHRASE) {
		if (work_of(p) > WORK_MAX - crypt->work) {
			crypt->too_much = true;
			return KVARC_OK;
		}
		crypt->work += work_of(p);
	}
	kvarc_ret ret = outer_key(crypt, outer, key, p, error);
	if (ret)
		return ret;
	make_key_id(id, crypt->file_id, outer);
	if (kvi_aead_equal(id, p + KEY_ID, sizeof id)) {
		memcpy(sealed, p + KEY_SEALED, sizeof sealed);
		file_key_ad(ad, p);
		crypt->known = kvi_aead_open(sealed, KVI_AEAD_KEY_BYTES, ad, sizeof ad,
		                             p + KEY_NONCE, outer);
		if (crypt->known) {
			memcpy(crypt->file_key, sealed, sizeof crypt->file_key);
			kvi_crypt_domain(crypt->domain, outer);
		} else {
			ret = bad(frame, error, "the file key in it was changed");
		}
	}
	kvi_aead_wipe(outer, sizeof outer);
	kvi_aead_wipe(sealed, sizeof sealed);
	return ret;
}

static kvarc_ret key_frame(struct kvi_crypt *crypt, const struct kvi_frame *frame,
                           kvarc_error *error)
{
	if (frame->head.decoded_bytes != frame->head.payload_bytes || frame->head.flags)
		return bad(frame, error, "its flags or sizes");
	const bool given = frame->head.payload_bytes && frame->payload[0] == KVARC_KEY_GIVEN;
	const bool phrase = frame->head.payload_bytes && frame->payload[0] == KVARC_KEY_PASSPHRASE;
	const char *wrong = given || phrase ? wrong_payload(crypt, frame) : NULL;
	if (wrong)
		return bad(frame, error, wrong);
	if (crypt->first)
		return KVARC_OK;
	crypt->any_key = true;
	if (!given && !phrase)
		return KVARC_OK;
	if (crypt->n_payloads < KVARC_KEYS_MAX)
		memcpy(crypt->payloads[crypt->n_payloads++], frame->payload, KVI_KEY_PAYLOAD_BYTES);
	kvarc_ret ret = KVARC_OK;
	for (size_t i = 0; i < crypt->keys.n && !crypt->known && !ret; i++)
		ret = try_key(crypt, &crypt->keys.list[i], frame, error);
	return ret;
}

/* Checks that the file key is known before the first ENCRYPTED frame is opened, and forgets the
 * caller's keys. Returns OK, DATA (no KEY frame), AUTH. */
static kvarc_ret unlock(struct kvi_crypt *crypt, const struct kvi_frame *frame, kvarc_error *error)
{
	if (!crypt->known && !crypt->any_key)
		return bad(frame, error, "there is no KEY frame before it");
	if (!crypt->known)
		return kvi_fail(
			error, KVARC_AUTH, "the archive is encrypted, and %s",
			!crypt->keys.n ? "no key was given"
			: crypt->too_much
				? "its KEY frames ask for more work with a passphrase than a "
				  "reader does for a file (4 GiB x passes)"
				: "no key or passphrase that was given opens it");
	crypt->first = frame->offset;
	crypt->keys = (kvarc_keys){ 0 };
	return KVARC_OK;
}

static void frame_ad(uint8_t ad[FRAME_AD], const struct kvi_crypt *crypt, const uint8_t *head,
                     uint64_t offset, const uint8_t *payload)
{
	memcpy(ad, "kvarc encrypted ", LABEL);
	memcpy(ad + 16, crypt->file_id, 16);
	memcpy(ad + 32, head, 28);
	kvi_store64(ad + 60, offset);
	memcpy(ad + 68, payload, 8);
}

/* Rule R12.8. */
static bool may_be_inside(uint16_t type)
{
	return type != 0 && type != KVI_FRAME_FOOTER && type != KVI_FRAME_PARITY &&
	       type != KVI_FRAME_ENCRYPTED && type != KVI_FRAME_KEY;
}

static kvarc_ret open_frame(struct kvi_crypt *crypt, struct kvi_frame *frame, const uint8_t *head,
                            uint8_t *p, kvarc_error *error)
{
	uint8_t ad[FRAME_AD];
	if (frame->head.flags != KVI_FRAME_CRITICAL || frame->head.payload_bytes < KVI_CRYPT_BYTES)
		return bad(frame, error, "its flags or size");
	const uint16_t type = kvi_load16(p), flags = kvi_load16(p + 2);
	if (!may_be_inside(type) || flags & ~KVI_FRAME_CRITICAL || kvi_load32(p + 4))
		return bad(frame, error, "the type or flags of the frame inside");
	kvarc_ret ret = crypt->first ? KVARC_OK : unlock(crypt, frame, error);
	if (ret)
		return ret;
	const uint32_t n = frame->head.payload_bytes - KVI_CRYPT_BYTES;
	frame_ad(ad, crypt, head, frame->offset, p);
	if (!kvi_aead_open(p + KVI_CRYPT_HEAD_BYTES, n, ad, sizeof ad, p + 8, crypt->file_key))
		return bad(frame, error,
		           "its tag is wrong, so that it was changed or is another's");
	frame->head.type = type;
	frame->head.flags = flags;
	frame->head.payload_bytes = n;
	frame->payload = p + KVI_CRYPT_HEAD_BYTES;
	return KVARC_OK;
}

kvarc_ret kvi_crypt_frame(struct kvi_crypt *crypt, struct kvi_frame *frame, const uint8_t *head,
                          uint8_t *text, kvarc_error *error)
{
	const uint16_t type = frame->head.type;
	frame->of_encrypted = true;
	if (type == KVI_FRAME_ENCRYPTED)
		return open_frame(crypt, frame, head, text, error);
	if (type == KVI_FRAME_KEY)
		return key_frame(crypt, frame, error);
	/* Rule R12.2. */
	if (kvi_frame_known(type) && type != KVI_FRAME_FOOTER)
		return bad(frame, error, "it is not encrypted, in a file whose frames are");
	return KVARC_OK;
}

void kvi_crypt_seal(const struct kvi_crypt *crypt, uint8_t *out, const struct kvi_frame_head *head,
                    uint64_t sync, uint64_t offset, const uint8_t *payload)
{
	struct kvi_frame_head outer = *head;
	uint8_t ad[FRAME_AD], *p = out + KVI_FRAME_HEAD_BYTES;
	outer.type = KVI_FRAME_ENCRYPTED;
	outer.flags = KVI_FRAME_CRITICAL;
	outer.payload_bytes = head->payload_bytes + KVI_CRYPT_BYTES;
	kvi_frame_head_write(out, &outer, sync, offset);
	kvi_store16(p, head->type);
	kvi_store16(p + 2, head->flags);
	kvi_store32(p + 4, 0);
	kvi_aead_random(p + 8, KVI_AEAD_NONCE_BYTES);
	frame_ad(ad, crypt, out, offset, p);
	kvi_aead_seal(p + KVI_CRYPT_HEAD_BYTES, payload, head->payload_bytes, ad, sizeof ad, p + 8,
	              crypt->file_key);
	kvi_frame_close(out, offset, outer.payload_bytes, kvi_frame_rest(out, outer.payload_bytes));
}
