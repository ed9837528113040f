/* SPDX-License-Identifier: BSD-3-Clause */
/* pickle_tree.c - parses the opcodes of a pickle into a tree, without what they would do */
#include "pickle_tree.h"

#include <string.h>

#include "util/bytes.h"
#include "util/list.h"

enum { NODES_MAX = 1 << 20, STACK_MAX = 1 << 20, MARK = UINT32_MAX };

struct stack {
	uint32_t *list;
	size_t n, cap;
};

struct parsing {
	struct kvi_pickle *p;
	const struct kvi_alloc *alloc;
	const uint8_t *at, *end;
	struct stack stack, memo; /* node numbers; in the stack also MARK, in the memo plus 1 */
	kvarc_ret ret;            /* END: not understood */
};

static void fail(struct parsing *g, kvarc_ret ret)
{
	if (!g->ret)
		g->ret = ret;
}

/* n bytes of the pickle; NULL, with ret set: there are fewer. */
static const uint8_t *take(struct parsing *g, uint64_t n)
{
	const uint8_t *p = g->at;
	if (n > (uint64_t)(g->end - g->at)) {
		fail(g, KVARC_END);
		return NULL;
	}
	g->at += n;
	return p;
}

/* A little-endian number of n bytes; 0 with ret set at the end. */
static uint64_t take_number(struct parsing *g, unsigned n)
{
	const uint8_t *p = take(g, n);
	uint64_t v = 0;
	for (unsigned i = 0; p && i < n; i++)
		v |= (uint64_t)p[i] << (8 * i);
	return v;
}

static bool put(struct parsing *g, struct stack *s, uint32_t value)
{
	if (s->n >= STACK_MAX)
		fail(g, KVARC_END);
	else if (!kvi_array_grow(g->alloc, &s->list, &s->cap, s->n, sizeof *s->list))
		fail(g, kvi_alloc_error(g->alloc));
	else
		s->list[s->n++] = value;
	return !g->ret;
}

static struct kvi_pickle_node *push(struct parsing *g, enum kvi_pickle_type type)
{
	struct kvi_pickle *p = g->p;
	if (p->n_nodes >= NODES_MAX)
		fail(g, KVARC_END);
	else if (!kvi_array_grow(g->alloc, &p->nodes, &p->cap_nodes, p->n_nodes, sizeof *p->nodes))
		fail(g, kvi_alloc_error(g->alloc));
	else if (put(g, &g->stack, (uint32_t)p->n_nodes)) {
		struct kvi_pickle_node *x = &p->nodes[p->n_nodes++];
		*x = (struct kvi_pickle_node){ .type = (uint8_t)type };
		return x;
	}
	return NULL;
}

static void push_int(struct parsing *g, int64_t number)
{
	struct kvi_pickle_node *x = push(g, KVI_PICKLE_INT);
	if (x)
		x->number = number;
}

/* Bytes behind their length, which has `width` bytes. */
static void push_text(struct parsing *g, unsigned width, enum kvi_pickle_type type)
{
	const uint64_t n = take_number(g, width);
	const uint8_t *p = take(g, n);
	struct kvi_pickle_node *x = p ? push(g, type) : NULL;
	if (x) {
		x->at = (uint32_t)(p - g->p->text);
		x->bytes = (uint32_t)n;
	}
}

/* LONG1: little endian, two's complement. */
static void push_long(struct parsing *g)
{
	const uint64_t n = take_number(g, 1);
	const uint8_t *p = take(g, n);
	if (!p || n > 8) {
		push(g, KVI_PICKLE_OTHER);
		return;
	}
	uint64_t v = n && (p[n - 1] & 0x80) ? UINT64_MAX : 0;
	for (size_t i = (size_t)n; i--;)
		v = v << 8 | p[i];
	push_int(g, (int64_t)v);
}

/* A line of the pickle without its end. */
static const uint8_t *take_line(struct parsing *g, uint32_t *bytes)
{
	const uint8_t *p = g->at, *nl = memchr(p, '\n', (size_t)(g->end - p));
	if (!nl) {
		fail(g, KVARC_END);
		return NULL;
	}
	*bytes = (uint32_t)(nl - p);
	g->at = nl + 1;
	return p;
}

static void push_global(struct parsing *g)
{
	uint32_t n[2] = { 0, 0 };
	const uint8_t *module = take_line(g, &n[0]), *name = module ? take_line(g, &n[1]) : NULL;
	struct kvi_pickle_node *x = name ? push(g, KVI_PICKLE_GLOBAL) : NULL;
	if (x) {
		x->at = (uint32_t)(module - g->p->text);
		x->bytes = n[0];
		x->at2 = (uint32_t)(name - g->p->text);
		x->bytes2 = n[1];
	}
}

/* The top of the stack, removed; MARK with ret set: there is none, or it is a mark. */
static uint32_t pop(struct parsing *g)
{
	const struct stack *s = &g->stack;
	if (s->n == 0 || s->list[s->n - 1] == MARK) {
		fail(g, KVARC_END);
		return MARK;
	}
	return g->stack.list[--g->stack.n];
}

static void append(struct parsing *g, uint32_t parent, uint32_t child)
{
	struct kvi_pickle *p = g->p;
	if (g->ret)
		return;
	if (p->n_links >= NODES_MAX) {
		fail(g, KVARC_END);
		return;
	}
	if (!kvi_array_grow(g->alloc, &p->links, &p->cap_links, p->n_links, sizeof *p->links)) {
		fail(g, kvi_alloc_error(g->alloc));
		return;
	}
	struct kvi_pickle_node *x = &p->nodes[parent];
	p->links[p->n_links++] = (struct kvi_pickle_link){ child, 0 };
	if (x->last)
		p->links[x->last - 1].next = (uint32_t)p->n_links;
	else
		x->first = (uint32_t)p->n_links;
	x->last = (uint32_t)p->n_links;
	x->n_children++;
}

/* The index of the first value above the last mark; the mark stays. */
static size_t above_mark(struct parsing *g)
{
	size_t i = g->stack.n;
	while (i && g->stack.list[i - 1] != MARK)
		i--;
	if (i == 0)
		fail(g, KVARC_END);
	return i;
}

/* The topmost n values are children of a new one, or of the one below the mark. */
static void gather(struct parsing *g, size_t from, uint32_t parent, size_t drop_to)
{
	for (size_t i = from; i < g->stack.n && !g->ret; i++)
		append(g, parent, g->stack.list[i]);
	if (!g->ret)
		g->stack.n = drop_to;
}

static void make(struct parsing *g, enum kvi_pickle_type type, size_t from, size_t drop_to)
{
	if (g->ret)
		return;
	if (!push(g, type))
		return;
	const uint32_t node = g->stack.list[--g->stack.n];
	gather(g, from, node, drop_to);
	put(g, &g->stack, node);
}

/* TUPLE1 to 3, REDUCE, NEWOBJ, BINPERSID: of the topmost n values. */
static void make_of(struct parsing *g, enum kvi_pickle_type type, size_t n)
{
	const struct stack *s = &g->stack;
	if (n > s->n)
		fail(g, KVARC_END);
	for (size_t i = 0; i < n && !g->ret; i++)
		if (s->list[s->n - 1 - i] == MARK)
			fail(g, KVARC_END);
	if (!g->ret)
		make(g, type, s->n - n, s->n - n);
}

static void make_of_mark(struct parsing *g, enum kvi_pickle_type type)
{
	const size_t from = above_mark(g);
	if (!g->ret)
		make(g, type, from, from - 1);
}

/* APPENDS, SETITEMS, ADDITEMS: what is above the mark goes into the value below it. */
static void extend(struct parsing *g)
{
	const size_t from = above_mark(g);
	if (g->ret)
		return;
	if (from < 2 || g->stack.list[from - 2] == MARK) {
		fail(g, KVARC_END);
		return;
	}
	gather(g, from, g->stack.list[from - 2], from - 1);
}

/* APPEND, SETITEM, BUILD: the topmost n values go into the one below them. */
static void extend_by(struct parsing *g, size_t n)
{
	uint32_t value[2] = { 0, 0 };
	for (size_t i = n; i-- && !g->ret;)
		value[i] = pop(g);
	if (!g->ret && (g->stack.n == 0 || g->stack.list[g->stack.n - 1] == MARK))
		fail(g, KVARC_END);
	for (size_t i = 0; i < n && !g->ret; i++)
		append(g, g->stack.list[g->stack.n - 1], value[i]);
}

/* STACK_GLOBAL: module and name are texts. */
static void stack_global(struct parsing *g)
{
	const uint32_t name = pop(g), module = pop(g);
	struct kvi_pickle_node *x = g->ret ? NULL : push(g, KVI_PICKLE_GLOBAL);
	if (!x)
		return;
	const struct kvi_pickle_node *m = &g->p->nodes[module], *n = &g->p->nodes[name];
	if (m->type != KVI_PICKLE_TEXT || n->type != KVI_PICKLE_TEXT) {
		fail(g, KVARC_END);
		return;
	}
	x->at = m->at;
	x->bytes = m->bytes;
	x->at2 = n->at;
	x->bytes2 = n->bytes;
}

/* The memo is as long as its largest number: numbers go up one by one in a real pickle. */
static void remember(struct parsing *g, uint64_t key)
{
	struct stack *m = &g->memo;
	if (g->stack.n == 0 || g->stack.list[g->stack.n - 1] == MARK || key > m->n + 65536) {
		fail(g, KVARC_END);
		return;
	}
	while (m->n <= key && put(g, m, 0)) {
	}
	if (!g->ret)
		m->list[key] = g->stack.list[g->stack.n - 1] + 1;
}

static void recall(struct parsing *g, uint64_t key)
{
	if (g->ret)
		return;
	if (key >= g->memo.n || !g->memo.list[key])
		fail(g, KVARC_END);
	else
		put(g, &g->stack, g->memo.list[key] - 1);
}

/* Values. false: another opcode. */
static bool do_value(struct parsing *g, uint8_t op)
{
	switch (op) {
	case 'K':
		push_int(g, (int64_t)take_number(g, 1));
		break;
	case 'M':
		push_int(g, (int64_t)take_number(g, 2));
		break;
	case 'J':
		push_int(g, (int32_t)(uint32_t)take_number(g, 4));
		break;
	case 0x8a:
		push_long(g);
		break;
	case 0x88:
	case 0x89:
		push_int(g, op == 0x88);
		break;
	case 'N':
		push(g, KVI_PICKLE_OTHER);
		break;
	case 'G':
		if (take(g, 8))
			push(g, KVI_PICKLE_OTHER);
		break;
	case 0x8c:
		push_text(g, 1, KVI_PICKLE_TEXT);
		break;
	case 'X':
		push_text(g, 4, KVI_PICKLE_TEXT);
		break;
	case 0x8d:
		push_text(g, 8, KVI_PICKLE_TEXT);
		break;
	case 'U':
	case 'C':
		push_text(g, 1, KVI_PICKLE_OTHER);
		break;
	case 'T':
	case 'B':
		push_text(g, 4, KVI_PICKLE_OTHER);
		break;
	case 'c':
		push_global(g);
		break;
	case 0x93:
		stack_global(g);
		break;
	default:
		return false;
	}
	return true;
}

/* Containers, calls, the memo. false: another opcode. */
static bool do_build(struct parsing *g, uint8_t op)
{
	switch (op) {
	case '(':
		put(g, &g->stack, MARK);
		break;
	case '}':
		push(g, KVI_PICKLE_DICT);
		break;
	case ']':
	case ')':
	case 0x8f:
		push(g, KVI_PICKLE_LIST);
		break;
	case 't':
		make_of_mark(g, KVI_PICKLE_LIST);
		break;
	case 0x85:
	case 0x86:
	case 0x87:
		make_of(g, KVI_PICKLE_LIST, (size_t)op - 0x84);
		break;
	case 'R':
	case 0x81:
		make_of(g, KVI_PICKLE_CALL, 2);
		break;
	case 'Q':
		make_of(g, KVI_PICKLE_STORED, 1);
		break;
	case 'e':
	case 'u':
	case 0x90:
		extend(g);
		break;
	case 'a':
	case 'b':
		extend_by(g, 1);
		break;
	case 's':
		extend_by(g, 2);
		break;
	case '0':
		pop(g);
		break;
	default:
		return false;
	}
	return true;
}

static bool do_memo(struct parsing *g, uint8_t op)
{
	switch (op) {
	case 'q':
		remember(g, take_number(g, 1));
		break;
	case 'r':
		remember(g, take_number(g, 4));
		break;
	case 0x94:
		remember(g, g->memo.n);
		break;
	case 'h':
		recall(g, take_number(g, 1));
		break;
	case 'j':
		recall(g, take_number(g, 4));
		break;
	case 0x95: /* FRAME: only its length */
		take(g, 8);
		break;
	default:
		return false;
	}
	return true;
}

static void run(struct parsing *g)
{
	const uint8_t *head = take(g, 2);
	if (!head || head[0] != 0x80 || head[1] < 2 || head[1] > 5)
		fail(g, KVARC_END);
	while (!g->ret) {
		const uint8_t *op = take(g, 1);
		if (!op)
			return;
		if (*op == '.') {
			g->p->root = pop(g);
			if (g->at != g->end || g->stack.n)
				fail(g, KVARC_END);
			return;
		}
		if (!do_value(g, *op) && !do_build(g, *op) && !do_memo(g, *op))
			fail(g, KVARC_END);
	}
}

kvarc_ret kvi_pickle_parse(struct kvi_pickle *p, const struct kvi_alloc *alloc, const uint8_t *text,
                           size_t bytes)
{
	struct parsing g = { .p = p, .alloc = alloc, .at = text, .end = text + bytes };
	*p = (struct kvi_pickle){ .text = text, .bytes = bytes };
	if (bytes > UINT32_MAX)
		return KVARC_END;
	run(&g);
	kvi_free(alloc, g.stack.list);
	kvi_free(alloc, g.memo.list);
	if (g.ret)
		kvi_pickle_free(p, alloc);
	return g.ret;
}

void kvi_pickle_free(struct kvi_pickle *p, const struct kvi_alloc *alloc)
{
	kvi_free(alloc, p->nodes);
	kvi_free(alloc, p->links);
	*p = (struct kvi_pickle){ 0 };
}

const struct kvi_pickle_node *kvi_pickle_child(const struct kvi_pickle *p,
                                               const struct kvi_pickle_node *node, uint32_t i)
{
	uint32_t link = node->first;
	while (link && i--)
		link = p->links[link - 1].next;
	return link ? &p->nodes[p->links[link - 1].node] : NULL;
}

static bool same(const struct kvi_pickle *p, uint32_t at, uint32_t bytes, const char *text)
{
	return strlen(text) == bytes && !memcmp(p->text + at, text, bytes);
}

bool kvi_pickle_is(const struct kvi_pickle *p, const struct kvi_pickle_node *node,
                   const char *module, const char *name)
{
	return node && node->type == KVI_PICKLE_GLOBAL && same(p, node->at, node->bytes, module) &&
	       same(p, node->at2, node->bytes2, name);
}
