/* SPDX-License-Identifier: BSD-3-Clause */
/* coders_util.c - a coder for every instruction set of this machine */
#include "coders_util.h"

struct kvi_alloc alloc;
struct kvi_coder_tables *tables;
struct kvi_coder *coders[MAX_ISAS];
int n_coders;
const struct kvi_chunk_cut no_streams = { .stream_size = KVI_ONE_STREAM };

int open_coders(void **state)
{
	static const uint32_t isas[MAX_ISAS] = { KVARC_ISA_SCALAR, KVARC_ISA_AVX2, KVARC_ISA_AVX512,
		                                 KVARC_ISA_NEON };
	(void)state;
	kvi_alloc_init(&alloc, NULL, (uint64_t)1 << 30);
	if (kvi_coder_tables_open(&tables, &alloc))
		return -1;
	for (int i = 0; i < MAX_ISAS; i++)
		if (isas[i] & kvarc_isa_available() &&
		    kvi_coder_open(&coders[n_coders++], &alloc, tables, isas[i]))
			return -1;
	return 0;
}

int open_lossy(void **state)
{
	return open_coders(state) || kvi_coder_tables_lossy(tables);
}

int close_coders(void **state)
{
	(void)state;
	for (int i = 0; i < n_coders; i++)
		kvi_coder_close(coders[i]);
	kvi_coder_tables_close(tables);
	return alloc.used != 0;
}

struct kvi_decode_request decode_of(const struct kvi_encode_request *request,
                                    const struct kvi_encoded *e, const uint8_t *payload)
{
	return (struct kvi_decode_request){ .chunk = request->chunk,
		                            .codec = e->codec,
		                            .cut = e->cut,
		                            .params = e->params,
		                            .payload = payload,
		                            .payload_bytes = e->payload_bytes,
		                            .linear = request->linear,
		                            .before = request->before };
}

kvarc_ret decode_payload(struct kvi_coder *c, const struct kvi_chunk *chunk, uint8_t codec,
                         struct kvi_chunk_cut cut, const struct kvi_params *params,
                         const uint8_t *payload, size_t bytes, uint8_t *raw)
{
	const struct kvi_decode_request r = { .chunk = *chunk,
		                              .codec = codec,
		                              .cut = cut,
		                              .params = params,
		                              .payload = payload,
		                              .payload_bytes = bytes };
	return kvi_chunk_decode(c, &r, raw, NULL);
}
