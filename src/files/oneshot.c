/* SPDX-License-Identifier: BSD-3-Clause */
/* oneshot.c - one track in memory, on top of writer and reader */
#include <string.h>

#include "format/frame.h"
#include "format/segment.h"
#include "format/superblock.h"
#include "format/geometry_check.h"
#include "util/error.h"
#include "util/ckd.h"
#include "writer/writer_internal.h"

struct memory_sink {
	uint8_t *p;
	size_t bytes, used;
};

static int memory_write(void *opaque, const void *buf, size_t bytes, uint64_t offset)
{
	struct memory_sink *s = opaque;
	if (offset > s->bytes || bytes > s->bytes - offset) {
		s->used = SIZE_MAX; /* does not fit */
		return -1;
	}
	memcpy(s->p + offset, buf, bytes);
	s->used = (size_t)offset + bytes;
	return 0;
}

/* Shortest segments and smallest chunks that writer options allow. */
enum { SEGMENT_MIN = 32, CHUNK_MIN = 64 << 10 };
/*
 * The most bytes of a chunk and its share of parameters, their copy and the index
 * beyond its raw bytes: frame and chunk header, padding, a PARAMS frame with 16
 * tables of 257 two-byte frequencies, twice, index entries; for a file its KEY frames, twice.
 */
enum { CHUNK_EXTRA = 20480, SEGMENT_EXTRA = 4096, FILE_EXTRA = 32768 };
enum { PARAMS_CHANNEL_BYTES = 12 }; /* at most 6 a channel, twice */

/* Bytes of everything but the raw data when segments have T tokens. */
static bool overhead(const kvarc_geometry *geometry, uint64_t n_tokens, uint32_t full,
                     uint64_t *out)
{
	uint64_t most = full, sum = 0, add;
	for (size_t i = 0; i < geometry->n_tensors; i++) {
		const kvarc_tensor *t = &geometry->tensors[i];
		uint64_t fit = CHUNK_MIN / (t->channels * kvarc_dtype_bytes(t->dtype));
		fit = fit ? fit : 1;
		most = fit < most ? fit : most;
	}
	uint64_t segments = n_tokens / most + 1;
	for (size_t i = 0; i < geometry->n_tensors; i++) {
		const kvarc_tensor *t = &geometry->tensors[i];
		uint64_t heads = CHUNK_MIN / (t->channels * most * kvarc_dtype_bytes(t->dtype));
		heads = heads ? heads : 1;
		uint64_t chunks = (t->heads + heads - 1) / heads;
		sum += chunks * CHUNK_EXTRA + (uint64_t)kvi_tensor_width(t) * PARAMS_CHANNEL_BYTES;
	}
	/* The commit counts the tokens of every track. */
	sum += SEGMENT_EXTRA + 9 * geometry->n_tracks;
	return !kvi_mul(sum, segments, &add) && !kvi_add(add, FILE_EXTRA, out);
}

/* Upper bound of the bytes that the strings and ropes of a geometry take. */
static uint64_t geometry_bytes(const kvarc_geometry *geometry)
{
	uint64_t sum = 64;
	for (size_t i = 0; i < geometry->n_ropes; i++)
		sum += 16 + 4 * (uint64_t)geometry->ropes[i].rotary;
	for (size_t i = 0; i < geometry->n_tracks; i++)
		sum += 16 + (geometry->tracks[i].label ? strlen(geometry->tracks[i].label) : 0);
	for (size_t i = 0; i < geometry->n_tensors; i++)
		sum += 64 + (geometry->tensors[i].name ? strlen(geometry->tensors[i].name) : 0);
	return sum;
}

size_t kvarc_encode_bound(const kvarc_geometry *geometry, uint64_t n_tokens)
{
	uint64_t worst = 0, raw = 0, total;
	if (!geometry || kvi_geometry_wrong(geometry) || n_tokens > UINT32_MAX)
		return 0;
	for (uint32_t full = SEGMENT_MIN; full <= KVI_SEGMENT_TOKENS; full++) {
		uint64_t bytes;
		if (!overhead(geometry, n_tokens, full, &bytes))
			return 0;
		worst = bytes > worst ? bytes : worst;
	}
	for (size_t i = 0; i < geometry->n_tensors; i++)
		raw += kvi_tensor_bytes(&geometry->tensors[i]);
	if (kvi_mul(raw, n_tokens, &raw) || kvi_add(raw, worst, &total) ||
	    kvi_add(total, geometry_bytes(geometry), &total) || total > SIZE_MAX)
		return 0;
	return (size_t)total;
}

kvarc_ret kvarc_encode_buffer(void *out, size_t out_bytes, size_t *written,
                              const kvarc_geometry *geometry, uint64_t n_tokens, const int32_t *ids,
                              const kvarc_view *views, const kvarc_writer_options *options)
{
	struct memory_sink to = { out, out_bytes, 0 };
	const kvarc_sink sink = { .write = memory_write, .opaque = &to };
	kvarc_error *e = options ? options->common.error : NULL;
	kvarc_writer *w;
	if (!out || !written)
		return kvi_fail(e, KVARC_PROG, "out or written is NULL");
	*written = 0;
	kvarc_ret ret = kvarc_writer_open(&w, &sink, options);
	if (ret)
		return ret;
	ret = kvarc_writer_set_geometry(w, geometry);
	if (ret == KVARC_OK && geometry->n_tracks != 1)
		ret = kvi_fail(e, KVARC_GEOMETRY, "the one-shot calls take a single track");
	if (ret == KVARC_OK) {
		kvi_writer_set_ends(w);
		ret = kvarc_writer_append(w, 0, n_tokens, ids, NULL, views);
	}
	if (ret == KVARC_OK)
		ret = kvarc_writer_close(&w);
	else
		kvarc_writer_abort(&w);
	if (ret == KVARC_IO && to.used == SIZE_MAX)
		return kvi_fail(e, KVARC_PROG,
		                "%zu bytes are too few for the archive: use kvarc_encode_bound",
		                out_bytes);
	if (ret == KVARC_OK)
		*written = to.used;
	return ret;
}

kvarc_ret kvarc_decode_buffer(const void *in, size_t in_bytes, const kvarc_view *views,
                              size_t n_views, const kvarc_reader_options *options)
{
	const kvarc_source source = { .size = in_bytes, .memory = in };
	const kvarc_range all = KVARC_RANGE_ALL(0);
	kvarc_error *e = options ? options->common.error : NULL;
	kvarc_reader *r;
	kvarc_info info;
	if (!in || !views)
		return kvi_fail(e, KVARC_PROG, "in or views is NULL");
	kvarc_ret ret = kvarc_reader_open(&r, &source, options);
	if (ret)
		return ret;
	if (kvarc_reader_geometry(r)->n_tensors != n_views)
		ret = kvi_fail(e, KVARC_GEOMETRY, "the archive has %zu tensors, not %zu",
		               kvarc_reader_geometry(r)->n_tensors, n_views);
	if (ret == KVARC_OK)
		ret = kvarc_reader_get_info(r, &info);
	if (ret == KVARC_OK && (info.state == KVARC_STATE_CUT || info.state == KVARC_STATE_DAMAGED))
		ret = kvi_reason(
			e, KVARC_REASON_SALVAGE,
			kvi_fail_at(e, KVARC_DATA, in_bytes - info.dropped_bytes, KVARC_UNKNOWN,
		                    "the archive is cut or damaged behind token %llu; salvage may "
		                    "give the rest",
		                    (unsigned long long)kvarc_reader_tokens(r, 0)));
	if (ret == KVARC_OK)
		ret = kvarc_reader_read(r, &all, views);
	kvarc_reader_close(&r);
	return ret;
}
