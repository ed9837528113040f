/* SPDX-License-Identifier: BSD-3-Clause */
/* session_names.c - names of sessions, and the keys that their manifests have in a store */
#include "config.h"

#include "session_names.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "util/bytes.h"

/* A component of a key; file systems have names of 255 bytes. */
enum { COMPONENT_MAX = 240 };
#define PLAIN "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-."
/* Prefix of the number of a mark: no component of a name has it. */
#define MARK "="
#define DIGITS "0123456789"

/* ----- what names may be ------------------------------------------------ */

static const char *component_wrong(const char *p, size_t n)
{
	if (n == 0)
		return "has an empty component";
	if (p[0] == '.' && (n == 1 || (n == 2 && p[1] == '.')))
		return "has a component . or ..";
	return NULL;
}

static bool has_control(const char *p)
{
	for (; *p; p++)
		if ((unsigned char)*p < 0x20 || *p == 0x7f)
			return true;
	return false;
}

/* "...@12" would be read as a version. */
static bool ends_as_version(const char *name)
{
	const char *at = strrchr(name, '@');
	return at && at[1] && at[1 + strspn(at + 1, DIGITS)] == 0;
}

const char *kvi_session_wrong(const char *name)
{
	const char *wrong = NULL;
	if (!name || !*name)
		return "is empty";
	if (strnlen(name, KVI_SESSION_MAX + 1) > KVI_SESSION_MAX)
		return "is longer than 200 bytes";
	if (has_control(name))
		return "has a control character";
	if (name[0] == '-')
		return "begins with -";
	if (ends_as_version(name))
		return "ends with @ and a number";
	for (const char *p = name; p && !wrong;) {
		const char *slash = strchr(p, '/');
		wrong = component_wrong(p, slash ? (size_t)(slash - p) : strlen(p));
		p = slash ? slash + 1 : NULL;
	}
	char key[KVI_KEY_MAX + 1];
	if (!wrong && !kvi_version_key(key, "", name, KVI_NUMBER_MAX))
		wrong = "is too long, as bytes other than letters and digits count three times";
	return wrong;
}

const char *kvi_namespace_wrong(const char *name)
{
	if (!name || !*name)
		return "is empty";
	if (strnlen(name, KVI_NAMESPACE_MAX + 1) > KVI_NAMESPACE_MAX)
		return "is longer than 64 bytes";
	return has_control(name) ? "has a control character" : NULL;
}

/* ----- keys ------------------------------------------------ */

struct key_text {
	char *p;
	size_t n;
	bool full;
};

static void put(struct key_text *text, char c)
{
	if (text->n == KVI_KEY_MAX)
		text->full = true;
	else
		text->p[text->n++] = c;
}

static void put_escaped(struct key_text *text, char c)
{
	static const char hex[] = "0123456789ABCDEF";
	put(text, '%');
	put(text, hex[(unsigned char)c >> 4]);
	put(text, hex[(unsigned char)c & 15]);
}

/* A component, or with `slashes` a namespace, whose slashes are bytes like others. */
static void put_component(struct key_text *text, const char *p, size_t n)
{
	const size_t from = text->n;
	const bool number = strspn(p, DIGITS) >= n;
	for (size_t i = 0; i < n; i++)
		if (!strchr(PLAIN, p[i]) || (i == 0 && (p[i] == '.' || number)))
			put_escaped(text, p[i]);
		else
			put(text, p[i]);
	if (text->n - from > COMPONENT_MAX)
		text->full = true;
}

static void put_text(struct key_text *key_text, const char *text)
{
	for (; *text; text++)
		put(key_text, *text);
}

static void put_name(struct key_text *text, const char *name)
{
	while (*name) {
		const char *slash = strchr(name, '/');
		size_t n = slash ? (size_t)(slash - name) : strlen(name);
		put_component(text, name, n);
		put(text, '/');
		name += n + (slash != NULL);
	}
}

static void put_prefix(struct key_text *text, const char *name_space, const char *name)
{
	put_text(text, KVI_SESSIONS);
	if (*name_space && strcmp(name_space, KVI_NAMESPACE_DEFAULT) != 0) {
		put(text, '=');
		put_component(text, name_space, strlen(name_space));
		put(text, '/');
	}
	put_name(text, name);
}

bool kvi_session_prefix(char key[KVI_KEY_MAX + 1], const char *name_space, const char *name)
{
	struct key_text k = { .p = key };
	put_prefix(&k, name_space, name);
	key[k.n] = 0;
	return !k.full;
}

/* before: what stands before the number. */
static bool numbered_key(char key[KVI_KEY_MAX + 1], const char *name_space, const char *name,
                         const char *before, uint64_t number)
{
	struct key_text k = { .p = key };
	char text[24];
	snprintf(text, sizeof text, "%s%" PRIu64, before, number);
	put_prefix(&k, name_space, name);
	put_text(&k, text);
	key[k.n] = 0;
	return !k.full;
}

bool kvi_version_key(char key[KVI_KEY_MAX + 1], const char *name_space, const char *name,
                     uint64_t number)
{
	return numbered_key(key, name_space, name, "", number);
}

bool kvi_mark_key(char key[KVI_KEY_MAX + 1], const struct kvi_session_key *session_key)
{
	return numbered_key(key, session_key->name_space, session_key->name, MARK,
	                    session_key->number);
}

/* ----- and back ------------------------------------------------ */

static int hex_value(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return -1;
}

/* Bytes of `from` up to `end`, with their escapes resolved. */
static bool unescape(char *to, size_t capacity, const char *from, const char *end)
{
	size_t n = 0;
	while (from < end) {
		char c = *from++;
		if (c == '%') {
			int high = end - from >= 2 ? hex_value(from[0]) : -1;
			int low = high >= 0 ? hex_value(from[1]) : -1;
			if (low < 0 || high + low == 0)
				return false;
			c = (char)(high << 4 | low);
			from += 2;
		}
		if (n + 1 >= capacity)
			return false;
		to[n++] = c;
	}
	to[n] = 0;
	return n > 0;
}

/* before: what must stand before the number. */
static bool parse_numbered(struct kvi_session_key *session_key, const char *key, const char *before)
{
	const char *p = key, *end, *slash = strrchr(key, '/');
	char again[KVI_KEY_MAX + 1];
	strcpy(session_key->name_space, KVI_NAMESPACE_DEFAULT);
	session_key->touched = 0;
	if (strncmp(p, KVI_SESSIONS, strlen(KVI_SESSIONS)) != 0 || !slash)
		return false;
	p += strlen(KVI_SESSIONS);
	if (strncmp(slash + 1, before, strlen(before)) != 0 ||
	    !kvi_decimal(slash + 1 + strlen(before), &end, &session_key->number) || *end ||
	    session_key->number == 0)
		return false;
	if (*p == '=') {
		const char *next = strchr(p, '/');
		if (!unescape(session_key->name_space, sizeof session_key->name_space, p + 1, next))
			return false;
		p = next + 1;
	}
	if (p >= slash || !unescape(session_key->name, sizeof session_key->name, p, slash) ||
	    kvi_session_wrong(session_key->name))
		return false;
	/* A version has one key: one that is written differently is not ours. */
	return numbered_key(again, session_key->name_space, session_key->name, before,
	                    session_key->number) &&
	       strcmp(again, key) == 0;
}

bool kvi_session_key_parse(struct kvi_session_key *session_key, const char *key)
{
	return parse_numbered(session_key, key, "");
}

bool kvi_mark_key_parse(struct kvi_session_key *session_key, const char *key)
{
	return parse_numbered(session_key, key, MARK);
}

bool kvi_decimal(const char *text, const char **end, uint64_t *n)
{
	const size_t digits = strspn(text, DIGITS);
	*n = 0;
	*end = text + digits;
	if (digits == 0 || digits > 16 || (text[0] == '0' && digits > 1))
		return false;
	for (size_t i = 0; i < digits; i++)
		*n = *n * 10 + (uint64_t)(text[i] - '0');
	return *n <= KVI_NUMBER_MAX;
}

/* ----- packs ------------------------------------------------ */

void kvi_hex(char out[33], const uint8_t id[16])
{
	static const char hex[] = "0123456789abcdef";
	for (int i = 0; i < 16; i++) {
		out[2 * i] = hex[id[i] >> 4];
		out[2 * i + 1] = hex[id[i] & 15];
	}
	out[32] = 0;
}

bool kvi_unhex(uint8_t id[16], const char *text)
{
	static const char hex[] = "0123456789abcdef";
	for (int i = 0; i < 32; i++) {
		const char *at = text[i] ? strchr(hex, text[i]) : NULL;
		if (!at)
			return false;
		id[i / 2] = (uint8_t)(i % 2 ? id[i / 2] | (at - hex) : (at - hex) << 4);
	}
	return true;
}

void kvi_pack_key(char key[KVI_PACK_KEY], const uint8_t id[16])
{
	char hex[33];
	kvi_hex(hex, id);
	snprintf(key, KVI_PACK_KEY, KVI_PACKS "%.2s/%s.kva", hex, hex);
}

void kvi_retired_key(char key[KVI_PACK_KEY], const uint8_t id[16])
{
	char hex[33];
	kvi_hex(hex, id);
	snprintf(key, KVI_PACK_KEY, KVI_RETIRED "%s", hex);
}

bool kvi_pack_key_parse(uint8_t id[16], const char *key)
{
	char again[KVI_PACK_KEY];
	const size_t at = strlen(KVI_PACKS) + 3;
	if (strlen(key) <= at || !kvi_unhex(id, key + at))
		return false;
	kvi_pack_key(again, id);
	return strcmp(again, key) == 0;
}

bool kvi_retired_key_parse(uint8_t id[16], const char *key)
{
	char again[KVI_PACK_KEY];
	const size_t at = strlen(KVI_RETIRED);
	if (strlen(key) <= at || !kvi_unhex(id, key + at))
		return false;
	kvi_retired_key(again, id);
	return strcmp(again, key) == 0;
}

/* ----- blocks ------------------------------------------------ */

bool kvi_block_key(char key[KVI_BLOCK_KEY], const char *name)
{
	if (strlen(name) != KVI_BLOCK_NAME || strspn(name, "0123456789abcdef") != KVI_BLOCK_NAME)
		return false;
	snprintf(key, KVI_BLOCK_KEY, KVI_BLOCKS "%.2s/%s.kva", name, name);
	return true;
}

bool kvi_block_key_parse(char name[KVI_BLOCK_NAME + 1], const char *key)
{
	char again[KVI_BLOCK_KEY];
	const size_t at = strlen(KVI_BLOCKS) + 3;
	if (strlen(key) < at + KVI_BLOCK_NAME)
		return false;
	memcpy(name, key + at, KVI_BLOCK_NAME);
	name[KVI_BLOCK_NAME] = 0;
	return kvi_block_key(again, name) && strcmp(again, key) == 0;
}
