/* SPDX-License-Identifier: BSD-3-Clause */
/* store_ledger.c - what was asked of a store, and what was acknowledged */
#include "config.h"

#include "store_ledger.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What the file has: one write, which the system does not divide. */
struct ledger_record {
	uint32_t what; /* a ledger_kind: it begins; or one of those below */
	uint32_t worker;
	char session[LEDGER_NAME], parent[LEDGER_NAME];
	uint64_t number, parent_number; /* number: `keep`, where gc begins */
	struct kvi_h128 digest;
	uint64_t check;
};
enum { ENDED = 16, SAVED, FORKED, DEAD };

static _Noreturn void die(const char *what)
{
	perror(what);
	abort();
}

void ledger_open(struct store_ledger *l, const char *path, uint32_t worker)
{
	*l = (struct store_ledger){ .worker = worker };
	l->fd = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	if (l->fd < 0)
		die(path);
}

void ledger_close(struct store_ledger *l)
{
	close(l->fd);
	free(l->list);
	free(l->open);
}

static void write_record(const struct store_ledger *l, struct ledger_record r)
{
	r.check = kvi_h64(&r, offsetof(struct ledger_record, check));
	if (write(l->fd, &r, sizeof r) != (ssize_t)sizeof r)
		die("ledger");
}

static struct ledger_record record_of(const struct store_ledger *l, uint32_t what)
{
	struct ledger_record r;
	memset(&r, 0, sizeof r);
	r.what = what;
	r.worker = l->worker;
	return r;
}

void ledger_begin(struct store_ledger *l, enum ledger_kind kind, const char *session, uint64_t keep)
{
	struct ledger_record r = record_of(l, kind);
	snprintf(r.session, sizeof r.session, "%s", session);
	r.number = keep;
	write_record(l, r);
}

void ledger_end(struct store_ledger *l)
{
	write_record(l, record_of(l, ENDED));
}

void ledger_saved(struct store_ledger *l, uint64_t number, struct kvi_h128 digest)
{
	struct ledger_record r = record_of(l, SAVED);
	r.number = number;
	r.digest = digest;
	write_record(l, r);
}

void ledger_forked(struct store_ledger *l, const char *parent, uint64_t parent_number,
                   struct kvi_h128 digest)
{
	struct ledger_record r = record_of(l, FORKED);
	snprintf(r.parent, sizeof r.parent, "%s", parent);
	r.parent_number = parent_number;
	r.digest = digest;
	write_record(l, r);
}

void ledger_dead(struct store_ledger *l, uint32_t worker)
{
	struct ledger_record r = record_of(l, DEAD);
	r.worker = worker;
	write_record(l, r);
}

/* ----- reading ------------------------------------------------ */

/* The operation of a worker that has not ended, plus 1. */
static size_t *open_of(struct store_ledger *l, uint32_t worker)
{
	if (worker >= l->open_capacity) {
		const size_t capacity = 2 * ((size_t)worker + 8);
		l->open = realloc(l->open, capacity * sizeof *l->open);
		if (!l->open)
			die("memory");
		memset(l->open + l->open_capacity, 0,
		       (capacity - l->open_capacity) * sizeof *l->open);
		l->open_capacity = capacity;
	}
	return &l->open[worker];
}

static void begin(struct store_ledger *l, const struct ledger_record *r)
{
	if (l->n == l->capacity) {
		l->capacity = 2 * l->capacity + 1024;
		l->list = realloc(l->list, l->capacity * sizeof *l->list);
		if (!l->list)
			die("memory");
	}
	struct ledger_operation *o = &l->list[l->n];
	memset(o, 0, sizeof *o);
	o->kind = (enum ledger_kind)r->what;
	o->worker = r->worker;
	memcpy(o->session, r->session, sizeof o->session);
	o->keep = r->number;
	o->begin = l->records;
	o->end = SIZE_MAX;
	*open_of(l, r->worker) = ++l->n;
	if (o->kind == LEDGER_VOID)
		l->last_void = l->n;
	o->first = l->n - 1;
	for (size_t i = 0; i < l->open_capacity; i++)
		if (l->open[i] && l->open[i] - 1 < o->first)
			o->first = l->open[i] - 1;
}

static void take(struct store_ledger *l, const struct ledger_record *r)
{
	size_t *open = open_of(l, r->worker);
	if (r->check != kvi_h64(r, offsetof(struct ledger_record, check))) {
		fprintf(stderr, "ledger: a record is damaged\n");
		abort();
	}
	if (r->what < ENDED) {
		begin(l, r);
	} else if (*open) {
		struct ledger_operation *o = &l->list[*open - 1];
		o->end = l->records;
		o->acknowledged = r->what == SAVED || r->what == FORKED;
		o->number = r->number;
		o->digest = r->digest;
		o->parent_number = r->parent_number;
		memcpy(o->parent, r->parent, sizeof o->parent);
		*open = 0;
	}
	l->records++;
}

void ledger_read(struct store_ledger *l)
{
	struct ledger_record r;
	while (pread(l->fd, &r, sizeof r, (off_t)(l->records * sizeof r)) == (ssize_t)sizeof r)
		take(l, &r);
}

/* ----- the rules ------------------------------------------------ */

enum { KEEP_MOST = 8 };

/* Whether a put may have made a version with a higher number. A number is used once, so that one
 * that ended before began has a lower one. */
static bool may_be_behind(const struct ledger_operation *v, const struct ledger_operation *o)
{
	if (o == v || o->kind != LEDGER_PUT || strcmp(o->session, v->session) != 0 ||
	    o->end < v->begin)
		return false;
	return !o->acknowledged || !o->number || !v->number || o->number > v->number;
}

/* Where the first puts behind a version begin; later[n]: of n of them. */
static void find_later(const struct store_ledger *l, const struct ledger_operation *v,
                       size_t later[KEEP_MOST + 1])
{
	size_t n = 0;
	for (size_t i = 0; i <= KEEP_MOST; i++)
		later[i] = SIZE_MAX;
	for (size_t i = v->first; i < l->n && n < KEEP_MOST; i++)
		if (may_be_behind(v, &l->list[i]))
			later[++n] = l->list[i].begin;
}

bool ledger_voids(const struct store_ledger *l, const struct ledger_operation *version)
{
	return l->last_void && l->list[l->last_void - 1].end >= version->begin;
}

bool ledger_voids_by_now(struct store_ledger *l, const struct ledger_operation *version)
{
	ledger_read(l);
	return ledger_voids(l, version);
}

bool ledger_excuses(const struct store_ledger *l, const struct ledger_operation *version)
{
	size_t later[KEEP_MOST + 1];
	if (ledger_voids(l, version))
		return true;
	find_later(l, version, later);
	for (size_t i = version->first; i < l->n; i++) {
		const struct ledger_operation *o = &l->list[i];
		if (o->end < version->begin)
			continue;
		if (o->kind == LEDGER_REMOVE && strcmp(o->session, version->session) == 0)
			return true;
		if (o->kind == LEDGER_COLLECT && o->keep && later[o->keep] != SIZE_MAX &&
		    o->end >= later[o->keep])
			return true;
	}
	return false;
}
