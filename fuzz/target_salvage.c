/* SPDX-License-Identifier: BSD-3-Clause */
/* target_salvage.c - fuzz target: reading and unpacking a damaged file */
#include "fuzz_common.h"

const size_t fuzz_parameters = 0;

static void on_damage(void *opaque, const kvarc_damage *damage)
{
	uint64_t *count = opaque;
	FUZZ_CHECK(damage->what && damage->what[0]);
	/* a chunk is of a segment; all tensors may lack more */
	FUZZ_CHECK(damage->n <= 256 || damage->tensor == UINT32_MAX);
	++*count;
}

void fuzz_one(const uint8_t *data, size_t n, struct fuzz_env *env)
{
	struct fuzz_input in = { .p = data, .n = n };
	kvarc_source source = fuzz_input_source(&in);
	kvarc_reader_options opt = { .common = env->common, .flags = KVARC_READ_SALVAGE };
	opt.flags |= env->mode & 0x10 ? 0 : KVARC_READ_ALLOW_LOSSY;
	kvarc_reader *r = NULL;
	if (kvarc_reader_open(&r, &source, &opt) != KVARC_OK)
		return;
	fuzz_ask_all(r);
	kvarc_ret ret = env->mode & 1 ? fuzz_unpack_all(r) : fuzz_read_all(r);
	/* damage is reported, not returned, unless nothing more can be read */
	FUZZ_CHECK(ret != KVARC_FORMAT);
	uint64_t reported = 0;
	uint64_t count = kvarc_reader_damage(r, on_damage, &reported);
	FUZZ_CHECK(count == reported);
	kvarc_loss all, one;
	uint64_t bytes = 0;
	if (kvarc_reader_loss(r, UINT32_MAX, &all) == KVARC_OK) {
		FUZZ_CHECK(all.n_damages == count && all.whole_tokens <= all.tokens);
		FUZZ_CHECK(all.lost_tokens <= all.tokens - all.whole_tokens);
		for (uint32_t i = 0; kvarc_reader_loss(r, i, &one) == KVARC_OK && i < 8; i++) {
			FUZZ_CHECK(one.lost_tokens <= one.tokens - one.whole_tokens);
			FUZZ_CHECK(one.tokens <= all.tokens && one.lost_bytes <= all.lost_bytes);
			bytes += one.lost_bytes;
		}
		FUZZ_CHECK(!bytes || all.lost_bytes);
	}
	kvarc_reader_close(&r);
}
