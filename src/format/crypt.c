/* SPDX-License-Identifier: BSD-3-Clause */
/* crypt.c - the file key, and frames that are opened and sealed with it (frames.md 12.1) */
#include "config.h"

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

static const char *wrong_key(const kvarc_key *k, bool writes)
{
	if (k->kind < KVARC_KEY_GIVEN || k->kind > KVARC_KEY_DERIVED)
		return "a key is neither given nor derived nor a passphrase";
	if (!k->bytes || (k->kind == KVARC_KEY_GIVEN     ? k->n != KVARC_KEY_BYTES
	                  : k->kind == KVARC_KEY_DERIVED ? k->n != KVARC_KEY_DERIVED_BYTES
	                                                 : k->n < 1 || k->n > PASSPHRASE_MAX))
		return "a key does not have 32 bytes, a derived one 48, or a passphrase 1 to 4096";
	if (writes && (k->passes > PASSES_MAX || k->memory_kib > MEMORY_MAX ||
	               (k->memory_kib && k->memory_kib < MEMORY_MIN)))
		return "passes or memory of a passphrase are out of range";
	return NULL;
}

kvarc_ret kvi_crypt_check(kvarc_error *e, const char *call, const kvarc_keys *keys, bool writes)
{
	const char *wrong = NULL;
	if (!keys)
		return KVARC_OK;
	kvarc_ret ret = KVI_CHECK_RESERVED(e, call, "kvarc_keys", keys);
	if (!ret && (!keys->list || !keys->n || keys->n > KVARC_KEYS_MAX))
		wrong = "keys are 1 to 64";
	for (size_t i = 0; !ret && !wrong && i < keys->n; i++) {
		ret = KVI_CHECK_RESERVED(e, call, "kvarc_key", &keys->list[i]);
		wrong = ret ? NULL : wrong_key(&keys->list[i], writes);
	}
	if (wrong)
		return kvi_fail(e, KVARC_PROG, "%s: %s", call, wrong);
	if (!ret && !kvi_aead_ready())
		return kvi_fail(e, KVARC_OPTIONS, "%s: encryption needs " SODIUM_MISSING, call);
	return ret;
}

static kvarc_ret crypt_make(struct kvi_crypt **c, const struct kvi_alloc *alloc,
                            const uint8_t file_id[16], kvarc_error *e)
{
	*c = kvi_calloc(alloc, 1, sizeof **c);
	if (!*c)
		return kvi_fail_alloc(e, alloc);
	(*c)->alloc = alloc;
	memcpy((*c)->file_id, file_id, sizeof(*c)->file_id);
	return KVARC_OK;
}

kvarc_ret kvi_crypt_open(struct kvi_crypt **c, const struct kvi_alloc *alloc,
                         const uint8_t file_id[16], const kvarc_keys *keys, kvarc_error *e)
{
	kvarc_ret ret = crypt_make(c, alloc, file_id, e);
	if (!ret && keys)
		(*c)->keys = *keys;
	return ret;
}

kvarc_ret kvi_crypt_open_known(struct kvi_crypt **c, const struct kvi_alloc *alloc,
                               const struct kvi_crypt *known, kvarc_error *e)
{
	kvarc_ret ret = crypt_make(c, alloc, known->file_id, e);
	if (ret)
		return ret;
	memcpy((*c)->file_key, known->file_key, sizeof known->file_key);
	memcpy((*c)->domain, known->domain, sizeof known->domain);
	(*c)->known = known->known;
	return KVARC_OK;
}

void kvi_crypt_close(struct kvi_crypt **c)
{
	if (!*c)
		return;
	const struct kvi_alloc *alloc = (*c)->alloc;
	kvi_aead_wipe(*c, sizeof **c);
	kvi_free(alloc, *c);
	*c = NULL;
}

static uint64_t work_of(const uint8_t *payload)
{
	const uint64_t work = (uint64_t)kvi_load32(payload + KEY_PASSES) *
	                      kvi_load32(payload + KEY_MEMORY);
	return work < WORK_MIN ? WORK_MIN : work;
}

/* The key of a passphrase; its memory is compared with what the limit still allows. */
static kvarc_ret derive(const struct kvi_crypt *c, uint8_t outer[KVI_AEAD_KEY_BYTES],
                        const kvarc_key *k, const uint8_t *salt, uint32_t passes, uint32_t memory,
                        kvarc_error *e)
{
	const struct kvi_alloc *alloc = c->alloc->counted;
	const uint64_t bytes = (uint64_t)memory << 10, used = atomic_load(&alloc->used);
	if (bytes > alloc->limit || used > alloc->limit - bytes) {
		kvarc_ret ret = kvi_fail(e, KVARC_MEMLIMIT,
		                         "the passphrase of the archive needs %llu MiB of memory, "
		                         "which is more than the limit allows; raise it",
		                         (unsigned long long)((bytes + (1 << 20) - 1) >> 20));
		if (e)
			e->bytes_needed = used + bytes;
		return ret;
	}
	if (kvi_aead_derive(outer, k->bytes, k->n, salt, passes, memory))
		return kvi_fail(e, KVARC_MEM, "out of memory for a passphrase");
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

/* What the key, or the passphrase, is in this file. */
static kvarc_ret outer_key(const struct kvi_crypt *c, uint8_t outer[KVI_AEAD_KEY_BYTES],
                           const kvarc_key *k, const uint8_t *payload, kvarc_error *e)
{
	if (k->kind == KVARC_KEY_PASSPHRASE)
		return derive(c, outer, k, payload + KEY_SALT, kvi_load32(payload + KEY_PASSES),
		              kvi_load32(payload + KEY_MEMORY), e);
	memcpy(outer, (const uint8_t *)k->bytes + (k->kind == KVARC_KEY_DERIVED ? SALT : 0),
	       KVI_AEAD_KEY_BYTES);
	return KVARC_OK;
}

static kvarc_ret key_payload(const struct kvi_crypt *c, uint8_t *p, const kvarc_key *k,
                             kvarc_error *e)
{
	uint8_t outer[KVI_AEAD_KEY_BYTES], ad[KEY_AD];
	memset(p, 0, KVI_KEY_PAYLOAD_BYTES);
	p[0] = k->kind == KVARC_KEY_GIVEN ? KVARC_KEY_GIVEN : KVARC_KEY_PASSPHRASE;
	if (p[0] == KVARC_KEY_PASSPHRASE) {
		kvi_store32(p + KEY_PASSES, k->passes ? k->passes : KVI_PASSES_DEFAULT);
		kvi_store32(p + KEY_MEMORY, k->memory_kib ? k->memory_kib : KVI_MEMORY_DEFAULT);
		kvi_aead_random(p + KEY_SALT, SALT);
	}
	if (k->kind == KVARC_KEY_DERIVED)
		memcpy(p + KEY_SALT, k->bytes, SALT);
	kvarc_ret ret = outer_key(c, outer, k, p, e);
	if (ret)
		return ret;
	memcpy(p + KEY_FILE_ID, c->file_id, sizeof c->file_id);
	make_key_id(p + KEY_ID, c->file_id, outer);
	kvi_aead_random(p + KEY_NONCE, KVI_AEAD_NONCE_BYTES);
	file_key_ad(ad, p);
	kvi_aead_seal(p + KEY_SEALED, c->file_key, sizeof c->file_key, ad, sizeof ad, p + KEY_NONCE,
	              outer);
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

kvarc_ret kvi_crypt_new(struct kvi_crypt **c, const struct kvi_alloc *alloc,
                        const uint8_t file_id[16], const kvarc_keys *keys, kvarc_error *e)
{
	*c = NULL;
	if (work_of_keys(keys) > WORK_MAX)
		return kvi_fail(e, KVARC_PROG,
		                "the passphrases of a file ask for more than 4 GiB x passes "
		                "together, which no reader does: use keys for some of them");
	kvarc_ret ret = crypt_make(c, alloc, file_id, e);
	if (ret)
		return ret;
	kvi_aead_random((*c)->file_key, sizeof(*c)->file_key);
	(*c)->known = true;
	for (size_t i = 0; i < keys->n && !ret; i++)
		ret = key_payload(*c, (*c)->payloads[(*c)->n_payloads++], &keys->list[i], e);
	if (ret)
		kvi_crypt_close(c);
	return ret;
}

static kvarc_ret bad(const struct kvi_frame *f, kvarc_error *e, const char *what)
{
	return kvi_reason(e, KVARC_REASON_SALVAGE,
	                  kvi_fail_at(e, KVARC_DATA, f->offset, f->head.sequence,
	                              "%s frame %llu at offset %llu is not valid: %s",
	                              kvi_frame_name(f->head.type),
	                              (unsigned long long)f->head.sequence,
	                              (unsigned long long)f->offset, what));
}

/* Rules R12.4 and R12.5; NULL: all is well. Only for kinds 1 and 2. */
static const char *wrong_payload(const struct kvi_crypt *c, const struct kvi_frame *f)
{
	const uint8_t *p = f->payload;
	if (f->head.payload_bytes != KVI_KEY_PAYLOAD_BYTES)
		return "its size";
	const uint32_t passes = kvi_load32(p + KEY_PASSES), memory = kvi_load32(p + KEY_MEMORY);
	if (p[0] == KVARC_KEY_GIVEN ? !kvi_all_zero(p + 1, KEY_FILE_ID - 1)
	                            : !kvi_all_zero(p + 1, KEY_PASSES - 1))
		return "its reserved fields";
	if (p[0] == KVARC_KEY_PASSPHRASE &&
	    (passes < 1 || passes > PASSES_MAX || memory < MEMORY_MIN || memory > MEMORY_MAX))
		return "its passes or its memory";
	return memcmp(p + KEY_FILE_ID, c->file_id, sizeof c->file_id) ? "its file id" : NULL;
}

/* Whether a key is of the kind of a KEY frame. A passphrase need not be derived for a salt for
 * which the caller has done it. */
static bool may_fit(const struct kvi_crypt *c, const kvarc_key *k, const uint8_t *p)
{
	if (k->kind == KVARC_KEY_DERIVED)
		return p[0] == KVARC_KEY_PASSPHRASE && memcmp(k->bytes, p + KEY_SALT, SALT) == 0;
	for (size_t i = 0; k->kind == KVARC_KEY_PASSPHRASE && i < c->keys.n; i++)
		if (c->keys.list[i].kind == KVARC_KEY_DERIVED &&
		    memcmp(c->keys.list[i].bytes, p + KEY_SALT, SALT) == 0)
			return false;
	return k->kind == p[0];
}

/* Whether one of the keys is that of a KEY frame, and the file key if it is (rule R12.6). */
static kvarc_ret try_key(struct kvi_crypt *c, const kvarc_key *k, const struct kvi_frame *f,
                         kvarc_error *e)
{
	const uint8_t *p = f->payload;
	uint8_t outer[KVI_AEAD_KEY_BYTES], id[32], ad[KEY_AD];
	uint8_t sealed[KVI_AEAD_KEY_BYTES + KVI_AEAD_TAG_BYTES];
	if (!may_fit(c, k, p))
		return KVARC_OK;
	if (k->kind == KVARC_KEY_PASSPHRASE) {
		if (work_of(p) > WORK_MAX - c->work) {
			c->too_much = true;
			return KVARC_OK;
		}
		c->work += work_of(p);
	}
	kvarc_ret ret = outer_key(c, outer, k, p, e);
	if (ret)
		return ret;
	make_key_id(id, c->file_id, outer);
	if (kvi_aead_equal(id, p + KEY_ID, sizeof id)) {
		memcpy(sealed, p + KEY_SEALED, sizeof sealed);
		file_key_ad(ad, p);
		c->known = kvi_aead_open(sealed, KVI_AEAD_KEY_BYTES, ad, sizeof ad, p + KEY_NONCE,
		                         outer);
		if (c->known) {
			memcpy(c->file_key, sealed, sizeof c->file_key);
			kvi_crypt_domain(c->domain, outer);
		} else {
			ret = bad(f, e, "the file key in it was changed");
		}
	}
	kvi_aead_wipe(outer, sizeof outer);
	kvi_aead_wipe(sealed, sizeof sealed);
	return ret;
}

static kvarc_ret key_frame(struct kvi_crypt *c, const struct kvi_frame *f, kvarc_error *e)
{
	if (f->head.decoded_bytes != f->head.payload_bytes || f->head.flags)
		return bad(f, e, "its flags or sizes");
	const bool given = f->head.payload_bytes && f->payload[0] == KVARC_KEY_GIVEN;
	const bool phrase = f->head.payload_bytes && f->payload[0] == KVARC_KEY_PASSPHRASE;
	const char *wrong = given || phrase ? wrong_payload(c, f) : NULL;
	if (wrong)
		return bad(f, e, wrong);
	if (c->first)
		return KVARC_OK;
	c->any_key = true;
	if (!given && !phrase)
		return KVARC_OK;
	if (c->n_payloads < KVARC_KEYS_MAX)
		memcpy(c->payloads[c->n_payloads++], f->payload, KVI_KEY_PAYLOAD_BYTES);
	kvarc_ret ret = KVARC_OK;
	for (size_t i = 0; i < c->keys.n && !c->known && !ret; i++)
		ret = try_key(c, &c->keys.list[i], f, e);
	return ret;
}

/* Before the first ENCRYPTED frame is opened. */
static kvarc_ret unlock(struct kvi_crypt *c, const struct kvi_frame *f, kvarc_error *e)
{
	if (!c->known && !c->any_key)
		return bad(f, e, "there is no KEY frame before it");
	if (!c->known)
		return kvi_fail(
			e, KVARC_AUTH, "the archive is encrypted, and %s",
			!c->keys.n    ? "no key was given"
			: c->too_much ? "its KEY frames ask for more work with a passphrase than a "
					"reader does for a file (4 GiB x passes)"
				      : "no key or passphrase that was given opens it");
	c->first = f->offset;
	c->keys = (kvarc_keys){ 0 };
	return KVARC_OK;
}

static void frame_ad(uint8_t ad[FRAME_AD], const struct kvi_crypt *c, const uint8_t *head,
                     uint64_t offset, const uint8_t *payload)
{
	memcpy(ad, "kvarc encrypted ", LABEL);
	memcpy(ad + 16, c->file_id, 16);
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

static kvarc_ret open_frame(struct kvi_crypt *c, struct kvi_frame *f, const uint8_t *head,
                            uint8_t *p, kvarc_error *e)
{
	uint8_t ad[FRAME_AD];
	if (f->head.flags != KVI_FRAME_CRITICAL || f->head.payload_bytes < KVI_CRYPT_BYTES)
		return bad(f, e, "its flags or size");
	const uint16_t type = kvi_load16(p), flags = kvi_load16(p + 2);
	if (!may_be_inside(type) || flags & ~KVI_FRAME_CRITICAL || kvi_load32(p + 4))
		return bad(f, e, "the type or flags of the frame inside");
	kvarc_ret ret = c->first ? KVARC_OK : unlock(c, f, e);
	if (ret)
		return ret;
	const uint32_t n = f->head.payload_bytes - KVI_CRYPT_BYTES;
	frame_ad(ad, c, head, f->offset, p);
	if (!kvi_aead_open(p + KVI_CRYPT_HEAD_BYTES, n, ad, sizeof ad, p + 8, c->file_key))
		return bad(f, e, "its tag is wrong, so that it was changed or is another's");
	f->head.type = type;
	f->head.flags = flags;
	f->head.payload_bytes = n;
	f->payload = p + KVI_CRYPT_HEAD_BYTES;
	return KVARC_OK;
}

kvarc_ret kvi_crypt_frame(struct kvi_crypt *c, struct kvi_frame *f, const uint8_t *head,
                          uint8_t *text, kvarc_error *e)
{
	const uint16_t type = f->head.type;
	f->of_encrypted = true;
	if (type == KVI_FRAME_ENCRYPTED)
		return open_frame(c, f, head, text, e);
	if (type == KVI_FRAME_KEY)
		return key_frame(c, f, e);
	/* Rule R12.2. */
	if (type < KVI_FRAME_PARITY ? type != KVI_FRAME_FOOTER : type == KVI_FRAME_STOREREF)
		return bad(f, e, "it is not encrypted, in a file whose frames are");
	return KVARC_OK;
}

void kvi_crypt_seal(const struct kvi_crypt *c, uint8_t *out, const struct kvi_frame_head *h,
                    uint64_t sync, uint64_t offset, const uint8_t *payload)
{
	struct kvi_frame_head outer = *h;
	uint8_t ad[FRAME_AD], *p = out + KVI_FRAME_HEAD_BYTES;
	outer.type = KVI_FRAME_ENCRYPTED;
	outer.flags = KVI_FRAME_CRITICAL;
	outer.payload_bytes = h->payload_bytes + KVI_CRYPT_BYTES;
	kvi_frame_head_write(out, &outer, sync, offset);
	kvi_store16(p, h->type);
	kvi_store16(p + 2, h->flags);
	kvi_store32(p + 4, 0);
	kvi_aead_random(p + 8, KVI_AEAD_NONCE_BYTES);
	frame_ad(ad, c, out, offset, p);
	kvi_aead_seal(p + KVI_CRYPT_HEAD_BYTES, payload, h->payload_bytes, ad, sizeof ad, p + 8,
	              c->file_key);
	kvi_frame_close(out, offset, outer.payload_bytes);
}
