/* SPDX-License-Identifier: BSD-3-Clause */
/* profile_handle.c - profiles through the public interface */
#include "util/arguments.h"
#include "util/error.h"
#include "format/frame_input.h"
#include "linear_plan.h"
#include "profile_handle.h"

kvarc_ret kvi_profile_handle_new(kvarc_profile **out, const kvarc_common *common)
{
	return kvi_handle_new(out, sizeof **out, offsetof(kvarc_profile, alloc), common,
	                      common->memlimit);
}

void kvarc_profile_close(kvarc_profile **out)
{
	kvarc_profile *p = out ? *out : NULL;
	if (!p)
		return;
	kvi_profile_free(p->profile);
	kvi_free(&p->alloc, p);
	*out = NULL;
}

const struct kvi_profile *kvi_profile_of(const kvarc_profile *profile)
{
	return profile->profile;
}

/* The packed content and then the end of the source. From a pipe it is read in
 * pieces of growing size, so that a length that is only announced costs no memory. */
static kvarc_ret read_packed(const struct kvi_input *in, struct kvi_buffer *buf, uint64_t bytes,
                             kvarc_error *error)
{
	enum { STEP = 1 << 20 };
	size_t have = 0, got;
	uint8_t more;
	bool seekable = kvi_input_seekable(in);
	bool cut = seekable && in->source.size - KVI_PROFILE_HEADER_BYTES < bytes;
	while (!cut && have < bytes) {
		size_t step = (size_t)bytes - have;
		size_t most = have > STEP ? have : STEP;
		if (!seekable && step > most)
			step = most;
		if (!kvi_buffer_grow(buf, in->alloc, have + step, have))
			return kvi_fail_alloc(error, in->alloc);
		kvarc_ret ret = kvi_input_read(in, buf->p + have, step,
		                               KVI_PROFILE_HEADER_BYTES + have, &got, error);
		if (ret)
			return ret;
		cut = got < step;
		have += got;
	}
	if (cut)
		return kvi_fail(error, KVARC_DATA, "the profile is cut");
	kvarc_ret ret = kvi_input_read(in, &more, 1, KVI_PROFILE_HEADER_BYTES + bytes, &got, error);
	if (ret == KVARC_OK && got)
		return kvi_fail_at(error, KVARC_DATA, KVI_PROFILE_HEADER_BYTES + bytes,
		                   KVARC_UNKNOWN, "bytes follow the profile");
	return ret;
}

static kvarc_ret fail_parse(kvarc_error *error, kvarc_ret ret, const struct kvi_alloc *alloc)
{
	const char *text = "the profile is damaged or not valid";
	if (ret == KVARC_OK)
		return ret;
	if (ret == KVARC_MEM || ret == KVARC_MEMLIMIT)
		return kvi_fail_alloc(error, alloc);
	if (ret == KVARC_FORMAT)
		text = "this is not a profile";
	else if (ret == KVARC_OPTIONS)
		text = "the profile is of another version or a pre-release of kvarc: train it "
		       "again";
	return kvi_fail(error, ret, "%s", text);
}

static kvarc_ret read_profile(kvarc_profile *profile, const kvarc_source *source,
                              kvarc_error *error)
{
	const struct kvi_input in = { .source = *source, .alloc = &profile->alloc };
	uint8_t head[KVI_PROFILE_HEADER_BYTES];
	struct kvi_profile_header h;
	struct kvi_buffer buf = { 0 };
	size_t got;
	kvarc_ret ret = kvi_input_read(&in, head, sizeof head, 0, &got, error);
	if (ret)
		return ret;
	ret = kvi_profile_header_parse(&h, head, got);
	if (ret)
		return fail_parse(error, ret, &profile->alloc);
	profile->file_bytes = KVI_PROFILE_HEADER_BYTES + h.packed_bytes;
	ret = read_packed(&in, &buf, h.packed_bytes, error);
	if (ret == KVARC_OK)
		ret = fail_parse(error,
		                 kvi_profile_unpack(&profile->profile, &profile->alloc, &h, buf.p),
		                 &profile->alloc);
	kvi_free(&profile->alloc, buf.p);
	return ret;
}

kvarc_ret kvarc_profile_open(kvarc_profile **out, const kvarc_source *source,
                             const kvarc_common *common)
{
	static const kvarc_common defaults = KVARC_COMMON_INIT;
	const kvarc_common *c = common ? common : &defaults;
	if (!out)
		return KVARC_PROG;
	*out = NULL;
	kvarc_ret ret = kvi_check_source(c->error, "kvarc_profile_open", source, false);
	if (!ret)
		ret = kvi_profile_handle_new(out, c);
	if (ret)
		return ret;
	ret = read_profile(*out, source, c->error);
	if (ret)
		kvarc_profile_close(out);
	return ret;
}

kvarc_ret kvi_profile_handle_finish(kvarc_profile *profile)
{
	struct kvi_out out;
	kvi_out_init(&out, &profile->alloc);
	kvarc_ret ret = kvi_profile_serialise(profile->profile, &out);
	out.n = 0;
	if (ret == KVARC_OK)
		ret = kvi_profile_write_file(profile->profile, &out);
	profile->file_bytes = out.n;
	kvi_out_free(&out);
	return ret;
}

/* The merged profile in its handle. */
static kvarc_ret merge(kvarc_profile *profile, const kvarc_profile *const *list, size_t n,
                       kvarc_error *error)
{
	const struct kvi_profile **from = kvi_array(&profile->alloc, n, sizeof *from);
	if (!from)
		return kvi_fail_alloc(error, &profile->alloc);
	for (size_t i = 0; i < n; i++)
		from[i] = kvi_profile_of(list[i]);
	kvarc_ret ret = kvi_profile_merge(&profile->profile, &profile->alloc, from, n);
	if (ret == KVARC_OK)
		ret = kvi_profile_handle_finish(profile);
	kvi_free(&profile->alloc, from);
	if (ret == KVARC_MEM || ret == KVARC_MEMLIMIT)
		return kvi_fail_alloc(error, &profile->alloc);
	return ret ? kvi_fail(error, ret,
	                      "the profiles cannot be merged: they are for different models")
	           : KVARC_OK;
}

kvarc_ret kvarc_profile_merge(kvarc_profile **out, const kvarc_profile *const *list, size_t n,
                              const kvarc_common *common)
{
	static const kvarc_common defaults = KVARC_COMMON_INIT;
	const kvarc_common *c = common ? common : &defaults;
	if (!out)
		return KVARC_PROG;
	*out = NULL;
	for (size_t i = 0; i < n; i++)
		if (!list || !list[i] || !list[i]->profile)
			return KVARC_PROG;
	if (n == 0)
		return KVARC_PROG;
	kvarc_ret ret = kvi_profile_handle_new(out, c);
	if (ret == KVARC_OK)
		ret = merge(*out, list, n, c->error);
	if (ret)
		kvarc_profile_close(out);
	return ret;
}

kvarc_ret kvarc_profile_write(const kvarc_profile *p, const kvarc_sink *sink)
{
	struct kvi_out out;
	if (!p || !p->profile || !sink || !sink->write)
		return KVARC_PROG;
	kvi_out_init(&out, &p->alloc);
	kvarc_ret ret = kvi_profile_write_file(p->profile, &out);
	if (ret == KVARC_OK && (sink->write(sink->opaque, out.p, out.n, 0) ||
	                        (sink->flush && sink->flush(sink->opaque))))
		ret = KVARC_IO;
	kvi_out_free(&out);
	return ret;
}

kvarc_ret kvarc_profile_get_info(const kvarc_profile *p, kvarc_profile_info *info)
{
	if (!p || !p->profile || !info)
		return KVARC_PROG;
	const struct kvi_profile *from = p->profile;
	*info = (kvarc_profile_info){
		.file_bytes = p->file_bytes,
		.n_models = from->n_models,
		.n_pairs = from->identity.n,
		.n_ropes = from->n_ropes,
	};
	kvi_store_h128(info->digest, from->digest);
	for (size_t i = 0; i < from->n_models; i++) {
		info->coefficients += kvi_model_coefficients(&from->models[i]);
		info->levels |= 1u << from->models[i].level;
	}
	return KVARC_OK;
}

kvarc_ret kvarc_profile_model(const kvarc_profile *p, size_t i, kvarc_model_info *info)
{
	if (!p || !p->profile || !info)
		return KVARC_PROG;
	if (i >= p->profile->n_models)
		return KVARC_END;
	const struct kvi_model *m = &p->profile->models[i];
	*info = (kvarc_model_info){
		.level = m->level,
		.layer = m->layer,
		.kind = m->kind,
		.heads = m->heads,
		.channels = m->head_channels,
		.rotary = m->rotary,
		.coefficients = kvi_model_coefficients(m),
		.table_rows = m->flags & KVI_MODEL_TABLE ? m->n_ids : 0,
		.corrects = m->flags & KVI_MODEL_CORRECTS ? m->width : 0,
	};
	return KVARC_OK;
}

kvarc_ret kvarc_profile_identity_at(const kvarc_profile *p, size_t i, const char **key,
                                    const char **value)
{
	if (!p || !p->profile || !key || !value)
		return KVARC_PROG;
	if (i >= p->profile->identity.n)
		return KVARC_END;
	*key = p->profile->identity.pairs[i].key;
	*value = p->profile->identity.pairs[i].value;
	return KVARC_OK;
}

kvarc_ret kvarc_profile_rope(const kvarc_profile *p, size_t i, kvarc_rope *rope)
{
	if (!p || !p->profile || !rope)
		return KVARC_PROG;
	if (i >= p->profile->n_ropes)
		return KVARC_END;
	*rope = (kvarc_rope){ .pairing = KVARC_ROPE_HALF,
		              .rotary = p->profile->ropes[i].rotary,
		              .freq = p->profile->ropes[i].freq };
	return KVARC_OK;
}

int kvarc_profile_fits(const kvarc_profile *p, unsigned level, const kvarc_tensor *tensor,
                       const kvarc_rope *rope)
{
	if (!p || !p->profile || !tensor)
		return 0;
	const struct kvi_model *m = kvi_profile_model(p->profile, level, tensor->layer,
	                                              tensor->kind);
	return m && kvi_model_fits(m, tensor, rope);
}

size_t kvarc_profile_predicts(const kvarc_profile *p, unsigned level,
                              const kvarc_geometry *geometry)
{
	struct kvi_linear_plan *plan = NULL;
	struct kvi_order order;
	size_t n = 0;
	if (!p || !p->profile || !geometry || kvi_geometry_wrong(geometry))
		return 0;
	if (kvi_order_make(&order, &p->alloc, geometry) == KVARC_OK &&
	    kvi_linear_plan_make(&plan, &p->alloc, p->profile, level, geometry, &order,
	                         KVI_LINEAR_CHUNK_MAX) == KVARC_OK)
		n = plan->n_complete;
	kvi_free(&p->alloc, plan);
	kvi_order_free(&order, &p->alloc);
	return n;
}
