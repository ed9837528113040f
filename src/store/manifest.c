/* SPDX-License-Identifier: BSD-3-Clause */
/* manifest.c - the text that a store keeps for each version of a session */
#include "manifest.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "util/hash.h"

#define FIRST "kvarc-session="
#define CHECK "check="
enum { CHECK_BYTES = sizeof CHECK - 1 + 32 + 1 };

/* ----- out ------------------------------------------------ */

static size_t put_value(char *to, const char *key, const char *value)
{
	size_t n = (size_t)sprintf(to, "%s=", key);
	for (; *value; value++)
		if ((unsigned char)*value < 0x20 || *value == 0x7f || *value == '%')
			n += (size_t)sprintf(to + n, "%%%02X", (unsigned)(unsigned char)*value);
		else
			to[n++] = *value;
	to[n++] = '\n';
	return n;
}

void kvi_manifest_digest(uint8_t digest[16], const char *text, size_t n)
{
	kvi_store_h128(digest, kvi_h128(text, n));
}

static void put_check(char hex[33], const char *text, size_t n)
{
	uint8_t sum[16];
	kvi_manifest_digest(sum, text, n);
	kvi_hex(hex, sum);
}

/* "needs=" and the ids, a comma between two. */
static size_t put_needs(char *to, const struct kvi_needs *needs)
{
	char hex[33];
	size_t n = (size_t)sprintf(to, "needs=");
	for (uint32_t i = 0; i < needs->n; i++) {
		kvi_hex(hex, needs->others[i]);
		n += (size_t)sprintf(to + n, "%s%s", i ? "," : "", hex);
	}
	to[n++] = '\n';
	return n;
}

size_t kvi_manifest_write(char text[KVI_MANIFEST_MAX], const struct kvi_manifest *manifest)
{
	char hex[33];
	kvi_hex(hex, manifest->needs.pack);
	size_t n = (size_t)sprintf(
		text, FIRST "1\npack=%s\ntokens=%" PRIu64 "\ntime=%" PRIu64 "\nbytes=%" PRIu64 "\n",
		hex, manifest->tokens, manifest->time, manifest->bytes);
	if (manifest->pack_bytes)
		n += (size_t)sprintf(text + n, "pack-bytes=%" PRIu64 "\n", manifest->pack_bytes);
	if (manifest->has_chain) {
		kvi_hex(hex, manifest->chain);
		n += put_value(text + n, "chain", hex);
	}
	if (manifest->mode)
		n += (size_t)sprintf(text + n, "mode=%" PRIu64 "\n", manifest->mode);
	if (*manifest->label)
		n += put_value(text + n, "label", manifest->label);
	if (*manifest->parent) {
		n += put_value(text + n, "parent", manifest->parent);
		n += (size_t)sprintf(text + n, "parent-version=%" PRIu64 "\n",
		                     manifest->parent_number);
	}
	if (manifest->needs.encrypted)
		n += put_needs(text + n, &manifest->needs);
	put_check(hex, text, n);
	return n + (size_t)sprintf(text + n, CHECK "%s\n", hex);
}

/* ----- in ------------------------------------------------ */

/* The value of a line, up to `end`. */
struct value {
	const char *p, *end;
};

static bool get_text(char *to, size_t capacity, struct value value)
{
	size_t n = 0;
	while (value.p < value.end) {
		char c = *value.p++;
		if (c == '%') {
			static const char hex[] = "0123456789ABCDEF";
			const char *high = value.end - value.p >= 2 && *value.p
			                           ? strchr(hex, value.p[0])
			                           : NULL;
			const char *low = high && value.p[1] ? strchr(hex, value.p[1]) : NULL;
			if (!low || (high == hex && low == hex))
				return false;
			c = (char)((high - hex) << 4 | (low - hex));
			value.p += 2;
		}
		if (n + 1 >= capacity || c == 0)
			return false;
		to[n++] = c;
	}
	to[n] = 0;
	return true;
}

static bool get_number(uint64_t *n, struct value value)
{
	char text[24];
	const char *end;
	return get_text(text, sizeof text, value) && kvi_decimal(text, &end, n) && !*end;
}

static bool get_id(uint8_t id[16], struct value value)
{
	return value.end - value.p == 32 && kvi_unhex(id, value.p);
}

/* Lines that were there. */
enum {
	HAS_PACK = 1,
	HAS_TOKENS = 2,
	HAS_TIME = 4,
	HAS_BYTES = 8,
	HAS_CHAIN = 16,
	HAS_LABEL = 32,
	HAS_PARENT = 64,
	HAS_NUMBER = 128,
	HAS_NEEDS = 256,
	HAS_PACK_BYTES = 512,
	HAS_MODE = 1024,
	NEEDED = 15
};

static bool get_needs(struct kvi_needs *needs, struct value value)
{
	needs->encrypted = true;
	while (value.p < value.end) {
		const struct value id = { value.p, value.p + 32 };
		if (needs->n == KVI_NEEDS_MAX || value.end - value.p < 32 ||
		    !get_id(needs->others[needs->n++], id))
			return false;
		value.p += 32;
		if (value.p < value.end && (*value.p++ != ',' || value.p == value.end))
			return false;
	}
	return true;
}

static bool is_key(const char *line, size_t n, const char *key)
{
	return strlen(key) == n && memcmp(line, key, n) == 0;
}

/* Returns which line it was, 0: another one, -1: not valid. */
static int get_line(struct kvi_manifest *manifest, const char *key, size_t n, struct value value)
{
	int bit = 0;
	bool good = true;
	if (is_key(key, n, "pack"))
		bit = HAS_PACK, good = get_id(manifest->needs.pack, value);
	else if (is_key(key, n, "tokens"))
		bit = HAS_TOKENS, good = get_number(&manifest->tokens, value);
	else if (is_key(key, n, "time"))
		bit = HAS_TIME, good = get_number(&manifest->time, value);
	else if (is_key(key, n, "bytes"))
		bit = HAS_BYTES, good = get_number(&manifest->bytes, value);
	else if (is_key(key, n, "chain"))
		bit = HAS_CHAIN, good = get_id(manifest->chain, value);
	else if (is_key(key, n, "mode"))
		bit = HAS_MODE, good = get_number(&manifest->mode, value) && manifest->mode <= 0777;
	else if (is_key(key, n, "label"))
		bit = HAS_LABEL, good = get_text(manifest->label, sizeof manifest->label, value);
	else if (is_key(key, n, "parent"))
		bit = HAS_PARENT,
		good = get_text(manifest->parent, sizeof manifest->parent, value) &&
		       !kvi_session_wrong(manifest->parent);
	else if (is_key(key, n, "parent-version"))
		bit = HAS_NUMBER, good = get_number(&manifest->parent_number, value);
	else if (is_key(key, n, "pack-bytes"))
		bit = HAS_PACK_BYTES, good = get_number(&manifest->pack_bytes, value);
	else if (is_key(key, n, "needs"))
		bit = HAS_NEEDS, good = get_needs(&manifest->needs, value);
	return good ? bit : -1;
}

static kvarc_ret get_lines(struct kvi_manifest *manifest, const char *p, const char *end)
{
	int seen = 0;
	while (p < end) {
		const char *stop = memchr(p, '\n', (size_t)(end - p));
		const char *equals = stop ? memchr(p, '=', (size_t)(stop - p)) : NULL;
		if (!equals)
			return KVARC_DATA;
		int bit = get_line(manifest, p, (size_t)(equals - p),
		                   (struct value){ equals + 1, stop });
		if (bit < 0 || (seen & bit))
			return KVARC_DATA;
		seen |= bit;
		p = stop + 1;
	}
	manifest->has_chain = seen & HAS_CHAIN;
	if ((seen & NEEDED) != NEEDED || !(seen & HAS_PARENT) != !(seen & HAS_NUMBER))
		return KVARC_DATA;
	return KVARC_OK;
}

kvarc_ret kvi_manifest_parse(struct kvi_manifest *manifest, const char *text, size_t bytes)
{
	char hex[33];
	memset(manifest, 0, sizeof *manifest);
	kvi_manifest_digest(manifest->digest, text, bytes);
	if (bytes < sizeof FIRST + CHECK_BYTES || bytes > KVI_MANIFEST_MAX)
		return KVARC_DATA;
	const char *end = text + bytes - CHECK_BYTES;
	put_check(hex, text, (size_t)(end - text));
	if (end[-1] != '\n' || memcmp(end, CHECK, sizeof CHECK - 1) != 0 ||
	    memcmp(end + sizeof CHECK - 1, hex, 32) != 0 || text[bytes - 1] != '\n' ||
	    memcmp(text, FIRST, sizeof FIRST - 1) != 0)
		return KVARC_DATA;
	text += sizeof FIRST - 1;
	if (end - text < 2 || text[0] != '1' || text[1] != '\n')
		return KVARC_OPTIONS;
	return get_lines(manifest, text + 2, end);
}
