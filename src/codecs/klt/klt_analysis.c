/* SPDX-License-Identifier: BSD-3-Clause */
/* klt_analysis.c - the inverse of the basis of a KLT profile (spec klt 2) */
#include "klt_analysis.h"

#include "klt_predict.h"

bool kvi_klt_analysis_make(const struct kvi_klt_analysis *a, const struct kvi_model *m,
                           uint32_t isa_mask)
{
	const struct kvi_kernels *kernels = kvi_kernels_get(isa_mask);
	const struct kvi_transform *transform = kvi_transform_get(isa_mask);
	const size_t hc = m->head_channels, head = hc * m->m_stride;
	bool good = true;
	for (size_t h = 0; h < m->heads && good; h++) {
		const int16_t *from = m->m + h * head;
		for (size_t i = 0; i < hc; i++)
			a->gain[i] = kvi_klt_power(128 - m->qm[h * hc + i]);
		kernels->transpose16((uint16_t *)a->turned, (const uint16_t *)from, hc,
		                     m->m_stride);
		good = transform->invert(from, a->turned, hc, m->m_stride, a->gain,
		                         a->rows + h * head, a->unit + h * hc);
	}
	return good;
}
