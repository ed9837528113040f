/* SPDX-License-Identifier: BSD-3-Clause */
/* arguments.c - checks of the structs that callers fill, and the handle that is made of them */
#include "arguments.h"

#include <string.h>

#include "alloc.h"
#include "ckd.h"
#include "error.h"

int kvi_all_zero(const void *p, size_t bytes)
{
	const uint8_t *b = p;
	while (bytes && *b == 0)
		b++, bytes--;
	return bytes == 0;
}

kvarc_ret kvi_check_reserved(kvarc_error *e, const char *call, const char *what,
                             const void *reserved, size_t bytes)
{
	if (kvi_all_zero(reserved, bytes))
		return KVARC_OK;
	return kvi_fail(e, KVARC_PROG,
	                "%s: reserved members of %s are not zero: zero the struct before its "
	                "members are set; a program for a newer library needs that library",
	                call, what);
}

kvarc_ret kvi_check_common(const kvarc_common *c)
{
	const kvarc_allocator *a = c->allocator;
	kvarc_ret ret = KVI_CHECK_RESERVED(c->error, "open", "kvarc_common", c);
	if (!ret && a)
		ret = KVI_CHECK_RESERVED(c->error, "open", "kvarc_allocator", a);
	if (!ret && a && (!a->alloc || !a->free))
		ret = kvi_fail(c->error, KVARC_PROG, "open: kvarc_allocator needs alloc and free");
	if (!ret && c->weight_cache)
		ret = KVI_CHECK_RESERVED(c->error, "open", "kvarc_weight_cache", c->weight_cache);
	return ret;
}

kvarc_ret kvi_check_source(kvarc_error *e, const char *call, const kvarc_source *s, int memory)
{
	if (!s)
		return kvi_fail(e, KVARC_PROG, "%s: source is NULL", call);
	if (!s->read && !(memory && s->memory))
		return kvi_fail(e, KVARC_PROG, "%s: source.read is NULL", call);
	if (s->memory && s->size == KVARC_UNKNOWN)
		return kvi_fail(e, KVARC_PROG, "%s: source.memory needs source.size", call);
	return KVI_CHECK_RESERVED(e, call, "kvarc_source", s);
}

kvarc_ret kvi_check_sink(kvarc_error *e, const char *call, const kvarc_sink *s)
{
	if (!s)
		return kvi_fail(e, KVARC_PROG, "%s: sink is NULL", call);
	if (!s->write)
		return kvi_fail(e, KVARC_PROG, "%s: sink.write is NULL", call);
	return KVI_CHECK_RESERVED(e, call, "kvarc_sink", s);
}

/* An axis of a view. */
struct view_axis {
	uint64_t stride, n;
};

/* Whether all elements of a view lie apart: along each axis, from the one with the shortest steps
 * on, a step goes past all that is within. An axis of one element has no steps. *ends: in 64 bits.
 */
static int lie_apart(struct view_axis *axes, size_t n, uint64_t bytes, int *ends)
{
	int apart = 1;
	*ends = 1;
	for (size_t i = 0; i < n; i++) {
		size_t least = i;
		uint64_t steps;
		for (size_t k = i + 1; k < n; k++)
			if (axes[k].stride < axes[least].stride)
				least = k;
		const struct view_axis x = axes[least];
		axes[least] = axes[i];
		if (x.n < 2)
			continue;
		apart = apart && x.stride >= bytes;
		if (kvi_mul(x.stride, x.n - 1, &steps) || kvi_add(bytes, steps, &bytes))
			*ends = 0;
	}
	*ends = *ends && bytes <= SIZE_MAX;
	return apart;
}

kvarc_ret kvi_check_view(kvarc_error *e, const char *call, const kvarc_view *v, size_t i,
                         const kvarc_tensor *t, uint64_t rows)
{
	const uint64_t width = (uint64_t)t->heads * t->channels;
	const unsigned bytes = (unsigned)kvarc_dtype_bytes(t->dtype);
	int ends;
	if (v->block_elems == 0)
		return kvi_fail(e, KVARC_PROG, "%s: views[%zu].block_elems is 0", call, i);
	if (width % v->block_elems)
		return kvi_fail(e, KVARC_PROG,
		                "%s: views[%zu].block_elems is %u, which does not divide the %llu "
		                "elements of a token",
		                call, i, (unsigned)v->block_elems, (unsigned long long)width);
	struct view_axis axes[] = { { v->elem_stride, v->block_elems },
		               { v->block_stride, width / v->block_elems },
		               { v->token_stride, rows } };
	if (v->block_elems > 1 && v->elem_stride < bytes)
		return kvi_fail(e, KVARC_PROG,
		                "%s: views[%zu].elem_stride is %u, less than the %u bytes of an "
		                "element",
		                call, i, (unsigned)v->elem_stride, bytes);
	if (!lie_apart(axes, sizeof axes / sizeof *axes, bytes, &ends))
		return kvi_fail(e, KVARC_PROG,
		                "%s: elements of views[%zu] overlap: token_stride %llu and "
		                "block_stride %llu do not go past what lies between",
		                call, i, (unsigned long long)v->token_stride,
		                (unsigned long long)v->block_stride);
	if (!ends)
		return kvi_fail(e, KVARC_PROG, "%s: views[%zu] is larger than memory", call, i);
	return KVI_CHECK_RESERVED(e, call, "kvarc_view", v);
}

kvarc_ret kvi_handle_new(void *out, size_t bytes, size_t at, const kvarc_common *c, uint64_t limit)
{
	struct kvi_alloc first, *own;
	memset(out, 0, sizeof(void *));
	kvarc_ret ret = kvi_check_common(c);
	if (ret)
		return ret;
	kvi_alloc_init(&first, c->allocator, limit);
	uint8_t *p = kvi_calloc(&first, 1, bytes);
	memcpy(out, &p, sizeof p);
	if (!p)
		return kvi_fail_alloc(c->error, &first);
	own = (void *)(p + at);
	kvi_alloc_init(own, c->allocator, limit);
	atomic_store(&own->used, atomic_load(&first.used));
	return KVARC_OK;
}
