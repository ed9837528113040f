/* SPDX-License-Identifier: BSD-3-Clause */
/* eval_archive.c - a cache into an archive in memory, and what comes back out of it */
#include <string.h>

#include "eval_state.h"
#include "util/error.h"
#include "util/ckd.h"

struct memory_file {
	const struct kvi_alloc *alloc;
	uint8_t *p;
	size_t bytes, capacity;
	bool no_memory;
};

static int write_file(void *opaque, const void *buf, size_t bytes, uint64_t offset)
{
	struct memory_file *f = opaque;
	size_t end;
	if (offset > f->bytes || kvi_add((size_t)offset, bytes, &end))
		return -1;
	if (end > f->capacity) {
		size_t capacity = end + end / 2;
		uint8_t *p = kvi_malloc(f->alloc, capacity);
		if (!p) {
			f->no_memory = true;
			return -1;
		}
		if (f->bytes)
			memcpy(p, f->p, f->bytes);
		kvi_free(f->alloc, f->p);
		f->p = p;
		f->capacity = capacity;
	}
	memcpy(f->p + offset, buf, bytes);
	if (end > f->bytes)
		f->bytes = end;
	return 0;
}

/* Options for writers and readers: those of the evaluation without its progress, which counts other
 * things. */
static kvarc_common common_of(const kvarc_eval *eval)
{
	kvarc_common c = eval->o.common;
	c.progress = NULL;
	return c;
}

static kvarc_ret write_archive(kvarc_eval *eval, const int32_t *ids,
                               const kvarc_writer_options *tier, struct memory_file *file)
{
	const kvarc_sink sink = { .write = write_file, .opaque = file };
	kvarc_writer_options o = *tier;
	kvarc_writer *w;
	o.common = common_of(eval);
	o.flags |= KVARC_WRITE_FILE_ID;
	kvarc_ret ret = kvarc_writer_open(&w, &sink, &o);
	if (ret)
		return ret;
	ret = kvarc_writer_set_geometry(w, eval->geometry);
	if (!ret)
		ret = kvarc_writer_append(w, 0, eval->exact.n, ids, eval->positions,
		                          eval->exact.views);
	if (!ret)
		return kvarc_writer_close(&w);
	kvarc_writer_abort(&w);
	return ret;
}

static kvarc_ret read_archive(kvarc_eval *eval, const kvarc_writer_options *tier,
                              const struct memory_file *file)
{
	const kvarc_source source = { .size = file->bytes, .memory = file->p };
	const kvarc_range all = KVARC_RANGE_ALL(0);
	kvarc_reader_options o = KVARC_READER_OPTIONS_INIT;
	kvarc_reader *r;
	o.common = common_of(eval);
	o.profiles = &tier->profile;
	o.n_profiles = tier->profile != NULL;
	o.predictor = tier->predictor;
	o.flags = KVARC_READ_ALLOW_LOSSY;
	kvarc_ret ret = kvarc_reader_open(&r, &source, &o);
	if (ret)
		return ret;
	eval->back.n = kvarc_reader_tokens(r, 0);
	if (eval->back.n > eval->exact.n)
		ret = kvi_fail(eval->o.common.error, KVARC_DATA,
		               "more tokens came back than were written");
	memset(eval->back.memory, 0, eval->back.bytes);
	if (!ret && eval->back.n)
		ret = kvarc_reader_read(r, &all, eval->back.views);
	kvarc_reader_close(&r);
	return ret;
}

kvarc_ret kvi_eval_through_archive(kvarc_eval *eval, const int32_t *ids,
                                   const kvarc_writer_options *tier, kvarc_eval_result *r)
{
	struct memory_file f = { .alloc = &eval->alloc };
	kvarc_ret ret = write_archive(eval, ids, tier, &f);
	if (!ret)
		ret = read_archive(eval, tier, &f);
	if (f.no_memory)
		ret = kvi_fail_alloc(eval->o.common.error, &eval->alloc);
	r->archive_bytes = f.bytes;
	r->kept_tokens = eval->back.n;
	kvi_free(&eval->alloc, f.p);
	return ret;
}
