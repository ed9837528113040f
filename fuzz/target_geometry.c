/* SPDX-License-Identifier: BSD-3-Clause */
/* target_geometry.c - fuzz target: content of a GEOMETRY frame; one value, one encoding */
#include "format/geometry_check.h"
#include "fuzz_common.h"

const size_t fuzz_parameters = 0;

/* Extensions are skipped and not written again: the rest is the same. */
static void write_again(const kvarc_geometry *g, const struct kvi_alloc *a, const uint8_t *data,
                        size_t n)
{
	kvarc_geometry copy = { 0 };
	struct kvi_out out;
	FUZZ_CHECK(!kvi_geometry_wrong(g));
	if (kvi_geometry_copy(&copy, a, g) == KVARC_OK) {
		kvi_out_init(&out, a);
		kvi_geometry_put(&out, &copy);
		if (!out.failed) {
			FUZZ_CHECK(out.n >= 1 && out.n <= n);
			FUZZ_CHECK(memcmp(out.p, data, out.n - 1) == 0);
		}
		kvi_out_free(&out);
	}
	kvi_geometry_free(&copy, a);
}

void fuzz_one(const uint8_t *data, size_t n, struct fuzz_env *env)
{
	struct kvi_alloc a;
	kvarc_geometry g = { 0 };
	kvi_alloc_init(&a, &env->allocator, FUZZ_MEMLIMIT);
	kvarc_ret ret = kvi_geometry_parse(&g, &a, data, n);
	FUZZ_CHECK(ret == KVARC_OK || ret == KVARC_DATA || ret == KVARC_OPTIONS ||
	           ret == KVARC_MEMLIMIT || env->failing);
	if (ret == KVARC_OK)
		write_again(&g, &a, data, n);
	kvi_geometry_free(&g, &a);
}
