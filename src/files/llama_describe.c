/* SPDX-License-Identifier: BSD-3-Clause */
/* llama_describe.c - what a llama.cpp file has beside tensors, in an identity pair */
#include "llama_describe.h"

#include <stdio.h>
#include <string.h>

#include "llama_item.h"
#include "reader/reader_internal.h"

/* Numbers of a description, in the order of the pair. */
static const struct {
	const char *name;
	size_t at;
} members[] = {
#define MEMBER(name)                                                \
	{                                                           \
#name, offsetof(struct kvi_llama_description, name) \
	}
	MEMBER(session),    MEMBER(version),  MEMBER(packed),     MEMBER(streams),
	MEMBER(stream),     MEMBER(layers),   MEMBER(rotation_k), MEMBER(rotation_v),
	MEMBER(transposed), MEMBER(memories), MEMBER(extension),
#undef MEMBER
};
enum { N_MEMBERS = sizeof members / sizeof members[0], DIGITS_MAX = 9 };

/* The architecture of a session, behind its token list. */
static bool read_arch(struct kvi_llama_description *description, struct kvi_scan *scan)
{
	enum { TOKENS_AT = 12 };
	kvi_scan_seek(scan, TOKENS_AT - 4);
	uint32_t n = kvi_scan32(scan);
	kvi_scan_skip(scan, (uint64_t)n * 4);
	uint32_t len = kvi_scan32(scan);
	if (scan->bad || len == 0 || len >= sizeof description->arch ||
	    !kvi_scan_bytes(scan, description->arch, len))
		return false;
	for (uint32_t i = 0; i < len; i++)
		if (description->arch[i] <= ' ' || description->arch[i] > '~')
			return false;
	return true;
}

/* Describes the file, and one of its sections. False: the architecture of a session is not plain
 * text. */
static bool llama_describe(struct kvi_llama_description *description,
                           const struct kvi_llama_file *file,
                           const struct kvi_llama_section *section, struct kvi_scan *scan)
{
	enum { PLAIN_TOKENS_AT = 12 };
	const struct kvi_llama_grammar *g = &file->grammar;
	const struct kvi_llama_matrix *last =
		&file->matrices[section->first_matrix + kvi_llama_section_matrices(section) - 1];
	*description = (struct kvi_llama_description){ .session = g->session,
		                                       .version = g->version,
		                                       .packed = file->tokens_at != PLAIN_TOKENS_AT,
		                                       .streams = g->streams ? section->n_streams
		                                                             : 0,
		                                       .stream = section->stream,
		                                       .layers = section->n_layers,
		                                       .rotation_k = section->rotation_k,
		                                       .rotation_v = section->rotation_v,
		                                       .transposed = last->trans,
		                                       .memories = file->memories.n,
		                                       .extension = g->ext_bytes };
	return !g->session || read_arch(description, scan);
}

/* The value of the pair: names and numbers. */
static void llama_describe_print(const struct kvi_llama_description *description,
                                 char text[KVI_LLAMA_PAIR_BYTES])
{
	size_t n = 0;
	for (size_t i = 0; i < N_MEMBERS; i++) {
		uint32_t value;
		memcpy(&value, (const char *)description + members[i].at, sizeof value);
		n += (size_t)snprintf(text + n, KVI_LLAMA_PAIR_BYTES - n, "%s%s=%u", i ? " " : "",
		                      members[i].name, value);
	}
	if (description->arch[0])
		(void)snprintf(text + n, KVI_LLAMA_PAIR_BYTES - n, " arch=%s", description->arch);
}

/* The member of a name of n bytes; NULL: not known. */
static char *member(struct kvi_llama_description *description, const char *name, size_t n)
{
	for (size_t i = 0; i < N_MEMBERS; i++)
		if (strlen(members[i].name) == n && !memcmp(members[i].name, name, n))
			return (char *)description + members[i].at;
	return NULL;
}

/* A decimal number of n digits. */
static bool number(const char *text, size_t n, char *to)
{
	uint32_t value = 0;
	if (n == 0 || n > DIGITS_MAX)
		return false;
	for (size_t i = 0; i < n; i++) {
		if (text[i] < '0' || text[i] > '9')
			return false;
		value = 10 * value + (uint32_t)(text[i] - '0');
	}
	memcpy(to, &value, sizeof value);
	return true;
}

bool kvi_llama_describe_parse(struct kvi_llama_description *description, const char *text)
{
	static const char arch[] = "arch";
	*description = (struct kvi_llama_description){ 0 };
	while (*text) {
		size_t n = strcspn(text, " "), name = strcspn(text, "= ");
		size_t value = n - name - (name < n);
		const char *at = text + name + (name < n);
		char *to = member(description, text, name);
		if (name == n || (to && !number(at, value, to)))
			return false;
		if (name == sizeof arch - 1 && !memcmp(text, arch, name)) {
			if (value >= sizeof description->arch)
				return false;
			memcpy(description->arch, at, value);
		}
		text += n;
		text += strspn(text, " ");
	}
	return true;
}

/* Describes an item's own first section. */
static kvarc_ret describe_item(struct kvi_llama_item *it, char text[KVI_LLAMA_PAIR_BYTES])
{
	struct kvi_llama_description d;
	struct kvi_llama_file f = { 0 };
	const char *why;
	struct kvi_scan *s = kvi_scan_open(it->alloc, &it->source);
	if (!s)
		return kvi_alloc_error(it->alloc);
	kvarc_ret ret = kvi_llama_parse(&f, it->alloc, s, &why);
	if (!ret && (f.n_sections == 0 || f.sections[0].kind != KVI_LLAMA_KV ||
	             f.sections[0].checkpoint || !llama_describe(&d, &f, &f.sections[0], s)))
		ret = KVARC_END;
	if (!ret)
		llama_describe_print(&d, text);
	kvi_llama_free(&f, it->alloc);
	kvi_free(it->alloc, s);
	return ret;
}

kvarc_ret kvi_llama_describe_track(kvarc_reader *r, uint32_t track, char text[KVI_LLAMA_PAIR_BYTES])
{
	struct kvi_llama_item it = { 0 };
	bool first;
	size_t i = kvi_llama_item_find(r, track, &first);
	if (i == kvi_reader_n_items(r) || !first)
		return KVARC_END;
	kvarc_ret ret = kvi_llama_item_open(&it, r, i);
	if (!ret)
		ret = describe_item(&it, text);
	kvi_llama_item_free(&it);
	return ret == KVARC_OK || ret == KVARC_MEM || ret == KVARC_MEMLIMIT ? ret : KVARC_END;
}
