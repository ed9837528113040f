/* SPDX-License-Identifier: BSD-3-Clause */
/* pt_import.c - files of torch.save: a zip of storages, and a pickle that says what they are */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "import_internal.h"
#include "named.h"
#include "pickle_tree.h"
#include "util/ckd.h"
#include "util/error.h"

/* Of one file. VISITS also bounds pickles whose values refer to each other many times. */
enum { PICKLE_MAX = 16 << 20, DEPTH_MAX = 32, VISITS_MAX = 1 << 18, NAME_BYTES = 96 };

/* A tensor of the pickle; the name of named is `name` once all are there. */
struct pt_tensor {
	struct kvi_named named;
	char name[NAME_BYTES];
};

struct pt_file {
	kvarc_import *im;
	struct kvi_pickle p;
	const char *folder; /* "archive/": of all members */
	size_t folder_bytes;
	struct pt_tensor *list;
	size_t n, cap;
	uint32_t visits, tried;
	kvarc_ret ret;
};

static const struct {
	const char *name; /* in module torch */
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
static bool find_storage(const struct pt_file *f, const uint8_t *key, uint32_t bytes,
                         uint32_t *item)
{
	for (size_t i = 0; i < f->im->n_items; i++) {
		const char *name = f->im->items[i].name;
		if (strncmp(name, f->folder, f->folder_bytes))
			continue;
		name += f->folder_bytes;
		if (!strncmp(name, "data/", 5) && strlen(name + 5) == bytes &&
		    !memcmp(name + 5, key, bytes)) {
			*item = (uint32_t)i;
			return true;
		}
	}
	return false;
}

/* ('storage', torch.BFloat16Storage, '0', 'cpu', numel): the item and the type of x. */
static bool take_storage(const struct pt_file *f, const struct kvi_pickle_node *stored,
                         struct kvi_named *x, uint8_t *elem)
{
	const struct kvi_pickle *p = &f->p;
	const struct kvi_pickle_node *id = stored && stored->type == KVI_PICKLE_STORED
	                                           ? kvi_pickle_child(p, stored, 0)
	                                           : NULL;
	const struct kvi_pickle_node *key = id ? kvi_pickle_child(p, id, 2) : NULL;
	if (!key || key->type != KVI_PICKLE_TEXT ||
	    !find_storage(f, p->text + key->at, key->bytes, &x->item))
		return false;
	for (size_t i = 0; i < sizeof storages / sizeof *storages; i++)
		if (kvi_pickle_is(p, kvi_pickle_child(p, id, 1), "torch", storages[i].name)) {
			*elem = storages[i].bytes;
			x->dtype = storages[i].dtype;
			x->int_bytes = storages[i].int_bytes;
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

/* Sizes in the order of memory, in which the elements of x lie without gaps; false: they do not.
 * An axis of size 1 may have any stride: it stays where it is. */
static bool take_axes(const struct kvi_pickle *p, const struct kvi_pickle_node *size,
                      const struct kvi_pickle_node *stride, struct kvi_named *x, uint64_t *elems)
{
	struct axis a[KVI_NAMED_AXES_MAX], own[KVI_NAMED_AXES_MAX];
	size_t n = 0;
	if (!size || !stride || size->n_children > KVI_NAMED_AXES_MAX ||
	    size->n_children != stride->n_children)
		return false;
	x->n_axes = (uint8_t)size->n_children;
	for (uint32_t i = 0; i < x->n_axes; i++) {
		const struct kvi_pickle_node *s = kvi_pickle_child(p, size, i);
		const struct kvi_pickle_node *t = kvi_pickle_child(p, stride, i);
		if (s->type != KVI_PICKLE_INT || t->type != KVI_PICKLE_INT || s->number <= 0 ||
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
	for (size_t i = 0, k = 0; i < x->n_axes; i++)
		x->shape[i] = own[i].size > 1 ? a[k++].size : 1;
	return true;
}

/* The arguments of torch._utils._rebuild_tensor_v2: storage, offset, size, stride, ... */
static bool take_tensor(const struct pt_file *f, const struct kvi_pickle_node *args,
                        struct kvi_named *x)
{
	const struct kvi_pickle *p = &f->p;
	const struct kvi_pickle_node *offset = kvi_pickle_child(p, args, 1);
	uint64_t elems, end;
	uint8_t elem = 0;
	if (!offset || offset->type != KVI_PICKLE_INT || offset->number < 0 ||
	    !take_storage(f, kvi_pickle_child(p, args, 0), x, &elem) ||
	    !take_axes(p, kvi_pickle_child(p, args, 2), kvi_pickle_child(p, args, 3), x, &elems))
		return false;
	return !kvi_mul((uint64_t)offset->number, (uint64_t)elem, &x->offset) &&
	       !kvi_mul(elems, (uint64_t)elem, &x->bytes) && !kvi_add(x->offset, x->bytes, &end) &&
	       end <= f->im->items[x->item].src.size;
}

static void add_tensor(struct pt_file *f, const struct kvi_pickle_node *args, const char *name)
{
	if (f->tried++ >= KVI_IMPORT_TENSORS_MAX)
		return;
	if (!kvi_array_grow(&f->im->alloc, &f->list, &f->cap, f->n, sizeof *f->list)) {
		f->ret = kvi_fail_alloc(f->im->error, &f->im->alloc);
		return;
	}
	struct pt_tensor *t = &f->list[f->n];
	memset(t, 0, sizeof *t);
	if (!take_tensor(f, args, &t->named))
		return;
	snprintf(t->name, sizeof t->name, "%s", name);
	f->n++;
}

static bool is_call(const struct pt_file *f, const struct kvi_pickle_node *x, const char *name)
{
	return x->type == KVI_PICKLE_CALL &&
	       kvi_pickle_is(&f->p, kvi_pickle_child(&f->p, x, 0), "torch._utils", name);
}

static bool is_tensor(const struct pt_file *f, const struct kvi_pickle_node *x)
{
	return x && (is_call(f, x, "_rebuild_tensor_v2") || is_call(f, x, "_rebuild_parameter"));
}

/* Keys and values of one layer, as past_key_values has them: exactly two tensors under the number
 * of the layer. */
static bool is_pair(const struct pt_file *f, const struct kvi_pickle_node *x, const char *name)
{
	const char *dot = strrchr(name, '.'), *number = dot ? dot + 1 : name;
	return *number && !number[strspn(number, "0123456789")] && x->n_children == 2 &&
	       is_tensor(f, kvi_pickle_child(&f->p, x, 0)) &&
	       is_tensor(f, kvi_pickle_child(&f->p, x, 1));
}

/* name, then a dot where both are there, then the child's. A name that is too long is cut: no rule
 * fits it. */
static void join(char *to, const char *name, const char *child, size_t bytes)
{
	snprintf(to, NAME_BYTES, "%s%s%.*s", name, *name && bytes ? "." : "", (int)bytes, child);
}

static void visit(struct pt_file *f, const struct kvi_pickle_node *x, const char *name,
                  unsigned depth);

/* Counts a link that is walked: nodes are shared, so a short pickle may have no end of them. */
static bool may_go_on(struct pt_file *f)
{
	return !f->ret && f->visits++ < VISITS_MAX;
}

static void visit_list(struct pt_file *f, const struct kvi_pickle_node *x, const char *name,
                       unsigned depth)
{
	static const char *const words[2] = { "key", "value" };
	const bool pair = is_pair(f, x, name);
	uint32_t i = 0;
	for (uint32_t link = x->first; link && may_go_on(f); i++) {
		const struct kvi_pickle_link *l = &f->p.links[link - 1];
		char path[NAME_BYTES], digits[16];
		snprintf(digits, sizeof digits, "%" PRIu32, i);
		const char *word = pair ? words[i] : digits;
		join(path, name, word, strlen(word));
		visit(f, &f->p.nodes[l->node], path, depth);
		link = l->next;
	}
}

static void visit_dict(struct pt_file *f, const struct kvi_pickle_node *x, const char *name,
                       unsigned depth)
{
	const struct kvi_pickle_node *key = NULL;
	for (uint32_t link = x->first; link && may_go_on(f);) {
		const struct kvi_pickle_link *l = &f->p.links[link - 1];
		const struct kvi_pickle_node *child = &f->p.nodes[l->node];
		char path[NAME_BYTES], digits[24];
		link = l->next;
		if (!key) {
			key = child;
			continue;
		}
		snprintf(digits, sizeof digits, "%" PRId64, key->number);
		if (key->type == KVI_PICKLE_TEXT && key->bytes < NAME_BYTES)
			join(path, name, (const char *)f->p.text + key->at, key->bytes);
		else
			join(path, name, digits, strlen(digits));
		if (key->type == KVI_PICKLE_TEXT || key->type == KVI_PICKLE_INT)
			visit(f, child, path, depth);
		key = NULL;
	}
}

/* Objects are what their states say: the first two children are what would be called. An
 * OrderedDict has its pairs there. */
static void visit_call(struct pt_file *f, const struct kvi_pickle_node *x, const char *name,
                       unsigned depth)
{
	const struct kvi_pickle *p = &f->p;
	const struct kvi_pickle_node *args = kvi_pickle_child(p, x, 1);
	if (is_call(f, x, "_rebuild_tensor_v2")) {
		add_tensor(f, args, name);
	} else if (is_call(f, x, "_rebuild_parameter")) {
		const struct kvi_pickle_node *data = kvi_pickle_child(p, args, 0);
		if (data)
			visit(f, data, name, depth);
	} else if (kvi_pickle_is(p, kvi_pickle_child(p, x, 0), "collections", "OrderedDict")) {
		struct kvi_pickle_node pairs = *x;
		pairs.first = p->links[p->links[x->first - 1].next - 1].next;
		visit_dict(f, &pairs, name, depth);
	} else if (x->n_children == 3) {
		visit(f, kvi_pickle_child(p, x, 2), name, depth);
	}
}

static void visit(struct pt_file *f, const struct kvi_pickle_node *x, const char *name,
                  unsigned depth)
{
	if (depth >= DEPTH_MAX)
		return;
	if (x->type == KVI_PICKLE_LIST)
		visit_list(f, x, name, depth + 1);
	else if (x->type == KVI_PICKLE_DICT)
		visit_dict(f, x, name, depth + 1);
	else if (x->type == KVI_PICKLE_CALL)
		visit_call(f, x, name, depth + 1);
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

/* Of tensors that share bytes the first one stays. */
static void drop_shared(struct pt_file *f)
{
	size_t n = 0;
	if (f->n)
		qsort(f->list, f->n, sizeof *f->list, by_place);
	for (size_t i = 0; i < f->n; i++) {
		const struct kvi_named *last = n ? &f->list[n - 1].named : NULL;
		const struct kvi_named *x = &f->list[i].named;
		if (!last || last->item != x->item || last->offset + last->bytes <= x->offset)
			f->list[n++] = f->list[i];
	}
	f->n = n;
}

/* The tensors by name. */
static kvarc_ret take_list(struct pt_file *f)
{
	kvarc_import *im = f->im;
	size_t found = 0;
	drop_shared(f);
	struct kvi_named *named = kvi_array(&im->alloc, f->n ? f->n : 1, sizeof *named);
	if (!named)
		return kvi_fail_alloc(im->error, &im->alloc);
	for (size_t i = 0; i < f->n; i++) {
		named[i] = f->list[i].named;
		named[i].name = f->list[i].name;
	}
	kvarc_ret ret = kvi_import_named(im, named, f->n, &found);
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

static kvarc_ret take_pickle(struct pt_file *f, const uint8_t *text, size_t bytes)
{
	kvarc_import *im = f->im;
	kvarc_ret ret = kvi_pickle_parse(&f->p, &im->alloc, text, bytes);
	if (ret == KVARC_END)
		kvi_import_note(im, "data.pkl has more in it than tensors in lists and "
		                    "dictionaries: kept as bytes");
	if (ret)
		return ret == KVARC_END ? ret : kvi_fail_alloc(im->error, &im->alloc);
	visit(f, &f->p.nodes[f->p.root], "", 0);
	return f->ret ? f->ret : take_list(f);
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
	kvi_pickle_free(&f.p, &im->alloc);
	kvi_free(&im->alloc, f.list);
	kvi_free(&im->alloc, text);
	return ret;
}
