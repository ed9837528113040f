/* SPDX-License-Identifier: BSD-3-Clause */
/* pickle_tree.h - the structure of a pickle as a tree; nothing in it is looked up or called */
#ifndef KVI_PICKLE_TREE_H
#define KVI_PICKLE_TREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kvarc.h"
#include "util/alloc.h"

/* What a value is. */
enum kvi_pickle_type {
	KVI_PICKLE_OTHER,  /* None, a float, bytes, an int of more than 64 bits */
	KVI_PICKLE_INT,    /* number; False and True, too */
	KVI_PICKLE_TEXT,   /* bytes of the pickle: at, bytes */
	KVI_PICKLE_LIST,   /* lists, tuples, sets: the children */
	KVI_PICKLE_DICT,   /* children: key, value, key, value */
	KVI_PICKLE_GLOBAL, /* a name, "module name", which is only compared */
	KVI_PICKLE_CALL,   /* children: what would be called, its arguments, then states */
	KVI_PICKLE_STORED  /* child: a persistent id */
};

/* A value. Children are a chain of links. */
struct kvi_pickle_node {
	uint8_t type;
	uint32_t n_children;
	int64_t number;
	uint32_t at, bytes;   /* of texts and globals, in the pickle */
	uint32_t at2, bytes2; /* of globals: of the name behind the module */
	uint32_t first, last; /* links, plus 1; 0: none */
};

/* One of the children of a value. */
struct kvi_pickle_link {
	uint32_t node, next; /* next: plus 1; 0: the last one */
};

/* A parsed pickle; nodes may be shared, and be their own descendants: walk it with a limit. */
struct kvi_pickle {
	const uint8_t *text; /* the caller's */
	size_t bytes;
	struct kvi_pickle_node *nodes;
	struct kvi_pickle_link *links;
	size_t n_nodes, cap_nodes, n_links, cap_links;
	uint32_t root;
};

/*
 * Parses a pickle of protocol 2 to 5, which ends exactly at its end and has at most 2^32 - 1 bytes.
 * On failure *p is empty. Returns OK, END (an opcode that is not known, or not a pickle), MEM,
 * MEMLIMIT.
 */
kvarc_ret kvi_pickle_parse(struct kvi_pickle *p, const struct kvi_alloc *alloc, const uint8_t *text,
                           size_t bytes);
/* NULL-safe members; *p is empty then. */
void kvi_pickle_free(struct kvi_pickle *p, const struct kvi_alloc *alloc);

/* Child i of a node; NULL: it has fewer. Takes i steps. */
const struct kvi_pickle_node *kvi_pickle_child(const struct kvi_pickle *p,
                                               const struct kvi_pickle_node *node, uint32_t i);
/* Whether a global is that of a module and a name. */
bool kvi_pickle_is(const struct kvi_pickle *p, const struct kvi_pickle_node *node,
                   const char *module, const char *name);

#endif
