/* SPDX-License-Identifier: BSD-3-Clause */
/* zip_scan.c - where the members of a zip file lie (APPNOTE 6.3.10) */
#include <string.h>

#include "members.h"
#include "util/source.h"
#include "scan.h"
#include "util/bytes.h"

enum {
	LOCAL = 0x04034b50,
	CENTRAL = 0x02014b50,
	END64 = 0x06064b50,
	LOCATOR64 = 0x07064b50,
	END = 0x06054b50
};
enum {
	LOCAL_BYTES = 30,
	CENTRAL_BYTES = 46,
	END64_BYTES = 56,
	LOCATOR64_BYTES = 20,
	END_BYTES = 22,
	TAIL_BYTES = END_BYTES + 65535, /* the comment is behind the end record */
	EXTRA_ZIP64 = 1,
	MADE_BY_UNIX = 3,
	ENCRYPTED = 1,
	UNIX_TYPE = 0170000,
	UNIX_REGULAR = 0100000,
	UNIX_FOLDER = 0040000
};

/* The central directory, from the end records. */
struct directory {
	uint64_t entries, at, bytes;
};

/* A central header with its name and zip64 fields. */
struct entry {
	uint8_t made_by;
	uint16_t flags, method;
	uint32_t attributes;
	uint64_t packed, bytes, header_at;
	size_t name_bytes;
	bool has_name;
	char name[KVI_MEMBER_NAME_MAX + 1];
};

/* The zip64 records in front of the end record, which is at `at`. */
static kvarc_ret find_end64(const kvarc_source *src, uint64_t at, struct directory *directory)
{
	uint8_t loc[LOCATOR64_BYTES], end[END64_BYTES];
	if (at < LOCATOR64_BYTES + END64_BYTES)
		return KVARC_END;
	if (kvi_source_read(src, loc, sizeof loc, at - sizeof loc))
		return KVARC_IO;
	uint64_t end_at = kvi_load64(loc + 8);
	if (kvi_load32(loc) != LOCATOR64 || kvi_load32(loc + 4) != 0 ||
	    end_at > at - LOCATOR64_BYTES - END64_BYTES)
		return KVARC_END;
	if (kvi_source_read(src, end, sizeof end, end_at))
		return KVARC_IO;
	directory->entries = kvi_load64(end + 32);
	directory->bytes = kvi_load64(end + 40);
	directory->at = kvi_load64(end + 48);
	if (kvi_load32(end) != END64 || kvi_load64(end + 4) != at - LOCATOR64_BYTES - end_at - 12 ||
	    kvi_load32(end + 16) != 0 || kvi_load32(end + 20) != 0 ||
	    kvi_load64(end + 24) != directory->entries || directory->at > end_at ||
	    directory->bytes != end_at - directory->at)
		return KVARC_END;
	return KVARC_OK;
}

static kvarc_ret parse_end(const kvarc_source *src, const uint8_t *p, uint64_t at,
                           struct directory *directory)
{
	directory->entries = kvi_load16(p + 10);
	directory->bytes = kvi_load32(p + 12);
	directory->at = kvi_load32(p + 16);
	if (directory->entries == UINT16_MAX || directory->bytes == UINT32_MAX ||
	    directory->at == UINT32_MAX)
		return find_end64(src, at, directory);
	if (kvi_load16(p + 4) != 0 || kvi_load16(p + 6) != 0 ||
	    kvi_load16(p + 8) != directory->entries || directory->at > at)
		return KVARC_END;
	if (directory->bytes == at - directory->at)
		return KVARC_OK;
	/* torch.save writes zip64 records also where nothing needs them. */
	const struct directory own = *directory;
	kvarc_ret ret = find_end64(src, at, directory);
	if (!ret && (directory->entries != own.entries || directory->bytes != own.bytes ||
	             directory->at != own.at))
		ret = KVARC_END;
	return ret;
}

/* The end record whose comment ends where the file does. */
static kvarc_ret find_directory(const kvarc_source *src, const struct kvi_alloc *alloc,
                                struct directory *directory)
{
	size_t n = src->size < TAIL_BYTES ? (size_t)src->size : TAIL_BYTES;
	kvarc_ret ret = KVARC_END;
	if (n < END_BYTES)
		return KVARC_END;
	uint8_t *tail = kvi_malloc(alloc, n);
	if (!tail)
		return kvi_alloc_error(alloc);
	if (kvi_source_read(src, tail, n, src->size - n))
		ret = KVARC_IO;
	for (size_t i = n - END_BYTES + 1; ret == KVARC_END && i-- > 0;) {
		const uint8_t *p = tail + i;
		if (kvi_load32(p) == END && kvi_load16(p + 20) == n - END_BYTES - i) {
			ret = parse_end(src, p, src->size - n + i, directory);
			break;
		}
	}
	kvi_free(alloc, tail);
	return ret;
}

/* Fields of 32 bits that are all ones are in the zip64 extra field, in this order. */
static void take_zip64(struct kvi_scan *scan, struct entry *entry, uint64_t bytes)
{
	uint64_t *const fields[] = { &entry->bytes, &entry->packed, &entry->header_at };
	for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
		if (*fields[i] == UINT32_MAX && bytes >= 8) {
			*fields[i] = kvi_scan64(scan);
			bytes -= 8;
		}
	kvi_scan_skip(scan, bytes);
}

static void take_extra(struct kvi_scan *scan, struct entry *entry, uint64_t bytes)
{
	while (bytes >= 4 && !scan->bad) {
		uint32_t head = kvi_scan32(scan), n = head >> 16;
		bytes -= 4;
		if (n > bytes) {
			scan->bad = true;
			return;
		}
		if ((head & 0xffff) == EXTRA_ZIP64)
			take_zip64(scan, entry, n);
		else
			kvi_scan_skip(scan, n);
		bytes -= n;
	}
	kvi_scan_skip(scan, bytes);
}

static void take_name(struct kvi_scan *scan, struct entry *entry)
{
	entry->has_name = entry->name_bytes <= KVI_MEMBER_NAME_MAX;
	entry->name[0] = '\0';
	if (!entry->has_name) {
		kvi_scan_skip(scan, entry->name_bytes);
		return;
	}
	if (kvi_scan_bytes(scan, entry->name, entry->name_bytes))
		entry->name[entry->name_bytes] = '\0';
	entry->has_name = !memchr(entry->name, '\0', entry->name_bytes);
}

static bool take_central(struct kvi_scan *scan, struct entry *entry)
{
	uint8_t p[CENTRAL_BYTES];
	if (!kvi_scan_bytes(scan, p, sizeof p) || kvi_load32(p) != CENTRAL)
		return false;
	entry->made_by = p[5];
	entry->flags = kvi_load16(p + 8);
	entry->method = kvi_load16(p + 10);
	entry->packed = kvi_load32(p + 20);
	entry->bytes = kvi_load32(p + 24);
	entry->name_bytes = kvi_load16(p + 28);
	entry->attributes = kvi_load32(p + 38);
	entry->header_at = kvi_load32(p + 42);
	take_name(scan, entry);
	take_extra(scan, entry, kvi_load16(p + 30));
	kvi_scan_skip(scan, kvi_load16(p + 32));
	return !scan->bad && kvi_load16(p + 34) == 0;
}

static enum kvi_member_kind kind_of(const struct entry *entry)
{
	uint32_t type = entry->attributes >> 16 & UNIX_TYPE;
	if (entry->name_bytes && entry->has_name && entry->name[entry->name_bytes - 1] == '/')
		return entry->bytes ? KVI_MEMBER_SPECIAL : KVI_MEMBER_FOLDER;
	if (entry->made_by == MADE_BY_UNIX && type && type != UNIX_REGULAR)
		return KVI_MEMBER_SPECIAL;
	if (entry->flags & ENCRYPTED)
		return KVI_MEMBER_PACKED;
	return entry->method == 0   ? KVI_MEMBER_STORED
	       : entry->method == 8 ? KVI_MEMBER_DEFLATED
	                            : KVI_MEMBER_PACKED;
}

/* The local header says where the bytes start; it may not contradict the directory. */
static kvarc_ret take_local(const kvarc_source *src, const struct directory *directory,
                            const struct entry *entry, struct kvi_member *member)
{
	uint8_t p[LOCAL_BYTES];
	if (entry->header_at > directory->at || directory->at - entry->header_at < sizeof p)
		return KVARC_END;
	if (kvi_source_read(src, p, sizeof p, entry->header_at))
		return KVARC_IO;
	member->kind = kind_of(entry);
	member->name = entry->has_name ? entry->name : NULL;
	member->header_at = entry->header_at;
	member->offset = entry->header_at + sizeof p + kvi_load16(p + 26) + kvi_load16(p + 28);
	member->packed = entry->packed;
	member->bytes = entry->bytes;
	if (kvi_load32(p) != LOCAL || kvi_load16(p + 8) != entry->method ||
	    ((kvi_load16(p + 6) ^ entry->flags) & ENCRYPTED) || member->offset > directory->at ||
	    member->packed > directory->at - member->offset ||
	    (entry->method == 0 && !(entry->flags & ENCRYPTED) && member->packed != member->bytes))
		return KVARC_END;
	return KVARC_OK;
}

static kvarc_ret scan_directory(const kvarc_source *src, const struct directory *directory,
                                struct kvi_scan *scan, struct entry *entry, kvi_member_found found,
                                void *opaque)
{
	scan->end = directory->at + directory->bytes;
	kvi_scan_seek(scan, directory->at);
	for (uint64_t i = 0; i < directory->entries; i++) {
		struct kvi_member m;
		if (!take_central(scan, entry))
			return scan->io ? KVARC_IO : KVARC_END;
		kvarc_ret ret = take_local(src, directory, entry, &m);
		if (!ret)
			ret = found(opaque, &m);
		if (ret)
			return ret;
	}
	return kvi_scan_remaining(scan) ? KVARC_END : KVARC_OK;
}

kvarc_ret kvi_zip_scan(const kvarc_source *src, const struct kvi_alloc *alloc,
                       kvi_member_found found, void *opaque)
{
	struct directory d = { 0, 0, 0 };
	kvarc_ret ret = find_directory(src, alloc, &d);
	if (ret)
		return ret;
	struct kvi_scan *s = kvi_scan_open(alloc, src);
	struct entry *e = kvi_malloc(alloc, sizeof *e);
	ret = s && e ? scan_directory(src, &d, s, e, found, opaque) : kvi_alloc_error(alloc);
	kvi_free(alloc, s);
	kvi_free(alloc, e);
	return ret;
}
