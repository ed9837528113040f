/* SPDX-License-Identifier: BSD-3-Clause */
/* run_through.c - one segment, or candidates, through all layers in an open loop */
#include "run_state.h"

static kvarc_ret through_layer(struct kvi_run *run, size_t layer, const struct kvi_run_pass *pass)
{
	struct kvi_predicted p = kvi_run_predict(run);
	kvarc_ret ret = KVARC_OK;
	if (pass && pass->predicted)
		ret = pass->predicted(pass->opaque, layer, &p);
	if (ret)
		return ret;
	kvi_run_rotate(run, p.k, p.stride);
	if (pass && pass->rows)
		ret = pass->rows(pass->opaque, layer, &p);
	if (!ret)
		ret = kvi_run_advance(run, p.k, p.v, p.stride, false);
	if (!ret && pass && pass->advanced)
		ret = pass->advanced(pass->opaque, layer);
	return ret;
}

kvarc_ret kvi_run_through(struct kvi_run *run, const int32_t *ids, const int32_t *positions,
                          size_t n, const struct kvi_run_pass *pass)
{
	kvarc_ret ret = kvi_run_segment(run, ids, positions, n);
	return ret ? ret : kvi_run_layers(run, pass);
}

kvarc_ret kvi_run_layers(struct kvi_run *run, const struct kvi_run_pass *pass)
{
	const size_t layers = kvi_engine_model(run->o.engine)->n_layers;
	kvarc_ret ret = KVARC_OK;
	for (size_t l = 0; l < layers && !ret; l++)
		ret = through_layer(run, l, pass);
	return ret;
}
