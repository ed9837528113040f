/* SPDX-License-Identifier: BSD-3-Clause */
/* ids.c - text files of token ids */
#include "config.h"

#include "ids.h"

#include <stdlib.h>
#include <string.h>

#include "message.h"

static bool is_space(char c)
{
	return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

/* Whether the input begins with a number and a blank: no cache does. */
bool ids_is_text(struct input *in)
{
	kvarc_source source = input_source(in);
	char head[64];
	int64_t n = source.read(source.opaque, head, sizeof(head), 0), i = 0;
	int64_t first;

	while (i < n && is_space(head[i]))
		i++;
	first = i;
	while (i < n && is_digit(head[i]))
		i++;
	return i > first && i < (int64_t)sizeof(head) && (i == n || is_space(head[i]));
}

/* A line as far as it was read. */
struct reading {
	struct input *in;
	ids_fn fn;
	void *opaque;
	uint64_t line;  /* from 1 */
	int64_t number; /* -1: none is begun */
	int32_t *ids;
	size_t n, capacity;
};

static bool end_number(struct reading *r)
{
	if (r->number < 0)
		return true;
	if (r->n == r->capacity) {
		size_t capacity = r->capacity ? 2 * r->capacity : 4096;
		int32_t *ids = realloc(r->ids, capacity * sizeof(*ids));
		if (!ids) {
			msg_error(NULL, "out of memory");
			return false;
		}
		r->ids = ids;
		r->capacity = capacity;
	}
	r->ids[r->n++] = (int32_t)r->number;
	r->number = -1;
	return true;
}

static bool end_line(struct reading *r)
{
	bool ok = end_number(r) && (!r->n || r->fn(r->opaque, r->ids, r->n));

	r->n = 0;
	r->line++;
	return ok;
}

static bool take(struct reading *r, char c)
{
	if (c == '\n')
		return end_line(r);
	if (is_space(c))
		return end_number(r);
	if (is_digit(c)) {
		r->number = (r->number < 0 ? 0 : 10 * r->number) + (c - '0');
		if (r->number <= INT32_MAX)
			return true;
	}
	msg_error(r->in->name,
	          "line %llu is not a sequence of token ids: decimal numbers separated by blanks",
	          (unsigned long long)r->line);
	return false;
}

static bool read_all(struct reading *r, char *piece, size_t bytes)
{
	kvarc_source source = input_source(r->in);
	uint64_t at = 0;
	int64_t n;

	while ((n = source.read(source.opaque, piece, bytes, at)) > 0) {
		for (int64_t i = 0; i < n; i++) {
			if (!take(r, piece[i]))
				return false;
		}
		at += (uint64_t)n;
	}
	if (n < 0) {
		msg_error(r->in->name, "cannot read: %s", strerror(r->in->error));
		return false;
	}
	return end_line(r);
}

bool ids_read(struct input *in, ids_fn fn, void *opaque)
{
	enum { PIECE = 1 << 16 };
	struct reading r = { .in = in, .fn = fn, .opaque = opaque, .line = 1, .number = -1 };
	char *piece = malloc(PIECE);
	bool ok = false;

	if (piece)
		ok = read_all(&r, piece, PIECE);
	else
		msg_error(NULL, "out of memory");
	free(piece);
	free(r.ids);
	return ok;
}
