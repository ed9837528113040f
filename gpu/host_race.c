/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * host_race.c - the shadow of host_race.h, and what compilers call with -fsanitize=thread
 *
 * A launch runs on the host in one order of many: block after block, warp after warp. Barriers
 * divide it into phases of a block and those into spans of a warp, all numbered in that order. So
 * two accesses of a launch are in order on a GPU, too, when they are of one block and of different
 * phases, of one warp and of different spans, of one lane, or of blocks that a lock orders.
 */
#define _GNU_SOURCE /* dladdr */
#include "host_race.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Bytes of a page of shadow, pages that are kept for the next launch, bytes of a write, locks, and
 * blocks that take them, at most. */
enum {
	PAGE = 4096,
	PAGES_KEPT = 2048,
	BUCKETS = 1 << 16,
	WRITE = 4096,
	LOCKS = 256,
	BLOCKS = 1024
};

/* Who and when. */
struct moment {
	uint32_t phase, span; /* phase 0: never */
	uint32_t block;
	uint8_t warp, lane;
};
/* A byte: the last write of it and the last reads, those of one span, of lanes and of no others;
 * and which warps read it in this phase. */
struct shadow {
	struct moment written, read;
	uint32_t write_code, lanes;
	uint8_t warps;
};
struct page {
	struct page *next;
	uintptr_t number;
	struct shadow byte[PAGE];
};
/* A lock, and what it hands on: of each block the phase before which all of it is seen. */
struct lock {
	const void *at;
	uint32_t seen[BLOCKS];
};

int race_lane_in_hand = RACE_ALL_LANES;

static struct {
	bool on, constant;
	uint32_t first_phase; /* of the launch */
	struct moment now;
	uintptr_t stack; /* of the caller of the launch */
	struct page *pages[BUCKETS];
	size_t n_pages;
	struct page *last;
	uint32_t seen[BLOCKS]; /* by the block; locks were taken in a phase by a warp */
	uint32_t took_phase;
	uint8_t took_warp;
	struct lock locks[LOCKS];
	size_t n_locks;
	/* a write that was announced; what was there before */
	uintptr_t write_at;
	size_t write_bytes;
	uint8_t before[WRITE];
	struct moment writer;
	uintptr_t write_code;
} s;

/* ----- reports ------------------------------------------------ */

static void say_moment(const char *what, const struct moment *m, uintptr_t code)
{
	Dl_info info = { 0 };
	const char *name = "?";
	if (dladdr((void *)code, &info) && info.dli_fname) {
		name = strrchr(info.dli_fname, '/');
		name = name ? name + 1 : info.dli_fname;
	}
	fprintf(stderr, "  %s by block %u, warp %u, lane %u, in phase %u, span %u", what, m->block,
	        m->warp, m->lane, m->phase - s.first_phase, m->span);
	if (code)
		fprintf(stderr, ", %s+%#zx", name, (size_t)(code - 1 - (uintptr_t)info.dli_fbase));
	fputc('\n', stderr);
}

/* Offsets of code in 32 bits. */
static uint32_t short_code(uintptr_t code)
{
	return (uint32_t)(code - (uintptr_t)race_launch);
}
static uintptr_t long_code(uint32_t code)
{
	return code ? (uintptr_t)race_launch + (uintptr_t)(int32_t)code : 0;
}

__attribute__((noreturn)) static void race(const char *what, uintptr_t at, const struct moment *now,
                                           uintptr_t code, const struct moment *other,
                                           uint32_t other_code)
{
	fprintf(stderr, "kernel: race at %#zx: %s (warp 8: all of them, lane 32: all of them)\n",
	        (size_t)at, what);
	say_moment("this", now, code);
	say_moment("that", other, long_code(other_code));
	abort();
}

/* ----- order ------------------------------------------------ */

static bool in_launch(const struct moment *m)
{
	return m->phase && m->phase >= s.first_phase;
}

/* Whether a block that is not the one of `now` has done m before. */
static bool handed_on(const struct moment *m, const struct moment *now)
{
	return m->block < BLOCKS && m->phase < s.seen[m->block] &&
	       (now->phase != s.took_phase || now->warp == s.took_warp);
}

/* Whether all threads of m, or (own) all but those of `now`, are done with it on a GPU. */
static bool before(const struct moment *m, const struct moment *now, bool own)
{
	if (m->block != now->block)
		return handed_on(m, now);
	if (m->phase != now->phase)
		return true;
	if (m->warp == RACE_ALL_WARPS || m->warp != now->warp)
		return own && m->warp == RACE_ALL_WARPS;
	return m->span != now->span || m->lane == now->lane || (own && m->lane == RACE_ALL_LANES);
}

/* ----- the shadow ------------------------------------------------ */

static struct page *page_of(uintptr_t number)
{
	struct page **bucket = &s.pages[(number * 0x9e3779b1u >> 8) % BUCKETS];
	if (s.last && s.last->number == number)
		return s.last;
	struct page *p = *bucket;
	while (p && p->number != number)
		p = p->next;
	if (!p) {
		p = calloc(1, sizeof *p);
		if (!p)
			abort();
		p->number = number;
		p->next = *bucket;
		*bucket = p;
		s.n_pages++;
	}
	s.last = p;
	return p;
}
static struct shadow *shadow_of(uintptr_t at)
{
	return &page_of(at / PAGE)->byte[at % PAGE];
}

static void forget_pages(void)
{
	for (size_t i = 0; i < BUCKETS; i++)
		for (struct page *next, *p = s.pages[i]; p; p = next) {
			next = p->next;
			free(p);
		}
	memset(s.pages, 0, sizeof s.pages);
	s.n_pages = 0;
	s.last = NULL;
}

static void write_byte(uintptr_t at, bool changed)
{
	struct shadow *x = shadow_of(at);
	const struct moment *w = &s.writer;
	if (changed && in_launch(&x->written) && !before(&x->written, w, false))
		race("written again", at, w, s.write_code, &x->written, x->write_code);
	if (changed && in_launch(&x->read)) {
		struct moment r = x->read;
		const bool others = r.span == w->span && w->lane < RACE_ALL_LANES &&
		                    x->lanes & ~(1u << w->lane);
		const bool warps = r.phase == w->phase &&
		                   (w->warp == RACE_ALL_WARPS || x->warps & ~(1u << w->warp));
		if (others || warps || !before(&r, w, false))
			race("written behind a read", at, w, s.write_code, &r, 0);
	}
	x->written = *w;
	x->write_code = short_code(s.write_code);
}

/* Looks at the write that was announced, which is done now. */
static void write_done(void)
{
	const size_t n = s.write_bytes;
	s.write_bytes = 0;
	for (size_t i = 0; i < n; i++)
		write_byte(s.write_at + i, *(const uint8_t *)(s.write_at + i) != s.before[i]);
}

static void read_byte(uintptr_t at, uintptr_t code)
{
	struct shadow *x = shadow_of(at);
	const struct moment *r = &s.now;
	if (in_launch(&x->written) && s.constant)
		race("constant load of what the launch wrote", at, r, code, &x->written,
		     x->write_code);
	if (in_launch(&x->written) && !before(&x->written, r, true))
		race("read of what was written", at, r, code, &x->written, x->write_code);
	x->warps = (uint8_t)((x->read.phase == r->phase ? x->warps : 0) |
	                     (r->warp == RACE_ALL_WARPS ? 0xff : 1u << r->warp));
	x->lanes = (x->read.span == r->span ? x->lanes : 0) |
	           (r->lane == RACE_ALL_LANES ? ~0u : 1u << r->lane);
	x->read = *r;
}

/* An access that comes. */
static void access_of(const void *p, size_t bytes, bool writes, const void *code)
{
	const uintptr_t at = (uintptr_t)p;
	if (p == &race_lane_in_hand)
		return;
	if (s.write_bytes)
		write_done();
	if (!s.on || race_lane_in_hand == RACE_NO_LANE ||
	    (at < s.stack && at >= (uintptr_t)__builtin_frame_address(0)))
		return;
	s.now.lane = (uint8_t)race_lane_in_hand;
	if (!writes) {
		for (size_t i = 0; i < bytes; i++)
			read_byte(at + i, (uintptr_t)code);
		return;
	}
	if (bytes > WRITE)
		abort();
	s.write_at = at;
	s.write_bytes = bytes;
	s.write_code = (uintptr_t)code;
	s.writer = s.now;
	memcpy(s.before, p, bytes);
}

/* ----- who runs ------------------------------------------------ */

static void next_phase(void)
{
	if (s.write_bytes)
		write_done();
	s.now.phase++;
	s.now.span++;
	s.now.warp = RACE_ALL_WARPS;
}

void race_launch(const void *stack)
{
	next_phase();
	if (s.n_pages > PAGES_KEPT)
		forget_pages();
	s.first_phase = s.now.phase;
	s.stack = (uintptr_t)stack;
	s.n_locks = 0;
	s.on = true;
}

void race_ended(void)
{
	next_phase();
	s.on = false;
}

void race_block(uint32_t block, const void *shared, size_t bytes)
{
	next_phase();
	s.now.block = block;
	memset(s.seen, 0, sizeof s.seen);
	for (size_t n, i = 0; i < bytes; i += n) {
		const size_t left = PAGE - ((uintptr_t)shared + i) % PAGE;
		n = left < bytes - i ? left : bytes - i;
		memset(shadow_of((uintptr_t)shared + i), 0, n * sizeof(struct shadow));
	}
}

void race_warp(uint32_t warp)
{
	if (!s.on) {
		fputs("kernel: not begun by race_launch, so nothing sees its races\n", stderr);
		abort();
	}
	race_warp_barrier();
	s.now.warp = (uint8_t)warp;
}

void race_block_barrier(void)
{
	next_phase();
}

void race_warp_barrier(void)
{
	if (s.write_bytes)
		write_done();
	s.now.span++;
}

void race_constant(bool constant)
{
	s.constant = constant;
}

static struct lock *lock_of(const void *at)
{
	size_t i = 0;
	while (i < s.n_locks && s.locks[i].at != at)
		i++;
	if (i == LOCKS || s.now.block >= BLOCKS)
		abort();
	if (i == s.n_locks) {
		memset(&s.locks[i], 0, sizeof s.locks[i]);
		s.locks[i].at = at;
		s.n_locks++;
	}
	return &s.locks[i];
}

static void take_later(uint32_t *to, const uint32_t *from)
{
	for (size_t i = 0; i < BLOCKS; i++)
		to[i] = from[i] > to[i] ? from[i] : to[i];
}

void race_take(const void *at)
{
	take_later(s.seen, lock_of(at)->seen);
	s.took_phase = s.now.phase;
	s.took_warp = s.now.warp;
}

void race_give(const void *at)
{
	struct lock *l = lock_of(at);
	take_later(l->seen, s.seen);
	l->seen[s.now.block] = s.now.phase;
}

/* ----- what compilers call ------------------------------------------------ */

#define CODE __builtin_return_address(0)
#define ACCESSES(bytes)                                   \
	void __tsan_read##bytes(const void *p);           \
	void __tsan_write##bytes(void *p);                \
	void __tsan_unaligned_read##bytes(const void *p); \
	void __tsan_unaligned_write##bytes(void *p);      \
	void __tsan_read##bytes(const void *p)            \
	{                                                 \
		access_of(p, bytes, false, CODE);         \
	}                                                 \
	void __tsan_write##bytes(void *p)                 \
	{                                                 \
		access_of(p, bytes, true, CODE);          \
	}                                                 \
	void __tsan_unaligned_read##bytes(const void *p)  \
	{                                                 \
		access_of(p, bytes, false, CODE);         \
	}                                                 \
	void __tsan_unaligned_write##bytes(void *p)       \
	{                                                 \
		access_of(p, bytes, true, CODE);          \
	}
ACCESSES(1)
ACCESSES(2)
ACCESSES(4)
ACCESSES(8)
ACCESSES(16)
void __tsan_read_range(const void *p, size_t bytes);
void __tsan_write_range(void *p, size_t bytes);
void __tsan_init(void);
void __tsan_func_entry(void *code);
void __tsan_func_exit(void);
void __tsan_read_range(const void *p, size_t bytes)
{
	access_of(p, bytes, false, CODE);
}
void __tsan_write_range(void *p, size_t bytes)
{
	access_of(p, bytes, true, CODE);
}
void __tsan_init(void)
{
}
void __tsan_func_entry(void *code)
{
	(void)code;
}
void __tsan_func_exit(void)
{
}
