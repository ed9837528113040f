/* SPDX-License-Identifier: BSD-3-Clause */
/* arguments.c - checks of the structs that callers fill */
#include "arguments.h"

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

kvarc_ret kvi_check_view(kvarc_error *e, const char *call, const kvarc_view *v, size_t i)
{
	if (v->block_elems == 0)
		return kvi_fail(e, KVARC_PROG, "%s: views[%zu].block_elems is 0", call, i);
	return KVI_CHECK_RESERVED(e, call, "kvarc_view", v);
}
