/* SPDX-License-Identifier: BSD-3-Clause */
/* llama_export.c - tokens of an archive as a file that llama.cpp restores */
#include <inttypes.h>

#include "llama_item.h"
#include "llama_rebuild.h"
#include "llama_shorten.h"
#include "reader_bounds.h"
#include "reader/reader_internal.h"
#include "unpack_elements.h"
#include "util/arguments.h"
#include "util/error.h"

struct llama_export {
	kvarc_reader *r;
	kvarc_range range;
	uint64_t limit; /* tokens, UINT64_MAX: all */
	uint64_t flags;
	const kvarc_sink *sink; /* NULL: nothing is written */
	struct kvi_llama_item item;
	struct kvi_llama_short shorter;
	struct kvi_llama_map map;
	kvarc_slot_prefix *prefix;
};

static kvarc_ret refuse(struct llama_export *x, const char *why)
{
	x->prefix->why = why;
	return kvi_fail(kvi_reader_error(x->r), KVARC_OPTIONS,
	                "no llama.cpp file can be written: %s", why);
}

static kvarc_ret no_memory(struct llama_export *x, kvarc_ret ret)
{
	return kvi_reader_fail(x->r, ret, "not enough memory for a llama.cpp file");
}

/* All layers of a range, and the first token. */
static const char *check_range(const struct llama_export *x)
{
	const kvarc_geometry *g = kvarc_reader_geometry(x->r);
	if (x->range.t0)
		return "an engine restores tokens from the first one on";
	for (size_t i = 0; i < g->n_tensors; i++)
		if (g->tensors[i].track == x->range.track &&
		    !kvi_range_has(&x->range, &g->tensors[i]))
			return "an engine restores all layers";
	return NULL;
}

/* The file in the archive, or one that is made. */
static kvarc_ret open_item(struct llama_export *x)
{
	struct kvi_restore plan = { 0 };
	struct kvi_out literals;
	const char *why = NULL;
	bool first;
	size_t i = kvi_llama_item_find(x->r, x->range.track, &first);
	if (i < kvi_reader_n_items(x->r)) {
		if (!first)
			return refuse(x, "the track is not the first one of its file");
		kvarc_ret ret = kvi_llama_item_open(&x->item, x->r, i);
		return ret == KVARC_END ? refuse(x, "bytes outside its tensors are lost") : ret;
	}
	kvi_out_init(&literals, kvi_reader_alloc(x->r));
	kvarc_ret ret = kvi_llama_rebuild(x->r, x->range.track, x->range.n, &plan, &literals, &why);
	if (ret == KVARC_END)
		ret = refuse(x, why);
	if (!ret)
		ret = kvi_llama_item_make(&x->item, x->r, &plan, literals.p, literals.n);
	kvi_restore_free(&plan, kvi_reader_alloc(x->r));
	kvi_out_free(&literals);
	return ret;
}

/* How many tokens the file has. */
static kvarc_ret choose(struct llama_export *x)
{
	struct kvi_llama_short *s = &x->shorter;
	const char *why = NULL;
	kvarc_ret ret = kvi_llama_parse(&s->f, s->alloc, s->s, &why);
	if (ret == KVARC_END)
		return refuse(x, why ? why : "it is none");
	if (!ret)
		ret = kvi_llama_choose(s);
	if (ret)
		return ret;
	/* where all cells are wanted the list comes whole, which may name more tokens than these */
	x->prefix->tokens = s->all || s->f.n_tokens < s->limit ? s->f.n_tokens : s->limit;
	why = s->all && kvi_llama_all_whole(s, true) ? NULL : kvi_llama_obstacle(s);
	if (!why && s->tokens == 0)
		why = s->base ? "the sliding window or the recurrent state that goes with these "
		                "tokens is not there, and no context checkpoint before"
		              : "no token from position 0 on is whole in all layers";
	if (why)
		return refuse(x, why);
	x->prefix->whole_tokens = s->tokens;
	if ((x->flags & KVARC_LLAMA_EXACT) && s->tokens < x->prefix->tokens)
		return refuse(x, "an engine can go on from fewer tokens alone");
	return KVARC_OK;
}

/* Literal bytes, then the elements. */
static kvarc_ret write_file(struct llama_export *x)
{
	struct kvi_llama_short *s = &x->shorter;
	const kvarc_geometry *g = kvarc_reader_geometry(x->r);
	struct kvi_token_span *spans = kvi_calloc(s->alloc, g->n_tracks, sizeof *spans);
	kvarc_ret ret = spans ? kvi_llama_put(s) : kvi_alloc_error(s->alloc);
	x->prefix->bytes = s->at;
	if (!ret)
		ret = kvi_llama_map_sort(&x->map);
	if (ret == KVARC_IO)
		ret = kvi_reader_fail(x->r, ret, "writing the file failed");
	else if (ret)
		ret = no_memory(x, ret);
	if (!ret && x->sink) {
		kvarc_sink sink = kvi_llama_map_sink(&x->map);
		kvi_llama_map_spans(&x->map, spans);
		ret = kvi_unpack_elements(x->r, x->item.plan, &sink, spans);
	}
	if (!ret && x->sink && x->sink->flush && x->sink->flush(x->sink->opaque))
		ret = kvi_reader_fail(x->r, KVARC_IO, "writing the file failed");
	kvi_free(s->alloc, spans);
	return ret;
}

static kvarc_ret export_item(struct llama_export *x)
{
	struct kvi_llama_short *s = &x->shorter;
	*s = (struct kvi_llama_short){ .alloc = kvi_reader_alloc(x->r),
		                       .plan = x->item.plan,
		                       .whole = x->item.whole,
		                       .limit = x->limit,
		                       .strict = x->item.plan == &x->item.made,
		                       .sink = x->sink,
		                       .map = &x->map };
	x->map = (struct kvi_llama_map){
		.alloc = s->alloc, .plan = x->item.plan, .starts = x->item.starts, .sink = x->sink
	};
	s->s = kvi_scan_open(s->alloc, &x->item.source);
	s->buffer = kvi_malloc(s->alloc, KVI_LLAMA_COPY_BYTES);
	kvarc_ret ret = s->s && s->buffer ? choose(x) : kvi_alloc_error(s->alloc);
	if (ret == KVARC_MEM || ret == KVARC_MEMLIMIT)
		ret = no_memory(x, ret);
	if (!ret)
		ret = write_file(x);
	kvi_llama_map_free(&x->map);
	kvi_llama_free(&s->f, s->alloc);
	kvi_free(s->alloc, s->buffer);
	kvi_free(s->alloc, s->s);
	return ret;
}

static kvarc_ret check_arguments(kvarc_reader *r, const kvarc_sink *sink,
                                 const kvarc_llama_options *o)
{
	kvarc_error *e = kvi_reader_error(r);
	kvarc_ret ret = sink ? kvi_check_sink(e, "kvarc_export_llama", sink) : KVARC_OK;
	if (ret || !o)
		return ret;
	if (o->flags & ~(uint64_t)KVARC_LLAMA_EXACT)
		return kvi_fail(e, KVARC_PROG,
		                "kvarc_export_llama: kvarc_llama_options.flags has unknown bits");
	return KVI_CHECK_RESERVED(e, "kvarc_export_llama", "kvarc_llama_options", o);
}

kvarc_ret kvarc_export_llama(kvarc_reader *r, const kvarc_range *range, const kvarc_sink *sink,
                             const kvarc_llama_options *options, kvarc_slot_prefix *prefix)
{
	kvarc_slot_prefix unused;
	if (!r || !range)
		return KVARC_PROG;
	struct llama_export x = { .r = r,
		                  .flags = options ? options->flags : 0,
		                  .sink = sink,
		                  .prefix = prefix ? prefix : &unused };
	*x.prefix = (kvarc_slot_prefix){ 0 };
	kvi_range_of(&x.range, range);
	x.limit = x.range.n;
	kvarc_ret ret = check_arguments(r, sink, options);
	if (ret)
		return ret;
	if (!kvi_reader_can_seek(r))
		return refuse(&x, "the archive comes from a pipe; it needs a source that can seek");
	ret = kvi_range_settle(r, &x.range);
	if (ret)
		return ret;
	const char *why = check_range(&x);
	ret = why ? refuse(&x, why) : open_item(&x);
	if (!ret)
		ret = export_item(&x);
	else if (ret == KVARC_MEM || ret == KVARC_MEMLIMIT)
		ret = no_memory(&x, ret);
	kvi_llama_item_free(&x.item);
	return ret;
}
