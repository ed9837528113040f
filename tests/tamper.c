/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tamper.c - encrypted archives that somebody has changed who does not have the key
 *
 * All checks of the changed archives are right, as they need no key. Each is opened with
 * the key, verified, and read in order, by range, as a pipe and by salvage. It is refused, or it is
 * an earlier commit of the archive, whole; what is delivered is right in either case, and nothing
 * of a frame that was changed is. Anything else is wrong.
 *
 * tamper [CASES]: that many (1,200; the nightly run has 24,000). Status 77: no encryption.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "format/frame.h"
#include "synth.h"
#include "util/bytes.h"

enum { COMMITS = 3, PART = 20, LAYERS = 2, FRAMES_MAX = 128, HEAD = KVI_FRAME_HEAD_BYTES };
enum { SUPERBLOCK = 64, NONCE_AT = HEAD + 8, TEXT_AT = HEAD + 32, NONE = -1 };

/* A frame of the archive: where it is, and of which block of elements. */
struct frame_place {
	size_t at, bytes;
	uint16_t type;
	int tensor; /* NONE: it is no chunk */
	uint64_t t0;
};

struct tamper_target {
	struct synth_cache cache;
	struct synth_file file, other; /* other: same tensors, key and file id, another file key */
	size_t ends[COMMITS];          /* closed after each commit */
	uint64_t sync;
	struct frame_place frames[FRAMES_MAX];
	int n_frames;
};

static const uint8_t key_bytes[2][KVARC_KEY_BYTES] = { { 1, 2, 3 }, { 9, 9, 9 } };
static const kvarc_key keys[2] = {
	{ .kind = KVARC_KEY_GIVEN, .bytes = key_bytes[0], .n = KVARC_KEY_BYTES },
	{ .kind = KVARC_KEY_GIVEN, .bytes = key_bytes[1], .n = KVARC_KEY_BYTES }
};
static const kvarc_keys right_key = { .list = &keys[0], .n = 1 };
static const kvarc_keys wrong_key = { .list = &keys[1], .n = 1 };

static uint64_t state = 88172645463325252u;

static size_t below(size_t n)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return (size_t)((state >> 11) % n);
}

/* ------------------------------------------------------------- archives */

static void append_part(struct tamper_target *g, struct synth_file *f, int i)
{
	kvarc_writer_options opt = KVARC_WRITER_OPTIONS_INIT;
	kvarc_sink sink = synth_sink(f);
	kvarc_source source = synth_source(f);
	kvarc_view views[2 * LAYERS];
	kvarc_writer *w;
	const uint64_t t0 = (uint64_t)i * PART;
	opt.level = KVARC_LEVEL(0);
	opt.keys = &right_key;
	memset(opt.file_id, 0x5a, sizeof opt.file_id);
	if (i) {
		REQUIRE(kvarc_writer_open_append(&w, &source, &sink, &opt) == KVARC_OK);
	} else {
		REQUIRE(kvarc_writer_open(&w, &sink, &opt) == KVARC_OK);
		REQUIRE(kvarc_writer_set_geometry(w, &g->cache.geometry) == KVARC_OK);
	}
	synth_views(&g->cache, g->cache.raw, t0, views);
	REQUIRE(kvarc_writer_append(w, 0, PART, g->cache.ids + t0, NULL, views) == KVARC_OK);
	REQUIRE(kvarc_writer_close(&w) == KVARC_OK);
}

static void find_frames(struct tamper_target *g)
{
	struct kvi_frame_head h;
	for (size_t at = SUPERBLOCK; at < g->file.n;) {
		REQUIRE(kvi_frame_head_parse(&h, g->file.p + at, g->sync, at));
		REQUIRE(g->n_frames < FRAMES_MAX);
		struct frame_place *p = &g->frames[g->n_frames++];
		*p = (struct frame_place){ at, (size_t)kvi_frame_bytes(h.payload_bytes), h.type,
			                   NONE, 0 };
		at += p->bytes;
	}
}

/* Which frames are of which chunk: with the key, of the archive as it is. */
static void find_chunks(struct tamper_target *g)
{
	kvarc_reader_options opt = { .keys = &right_key };
	kvarc_source source = synth_source(&g->file);
	kvarc_reader *r;
	kvarc_chunk_info c;
	REQUIRE(kvarc_reader_open(&r, &source, &opt) == KVARC_OK);
	for (uint64_t i = 0; kvarc_reader_chunk(r, i, &c) == KVARC_OK; i++)
		for (int k = 0; k < g->n_frames; k++)
			if (g->frames[k].at == c.offset) {
				g->frames[k].tensor = (int)c.tensor;
				g->frames[k].t0 = c.t0;
			}
	kvarc_reader_close(&r);
}

static void golden_make(struct tamper_target *g)
{
	struct synth_shape shape = {
		KVARC_BF16, LAYERS, 1, 16, COMMITS * PART, true, SYNTH_SMOOTH
	};
	uint8_t id[16];
	memset(id, 0x5a, sizeof id);
	g->sync = kvi_frame_sync(id);
	synth_make(&g->cache, &shape, 7);
	for (int i = 0; i < COMMITS; i++) {
		append_part(g, &g->file, i);
		append_part(g, &g->other, i);
		g->ends[i] = g->file.n;
	}
	REQUIRE(g->file.n == g->other.n && memcmp(g->file.p, g->other.p, g->file.n));
	find_frames(g);
	find_chunks(g);
}

/* -------------------------------------------------------------- looking */

/* What an archive gave. */
struct tamper_look {
	const struct tamper_target *g;
	const bool *changed; /* a tensor and part: its frame was changed */
	bool wrong;
	bool have[2 * LAYERS][COMMITS];
};

static int on_block(void *opaque, uint32_t tensor, uint32_t head, uint32_t heads, uint64_t t0,
                    uint32_t n, const void *src)
{
	struct tamper_look *k = opaque;
	const struct synth_cache *c = &k->g->cache;
	if (tensor >= 2 * LAYERS || head || heads != 1 || n != PART || t0 % PART ||
	    t0 >= COMMITS * PART || memcmp(src, c->raw[tensor] + t0 * c->row, n * c->row) ||
	    k->changed[tensor * COMMITS + t0 / PART])
		k->wrong = true;
	else
		k->have[tensor][t0 / PART] = true;
	return 0;
}

static void check_segment(struct tamper_look *k, const kvarc_segment *s)
{
	for (uint32_t t = 0; t < s->n; t++)
		if (s->t0 + t >= COMMITS * PART ||
		    (s->ids && s->ids[t] != k->g->cache.ids[s->t0 + t]) ||
		    (s->ids && s->positions[t] != (int32_t)(s->t0 + t)))
			k->wrong = true;
}

/* The number of whole commits that were read; -1: refused. */
static int look_at(const struct tamper_target *g, struct synth_file *f, const bool *changed,
                   const kvarc_keys *key, unsigned flags, bool pipe, bool verify, bool range,
                   bool *wrong)
{
	kvarc_reader_options opt = { .keys = key, .flags = flags };
	struct tamper_look k = { .g = g, .changed = changed };
	kvarc_source source = synth_source(f);
	kvarc_range all = KVARC_RANGE_ALL(0);
	kvarc_segment s;
	kvarc_info info;
	kvarc_reader *r;
	kvarc_ret ret;
	if (pipe)
		source.size = KVARC_UNKNOWN;
	if (kvarc_reader_open(&r, &source, &opt) != KVARC_OK)
		return -1;
	ret = verify ? kvarc_reader_verify(r, NULL, NULL) : KVARC_OK;
	if (ret == KVARC_OK && range)
		ret = kvarc_reader_read_deliver(r, &all, on_block, &k);
	while (ret == KVARC_OK && !range) {
		ret = kvarc_reader_next_segment(r, &s);
		if (ret == KVARC_OK) {
			check_segment(&k, &s);
			ret = kvarc_reader_segment_deliver(r, on_block, &k);
		}
	}
	if (kvarc_reader_get_info(r, &info) || info.state != KVARC_STATE_CLOSED)
		ret = KVARC_DATA;
	const uint64_t tokens = kvarc_reader_tokens(r, 0);
	kvarc_reader_close(&r);
	*wrong = *wrong || k.wrong;
	if (ret != KVARC_END && !(range && ret == KVARC_OK))
		return -1;
	/* Whole: all of the tokens that it says it has. */
	for (unsigned t = 0; t < 2 * LAYERS; t++)
		for (unsigned i = 0; i < COMMITS; i++)
			if (k.have[t][i] != (i < tokens / PART))
				*wrong = true;
	*wrong = *wrong || tokens % PART;
	return (int)(tokens / PART);
}

/* ------------------------------------------------------------- changing */

/* Right header check and check for a frame at an offset, and, when wanted, a sequence number. */
static void reseal(const struct tamper_target *g, uint8_t *p, size_t at, uint64_t sequence)
{
	struct kvi_frame_head h = { kvi_load16(p + at + 8), kvi_load16(p + at + 10),
		                    kvi_load32(p + at + 12), kvi_load32(p + at + 24),
		                    sequence == KVARC_UNKNOWN ? kvi_load64(p + at + 16)
		                                              : sequence };
	kvi_frame_head_write(p + at, &h, g->sync, at);
	kvi_frame_close(p + at, at, h.payload_bytes, kvi_frame_rest(p + at, h.payload_bytes));
}

struct tampered {
	struct synth_file f;
	bool changed[2 * LAYERS * COMMITS];
	const kvarc_keys *key;
};

static void change(struct tampered *t, const struct frame_place *p)
{
	if (p->tensor != NONE)
		t->changed[(unsigned)p->tensor * COMMITS + p->t0 / PART] = true;
}

/* An ENCRYPTED frame. */
static const struct frame_place *any_encrypted(const struct tamper_target *g)
{
	const struct frame_place *p;
	do
		p = &g->frames[below((size_t)g->n_frames)];
	while (p->type != KVI_FRAME_ENCRYPTED);
	return p;
}

/* The frames in another order, with right offsets, sequence numbers and checks. */
static void arrange(const struct tamper_target *g, struct tampered *t, const int *order, int n)
{
	bool stays[FRAMES_MAX] = { 0 };
	size_t at = SUPERBLOCK;
	for (int i = 0; i < n; i++) {
		const struct frame_place *p = &g->frames[order[i]];
		memcpy(t->f.p + at, g->file.p + p->at, p->bytes);
		reseal(g, t->f.p, at, (uint64_t)i);
		stays[order[i]] = stays[order[i]] || (at == p->at && i == order[i]);
		at += p->bytes;
	}
	for (int i = 0; i < g->n_frames; i++)
		if (!stays[i])
			change(t, &g->frames[i]);
	t->f.n = at;
}

static void flip(struct tampered *t, size_t at)
{
	t->f.p[at] ^= (uint8_t)(1u << below(8));
}

/* Frames go elsewhere: 0 swapped, 1 dropped, 2 repeated, 3 three in a circle, 4 reversed. */
static void move_frames(const struct tamper_target *g, struct tampered *t, int how)
{
	int order[FRAMES_MAX + 1], n = g->n_frames;
	for (int i = 0; i < n; i++)
		order[i] = i;
	const int a = (int)below((size_t)n), b = (int)below((size_t)n), c = (int)below((size_t)n);
	if (how == 1)
		memmove(order + a, order + a + 1, sizeof *order * (size_t)(--n - a));
	if (how == 2) {
		memmove(order + b + 1, order + b, sizeof *order * (size_t)(n++ - b));
		order[b] = a;
	}
	if (how == 0 || how == 3) {
		const int x = order[a];
		order[a] = order[b];
		order[b] = how == 0 ? x : order[c];
		if (how == 3)
			order[c] = x;
		/* not a circle where two of them are one */
		if (how == 3 && (a == b || b == c || a == c))
			for (int i = 0; i < n; i++)
				order[i] = n - 1 - i;
	}
	if (how == 4)
		for (int i = a < b ? a : b, k = a < b ? b : a; i < k; i++, k--) {
			const int x = order[i];
			order[i] = order[k];
			order[k] = x;
		}
	arrange(g, t, order, n);
}

/* Frames of the archive with another file key; all from one on: with its KEY frame. */
static void splice(const struct tamper_target *g, struct tampered *t, bool all)
{
	const struct frame_place *p = any_encrypted(g);
	const size_t end = all ? g->file.n : p->at + p->bytes;
	memcpy(t->f.p + p->at, g->other.p + p->at, end - p->at);
	for (int i = 0; i < g->n_frames; i++)
		if (g->frames[i].at >= p->at && g->frames[i].at < end)
			change(t, &g->frames[i]);
}

enum kind {
	FLIP_ANY,    /* a bit anywhere, checks as they are */
	FLIP_TEXT,   /* of ciphertext or tag */
	FLIP_INNER,  /* of type, flags or reserved bytes of the inner frame */
	FLIP_NONCE,  /* a bit of it, */
	OTHER_NONCE, /* or the nonce of another frame */
	FLIP_HEAD,   /* a field of the frame header */
	SWAP,
	DROP,
	REPEAT,
	CIRCLE,
	REVERSE,
	OTHERS_FRAME,  /* of another file of the same key */
	OTHERS_FRAMES, /* all from one on */
	KEY_FRAME,     /* a bit of the first KEY frame */
	FOOTER_FRAME,  /* a bit of a FOOTER */
	CUT,           /* anywhere */
	CUT_BACK,      /* behind an earlier FOOTER */
	WRONG_KEY,
	NO_KEY,
	KINDS
};

static const char *const kind_names[KINDS] = { "bit anywhere",
	                                       "bit of ciphertext, tag",
	                                       "bit of the inner type",
	                                       "bit of a nonce",
	                                       "nonce of another frame",
	                                       "bit of a frame header",
	                                       "two frames swapped",
	                                       "frame dropped",
	                                       "frame repeated",
	                                       "three frames moved",
	                                       "frames reversed",
	                                       "frame of another file",
	                                       "frames of another",
	                                       "bit of the KEY frame",
	                                       "bit of a FOOTER",
	                                       "cut anywhere",
	                                       "cut behind a FOOTER",
	                                       "wrong key",
	                                       "no key" };

static void tamper_frame(const struct tamper_target *g, struct tampered *t, enum kind kind)
{
	const struct frame_place *p = any_encrypted(g), *q = any_encrypted(g);
	uint8_t *frame = t->f.p + p->at;
	const size_t text = kvi_load32(frame + 12) - 32;
	while (kind == OTHER_NONCE && q == p)
		q = any_encrypted(g);
	change(t, p);
	if (kind == FLIP_TEXT)
		flip(t, p->at + TEXT_AT + below(text));
	else if (kind == FLIP_INNER)
		flip(t, p->at + HEAD + below(8));
	else if (kind == FLIP_NONCE)
		flip(t, p->at + NONCE_AT + below(24));
	else if (kind == OTHER_NONCE)
		memcpy(frame + NONCE_AT, g->file.p + q->at + NONCE_AT, 24);
	else /* type, flags, sequence or decoded_bytes; a size would be another frame */
		flip(t, p->at + (below(2) ? 8 + below(4) : 16 + below(12)));
	reseal(g, t->f.p, p->at, KVARC_UNKNOWN);
}

static void tamper(const struct tamper_target *g, struct tampered *t, enum kind kind)
{
	memcpy(t->f.p, g->file.p, g->file.n);
	t->f.n = g->file.n;
	t->key = &right_key;
	memset(t->changed, 0, sizeof t->changed);
	switch (kind) {
	case FLIP_ANY:
		flip(t, below(g->file.n));
		break;
	case SWAP:
	case DROP:
	case REPEAT:
	case CIRCLE:
	case REVERSE:
		move_frames(g, t,
		            kind == SWAP     ? 0
		            : kind == DROP   ? 1
		            : kind == REPEAT ? 2
		            : kind == CIRCLE ? 3
		                             : 4);
		break;
	case OTHERS_FRAME:
	case OTHERS_FRAMES:
		splice(g, t, kind == OTHERS_FRAMES);
		break;
	case KEY_FRAME:
		flip(t, SUPERBLOCK + HEAD + below(152));
		reseal(g, t->f.p, SUPERBLOCK, KVARC_UNKNOWN);
		break;
	case FOOTER_FRAME: {
		const size_t at = g->ends[below(COMMITS)] - 80;
		flip(t, at + HEAD + below(24));
		reseal(g, t->f.p, at, KVARC_UNKNOWN);
		break;
	}
	case CUT:
		t->f.n = below(g->file.n);
		break;
	case CUT_BACK:
		t->f.n = g->ends[below(COMMITS - 1)];
		break;
	case WRONG_KEY:
		t->key = &wrong_key;
		break;
	case NO_KEY:
		t->key = NULL;
		break;
	default:
		tamper_frame(g, t, kind);
	}
	if (t->key != &right_key)
		memset(t->changed, 1, sizeof t->changed);
}

/* -------------------------------------------------------------- judging */

struct tamper_counts {
	unsigned long refused, earlier, wrong, cases;
};

/* One changed archive, in all ways of reading. */
static void judge(const struct tamper_target *g, struct tampered *t, struct tamper_counts *n)
{
	bool wrong = false;
	const bool is_same = t->key == &right_key && t->f.n == g->file.n &&
	                     !memcmp(t->f.p, g->file.p, g->file.n);
	if (is_same) /* a frame was swapped with itself */
		return;
	const int commits = look_at(g, &t->f, t->changed, t->key, 0, false, true, false, &wrong);
	look_at(g, &t->f, t->changed, t->key, 0, false, false, false, &wrong);
	look_at(g, &t->f, t->changed, t->key, 0, false, false, true, &wrong);
	look_at(g, &t->f, t->changed, t->key, 0, true, false, false, &wrong);
	if (t->key == &right_key) {
		/* What salvage gives need not be whole: only what is delivered counts. */
		struct tamper_look k = { .g = g, .changed = t->changed };
		kvarc_reader_options opt = { .keys = t->key, .flags = KVARC_READ_SALVAGE };
		kvarc_source source = synth_source(&t->f);
		kvarc_reader *r;
		kvarc_segment s;
		kvarc_ret ret = kvarc_reader_open(&r, &source, &opt);
		while (ret == KVARC_OK && (ret = kvarc_reader_next_segment(r, &s)) == KVARC_OK) {
			check_segment(&k, &s);
			ret = kvarc_reader_segment_deliver(r, on_block, &k);
		}
		kvarc_reader_close(&r);
		wrong = wrong || k.wrong;
	}
	n->cases++;
	if (wrong || commits == COMMITS)
		n->wrong++;
	else if (commits >= 0)
		n->earlier++;
	else
		n->refused++;
}

int main(int argc, char **argv)
{
	unsigned long wanted = argc > 1 ? strtoul(argv[1], NULL, 10) : 1200, wrong = 0, all = 0;
	unsigned long earlier = 0;
	static struct tamper_target g;
	struct tampered t = { 0 };
	bool none[2 * LAYERS * COMMITS] = { 0 }, bad = false;
	golden_make(&g);
	for (int way = 0; way < 4; way++)
		REQUIRE(look_at(&g, &g.file, none, &right_key, 0, way == 1, way == 2, way == 3,
		                &bad) == COMMITS);
	REQUIRE(!bad);
	t.f.p = malloc(2 * g.file.n);
	REQUIRE(t.f.p);
	t.f.cap = 2 * g.file.n;
	for (int kind = 0; kind < KINDS; kind++) {
		struct tamper_counts n = { 0 };
		const unsigned long share = kind < WRONG_KEY && kind != CUT_BACK
		                                    ? wanted / (KINDS - 3) + 1
		                                    : 4;
		for (unsigned tries = 0; n.cases < share && tries < 4 * share + 16; tries++) {
			tamper(&g, &t, (enum kind)kind);
			judge(&g, &t, &n);
		}
		printf("%-24s %6lu cases: %6lu refused, %4lu an earlier commit, %lu wrong\n",
		       kind_names[kind], n.cases, n.refused, n.earlier, n.wrong);
		wrong += n.wrong;
		all += n.cases;
		earlier += n.earlier;
		REQUIRE(n.cases == share);
	}
	printf("%lu cases, %lu of them an earlier commit, %lu wrong\n", all, earlier, wrong);
	free(t.f.p);
	free(g.file.p);
	free(g.other.p);
	synth_free(&g.cache);
	return wrong || all < wanted;
}
