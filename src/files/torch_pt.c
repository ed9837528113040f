/* SPDX-License-Identifier: BSD-3-Clause */
/* torch_pt.c - files of torch.save: a zip of storages, and a pickle that describes them */
#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "import_internal.h"
#include "named_tensors.h"
#include "util/bytes.h"
#include "util/ckd.h"
#include "util/error.h"
#include "util/list.h"

/* ==== Parses the opcodes of a pickle into a tree, without what they would do ==== */

/* The type of a value. */
enum pickle_type {
	PICKLE_OTHER,  /* None, a float, bytes, an int of more than 64 bits */
	PICKLE_INT,    /* number; False and True, too */
	PICKLE_TEXT,   /* bytes of the pickle: at, bytes */
	PICKLE_LIST,   /* lists, tuples, sets: the children */
	PICKLE_DICT,   /* children: key, value, key, value */
	PICKLE_GLOBAL, /* a name, "module name", which is only compared */
	PICKLE_CALL,   /* children: what would be called, its arguments, then states */
	PICKLE_STORED  /* child: a persistent id */
};

/* A value. Children are a chain of links. */
struct pickle_node {
	uint8_t type;
	uint32_t n_children;
	int64_t number;
	uint32_t at, bytes;   /* position in the pickle of texts and globals */
	uint32_t at2, bytes2; /* globals: position of the name behind the module */
	uint32_t first, last; /* links, plus 1; 0: none */
};

/* A child of a value. */
struct pickle_link {
	uint32_t node, next; /* next: plus 1; 0: the last one */
};

/* A parsed pickle; nodes may be shared, and be their own descendants: walk it with a limit. */
struct unpickling {
	const uint8_t *text; /* the caller's */
	size_t bytes;
	struct pickle_node *nodes;
	struct pickle_link *links;
	size_t n_nodes, cap_nodes, n_links, cap_links;
	uint32_t root;
};

enum { NODES_MAX = 1 << 20, STACK_MAX = 1 << 20, MARK = UINT32_MAX };

struct stack {
	uint32_t *list;
	size_t n, cap;
};

struct parsing {
	struct unpickling *p;
	const struct kvi_alloc *alloc;
	const uint8_t *at, *end;
	struct stack stack, memo; /* node numbers; in the stack also MARK, in the memo plus 1 */
	kvarc_ret ret;            /* END: not understood */
};

static void fail(struct parsing *parsing, kvarc_ret ret)
{
	if (!parsing->ret)
		parsing->ret = ret;
}

/* Passes n bytes of the pickle; NULL, with ret set: there are fewer. */
static const uint8_t *take(struct parsing *parsing, uint64_t n)
{
	const uint8_t *p = parsing->at;
	if (n > (uint64_t)(parsing->end - parsing->at)) {
		fail(parsing, KVARC_END);
		return NULL;
	}
	parsing->at += n;
	return p;
}

/* A little-endian number of n bytes; 0 with ret set at the end. */
static uint64_t take_number(struct parsing *parsing, unsigned n)
{
	const uint8_t *p = take(parsing, n);
	uint64_t v = 0;
	for (unsigned i = 0; p && i < n; i++)
		v |= (uint64_t)p[i] << (8 * i);
	return v;
}

static bool put(struct parsing *parsing, struct stack *stack, uint32_t value)
{
	if (stack->n >= STACK_MAX)
		fail(parsing, KVARC_END);
	else if (!kvi_array_grow(parsing->alloc, &stack->list, &stack->cap, stack->n,
	                         sizeof *stack->list))
		fail(parsing, kvi_alloc_error(parsing->alloc));
	else
		stack->list[stack->n++] = value;
	return !parsing->ret;
}

static struct pickle_node *push(struct parsing *parsing, enum pickle_type type)
{
	struct unpickling *p = parsing->p;
	if (p->n_nodes >= NODES_MAX)
		fail(parsing, KVARC_END);
	else if (!kvi_array_grow(parsing->alloc, &p->nodes, &p->cap_nodes, p->n_nodes,
	                         sizeof *p->nodes))
		fail(parsing, kvi_alloc_error(parsing->alloc));
	else if (put(parsing, &parsing->stack, (uint32_t)p->n_nodes)) {
		struct pickle_node *x = &p->nodes[p->n_nodes++];
		*x = (struct pickle_node){ .type = (uint8_t)type };
		return x;
	}
	return NULL;
}

static void push_int(struct parsing *parsing, int64_t number)
{
	struct pickle_node *x = push(parsing, PICKLE_INT);
	if (x)
		x->number = number;
}

/* Bytes behind their length, which has `width` bytes. */
static void push_text(struct parsing *parsing, unsigned width, enum pickle_type type)
{
	const uint64_t n = take_number(parsing, width);
	const uint8_t *p = take(parsing, n);
	struct pickle_node *x = p ? push(parsing, type) : NULL;
	if (x) {
		x->at = (uint32_t)(p - parsing->p->text);
		x->bytes = (uint32_t)n;
	}
}

/* Pushes the integer of LONG1: little endian, two's complement. */
static void push_long(struct parsing *parsing)
{
	const uint64_t n = take_number(parsing, 1);
	const uint8_t *p = take(parsing, n);
	if (!p || n > 8) {
		push(parsing, PICKLE_OTHER);
		return;
	}
	uint64_t v = n && (p[n - 1] & 0x80) ? UINT64_MAX : 0;
	for (size_t i = (size_t)n; i--;)
		v = v << 8 | p[i];
	push_int(parsing, (int64_t)v);
}

/* A line of the pickle without its end. */
static const uint8_t *take_line(struct parsing *parsing, uint32_t *bytes)
{
	const uint8_t *p = parsing->at, *nl = memchr(p, '\n', (size_t)(parsing->end - p));
	if (!nl) {
		fail(parsing, KVARC_END);
		return NULL;
	}
	*bytes = (uint32_t)(nl - p);
	parsing->at = nl + 1;
	return p;
}

static void push_global(struct parsing *parsing)
{
	uint32_t n[2] = { 0, 0 };
	const uint8_t *module = take_line(parsing, &n[0]),
		      *name = module ? take_line(parsing, &n[1]) : NULL;
	struct pickle_node *x = name ? push(parsing, PICKLE_GLOBAL) : NULL;
	if (x) {
		x->at = (uint32_t)(module - parsing->p->text);
		x->bytes = n[0];
		x->at2 = (uint32_t)(name - parsing->p->text);
		x->bytes2 = n[1];
	}
}

/* The top of the stack, removed; MARK with ret set: there is none, or it is a mark. */
static uint32_t pop(struct parsing *parsing)
{
	const struct stack *s = &parsing->stack;
	if (s->n == 0 || s->list[s->n - 1] == MARK) {
		fail(parsing, KVARC_END);
		return MARK;
	}
	return parsing->stack.list[--parsing->stack.n];
}

static void append(struct parsing *parsing, uint32_t parent, uint32_t child)
{
	struct unpickling *p = parsing->p;
	if (parsing->ret)
		return;
	if (p->n_links >= NODES_MAX) {
		fail(parsing, KVARC_END);
		return;
	}
	if (!kvi_array_grow(parsing->alloc, &p->links, &p->cap_links, p->n_links,
	                    sizeof *p->links)) {
		fail(parsing, kvi_alloc_error(parsing->alloc));
		return;
	}
	struct pickle_node *x = &p->nodes[parent];
	p->links[p->n_links++] = (struct pickle_link){ child, 0 };
	if (x->last)
		p->links[x->last - 1].next = (uint32_t)p->n_links;
	else
		x->first = (uint32_t)p->n_links;
	x->last = (uint32_t)p->n_links;
	x->n_children++;
}

/* The index of the first value above the last mark; the mark stays. */
static size_t above_mark(struct parsing *parsing)
{
	size_t i = parsing->stack.n;
	while (i && parsing->stack.list[i - 1] != MARK)
		i--;
	if (i == 0)
		fail(parsing, KVARC_END);
	return i;
}

/* The topmost n values are children of a new one, or of the one below the mark. */
static void gather(struct parsing *parsing, size_t from, uint32_t parent, size_t drop_to)
{
	for (size_t i = from; i < parsing->stack.n && !parsing->ret; i++)
		append(parsing, parent, parsing->stack.list[i]);
	if (!parsing->ret)
		parsing->stack.n = drop_to;
}

static void make(struct parsing *parsing, enum pickle_type type, size_t from, size_t drop_to)
{
	if (parsing->ret)
		return;
	if (!push(parsing, type))
		return;
	const uint32_t node = parsing->stack.list[--parsing->stack.n];
	gather(parsing, from, node, drop_to);
	put(parsing, &parsing->stack, node);
}

/* Makes a value of the topmost n values: TUPLE1 to 3, REDUCE, NEWOBJ, BINPERSID. */
static void make_of(struct parsing *parsing, enum pickle_type type, size_t n)
{
	const struct stack *s = &parsing->stack;
	if (n > s->n)
		fail(parsing, KVARC_END);
	for (size_t i = 0; i < n && !parsing->ret; i++)
		if (s->list[s->n - 1 - i] == MARK)
			fail(parsing, KVARC_END);
	if (!parsing->ret)
		make(parsing, type, s->n - n, s->n - n);
}

static void make_of_mark(struct parsing *parsing, enum pickle_type type)
{
	const size_t from = above_mark(parsing);
	if (!parsing->ret)
		make(parsing, type, from, from - 1);
}

/* Moves values above the mark into the value below it: APPENDS, SETITEMS, ADDITEMS. */
static void extend(struct parsing *parsing)
{
	const size_t from = above_mark(parsing);
	if (parsing->ret)
		return;
	if (from < 2 || parsing->stack.list[from - 2] == MARK) {
		fail(parsing, KVARC_END);
		return;
	}
	gather(parsing, from, parsing->stack.list[from - 2], from - 1);
}

/* Moves the topmost n values into the one below them: APPEND, SETITEM, BUILD. */
static void extend_by(struct parsing *parsing, size_t n)
{
	uint32_t value[2] = { 0, 0 };
	for (size_t i = n; i-- && !parsing->ret;)
		value[i] = pop(parsing);
	if (!parsing->ret &&
	    (parsing->stack.n == 0 || parsing->stack.list[parsing->stack.n - 1] == MARK))
		fail(parsing, KVARC_END);
	for (size_t i = 0; i < n && !parsing->ret; i++)
		append(parsing, parsing->stack.list[parsing->stack.n - 1], value[i]);
}

/* Makes the global of STACK_GLOBAL, whose module and name are texts. */
static void stack_global(struct parsing *parsing)
{
	const uint32_t name = pop(parsing), module = pop(parsing);
	struct pickle_node *x = parsing->ret ? NULL : push(parsing, PICKLE_GLOBAL);
	if (!x)
		return;
	const struct pickle_node *m = &parsing->p->nodes[module], *n = &parsing->p->nodes[name];
	if (m->type != PICKLE_TEXT || n->type != PICKLE_TEXT) {
		fail(parsing, KVARC_END);
		return;
	}
	x->at = m->at;
	x->bytes = m->bytes;
	x->at2 = n->at;
	x->bytes2 = n->bytes;
}

/* The memo is as long as its largest number: numbers go up one by one in a real pickle. */
static void remember(struct parsing *parsing, uint64_t key)
{
	struct stack *m = &parsing->memo;
	if (parsing->stack.n == 0 || parsing->stack.list[parsing->stack.n - 1] == MARK ||
	    key > m->n + 65536) {
		fail(parsing, KVARC_END);
		return;
	}
	while (m->n <= key && put(parsing, m, 0)) {
	}
	if (!parsing->ret)
		m->list[key] = parsing->stack.list[parsing->stack.n - 1] + 1;
}

static void recall(struct parsing *parsing, uint64_t key)
{
	if (parsing->ret)
		return;
	if (key >= parsing->memo.n || !parsing->memo.list[key])
		fail(parsing, KVARC_END);
	else
		put(parsing, &parsing->stack, parsing->memo.list[key] - 1);
}

/* Pushes the value of an opcode. False: another opcode. */
static bool do_value(struct parsing *parsing, uint8_t op)
{
	switch (op) {
	case 'K':
		push_int(parsing, (int64_t)take_number(parsing, 1));
		break;
	case 'M':
		push_int(parsing, (int64_t)take_number(parsing, 2));
		break;
	case 'J':
		push_int(parsing, (int32_t)(uint32_t)take_number(parsing, 4));
		break;
	case 0x8a:
		push_long(parsing);
		break;
	case 0x88:
	case 0x89:
		push_int(parsing, op == 0x88);
		break;
	case 'N':
		push(parsing, PICKLE_OTHER);
		break;
	case 'G':
		if (take(parsing, 8))
			push(parsing, PICKLE_OTHER);
		break;
	case 0x8c:
		push_text(parsing, 1, PICKLE_TEXT);
		break;
	case 'X':
		push_text(parsing, 4, PICKLE_TEXT);
		break;
	case 0x8d:
		push_text(parsing, 8, PICKLE_TEXT);
		break;
	case 'U':
	case 'C':
		push_text(parsing, 1, PICKLE_OTHER);
		break;
	case 'T':
	case 'B':
		push_text(parsing, 4, PICKLE_OTHER);
		break;
	case 'c':
		push_global(parsing);
		break;
	case 0x93:
		stack_global(parsing);
		break;
	default:
		return false;
	}
	return true;
}

/* Does an opcode of containers, calls or the memo. False: another opcode. */
static bool do_build(struct parsing *parsing, uint8_t op)
{
	switch (op) {
	case '(':
		put(parsing, &parsing->stack, MARK);
		break;
	case '}':
		push(parsing, PICKLE_DICT);
		break;
	case ']':
	case ')':
	case 0x8f:
		push(parsing, PICKLE_LIST);
		break;
	case 't':
		make_of_mark(parsing, PICKLE_LIST);
		break;
	case 0x85:
	case 0x86:
	case 0x87:
		make_of(parsing, PICKLE_LIST, (size_t)op - 0x84);
		break;
	case 'R':
	case 0x81:
		make_of(parsing, PICKLE_CALL, 2);
		break;
	case 'Q':
		make_of(parsing, PICKLE_STORED, 1);
		break;
	case 'e':
	case 'u':
	case 0x90:
		extend(parsing);
		break;
	case 'a':
	case 'b':
		extend_by(parsing, 1);
		break;
	case 's':
		extend_by(parsing, 2);
		break;
	case '0':
		pop(parsing);
		break;
	default:
		return false;
	}
	return true;
}

static bool do_memo(struct parsing *parsing, uint8_t op)
{
	switch (op) {
	case 'q':
		remember(parsing, take_number(parsing, 1));
		break;
	case 'r':
		remember(parsing, take_number(parsing, 4));
		break;
	case 0x94:
		remember(parsing, parsing->memo.n);
		break;
	case 'h':
		recall(parsing, take_number(parsing, 1));
		break;
	case 'j':
		recall(parsing, take_number(parsing, 4));
		break;
	case 0x95: /* FRAME: only its length */
		take(parsing, 8);
		break;
	default:
		return false;
	}
	return true;
}

static void run(struct parsing *parsing)
{
	const uint8_t *head = take(parsing, 2);
	if (!head || head[0] != 0x80 || head[1] < 2 || head[1] > 5)
		fail(parsing, KVARC_END);
	while (!parsing->ret) {
		const uint8_t *op = take(parsing, 1);
		if (!op)
			return;
		if (*op == '.') {
			parsing->p->root = pop(parsing);
			if (parsing->at != parsing->end || parsing->stack.n)
				fail(parsing, KVARC_END);
			return;
		}
		if (!do_value(parsing, *op) && !do_build(parsing, *op) && !do_memo(parsing, *op))
			fail(parsing, KVARC_END);
	}
}

static void pickle_free(struct unpickling *unpickling, const struct kvi_alloc *alloc);

/*
 * Parses a pickle of protocol 2 to 5, which ends exactly at its end and has at most 2^32 - 1 bytes.
 * On failure *unpickling is empty. Returns OK, END (an opcode that is not known, or not a pickle),
 * MEM, MEMLIMIT.
 */
static kvarc_ret pickle_parse(struct unpickling *unpickling, const struct kvi_alloc *alloc,
                              const uint8_t *text, size_t bytes)
{
	struct parsing g = { .p = unpickling, .alloc = alloc, .at = text, .end = text + bytes };
	*unpickling = (struct unpickling){ .text = text, .bytes = bytes };
	if (bytes > UINT32_MAX)
		return KVARC_END;
	run(&g);
	kvi_free(alloc, g.stack.list);
	kvi_free(alloc, g.memo.list);
	if (g.ret)
		pickle_free(unpickling, alloc);
	return g.ret;
}

/* Frees the members, which may be NULL; *unpickling is empty then. */
static void pickle_free(struct unpickling *unpickling, const struct kvi_alloc *alloc)
{
	kvi_free(alloc, unpickling->nodes);
	kvi_free(alloc, unpickling->links);
	*unpickling = (struct unpickling){ 0 };
}

/* Child i of a node; NULL: it has fewer. Takes i steps. */
static const struct pickle_node *pickle_child(const struct unpickling *unpickling,
                                              const struct pickle_node *node, uint32_t i)
{
	uint32_t link = node->first;
	while (link && i--)
		link = unpickling->links[link - 1].next;
	return link ? &unpickling->nodes[unpickling->links[link - 1].node] : NULL;
}

static bool same(const struct unpickling *unpickling, uint32_t at, uint32_t bytes, const char *text)
{
	return strlen(text) == bytes && !memcmp(unpickling->text + at, text, bytes);
}

/* Whether a global is that of a module and a name. */
static bool pickle_is(const struct unpickling *unpickling, const struct pickle_node *node,
                      const char *module, const char *name)
{
	return node && node->type == PICKLE_GLOBAL &&
	       same(unpickling, node->at, node->bytes, module) &&
	       same(unpickling, node->at2, node->bytes2, name);
}

/* ==== Files of torch.save: a zip of storages, and a pickle that says what they are ==== */

/* Limits of a file. VISITS also bounds pickles whose values refer to each other many times. */
enum { PICKLE_MAX = 16 << 20, DEPTH_MAX = 32, VISITS_MAX = 1 << 18, NAME_BYTES = 96 };

/* A tensor of the pickle; the name of named is `name` once all are there. */
struct pt_tensor {
	struct kvi_named named;
	char name[NAME_BYTES];
};

struct pt_file {
	kvarc_import *im;
	struct unpickling p;
	const char *folder; /* "archive/": folder of all members */
	size_t folder_bytes;
	struct pt_tensor *list;
	size_t n, cap;
	uint32_t visits, tried;
	kvarc_ret ret;
};

static const struct {
	const char *name; /* name in module torch */
	uint8_t bytes, dtype, int_bytes;
} storages[] = {
	{ "BFloat16Storage", 2, KVARC_BF16, 0 },
	{ "HalfStorage", 2, KVARC_F16, 0 },
	{ "FloatStorage", 4, KVARC_F32, 0 },
	{ "CharStorage", 1, KVARC_I8, 0 },
	{ "ByteStorage", 1, KVARC_U8, 0 },
	{ "IntStorage", 4, 0, 4 },
	{ "LongStorage", 8, 0, 8 },
	{ "Float8_e4m3fnStorage", 1, KVARC_E4M3, 0 },
	{ "Float8_e5m2Storage", 1, KVARC_E5M2, 0 },
};

/* The member "FOLDER/data/KEY" among the items. */
static bool find_storage(const struct pt_file *file, const uint8_t *key, uint32_t bytes,
                         uint32_t *item)
{
	for (size_t i = 0; i < file->im->n_items; i++) {
		const char *name = file->im->items[i].name;
		if (strncmp(name, file->folder, file->folder_bytes))
			continue;
		name += file->folder_bytes;
		if (!strncmp(name, "data/", 5) && strlen(name + 5) == bytes &&
		    !memcmp(name + 5, key, bytes)) {
			*item = (uint32_t)i;
			return true;
		}
	}
	return false;
}

/* Sets item and type of named by ('storage', torch.BFloat16Storage, '0', 'cpu', numel). */
static bool take_storage(const struct pt_file *file, const struct pickle_node *stored,
                         struct kvi_named *named, uint8_t *elem)
{
	const struct unpickling *p = &file->p;
	const struct pickle_node *id = stored && stored->type == PICKLE_STORED
	                                       ? pickle_child(p, stored, 0)
	                                       : NULL;
	const struct pickle_node *key = id ? pickle_child(p, id, 2) : NULL;
	if (!key || key->type != PICKLE_TEXT ||
	    !find_storage(file, p->text + key->at, key->bytes, &named->item))
		return false;
	for (size_t i = 0; i < sizeof storages / sizeof *storages; i++)
		if (pickle_is(p, pickle_child(p, id, 1), "torch", storages[i].name)) {
			*elem = storages[i].bytes;
			named->dtype = storages[i].dtype;
			named->int_bytes = storages[i].int_bytes;
			return true;
		}
	return false;
}

struct axis {
	uint64_t size, stride;
};

static int by_stride(const void *a, const void *b)
{
	const struct axis *x = a, *y = b;
	return (x->stride < y->stride) - (x->stride > y->stride);
}

/* Sizes in the order of memory, in which the elements of named lie without gaps; false: they do
 * not. An axis of size 1 may have any stride: it stays where it is. */
static bool take_axes(const struct unpickling *unpickling, const struct pickle_node *size,
                      const struct pickle_node *stride, struct kvi_named *named, uint64_t *elems)
{
	struct axis a[KVI_NAMED_AXES_MAX], own[KVI_NAMED_AXES_MAX];
	size_t n = 0;
	if (!size || !stride || size->n_children > KVI_NAMED_AXES_MAX ||
	    size->n_children != stride->n_children)
		return false;
	named->n_axes = (uint8_t)size->n_children;
	for (uint32_t i = 0; i < named->n_axes; i++) {
		const struct pickle_node *s = pickle_child(unpickling, size, i);
		const struct pickle_node *t = pickle_child(unpickling, stride, i);
		if (s->type != PICKLE_INT || t->type != PICKLE_INT || s->number <= 0 ||
		    t->number < 0)
			return false;
		own[i] = (struct axis){ (uint64_t)s->number, (uint64_t)t->number };
		if (own[i].size > 1)
			a[n++] = own[i];
	}
	if (n)
		qsort(a, n, sizeof *a, by_stride);
	*elems = 1;
	for (size_t i = n; i--;)
		if (a[i].stride != *elems || kvi_mul(*elems, a[i].size, elems))
			return false;
	for (size_t i = 0, k = 0; i < named->n_axes; i++)
		named->shape[i] = own[i].size > 1 ? a[k++].size : 1;
	return true;
}

/* The arguments of torch._utils._rebuild_tensor_v2: storage, offset, size, stride, ... */
static bool take_tensor(const struct pt_file *file, const struct pickle_node *args,
                        struct kvi_named *named)
{
	const struct unpickling *p = &file->p;
	const struct pickle_node *offset = pickle_child(p, args, 1);
	uint64_t elems, end;
	uint8_t elem = 0;
	if (!offset || offset->type != PICKLE_INT || offset->number < 0 ||
	    !take_storage(file, pickle_child(p, args, 0), named, &elem) ||
	    !take_axes(p, pickle_child(p, args, 2), pickle_child(p, args, 3), named, &elems))
		return false;
	return !kvi_mul((uint64_t)offset->number, (uint64_t)elem, &named->offset) &&
	       !kvi_mul(elems, (uint64_t)elem, &named->bytes) &&
	       !kvi_add(named->offset, named->bytes, &end) &&
	       end <= file->im->items[named->item].src.size;
}

static void add_tensor(struct pt_file *file, const struct pickle_node *args, const char *name)
{
	if (file->tried++ >= KVI_IMPORT_TENSORS_MAX)
		return;
	if (!kvi_array_grow(&file->im->alloc, &file->list, &file->cap, file->n,
	                    sizeof *file->list)) {
		file->ret = kvi_fail_alloc(file->im->error, &file->im->alloc);
		return;
	}
	struct pt_tensor *t = &file->list[file->n];
	memset(t, 0, sizeof *t);
	if (!take_tensor(file, args, &t->named))
		return;
	snprintf(t->name, sizeof t->name, "%s", name);
	file->n++;
}

static bool is_call(const struct pt_file *file, const struct pickle_node *node, const char *name)
{
	return node->type == PICKLE_CALL &&
	       pickle_is(&file->p, pickle_child(&file->p, node, 0), "torch._utils", name);
}

static bool is_tensor(const struct pt_file *file, const struct pickle_node *node)
{
	return node && (is_call(file, node, "_rebuild_tensor_v2") ||
	                is_call(file, node, "_rebuild_parameter"));
}

/* Keys and values of one layer, as past_key_values has them: exactly two tensors under the number
 * of the layer. */
static bool is_pair(const struct pt_file *file, const struct pickle_node *node, const char *name)
{
	const char *dot = strrchr(name, '.'), *number = dot ? dot + 1 : name;
	return *number && !number[strspn(number, "0123456789")] && node->n_children == 2 &&
	       is_tensor(file, pickle_child(&file->p, node, 0)) &&
	       is_tensor(file, pickle_child(&file->p, node, 1));
}

/* name, then a dot where both are there, then the child's. A name that is too long is cut: no rule
 * fits it. */
static void join(char *to, const char *name, const char *child, size_t bytes)
{
	snprintf(to, NAME_BYTES, "%s%s%.*s", name, *name && bytes ? "." : "", (int)bytes, child);
}

/* Counts a link that is walked: nodes are shared, so a short pickle may have no end of them. */
static bool may_go_on(struct pt_file *file)
{
	return !file->ret && file->visits++ < VISITS_MAX;
}

static void visit(struct pt_file *file, const struct pickle_node *node, const char *name,
                  unsigned depth);

static void visit_list(struct pt_file *file, const struct pickle_node *node, const char *name,
                       unsigned depth)
{
	static const char *const words[2] = { "key", "value" };
	const bool pair = is_pair(file, node, name);
	uint32_t i = 0;
	for (uint32_t link = node->first; link && may_go_on(file); i++) {
		const struct pickle_link *l = &file->p.links[link - 1];
		char path[NAME_BYTES], digits[16];
		snprintf(digits, sizeof digits, "%" PRIu32, i);
		const char *word = pair ? words[i] : digits;
		join(path, name, word, strlen(word));
		visit(file, &file->p.nodes[l->node], path, depth);
		link = l->next;
	}
}

static void visit_dict(struct pt_file *file, const struct pickle_node *node, const char *name,
                       unsigned depth)
{
	const struct pickle_node *key = NULL;
	for (uint32_t link = node->first; link && may_go_on(file);) {
		const struct pickle_link *l = &file->p.links[link - 1];
		const struct pickle_node *child = &file->p.nodes[l->node];
		char path[NAME_BYTES], digits[24];
		link = l->next;
		if (!key) {
			key = child;
			continue;
		}
		snprintf(digits, sizeof digits, "%" PRId64, key->number);
		if (key->type == PICKLE_TEXT && key->bytes < NAME_BYTES)
			join(path, name, (const char *)file->p.text + key->at, key->bytes);
		else
			join(path, name, digits, strlen(digits));
		if (key->type == PICKLE_TEXT || key->type == PICKLE_INT)
			visit(file, child, path, depth);
		key = NULL;
	}
}

/* Objects are what their states say: the first two children are what would be called. An
 * OrderedDict has its pairs there. */
static void visit_call(struct pt_file *file, const struct pickle_node *node, const char *name,
                       unsigned depth)
{
	const struct unpickling *p = &file->p;
	const struct pickle_node *args = pickle_child(p, node, 1);
	if (is_call(file, node, "_rebuild_tensor_v2")) {
		add_tensor(file, args, name);
	} else if (is_call(file, node, "_rebuild_parameter")) {
		const struct pickle_node *data = pickle_child(p, args, 0);
		if (data)
			visit(file, data, name, depth);
	} else if (pickle_is(p, pickle_child(p, node, 0), "collections", "OrderedDict")) {
		struct pickle_node pairs = *node;
		pairs.first = p->links[p->links[node->first - 1].next - 1].next;
		visit_dict(file, &pairs, name, depth);
	} else if (node->n_children == 3) {
		visit(file, pickle_child(p, node, 2), name, depth);
	}
}

static void visit(struct pt_file *file, const struct pickle_node *node, const char *name,
                  unsigned depth)
{
	if (depth >= DEPTH_MAX)
		return;
	if (node->type == PICKLE_LIST)
		visit_list(file, node, name, depth + 1);
	else if (node->type == PICKLE_DICT)
		visit_dict(file, node, name, depth + 1);
	else if (node->type == PICKLE_CALL)
		visit_call(file, node, name, depth + 1);
}

static int by_place(const void *a, const void *b)
{
	const struct kvi_named *x = &((const struct pt_tensor *)a)->named;
	const struct kvi_named *y = &((const struct pt_tensor *)b)->named;
	if (x->item != y->item)
		return x->item < y->item ? -1 : 1;
	if (x->offset != y->offset)
		return x->offset < y->offset ? -1 : 1;
	return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

/* Drops all but the first of tensors that share bytes. */
static void drop_shared(struct pt_file *file)
{
	size_t n = 0;
	if (file->n)
		qsort(file->list, file->n, sizeof *file->list, by_place);
	for (size_t i = 0; i < file->n; i++) {
		const struct kvi_named *last = n ? &file->list[n - 1].named : NULL;
		const struct kvi_named *x = &file->list[i].named;
		if (!last || last->item != x->item || last->offset + last->bytes <= x->offset)
			file->list[n++] = file->list[i];
	}
	file->n = n;
}

/* The tensors by name. */
static kvarc_ret take_list(struct pt_file *file)
{
	kvarc_import *im = file->im;
	size_t found = 0;
	drop_shared(file);
	struct kvi_named *named = kvi_array(&im->alloc, file->n ? file->n : 1, sizeof *named);
	if (!named)
		return kvi_fail_alloc(im->error, &im->alloc);
	for (size_t i = 0; i < file->n; i++) {
		named[i] = file->list[i].named;
		named[i].name = file->list[i].name;
	}
	kvarc_ret ret = kvi_import_named(im, named, file->n, &found);
	kvi_free(&im->alloc, named);
	return ret;
}

/* The item that is called "FOLDER/NAME" where the folder has no other name; its number, or
 * n_items. */
static size_t find_member(const kvarc_import *im, const char *name)
{
	for (size_t i = 0; i < im->n_items; i++) {
		const char *slash = strchr(im->items[i].name, '/');
		if (slash && !strcmp(slash + 1, name))
			return i;
	}
	return im->n_items;
}

/* Whether the member that names the byte order says little; files before it was written have none,
 * and were little in practice. */
static kvarc_ret check_order(const kvarc_import *im)
{
	char text[6];
	const size_t i = find_member(im, "byteorder");
	if (i == im->n_items)
		return KVARC_OK;
	const kvarc_source *src = &im->items[i].src;
	if (src->size != sizeof text)
		return KVARC_END;
	if (kvi_source_read(src, text, sizeof text, 0))
		return KVARC_IO;
	return memcmp(text, "little", sizeof text) ? KVARC_END : KVARC_OK;
}

static kvarc_ret take_pickle(struct pt_file *file, const uint8_t *text, size_t bytes)
{
	kvarc_import *im = file->im;
	kvarc_ret ret = pickle_parse(&file->p, &im->alloc, text, bytes);
	if (ret == KVARC_END)
		kvi_import_note(im, "data.pkl has more in it than tensors in lists and "
		                    "dictionaries: kept as bytes");
	if (ret)
		return ret == KVARC_END ? ret : kvi_fail_alloc(im->error, &im->alloc);
	visit(file, &file->p.nodes[file->p.root], "", 0);
	return file->ret ? file->ret : take_list(file);
}

kvarc_ret kvi_import_pt(kvarc_import *im)
{
	const size_t i = find_member(im, "data.pkl");
	struct pt_file f = { .im = im };
	kvarc_ret ret = i < im->n_items ? check_order(im) : KVARC_END;
	if (ret)
		return ret;
	const kvarc_source *src = &im->items[i].src;
	f.folder = im->items[i].name;
	f.folder_bytes = (size_t)(strchr(f.folder, '/') + 1 - f.folder);
	if (src->size > PICKLE_MAX)
		return KVARC_END;
	uint8_t *text = kvi_malloc(&im->alloc, (size_t)src->size + 1);
	if (!text)
		return kvi_fail_alloc(im->error, &im->alloc);
	ret = kvi_source_read(src, text, (size_t)src->size, 0) ? KVARC_IO : KVARC_OK;
	if (!ret)
		ret = take_pickle(&f, text, (size_t)src->size);
	pickle_free(&f.p, &im->alloc);
	kvi_free(&im->alloc, f.list);
	kvi_free(&im->alloc, text);
	return ret;
}
