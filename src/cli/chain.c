/* SPDX-License-Identifier: BSD-3-Clause */
/* chain.c - the token chain of track 0 (spec 5.3) */
#include "chain.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "models.h"
#include "util/bytes.h"
#include "util/hash.h"

enum { SEGMENT_MAX = 256 }; /* spec 6 */

/* spec 5.3: H128( chain before || u64 track || i32 ids ) */
static void link_segment(uint8_t chain[16], const int32_t *ids, uint32_t n)
{
	uint8_t head[24], body[4 * SEGMENT_MAX];
	struct kvi_h128 h;

	memcpy(head, chain, 16);
	kvi_store64(head + 16, 0);
	for (uint32_t i = 0; i < n; i++)
		kvi_store32(body + 4 * (size_t)i, (uint32_t)ids[i]);
	h = kvi_h128_2(head, sizeof(head), body, 4 * (size_t)n);
	kvi_store64(chain, h.lo);
	kvi_store64(chain + 8, h.hi);
}

kvarc_ret chain_make(struct chain *c, const struct shape *s, kvarc_reader *r)
{
	uint8_t chain[16] = { 0 };
	int32_t ids[SEGMENT_MAX];
	kvarc_chunk_info chunk;
	uint64_t next = 0;
	kvarc_ret ret;

	c->present = false;
	strcpy(c->text, "none, the archive holds no token ids");
	/* Segments begin where chunks of track 0 do. */
	for (uint64_t i = 0;; i++) {
		ret = kvarc_reader_chunk(r, i, &chunk);
		if (ret != KVARC_OK)
			break;
		if (chunk.tensor >= s->geometry->n_tensors ||
		    s->geometry->tensors[chunk.tensor].track != 0 || chunk.t0 != next ||
		    chunk.n > SEGMENT_MAX)
			continue;
		ret = kvarc_reader_read_tokens(r, 0, chunk.t0, chunk.n, ids, NULL);
		if (ret == KVARC_OPTIONS)
			return KVARC_OK;
		if (ret == KVARC_PREDICTOR && !models_given()) {
			strcpy(c->text, "not known without the model, which has "
			                "coded the token ids");
			return KVARC_OK;
		}
		if (ret != KVARC_OK)
			return ret;
		link_segment(chain, ids, chunk.n);
		next = chunk.t0 + chunk.n;
	}
	if (ret != KVARC_END)
		return ret;
	if (next) {
		c->present = true;
		for (int i = 0; i < 16; i++)
			sprintf(c->text + 2 * i, "%02x", chain[i]);
	}
	return KVARC_OK;
}
