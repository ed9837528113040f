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

kvarc_ret kvi_check_reserved(kvarc_error *error, const char *call, const char *what,
                             const void *reserved, size_t bytes)
{
	if (kvi_all_zero(reserved, bytes))
		return KVARC_OK;
	return kvi_fail(error, KVARC_PROG,
	                "%s: reserved members of %s are not zero: zero the struct before its "
	                "members are set; a program for a newer library needs that library",
	                call, what);
}

kvarc_ret kvi_check_common(const kvarc_common *common)
{
	const kvarc_allocator *a = common->allocator;
	kvarc_ret ret = KVI_CHECK_RESERVED(common->error, "open", "kvarc_common", common);
	if (!ret && a)
		ret = KVI_CHECK_RESERVED(common->error, "open", "kvarc_allocator", a);
	if (!ret && a && (!a->alloc || !a->free))
		ret = kvi_fail(common->error, KVARC_PROG,
		               "open: kvarc_allocator needs alloc and free");
	if (!ret && common->weight_cache)
		ret = KVI_CHECK_RESERVED(common->error, "open", "kvarc_weight_cache",
		                         common->weight_cache);
	return ret;
}

kvarc_ret kvi_check_source(kvarc_error *error, const char *call, const kvarc_source *source,
                           int memory)
{
	if (!source)
		return kvi_fail(error, KVARC_PROG, "%s: source is NULL", call);
	if (!source->read && !(memory && source->memory))
		return kvi_fail(error, KVARC_PROG, "%s: source.read is NULL", call);
	if (source->memory && source->size == KVARC_UNKNOWN)
		return kvi_fail(error, KVARC_PROG, "%s: source.memory needs source.size", call);
	return KVI_CHECK_RESERVED(error, call, "kvarc_source", source);
}

kvarc_ret kvi_check_sink(kvarc_error *error, const char *call, const kvarc_sink *sink)
{
	if (!sink)
		return kvi_fail(error, KVARC_PROG, "%s: sink is NULL", call);
	if (!sink->write)
		return kvi_fail(error, KVARC_PROG, "%s: sink.write is NULL", call);
	return KVI_CHECK_RESERVED(error, call, "kvarc_sink", sink);
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

kvarc_ret kvi_check_view(kvarc_error *error, const char *call, const kvarc_view *view, size_t i,
                         const kvarc_tensor *tensor, uint64_t rows)
{
	const uint64_t width = (uint64_t)tensor->heads * tensor->channels;
	const unsigned bytes = (unsigned)kvarc_dtype_bytes(tensor->dtype);
	int ends;
	if (view->block_elems == 0)
		return kvi_fail(error, KVARC_PROG, "%s: views[%zu].block_elems is 0", call, i);
	if (width % view->block_elems)
		return kvi_fail(error, KVARC_PROG,
		                "%s: views[%zu].block_elems is %u, which does not divide the %llu "
		                "elements of a token",
		                call, i, (unsigned)view->block_elems, (unsigned long long)width);
	struct view_axis axes[] = { { view->elem_stride, view->block_elems },
		                    { view->block_stride, width / view->block_elems },
		                    { view->token_stride, rows } };
	if (view->block_elems > 1 && view->elem_stride < bytes)
		return kvi_fail(error, KVARC_PROG,
		                "%s: views[%zu].elem_stride is %u, less than the %u bytes of an "
		                "element",
		                call, i, (unsigned)view->elem_stride, bytes);
	if (!lie_apart(axes, sizeof axes / sizeof *axes, bytes, &ends))
		return kvi_fail(error, KVARC_PROG,
		                "%s: elements of views[%zu] overlap: token_stride %llu and "
		                "block_stride %llu do not go past what lies between",
		                call, i, (unsigned long long)view->token_stride,
		                (unsigned long long)view->block_stride);
	if (!ends)
		return kvi_fail(error, KVARC_PROG, "%s: views[%zu] is larger than memory", call, i);
	return KVI_CHECK_RESERVED(error, call, "kvarc_view", view);
}

kvarc_ret kvi_handle_new(void *out, size_t bytes, size_t at, const kvarc_common *common,
                         uint64_t limit)
{
	struct kvi_alloc first, *own;
	memset(out, 0, sizeof(void *));
	kvarc_ret ret = kvi_check_common(common);
	if (ret)
		return ret;
	kvi_alloc_init(&first, common->allocator, limit);
	uint8_t *p = kvi_calloc(&first, 1, bytes);
	memcpy(out, &p, sizeof p);
	if (!p)
		return kvi_fail_alloc(common->error, &first);
	own = (void *)(p + at);
	kvi_alloc_init(own, common->allocator, limit);
	atomic_store(&own->used, atomic_load(&first.used));
	return KVARC_OK;
}
