/* SPDX-License-Identifier: BSD-3-Clause */
/* target_profile.c - fuzz target: profiles, behind their checks; one value, one encoding
 *
 * Data: a .kvp file whose content is stored, not compressed. Mode, bit 0: the file
 * with a right header check (header fields, any method); else its content, with a
 * right header and digest. Bit 1: from a pipe. Bit 2: in pieces.
 */
#include "profile/profile_io.h"
#include "fuzz_common.h"

const size_t fuzz_parameters = 0;

enum { CONTENT_AT = KVI_PROFILE_HEADER_BYTES + 1, CHECK_AT = 56 };

/* Rows of a matrix as kernels need them. */
static void check_rows(const int16_t *p, size_t stride, size_t rows, const uint8_t *q, int most)
{
	FUZZ_CHECK(stride % 2 == 0);
	for (size_t c = 0; c < rows; c++) {
		uint64_t sum = 0;
		for (size_t i = 0; i < stride; i++)
			sum += (uint64_t)abs(p[c * stride + i]);
		FUZZ_CHECK(sum <= KVI_COEF_SUM_MAX && q[c] <= most);
	}
}

static void check_model(const struct kvi_profile *p, const struct kvi_model *m)
{
	FUZZ_CHECK(m->C == (size_t)m->heads * m->head_channels);
	FUZZ_CHECK(m->rotary <= m->head_channels);
	for (size_t c = 0; c < m->C; c++) {
		size_t s = c % m->head_channels;
		FUZZ_CHECK(abs(m->k[c]) <= KVI_CLASS_MAX);
		FUZZ_CHECK(m->mean[c] >= -KVI_UNIT_MAX && m->mean[c] <= KVI_UNIT_MAX);
		FUZZ_CHECK(m->step[c] >= KVI_STEP_MIN && m->step[c] <= KVI_STEP_MAX);
		FUZZ_CHECK(s >= m->rotary || s % 2 == 0 || m->step[c] == m->step[c - 1]);
	}
	if (m->a_stride)
		check_rows(m->a, m->a_stride, m->C, m->qa, KVI_SHIFT_MAX);
	if (m->b_stride)
		check_rows(m->b, m->b_stride, m->C, m->qb, KVI_SHIFT_MAX);
	if (m->d_stride)
		check_rows(m->d, m->d_stride, m->width, m->e, KVI_CORRECTS_SHIFT_MAX);
	FUZZ_CHECK(!m->d_stride == !(m->flags & KVI_MODEL_CORRECTS));
	FUZZ_CHECK(m->level < KVI_LEVEL_MODEL || (!m->n_lower && !(m->flags & KVI_MODEL_TABLE)));
	for (unsigned i = 0; i < m->n_lower; i++)
		FUZZ_CHECK(m->lower[i].model < m && m->lower[i].model->layer < m->layer);
	for (unsigned i = 0; i < m->n_same; i++)
		FUZZ_CHECK(m->same[i].model < m && m->same[i].model->layer == m->layer);
	FUZZ_CHECK(kvi_profile_model(p, m->level, m->layer, m->kind) == m);
}

static void parse_content(const uint8_t *content, size_t n, struct fuzz_env *env)
{
	struct kvi_alloc a;
	struct kvi_profile *p;
	struct kvi_out out;
	kvi_alloc_init(&a, &env->allocator, FUZZ_MEMLIMIT);
	kvarc_ret ret = kvi_profile_parse(&p, &a, content, n);
	FUZZ_CHECK(ret == KVARC_OK || ret == KVARC_DATA || ret == KVARC_OPTIONS ||
	           ret == KVARC_MEMLIMIT || env->failing);
	FUZZ_CHECK(!p == !!ret);
	if (ret)
		return;
	for (size_t i = 0; i < p->n_models; i++)
		check_model(p, &p->models[i]);
	kvi_out_init(&out, &a);
	kvi_profile_put(p, &out);
	if (!out.failed)
		FUZZ_CHECK(out.n == n && memcmp(out.p, content, n) == 0);
	kvi_out_free(&out);
	ret = kvi_profile_finish(p);
	FUZZ_CHECK(ret == KVARC_OK || ret == KVARC_MEMLIMIT || env->failing);
	kvi_profile_free(p);
}

static void ask_all(const kvarc_profile *p)
{
	kvarc_profile_info info;
	kvarc_model_info model;
	kvarc_rope rope;
	const char *key, *value;
	uint64_t coefficients = 0;
	FUZZ_CHECK(kvarc_profile_get_info(p, &info) == KVARC_OK);
	for (size_t i = 0; i < info.n_models; i++) {
		FUZZ_CHECK(kvarc_profile_model(p, i, &model) == KVARC_OK);
		coefficients += model.coefficients;
	}
	FUZZ_CHECK(coefficients == info.coefficients);
	for (size_t i = 0; i < info.n_pairs; i++)
		FUZZ_CHECK(kvarc_profile_identity_at(p, i, &key, &value) == KVARC_OK);
	for (size_t i = 0; i < info.n_ropes; i++)
		FUZZ_CHECK(kvarc_profile_rope(p, i, &rope) == KVARC_OK && rope.rotary >= 2);
}

static void open_file(const uint8_t *file, size_t n, struct fuzz_env *env)
{
	struct fuzz_input in = { .p = file, .n = n };
	kvarc_profile *p;
	in.pipe = env->mode & 2;
	in.piece = env->mode & 4 ? 5 : 0;
	kvarc_source source = fuzz_input_source(&in);
	kvarc_ret ret = kvarc_profile_open(&p, &source, &env->common);
	FUZZ_CHECK(ret <= KVARC_DATA && ret != KVARC_END);
	FUZZ_CHECK(ret != KVARC_MEM || env->failing);
	if (ret)
		return;
	struct fuzz_file copy = { 0 };
	kvarc_sink sink = fuzz_file_sink(&copy);
	ask_all(p);
	ret = kvarc_profile_write(p, &sink);
	FUZZ_CHECK(ret == KVARC_OK || ret == KVARC_MEMLIMIT || env->failing);
	fuzz_file_free(&copy);
	kvarc_profile_close(&p);
}

void fuzz_one(const uint8_t *data, size_t n, struct fuzz_env *env)
{
	uint8_t *file = malloc(n ? n : 1); /* exact: sanitizers see its end */
	FUZZ_CHECK(file);
	if (n)
		memcpy(file, data, n);
	if (n >= CONTENT_AT && !(env->mode & 1)) {
		const struct kvi_h128 digest = kvi_h128(file + CONTENT_AT, n - CONTENT_AT);
		kvi_store64(file + 16, n - CONTENT_AT);
		kvi_store64(file + 24, n - KVI_PROFILE_HEADER_BYTES);
		kvi_store64(file + 32, digest.lo);
		kvi_store64(file + 40, digest.hi);
		file[CONTENT_AT - 1] = 0;
		parse_content(data + CONTENT_AT, n - CONTENT_AT, env);
	}
	if (n >= KVI_PROFILE_HEADER_BYTES)
		kvi_store64(file + CHECK_AT, kvi_h64(file, CHECK_AT));
	open_file(file, n, env);
	free(file);
}
