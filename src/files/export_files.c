/* SPDX-License-Identifier: BSD-3-Clause */
/* export_files.c - the tensors of a range as a safetensors file */
#include <stdio.h>
#include <string.h>

#include "format/geometry_check.h"
#include "locked.h"
#include "reader_bounds.h"
#include "strided.h"
#include "reader/reader_internal.h"
#include "util/arguments.h"
#include "util/bytes.h"

enum {
	HEADER_MAX = 100000000, /* limit of the safetensors format */
	TOKENS_STEP = 4096
};

struct export
{
	kvarc_reader *r;
	const kvarc_geometry *geometry;
	kvarc_range range;
	const kvarc_sink *sink;
	const struct kvi_alloc *alloc;
	uint64_t *at;  /* offset of each tensor; UINT64_MAX: not in the file */
	uint64_t data; /* offset of the next tensor, from the begin of the data */
	bool ids;
	struct kvi_out header;
	pthread_mutex_t lock; /* guards the sink */
};

static const char *dtype_name(uint8_t dtype)
{
	switch (dtype) {
	case KVARC_F32:
		return "F32";
	case KVARC_F16:
		return "F16";
	case KVARC_BF16:
		return "BF16";
	case KVARC_E4M3:
		return "F8_E4M3";
	case KVARC_E5M2:
		return "F8_E5M2";
	case KVARC_I8:
		return "I8";
	default:
		return "U8";
	}
}

static void put_text(struct kvi_out *out, const char *text)
{
	kvi_put_bytes(out, text, strlen(text));
}

/* Makes names: "layers.3.key", "layers.3.key.scale"; a second tensor of the same name
 * gets its number. */
static void make_name(const struct export *export, uint32_t i, char *name, size_t capacity)
{
	static const char *const role[] = { "", ".scale", ".minimum", ".payload", ".high_bits" };
	const kvarc_tensor *t = &export->geometry->tensors[i];
	int n = snprintf(name, capacity, "layers.%u.%s%s", t->layer, kvarc_kind_name(t->kind),
	                 t->role < 5 ? role[t->role] : "");
	for (uint32_t k = 0; k < i; k++) {
		const kvarc_tensor *o = &export->geometry->tensors[k];
		if (export->at[k] != UINT64_MAX && o->layer == t->layer && o->kind == t->kind &&
		    o->role == t->role) {
			snprintf(name + n, capacity - (size_t)n, ".%u", i);
			return;
		}
	}
}

static void put_entry(struct export *export, const char *name, const char *dtype, const char *shape,
                      uint64_t bytes)
{
	char text[256];
	snprintf(text, sizeof text,
	         "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[%s],\"data_offsets\":[%llu,%llu]}",
	         export->data ? "," : "", name, dtype, shape, (unsigned long long)export->data,
	         (unsigned long long)(export->data + bytes));
	put_text(&export->header, text);
	export->data += bytes;
}

/* Offsets of all tensors, and the header. */
static kvarc_ret make_header(struct export *export)
{
	char shape[80], name[64];
	size_t n = 0;
	put_text(&export->header, "        {"); /* the length of the header comes here */
	if (export->ids) {
		snprintf(shape, sizeof shape, "%llu", (unsigned long long)export->range.n);
		put_entry(export, "tokens", "I32", shape, 4 * export->range.n);
	}
	for (uint32_t i = 0; i < export->geometry->n_tensors; i++) {
		const kvarc_tensor *t = &export->geometry->tensors[i];
		export->at[i] = UINT64_MAX;
		if (!kvi_range_has(&export->range, t))
			continue;
		make_name(export, i, name, sizeof name);
		export->at[i] = export->data;
		n++;
		snprintf(shape, sizeof shape, "%u,%llu,%u", t->heads,
		         (unsigned long long)export->range.n, t->channels);
		put_entry(export, name, dtype_name(t->dtype), shape,
		          export->range.n * kvi_tensor_bytes(t));
	}
	put_text(&export->header, "}");
	while (export->header.n % 8)
		put_text(&export->header, " ");
	if (export->header.failed)
		return kvi_reader_fail(export->r, kvi_alloc_error(export->alloc),
		                       "not enough memory for the header");
	if (n == 0 || export->header.n > HEADER_MAX)
		return kvi_reader_fail(export->r, KVARC_GEOMETRY,
		                       n ? "too many tensors for a safetensors file"
		                         : "no tensors in this range");
	kvi_store64(export->header.p, export->header.n - 8);
	return KVARC_OK;
}

static kvarc_ret write_failed(struct export *export)
{
	return kvi_reader_fail(export->r, KVARC_IO, "writing the file failed");
}

static kvarc_ret write_ids(struct export *export)
{
	int32_t ids[TOKENS_STEP];
	uint8_t raw[4 * TOKENS_STEP];
	for (uint64_t done = 0; export->ids && done < export->range.n;) {
		uint64_t left = export->range.n - done;
		uint32_t n = left < TOKENS_STEP ? (uint32_t)left : TOKENS_STEP;
		kvarc_ret ret = kvarc_reader_read_tokens(export->r, export->range.track,
		                                         export->range.t0 + done, n, ids, NULL);
		if (ret)
			return ret;
		for (uint32_t i = 0; i < n; i++)
			kvi_store32(raw + 4 * i, (uint32_t)ids[i]);
		if (export->sink->write(export->sink->opaque, raw, 4 * (size_t)n,
		                        export->header.n + 4 * done))
			return write_failed(export);
		done += n;
	}
	return KVARC_OK;
}

static int deliver(void *opaque, uint32_t tensor, uint32_t head, uint32_t heads, uint64_t t0,
                   uint32_t n, const void *src)
{
	struct export *x = opaque;
	const kvarc_tensor *t = &x->geometry->tensors[tensor];
	uint64_t es = kvarc_dtype_bytes(t->dtype);
	if (x->at[tensor] == UINT64_MAX)
		return 0;
	struct kvi_area_view v = {
		tensor, t->channels, 0, t->channels * es, x->range.n * t->channels * es, es
	};
	struct kvi_block b = { t0 - x->range.t0, n, head * t->channels, heads * t->channels,
		               (uint32_t)es };
	struct kvi_locked l = { &x->lock, x->sink };
	kvarc_sink sink = kvi_locked_sink(&l);
	return kvi_strided_write(x->alloc, &sink, x->header.n + x->at[tensor], &v, &b, src) !=
	       KVARC_OK;
}

static kvarc_ret write_all(struct export *export)
{
	kvarc_ret ret = make_header(export);
	if (!ret &&
	    export->sink->write(export->sink->opaque, export->header.p, export->header.n, 0))
		ret = write_failed(export);
	if (!ret)
		ret = write_ids(export);
	if (!ret)
		ret = kvarc_reader_read_deliver(export->r, &export->range, deliver, export);
	if (!ret && export->sink->flush && export->sink->flush(export->sink->opaque))
		ret = write_failed(export);
	return ret;
}

kvarc_ret kvarc_export_safetensors(kvarc_reader *r, const kvarc_range *range,
                                   const kvarc_sink *sink)
{
	if (!r || !range)
		return KVARC_PROG;
	kvarc_ret ret = kvi_check_sink(kvi_reader_error(r), "kvarc_export_safetensors", sink);
	if (ret)
		return ret;
	struct export x = { .r = r,
		            .geometry = kvarc_reader_geometry(r),
		            .range = *range,
		            .sink = sink,
		            .alloc = kvi_reader_alloc(r) };
	ret = kvi_range_resolve(r, &x.range);
	if (ret)
		return ret;
	pthread_mutex_init(&x.lock, NULL);
	kvi_out_init(&x.header, x.alloc);
	x.at = kvi_array(x.alloc, x.geometry->n_tensors + 1, sizeof *x.at);
	if (!x.at)
		ret = kvi_reader_fail(r, kvi_alloc_error(x.alloc),
		                      "not enough memory for the header");
	if (!ret)
		ret = kvi_range_has_ids(r, &x.range, &x.ids);
	if (!ret)
		ret = write_all(&x);
	kvi_out_free(&x.header);
	kvi_free(x.alloc, x.at);
	pthread_mutex_destroy(&x.lock);
	return ret;
}
