/* SPDX-License-Identifier: BSD-3-Clause */
/* stand_in_model.h - kernels of what chunks have of the exact engine, for the stand-in of the
 * driver */
#ifndef KVI_TEST_STAND_IN_MODEL_H
#define KVI_TEST_STAND_IN_MODEL_H

#include "model_exact_body.h"
#include "stand_in_grid.h"

/* Calls a step for each job (g.y), each part (g.z) and each warp of it. */
template <typename J, typename F> static void each_job(const grid &g, J jobs, F step)
{
	for (uint32_t i = 0; i < g.y; i++)
		for (uint32_t z = 0; z < g.z; z++)
			for (uint32_t w = 0; w < g.x * g.warps; w++)
				step(&jobs[i], z, w);
}
/* The same of kernels with a warp a job, whose number is the second argument. */
template <typename J, typename F> static void each_alone(const grid &g, J jobs, F step)
{
	for (uint32_t i = 0; i < argument<uint32_t>(g, 1) && i < g.x * g.warps; i++)
		step(&jobs[i]);
}

/* The same of corrections: steps and pairs of panels. */
template <typename J, typename F> static void each_part(const grid &g, J jobs, F step)
{
	for (uint32_t i = 0; i < g.y; i++)
		for (uint32_t z = 0; z < g.z; z++)
			for (uint32_t w = 0; w < g.x * g.warps; w++) {
				const correct_part p =
					correct_part_of(w / g.warps, z, w % g.warps, g.warps);
				step(&jobs[i], p.step, p.pair);
			}
}

static void run_kvi_gpu_expect(const grid &g)
{
	each_job(g, chunks_of(g), [](const kvi_gpu_chunk *c, uint32_t, uint32_t w) {
		expect_token(c, w);
	});
}
static void run_kvi_gpu_expect_hash(const grid &g)
{
	each_alone(g, chunks_of(g), hash_expected);
}
static void run_kvi_gpu_expect_check(const grid &g)
{
	each_alone(g, chunks_of(g), run_expect_check);
}
static void run_kvi_gpu_numbers(const grid &g)
{
	each_job(g, chunks_of(g), [](const kvi_gpu_chunk *c, uint32_t, uint32_t w) {
		run_numbers(c, w);
	});
}
static void run_kvi_gpu_correct(const grid &g)
{
	each_part(g, chunks_of(g), run_correct);
}
static void run_kvi_gpu_lose(const grid &g)
{
	each_alone(g, chunks_of(g), run_lose);
}
static void run_kvi_gpu_lose_nothing(const grid &g)
{
	const uint64_t lost = argument<uint64_t>(g, 0);
	st_one(span_at<uint32_t>(lost, 1), 0, ~0u);
}

static void run_kvi_gpu_encode_expect(const grid &g)
{
	each_job(g, outputs_of(g), [](const kvi_gpu_encode *e, uint32_t, uint32_t w) {
		expect_token(&e->job, w);
	});
}
static void run_kvi_gpu_encode_expect_hash(const grid &g)
{
	each_alone(g, outputs_of(g), [](const kvi_gpu_encode *e) { hash_expected(&e->job); });
}
static void run_kvi_gpu_encode_numbers(const grid &g)
{
	each_job(g, outputs_of(g), [](const kvi_gpu_encode *e, uint32_t, uint32_t w) {
		number_elements(&e->job, e->job.decoded, w);
	});
}
static void run_kvi_gpu_encode_correct(const grid &g)
{
	each_part(g, outputs_of(g), [](const kvi_gpu_encode *e, uint32_t step, uint32_t pair) {
		correct_panels(&e->job, step, pair);
	});
}
static void run_kvi_gpu_leave_exact(const grid &g)
{
	const kvi_gpu_encode *e = outputs_of(g);
	kvi_gpu_encoded *to = (kvi_gpu_encoded *)(uintptr_t)argument<uint64_t>(g, 2);
	for (uint32_t i = 0; i < argument<uint32_t>(g, 1) && i < g.x * g.warps; i++)
		leave_exact(&e[i], &to[i]);
}

static const kernel model_kernels[] = {
	{ "kvi_gpu_expect", run_kvi_gpu_expect },
	{ "kvi_gpu_expect_hash", run_kvi_gpu_expect_hash },
	{ "kvi_gpu_expect_check", run_kvi_gpu_expect_check },
	{ "kvi_gpu_numbers", run_kvi_gpu_numbers },
	{ "kvi_gpu_correct", run_kvi_gpu_correct },
	{ "kvi_gpu_lose", run_kvi_gpu_lose },
	{ "kvi_gpu_lose_nothing", run_kvi_gpu_lose_nothing },
	{ "kvi_gpu_encode_expect", run_kvi_gpu_encode_expect },
	{ "kvi_gpu_encode_expect_hash", run_kvi_gpu_encode_expect_hash },
	{ "kvi_gpu_encode_numbers", run_kvi_gpu_encode_numbers },
	{ "kvi_gpu_encode_correct", run_kvi_gpu_encode_correct },
	{ "kvi_gpu_leave_exact", run_kvi_gpu_leave_exact },
};

#endif
