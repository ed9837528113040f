/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * llama_parse.c - the grammars of llama.cpp state files
 *
 * These files do not say which kind of memory wrote them, so every grammar is
 * tried and one is believed only if it alone ends exactly at the end of the
 * file with plausible types, row sizes and positions all along.
 */
#include "llama_parse.h"

#include <string.h>

#include "llama_memory.h"
#include "util/ckd.h"

enum {
	ARCH_MAX = 64,
	PACKED_VERSION = 1 /* of the server's token blob */
};
#define NULL_TOKEN UINT32_MAX
#define STATE_MAGIC UINT32_C(0xaf143cd8) /* of a bare state; the number of its sequence follows */

/* Old session files: u32 n, i32[n]; then twice u64 n, f32[n]. */
static bool outputs(struct kvi_scan *s)
{
	kvi_scan_skip(s, (uint64_t)kvi_scan32(s) * 4);
	for (int i = 0; i < 2; i++) {
		uint64_t n = kvi_scan64(s), bytes;
		if (kvi_mul(n, (uint64_t)4, &bytes))
			return false;
		kvi_scan_skip(s, bytes);
	}
	return !s->bad;
}

static bool is_old(const struct kvi_llama_grammar *g)
{
	return g->version == (g->session ? 9u : 2u);
}

static void reset(struct kvi_llama_file *f)
{
	f->n_sections = f->n_matrices = f->n_checkpoints = 0;
	f->appendix_at = 0;
}

/* True when the rest of the file from its memory on follows the grammar. */
static bool follows(struct kvi_llama_attempt *a)
{
	reset(a->f);
	/* before there were streams, recurrent states alone looked like a KV cache */
	if (a->g->n_blobs == 0 && (!a->g->recurrent || is_old(a->g)))
		return false;
	kvi_scan_seek(a->s, a->f->memory_at);
	if (a->g->outputs && !outputs(a->s))
		return false;
	for (uint32_t i = 0; i < a->g->n_blobs; i++)
		if (!kvi_llama_kv_memory(a, i))
			return false;
	if (a->g->recurrent && !kvi_llama_recurrent_memory(a, a->s->end))
		return false;
	if (a->s->bad)
		return false;
	a->all_read = true;
	return kvi_scan_remaining(a->s) == 0 || kvi_llama_appendix(a);
}

/* Everything but the grammar; two grammars that agree on this are one. */
static bool same(const struct kvi_llama_file *x, const struct kvi_llama_file *y)
{
	if (x->n_sections != y->n_sections || x->n_matrices != y->n_matrices)
		return false;
	if (x->n_sections == 0)
		return true;
	return x->grammar.ext_bytes == y->grammar.ext_bytes &&
	       !memcmp(x->sections, y->sections, x->n_sections * sizeof *x->sections) &&
	       !memcmp(x->matrices, y->matrices, x->n_matrices * sizeof *x->matrices);
}

/* The server's token array: -1, version, n, tokens, n_media, ... */
static void packed_tokens(struct kvi_llama_file *f, struct kvi_scan *s, uint64_t at, uint64_t end)
{
	uint32_t n, version;
	f->tokens_at = 0;
	kvi_scan_seek(s, at + 4);
	version = kvi_scan32(s);
	n = kvi_scan32(s);
	uint64_t ids = s->at;
	kvi_scan_skip(s, (uint64_t)n * 4);
	uint32_t media = kvi_scan32(s);
	if (!s->bad && version == PACKED_VERSION && s->at <= end && media == 0) {
		f->tokens_at = ids;
		f->n_tokens = n;
	}
}

/* Tokens and architecture, up to the memory. */
static bool header(struct kvi_llama_file *f, struct kvi_scan *s)
{
	struct kvi_llama_grammar *g = &f->grammar;
	uint32_t n = kvi_scan32(s);
	uint64_t at = s->at;
	bool packed = n && kvi_scan32(s) == NULL_TOKEN;
	f->tokens_at = at;
	f->n_tokens = n;
	kvi_scan_seek(s, at);
	kvi_scan_skip(s, (uint64_t)n * 4);
	if (s->bad)
		return false;
	uint64_t end = s->at;
	if (packed)
		packed_tokens(f, s, at, end);
	kvi_scan_seek(s, end);
	if (g->session) {
		char arch[ARCH_MAX];
		uint32_t len = kvi_scan32(s);
		if (len == 0 || len > sizeof arch || !kvi_scan_bytes(s, arch, len))
			return false;
		for (uint32_t i = 0; i < len; i++)
			if (arch[i] < 0x20 || arch[i] > 0x7e)
				return false;
	}
	f->memory_at = s->at;
	return !s->bad;
}

/* Grammar number i of those that a version can have; false past the last. */
static bool grammar_at(struct kvi_llama_grammar *g, unsigned i)
{
	static const struct {
		uint8_t n;
		bool values[KVI_LLAMA_BLOBS_MAX];
	} memories[] = {
		{ 1, { true, false } },  { 1, { false, false } }, { 2, { true, true } },
		{ 2, { false, false } }, { 2, { true, false } },  { 0, { false, false } }
	};
	enum { N_MEMORIES = sizeof memories / sizeof *memories };
	bool old = is_old(g);
	g->n_blobs = memories[i % N_MEMORIES].n;
	memcpy(g->values, memories[i % N_MEMORIES].values, sizeof g->values);
	i /= N_MEMORIES;
	g->recurrent = i % 2;
	i /= 2;
	g->ext_bytes = i % 2 ? (old ? 8 : 12) : 0;
	i /= 2;
	g->streams = true;
	g->outputs = false;
	if (old) {
		g->streams = i % 2 == 0;
		i /= 2;
		if (g->session) {
			g->outputs = i % 2;
			i /= 2;
		}
	}
	return i == 0;
}

/* Why nothing fits, as the attempt that got furthest has it. */
struct reason {
	uint64_t good_until;
	enum { KIND_UNKNOWN, REST_UNKNOWN, CUT } what;
};

static void consider(struct reason *r, const struct kvi_llama_attempt *a)
{
	struct reason x = { a->good_until, a->cut        ? CUT
		                           : a->all_read ? REST_UNKNOWN
		                                         : KIND_UNKNOWN };
	if (x.good_until > r->good_until || (x.good_until == r->good_until && x.what > r->what))
		*r = x;
}

static const char *reason_text(const struct reason *r)
{
	static const char *const texts[] = {
		[KIND_UNKNOWN] = "its kind of memory is not known: please report the "
				 "model and the version of llama.cpp",
		[REST_UNKNOWN] = "what follows its memory is not known: please report the "
				 "model and the version of llama.cpp",
		[CUT] = "it ends too early: it was cut, or is damaged"
	};
	return texts[r->what];
}

static void take(struct kvi_llama_file *f, struct kvi_llama_file *next)
{
	struct kvi_llama_file old = *f;
	*f = *next;
	/* the loser's arrays serve the next attempt */
	next->sections = old.sections;
	next->cap_sections = old.cap_sections;
	next->matrices = old.matrices;
	next->cap_matrices = old.cap_matrices;
	next->checkpoints = old.checkpoints;
	next->cap_checkpoints = old.cap_checkpoints;
}

static kvarc_ret try_all(struct kvi_llama_file *f, const struct kvi_alloc *alloc,
                         struct kvi_scan *s, const char **why)
{
	struct kvi_llama_file next = *f;
	struct kvi_llama_grammar g = f->grammar;
	struct reason reason = { 0, KIND_UNKNOWN };
	bool found = false;
	kvarc_ret ret = KVARC_OK;
	for (unsigned i = 0; grammar_at(&g, i) && !ret; i++) {
		struct kvi_llama_attempt a = { &next, alloc, s, &g, 0, false, false, false, 0 };
		bool fits = follows(&a);
		next.grammar = g;
		if (a.no_memory)
			ret = kvi_alloc_error(alloc);
		else if (s->io)
			ret = KVARC_IO;
		else if (fits && found && !same(f, &next)) {
			*why = "it can be read in more than one way";
			ret = KVARC_END;
		} else if (fits && !found) {
			take(f, &next);
			found = true;
		} else if (!fits) {
			consider(&reason, &a);
		}
	}
	kvi_llama_free(&next, alloc);
	if (!ret && !found) {
		*why = reason_text(&reason);
		ret = KVARC_END;
	}
	if (ret)
		kvi_llama_free(f, alloc);
	return ret;
}

static bool known_version(const struct kvi_llama_grammar *g)
{
	return g->session ? g->version >= 9 && g->version <= 11
	                  : g->version >= 2 && g->version <= 4;
}

kvarc_ret kvi_llama_parse(struct kvi_llama_file *f, const struct kvi_alloc *alloc,
                          struct kvi_scan *s, const char **why)
{
	memset(f, 0, sizeof *f);
	kvi_scan_seek(s, 0);
	uint32_t magic = kvi_scan32(s);
	f->grammar.session = magic == KVI_LLAMA_SESSION_MAGIC;
	uint32_t version = kvi_scan32(s);
	if (s->bad || (!f->grammar.session && magic != KVI_LLAMA_SEQ_MAGIC))
		return s->io ? KVARC_IO : KVARC_END;
	f->grammar.version = version;
	*why = "its version is not known";
	if (!known_version(&f->grammar))
		return KVARC_END;
	*why = "its header is damaged";
	if (!header(f, s))
		return s->io ? KVARC_IO : KVARC_END;
	return try_all(f, alloc, s, why);
}

kvarc_ret kvi_llama_parse_state(struct kvi_llama_file *f, const struct kvi_alloc *alloc,
                                struct kvi_scan *s, uint64_t at, const char **why)
{
	kvarc_ret ret = KVARC_END;
	kvi_scan_seek(s, at);
	if (kvi_scan32(s) == STATE_MAGIC)
		at += 8;
	for (uint32_t version = 4; version >= 2 && ret == KVARC_END; version--) {
		memset(f, 0, sizeof *f);
		if (s->io)
			return KVARC_IO;
		f->grammar.version = version;
		f->memory_at = at;
		ret = try_all(f, alloc, s, why);
	}
	return ret;
}

void kvi_llama_free(struct kvi_llama_file *f, const struct kvi_alloc *alloc)
{
	kvi_free(alloc, f->sections);
	kvi_free(alloc, f->matrices);
	kvi_free(alloc, f->checkpoints);
	f->sections = NULL;
	f->matrices = NULL;
	f->checkpoints = NULL;
	f->n_checkpoints = f->cap_checkpoints = 0;
	f->n_sections = f->cap_sections = f->n_matrices = f->cap_matrices = 0;
}
