/* SPDX-License-Identifier: BSD-3-Clause */
/* target_params.c - fuzz target: PARAMS contents and chunk payloads, every kernel
 *
 * Data: codec, dtype, heads, channels, tokens, stream size and section, flags,
 * u16 bytes of parameters, parameters, payload. All instruction sets must agree.
 */
#include "codecs/codec.h"
#include "fuzz_common.h"
#include "util/alloc.h"

const size_t fuzz_parameters = 0;

struct params_job {
	struct kvi_chunk chunk;
	uint8_t codec;
	struct kvi_chunk_cut cut;
	const uint8_t *params, *payload;
	size_t params_bytes, payload_bytes;
	int32_t positions[256];
	uint64_t freqs[32]; /* those of the seeds */
	kvarc_rope rope;
	bool params_null;
};

static const uint64_t odd_freqs[32] = { 1,
	                                (uint64_t)1 << 63,
	                                UINT64_MAX,
	                                77777,
	                                (uint64_t)3 << 40,
	                                2935890503282001226u,
	                                12345678901234567u };

static void job_init(struct params_job *j, struct fuzz_bytes *b)
{
	memset(j, 0, sizeof *j);
	j->codec = fuzz_take(b) % KVI_N_CODECS;
	j->chunk.dtype = fuzz_take(b) % 8;
	j->chunk.heads = fuzz_take(b) % 3 + 1;
	j->chunk.head_channels = fuzz_take(b) % 64 + 1;
	j->chunk.n_tokens = fuzz_take(b) + 1;
	uint8_t cut = fuzz_take(b);
	j->cut = (struct kvi_chunk_cut){ cut & 3, cut >> 2 };
	uint8_t flags = fuzz_take(b);
	size_t n = fuzz_take(b);
	n |= (size_t)fuzz_take(b) << 8;
	j->params = b->p;
	j->params_bytes = n < b->n ? n : b->n;
	j->payload = b->p + j->params_bytes;
	j->payload_bytes = b->n - j->params_bytes;
	int32_t first = flags & 4 ? INT32_MAX - 255 : flags & 8 ? INT32_MIN : 0;
	for (int t = 0; t < 256; t++)
		j->positions[t] = first + t;
	j->chunk.positions = j->positions;
	if (flags & 1 && j->chunk.head_channels > 1) {
		j->rope.pairing = flags >> 1 & 1;
		j->rope.rotary = j->chunk.head_channels / 2 * 2;
		if (flags & 0x10)
			j->rope.rotary = 2;
		for (int i = 0; i < 32; i++)
			j->freqs[i] = 2935890503282001226u >> i;
		j->rope.freq = flags & 0x40 ? odd_freqs : j->freqs;
		j->chunk.rope = &j->rope;
	}
	j->params_null = flags & 0x20;
}

static kvarc_ret decode(const struct params_job *j, const struct kvi_alloc *a, uint32_t isa,
                        bool failing, uint8_t *raw)
{
	struct kvi_coder_tables *own = NULL;
	struct kvi_coder *coder = NULL;
	struct kvi_params *params = NULL;
	kvarc_ret ret = failing ? kvi_coder_tables_open(&own, a) : KVARC_OK;
	if (failing && ret == KVARC_OK)
		ret = kvi_coder_tables_lossy(own);
	const struct kvi_coder_tables *tables = failing ? own : fuzz_tables();
	if (ret == KVARC_OK)
		ret = kvi_coder_open(&coder, a, tables, isa);
	if (ret == KVARC_OK && !j->params_null)
		ret = kvi_params_parse(&params, a, (uint8_t)kvi_codec_params(j->codec),
		                       j->chunk.dtype, j->chunk.heads, j->chunk.head_channels,
		                       j->chunk.rope, j->params, j->params_bytes);
	/* after a first decode that fails the coder still works */
	bool ready = ret == KVARC_OK;
	struct kvi_decode_request p = { .chunk = j->chunk,
		                        .codec = j->codec,
		                        .cut = j->cut,
		                        .params = params,
		                        .payload = j->payload,
		                        .payload_bytes = j->payload_bytes / 2 };
	uint64_t check;
	if (ready)
		ret = kvi_chunk_decode(coder, &p, raw, &check);
	p.payload_bytes = j->payload_bytes;
	if (ready && ret != KVARC_MEM && ret != KVARC_MEMLIMIT)
		ret = kvi_chunk_decode(coder, &p, raw, NULL);
	kvi_params_free(params);
	kvi_coder_close(coder);
	kvi_coder_tables_close(own);
	return ret;
}

void fuzz_one(const uint8_t *data, size_t n, struct fuzz_env *env)
{
	struct fuzz_bytes b = { data, n };
	struct kvi_alloc a;
	struct params_job j;
	job_init(&j, &b);
	kvi_alloc_init(&a, &env->allocator, FUZZ_MEMLIMIT);
	size_t bytes = kvi_chunk_bytes(&j.chunk);
	uint8_t *first = malloc(bytes), *other = malloc(bytes);
	FUZZ_CHECK(first && other);
	kvarc_ret ret = decode(&j, &a, KVARC_ISA_SCALAR, env->failing, first);
	FUZZ_CHECK(ret == KVARC_OK || ret == KVARC_DATA || ret == KVARC_OPTIONS ||
	           ret == KVARC_PREDICTOR || env->failing);
	for (uint32_t isa = KVARC_ISA_AVX2; isa <= KVARC_ISA_NEON; isa <<= 1) {
		if (!(isa & kvarc_isa_available()) || env->failing)
			continue;
		FUZZ_CHECK(decode(&j, &a, isa, false, other) == ret);
		if (ret == KVARC_OK)
			FUZZ_CHECK(memcmp(first, other, bytes) == 0);
	}
	free(first);
	free(other);
}
