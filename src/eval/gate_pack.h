/* SPDX-License-Identifier: BSD-3-Clause */
/* gate_pack.h - rates of layers that keep a model's answers, or attention outputs, as they are */
#ifndef KVI_GATE_PACK_H
#define KVI_GATE_PACK_H

#include <stdint.h>

#include "kvarc.h"
#include "eval/eval_state.h"
#include "kvarc/tools.h"

struct kvi_proxy;

/* Layers 0 to n_layers - 1 of eval->exact and eval->back; eval must stay. On failure *p is NULL.
 * Returns OK, MEM, MEMLIMIT. */
kvarc_ret kvi_proxy_open(struct kvi_proxy **p, kvarc_eval *eval, uint32_t n_layers);
/* Frees *p and sets it to NULL; *p may be NULL. */
void kvi_proxy_close(struct kvi_proxy **p);

/* Kinds of layers. */
enum kvi_proxy_layer {
	KVI_PROXY_NOTHING, /* no tensor */
	/* not one tensor of keys and one of values, of as many heads and of floats, or no earlier
	 * token to attend to */
	KVI_PROXY_OTHER,
	KVI_PROXY_ATTENTION
};
/* The kind of layer `layer`, less than n_layers. */
enum kvi_proxy_layer kvi_proxy_has(const struct kvi_proxy *proxy, uint32_t layer);
/*
 * error of each layer with attention: of its worst head, sqrt(sum |o' - o|^2 / sum |o|^2) over the
 * outputs o of stand-in queries with exact keys and values and o' with the decoded ones.
 * INFINITY where an element is not finite, or outputs of size 0 have changed; 0 of other layers.
 */
void kvi_proxy_measure(struct kvi_proxy *proxy, double *error);

#endif
