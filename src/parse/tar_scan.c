/* SPDX-License-Identifier: BSD-3-Clause */
/* tar_scan.c - where the members of a tar file lie (POSIX.1-2017 pax, GNU tar) */
#include "config.h"

#include <string.h>

#include "members.h"
#include "scan.h"
#include "util/ckd.h"

enum {
	BLOCK = 512,
	PAX_MAX = 1 << 20,
	NAME_AT = 0,
	SIZE_AT = 124,
	CHECK_AT = 148,
	TYPE_AT = 156,
	MAGIC_AT = 257,
	PREFIX_AT = 345,
	GNU_EXTENDED_AT = 482,
	EXTENDED_AT = 504,
	NAME_BYTES = 100,
	SIZE_BYTES = 12,
	CHECK_BYTES = 8,
	PREFIX_BYTES = 155
};

struct tar {
	struct kvi_scan *s;
	const struct kvi_alloc *alloc;
	kvi_member_found found;
	void *opaque;
	uint8_t block[BLOCK];
	uint64_t block_at;
	/* state of the headers before the next member */
	bool has_name, long_name, has_size, sparse;
	uint64_t size;
	char name[KVI_MEMBER_NAME_MAX + 1];
};

static void forget_headers(struct tar *tar)
{
	tar->has_name = tar->long_name = tar->has_size = tar->sparse = false;
	tar->name[0] = '\0';
}

/* Octal digits between spaces, up to a 0 or the end; GNU: base 256 behind 0x80. */
static bool take_number(const uint8_t *p, size_t n, uint64_t *v)
{
	*v = 0;
	if (*p == 0x80) {
		for (size_t i = 1; i < n; i++) {
			if (*v >> 56)
				return false;
			*v = *v << 8 | p[i];
		}
		return true;
	}
	while (n && *p == ' ')
		p++, n--;
	for (; n && *p >= '0' && *p <= '7'; p++, n--) {
		if (*v >> 61)
			return false;
		*v = *v << 3 | (uint64_t)(*p - '0');
	}
	return n == 0 || *p == ' ' || *p == '\0';
}

static bool is_zero(const uint8_t *block)
{
	for (size_t i = 0; i < BLOCK; i++)
		if (block[i])
			return false;
	return true;
}

/* The sum of a header's bytes, with spaces for the sum itself. */
static bool has_check(const uint8_t *block)
{
	uint64_t sum = 0, stored;
	for (size_t i = 0; i < BLOCK; i++)
		sum += i - CHECK_AT < CHECK_BYTES ? ' ' : block[i];
	return take_number(block + CHECK_AT, CHECK_BYTES, &stored) && stored == sum;
}

/* A name of n bytes from an extended header. */
static void set_name(struct tar *tar, const char *name, size_t n)
{
	tar->long_name = true;
	tar->has_name = n <= KVI_MEMBER_NAME_MAX && !memchr(name, '\0', n);
	if (tar->has_name) {
		memcpy(tar->name, name, n);
		tar->name[n] = '\0';
	}
}

static bool take_decimal(const char *p, size_t n, uint64_t *v)
{
	*v = 0;
	for (size_t i = 0; i < n; i++)
		if (p[i] < '0' || p[i] > '9' || kvi_mul(*v, (uint64_t)10, v) ||
		    kvi_add(*v, (uint64_t)(p[i] - '0'), v))
			return false;
	return n > 0;
}

/* key=value of a pax record. False: not valid. */
static bool take_pair(struct tar *tar, const char *p, size_t n)
{
	const char *equals = memchr(p, '=', n);
	if (!equals)
		return false;
	size_t key = (size_t)(equals - p), value = n - key - 1;
	if (key == 4 && !memcmp(p, "path", 4)) {
		set_name(tar, equals + 1, value);
	} else if (key == 4 && !memcmp(p, "size", 4)) {
		tar->has_size = true;
		return take_decimal(equals + 1, value, &tar->size);
	} else if (key > 11 && !memcmp(p, "GNU.sparse.", 11)) {
		tar->sparse = true;
	}
	return true;
}

/* Records "LENGTH key=value\n"; the length counts all of that. */
static bool take_pax(struct tar *tar, const char *p, size_t n)
{
	while (n) {
		uint64_t length;
		const char *space = memchr(p, ' ', n < 8 ? n : 8);
		if (!space || !take_decimal(p, (size_t)(space - p), &length))
			return false;
		size_t head = (size_t)(space - p) + 1;
		if (length > n || length < head + 2 || p[length - 1] != '\n' ||
		    !take_pair(tar, space + 1, (size_t)length - head - 1))
			return false;
		p += length;
		n -= (size_t)length;
	}
	return true;
}

/* An extended header in front of a member: pax records, or a long name of GNU. */
static kvarc_ret take_extended(struct tar *tar, uint8_t type, uint64_t size)
{
	if (size > PAX_MAX || size > kvi_scan_remaining(tar->s))
		return KVARC_END;
	size_t n = (size_t)size;
	char *p = kvi_malloc(tar->alloc, n + 1);
	if (!p)
		return kvi_alloc_error(tar->alloc);
	bool good = kvi_scan_bytes(tar->s, p, n);
	p[n] = '\0';
	if (good && type == 'x')
		good = take_pax(tar, p, n);
	else if (good && type == 'L')
		set_name(tar, p, strlen(p));
	kvi_free(tar->alloc, p);
	kvi_scan_skip(tar->s, -size % BLOCK);
	return tar->s->io ? KVARC_IO : good && !tar->s->bad ? KVARC_OK : KVARC_END;
}

/* The name of the header itself; POSIX has a prefix, GNU uses these bytes for something else. */
static void take_name(struct tar *tar)
{
	const char *block = (const char *)tar->block;
	size_t n = 0;
	if (tar->long_name)
		return;
	if (!memcmp(block + MAGIC_AT, "ustar", 6) && block[PREFIX_AT]) {
		n = strnlen(block + PREFIX_AT, PREFIX_BYTES);
		memcpy(tar->name, block + PREFIX_AT, n);
		tar->name[n++] = '/';
	}
	size_t rest = strnlen(block + NAME_AT, NAME_BYTES);
	memcpy(tar->name + n, block + NAME_AT, rest);
	tar->name[n + rest] = '\0';
	tar->has_name = true;
}

static enum kvi_member_kind kind_of(const struct tar *tar, uint8_t type)
{
	size_t n = tar->has_name ? strlen(tar->name) : 0;
	if (tar->sparse)
		return KVI_MEMBER_SPECIAL;
	switch (type) {
	case '0':
	case '7':
		return KVI_MEMBER_STORED;
	case '\0':
		return n && tar->name[n - 1] == '/' ? KVI_MEMBER_FOLDER : KVI_MEMBER_STORED;
	case '5':
		return KVI_MEMBER_FOLDER;
	default:
		return KVI_MEMBER_SPECIAL;
	}
}

/* Whether bytes follow is not certain for those of a size that is not 0. */
static bool has_no_bytes(enum kvi_member_kind kind, uint8_t type)
{
	return kind == KVI_MEMBER_FOLDER || (type >= '1' && type <= '6');
}

/* Blocks that continue the map of an old sparse file of GNU. */
static void skip_sparse_map(struct tar *tar)
{
	uint8_t more = tar->block[GNU_EXTENDED_AT];
	while (more && kvi_scan_bytes(tar->s, tar->block, BLOCK))
		more = tar->block[EXTENDED_AT];
}

static kvarc_ret take_member(struct tar *tar, uint8_t type, uint64_t size)
{
	if (tar->has_size)
		size = tar->size;
	if (type == 'S')
		skip_sparse_map(tar);
	take_name(tar);
	struct kvi_member m = { .kind = kind_of(tar, type),
		                .name = tar->has_name ? tar->name : NULL,
		                .header_at = tar->block_at,
		                .offset = tar->s->at,
		                .packed = size,
		                .bytes = size };
	if (size && has_no_bytes(m.kind, type))
		return KVARC_END;
	/* The last block of a member is filled up. */
	uint64_t left = kvi_scan_remaining(tar->s);
	if (size > left || -size % BLOCK > left - size)
		return tar->s->io ? KVARC_IO : KVARC_END;
	kvi_scan_skip(tar->s, size + -size % BLOCK);
	kvarc_ret ret = tar->found(tar->opaque, &m);
	forget_headers(tar);
	return ret;
}

/* The header in tar->block, and what it heads. */
static kvarc_ret take_header(struct tar *tar)
{
	uint8_t type = tar->block[TYPE_AT];
	uint64_t size;
	if (memcmp(tar->block + MAGIC_AT, "ustar", 5) || !has_check(tar->block) ||
	    !take_number(tar->block + SIZE_AT, SIZE_BYTES, &size))
		return KVARC_END;
	if (type == 'x' || type == 'L' || type == 'K' || type == 'g')
		return take_extended(tar, type, size);
	return take_member(tar, type, size);
}

static kvarc_ret scan_blocks(struct tar *tar)
{
	kvarc_ret ret = KVARC_OK;
	forget_headers(tar);
	while (!ret && kvi_scan_remaining(tar->s)) {
		tar->block_at = tar->s->at;
		if (!kvi_scan_bytes(tar->s, tar->block, BLOCK))
			return tar->s->io ? KVARC_IO : KVARC_END;
		/* Two such blocks are an end mark; another tar may follow. */
		if (!is_zero(tar->block))
			ret = take_header(tar);
	}
	return ret ? ret : tar->s->io ? KVARC_IO : tar->s->bad ? KVARC_END : KVARC_OK;
}

kvarc_ret kvi_tar_scan(const kvarc_source *src, const struct kvi_alloc *alloc,
                       kvi_member_found found, void *opaque)
{
	struct tar *t = kvi_malloc(alloc, sizeof *t);
	struct kvi_scan *s = kvi_scan_open(alloc, src);
	kvarc_ret ret = kvi_alloc_error(alloc);
	if (t && s) {
		t->s = s;
		t->alloc = alloc;
		t->found = found;
		t->opaque = opaque;
		ret = scan_blocks(t);
	}
	kvi_free(alloc, t);
	kvi_free(alloc, s);
	return ret;
}
