/* SPDX-License-Identifier: BSD-3-Clause */
/* restore.c - parses, checks and writes RESTORE and BLOB content (spec 10) */
#include "restore.h"

#include "util/string_field.h"
#include "util/ckd.h"

void kvi_restore_free(struct kvi_restore *r, const struct kvi_alloc *alloc)
{
	for (size_t i = 0; r->pieces && i < r->n_pieces; i++)
		kvi_free(alloc, r->pieces[i].views);
	kvi_free(alloc, r->pieces);
	kvi_free(alloc, r->name);
	*r = (struct kvi_restore){ 0 };
}

uint64_t kvi_restore_literal_bytes(const struct kvi_restore *r)
{
	uint64_t sum = 0;
	for (size_t i = 0; i < r->n_pieces; i++)
		if (r->pieces[i].type == KVI_PIECE_LITERAL)
			sum += r->pieces[i].bytes;
	return sum;
}

/* Offset just past the last element of a view, checked. */
static bool view_end(const struct kvi_area_view *view, uint64_t n_tokens, uint64_t width,
                     uint64_t elem, uint64_t *end)
{
	uint64_t blocks = (width - 1) / view->block_elems;
	uint64_t in_block = width < view->block_elems ? width : view->block_elems;
	uint64_t t, b, e, last;
	/* The last block may be short; the far corner of a full block counts
	 * only when there is one. */
	if (kvi_mul(n_tokens - 1, view->token_stride, &t) ||
	    kvi_mul(blocks, view->block_stride, &b) ||
	    kvi_mul((width - 1) % view->block_elems, view->elem_stride, &last) ||
	    kvi_mul(in_block - 1, view->elem_stride, &e))
		return false;
	if (blocks) {
		uint64_t full = b - view->block_stride;
		if (kvi_add(full, e, &full) || kvi_add(b, last, &b))
			return false;
		b = b > full ? b : full;
	} else {
		b = last;
	}
	return !kvi_add(t, b, &t) && !kvi_add(t, view->offset, &t) && !kvi_add(t, elem, end);
}

static bool area_valid(const struct kvi_piece *piece, const kvarc_geometry *geometry)
{
	uint64_t sum = 0;
	uint64_t last;
	if (piece->track >= geometry->n_tracks || piece->n_tokens == 0 || piece->n_views == 0 ||
	    kvi_add(piece->t0, piece->n_tokens, &last))
		return false;
	for (size_t i = 0; i < piece->n_views; i++) {
		const struct kvi_area_view *v = &piece->views[i];
		uint64_t end, bytes;
		if (v->tensor >= geometry->n_tensors || v->block_elems == 0)
			return false;
		const kvarc_tensor *t = &geometry->tensors[v->tensor];
		uint64_t elem = kvarc_dtype_bytes(t->dtype);
		uint64_t width = (uint64_t)t->heads * t->channels;
		if (t->track != piece->track || !view_end(v, piece->n_tokens, width, elem, &end) ||
		    end > piece->bytes || kvi_mul(piece->n_tokens, width * elem, &bytes) ||
		    kvi_add(sum, bytes, &sum))
			return false;
	}
	return sum == piece->bytes;
}

bool kvi_restore_valid(const struct kvi_restore *r, const kvarc_geometry *geometry)
{
	uint64_t sum = 0;
	if (!kvi_string_fits(r->name))
		return false;
	for (size_t i = 0; i < r->n_pieces; i++) {
		const struct kvi_piece *p = &r->pieces[i];
		if (p->bytes == 0 || kvi_add(sum, p->bytes, &sum))
			return false;
		if (p->type == KVI_PIECE_AREA ? !area_valid(p, geometry)
		                              : p->type > KVI_PIECE_REFERENCE)
			return false;
	}
	return sum == r->file_bytes;
}

void kvi_restore_put(struct kvi_out *out, const struct kvi_restore *r)
{
	kvi_put16(out, r->kind);
	kvi_put_string(out, r->name);
	kvi_put_varint(out, r->file_bytes);
	kvi_put_varint(out, r->n_pieces);
	for (size_t i = 0; i < r->n_pieces; i++) {
		const struct kvi_piece *p = &r->pieces[i];
		kvi_put8(out, p->type);
		kvi_put_varint(out, p->bytes);
		if (p->type == KVI_PIECE_REFERENCE) {
			kvi_put_varint(out, p->item);
			kvi_put_varint(out, p->from);
		}
		if (p->type != KVI_PIECE_AREA)
			continue;
		kvi_put_varint(out, p->track);
		kvi_put_varint(out, p->t0);
		kvi_put_varint(out, p->n_tokens);
		kvi_put_varint(out, p->n_views);
		for (size_t k = 0; k < p->n_views; k++) {
			const struct kvi_area_view *v = &p->views[k];
			kvi_put_varint(out, v->tensor);
			kvi_put_varint(out, v->offset);
			kvi_put_varint(out, v->token_stride);
			kvi_put_varint(out, v->block_elems);
			kvi_put_varint(out, v->block_stride);
			kvi_put_varint(out, v->elem_stride);
		}
	}
}

static kvarc_ret parse_area(struct kvi_piece *piece, const struct kvi_alloc *alloc,
                            struct kvi_in *in)
{
	enum { VIEW_BYTES_MIN = 6 };
	piece->track = (uint32_t)kvi_get_varint(in, UINT32_MAX);
	piece->t0 = kvi_get_varint(in, UINT64_MAX);
	piece->n_tokens = kvi_get_varint(in, UINT64_MAX);
	uint64_t n = kvi_get_varint(in, kvi_in_remaining(in) / VIEW_BYTES_MIN);
	if (in->bad || n == 0)
		return KVARC_DATA;
	piece->views = kvi_calloc(alloc, (size_t)n, sizeof *piece->views);
	if (!piece->views)
		return kvi_alloc_error(alloc);
	piece->n_views = (size_t)n;
	for (size_t i = 0; i < piece->n_views; i++) {
		struct kvi_area_view *v = &piece->views[i];
		v->tensor = (uint32_t)kvi_get_varint(in, UINT32_MAX);
		v->offset = kvi_get_varint(in, UINT64_MAX);
		v->token_stride = kvi_get_varint(in, UINT64_MAX);
		v->block_elems = (uint32_t)kvi_get_varint(in, UINT32_MAX);
		v->block_stride = kvi_get_varint(in, UINT64_MAX);
		v->elem_stride = kvi_get_varint(in, UINT64_MAX);
	}
	return in->bad ? KVARC_DATA : KVARC_OK;
}

static kvarc_ret parse(struct kvi_restore *r, const struct kvi_alloc *alloc, struct kvi_in *in)
{
	enum { PIECE_BYTES_MIN = 2 };
	r->kind = kvi_get16(in);
	r->name = kvi_get_string(in, alloc);
	if (!r->name)
		return in->bad ? KVARC_DATA : kvi_alloc_error(alloc);
	r->file_bytes = kvi_get_varint(in, UINT64_MAX);
	uint64_t n = kvi_get_varint(in, kvi_in_remaining(in) / PIECE_BYTES_MIN);
	if (in->bad)
		return KVARC_DATA;
	if (n) {
		r->pieces = kvi_calloc(alloc, (size_t)n, sizeof *r->pieces);
		if (!r->pieces)
			return kvi_alloc_error(alloc);
	}
	r->n_pieces = (size_t)n;
	for (size_t i = 0; i < r->n_pieces; i++) {
		struct kvi_piece *p = &r->pieces[i];
		p->type = kvi_get8(in);
		p->bytes = kvi_get_varint(in, UINT64_MAX);
		if (p->type > KVI_PIECE_REFERENCE)
			return KVARC_OPTIONS;
		if (p->type == KVI_PIECE_REFERENCE) {
			p->item = kvi_get_varint(in, UINT64_MAX);
			p->from = kvi_get_varint(in, UINT64_MAX);
		}
		kvarc_ret ret = p->type == KVI_PIECE_AREA ? parse_area(p, alloc, in) : KVARC_OK;
		if (ret)
			return ret;
		if (in->bad)
			return KVARC_DATA;
	}
	return kvi_get_extensions(in) ? KVARC_OK : KVARC_DATA;
}

kvarc_ret kvi_restore_parse(struct kvi_restore *r, const struct kvi_alloc *alloc,
                            const kvarc_geometry *geometry, const uint8_t *content, size_t bytes)
{
	struct kvi_in in = kvi_in_make(content, bytes);
	*r = (struct kvi_restore){ 0 };
	kvarc_ret ret = parse(r, alloc, &in);
	if (ret == KVARC_OK && !kvi_restore_valid(r, geometry))
		ret = KVARC_DATA;
	if (ret)
		kvi_restore_free(r, alloc);
	return ret;
}

bool kvi_blob_parse(struct kvi_blob *blob, const uint8_t *content, size_t bytes)
{
	struct kvi_in in = kvi_in_make(content, bytes);
	blob->item = kvi_get_varint(&in, UINT64_MAX);
	blob->offset = kvi_get_varint(&in, UINT64_MAX);
	blob->data = in.p;
	blob->bytes = kvi_in_remaining(&in);
	return !in.bad && blob->bytes > 0;
}

void kvi_blob_put_head(struct kvi_out *out, uint64_t item, uint64_t offset)
{
	kvi_put_varint(out, item);
	kvi_put_varint(out, offset);
}
