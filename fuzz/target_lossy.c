/* SPDX-License-Identifier: BSD-3-Clause */
/* target_lossy.c - fuzz target: tiers as text, and any elements through them, every kernel
 *
 * Data: the text up to a zero byte, then the elements, repeated as often as they are needed; the
 * last 10 bytes are parameters: dtype, heads, channels, tokens, kind, flags, generation, t0 (3).
 */
#include "codecs/codec.h"
#include "fuzz_common.h"
#include "util/alloc.h"

const size_t fuzz_parameters = 10;

struct lossy_job {
	kvarc_lossy tier;
	struct kvi_encode_request request;
	kvarc_rope rope;
	int32_t positions[256];
	int16_t token_rate[256];
	size_t bytes;
	uint8_t *was;
};

static const uint64_t freqs[40] = {
	1,     UINT64_MAX,        (uint64_t)1 << 63,  2935890503282001226u,
	99991, (uint64_t)1 << 50, 12345678901234567u, 3
};

/* false: the text is not a tier. */
static bool read_tier(struct lossy_job *j, struct fuzz_bytes *b)
{
	char text[80];
	size_t n = 0;
	kvarc_error e = { 0 };
	for (uint8_t c = 1; c;) {
		c = fuzz_take(b);
		if (n < sizeof text)
			text[n++] = (char)c;
	}
	text[n - 1] = 0;
	kvarc_ret ret = kvarc_lossy_parse(&j->tier, text, &e);
	FUZZ_CHECK(ret == KVARC_OK || (ret == KVARC_OPTIONS && e.text[0]));
	FUZZ_CHECK(ret || kvi_lossy_valid(&j->tier));
	return !ret;
}

/* Rates of tokens from the elements: of a few kinds, or of all. */
static void rates_init(struct lossy_job *j, bool few, struct fuzz_bytes elements)
{
	static const int16_t rates[8] = {
		0, 16, -16, KVARC_LOSSY_NOTHING, 5, -40, KVARC_LOSSY_DROP, 200
	};
	for (size_t t = 0; t < 256; t++) {
		unsigned k = elements.n ? elements.p[(3 * t + 1) % elements.n] : 0;
		j->token_rate[t] = rates[k & (few ? 1 : 7)];
	}
	j->request.token_rate = j->token_rate;
}

static void job_init(struct lossy_job *j, struct fuzz_bytes elements, struct fuzz_bytes b)
{
	struct kvi_encode_request *request = &j->request;
	struct kvi_chunk *c = &request->chunk;
	request->level = 1;
	c->dtype = fuzz_take(&b) % 8;
	c->heads = fuzz_take(&b) % 3 + 1;
	c->head_channels = fuzz_take(&b) % 80 + 1;
	c->n_tokens = fuzz_take(&b) + 1u;
	request->kind = fuzz_take(&b) % 10;
	uint8_t flags = fuzz_take(&b);
	j->tier.generation = fuzz_take(&b) * 3u;
	request->t0 = (uint64_t)fuzz_take(&b) << 16;
	request->t0 |= (uint64_t)fuzz_take(&b) << 8;
	request->t0 |= fuzz_take(&b);
	for (int t = 0; t < 256; t++)
		j->positions[t] = (flags & 4 ? INT32_MAX - 255 : -9) + t;
	c->positions = flags & 8 ? NULL : j->positions;
	j->rope = (kvarc_rope){ .pairing = flags >> 1 & 1,
		                .rotary = c->head_channels / 2 * 2,
		                .freq = freqs };
	if (flags & 1 && j->rope.rotary)
		c->rope = &j->rope;
	if (flags & 16)
		rates_init(j, flags & 32, elements);
	j->bytes = kvi_chunk_bytes(c);
	j->was = malloc(j->bytes);
	FUZZ_CHECK(j->was);
	for (size_t i = 0; i < j->bytes; i++)
		j->was[i] = elements.n ? elements.p[i % elements.n] : 0;
}

/* What became of the chunk on one instruction set, and of it again with its parameters. */
struct outcome {
	kvarc_ret ret;
	uint8_t *raw, *back, *payload;
	struct kvi_encoded out;
};

static kvarc_ret decode(const struct lossy_job *j, struct kvi_coder *coder,
                        const struct kvi_alloc *a, struct outcome *o)
{
	struct kvi_params *p = NULL;
	kvarc_ret ret = KVARC_OK;
	if (o->out.params)
		ret = kvi_params_parse(&p, a, o->out.params_codec, j->request.chunk.dtype,
		                       j->request.chunk.heads, j->request.chunk.head_channels,
		                       j->request.chunk.rope, o->out.params_content,
		                       o->out.params_bytes);
	const struct kvi_decode_request request = { .chunk = j->request.chunk,
		                                    .codec = o->out.codec,
		                                    .cut = o->out.cut,
		                                    .params = p,
		                                    .payload = o->payload,
		                                    .payload_bytes = o->out.payload_bytes };
	if (!ret)
		ret = kvi_chunk_decode(coder, &request, o->back, NULL);
	kvi_params_free(p);
	return ret;
}

/* There and back. Elements that no lossy codec took are as they were, and so are tokens that the
 * tier wants exact. */
static void run(const struct lossy_job *j, struct kvi_coder *coder, const struct kvi_alloc *a,
                struct outcome *o)
{
	size_t row = j->bytes / j->request.chunk.n_tokens, exact = 0;
	o->ret = kvi_chunk_encode_lossy(coder, &j->request, &j->tier, o->raw, &o->out);
	if (o->ret)
		return;
	FUZZ_CHECK(o->out.payload_bytes <= j->bytes);
	memcpy(o->payload, o->out.payload, o->out.payload_bytes);
	o->ret = decode(j, coder, a, o);
	if (o->ret)
		return;
	FUZZ_CHECK(!memcmp(o->raw, o->back, j->bytes));
	exact = j->bytes;
	if (kvi_codec_lossy(o->out.codec)) {
		exact = j->request.t0 < j->tier.exact_tokens
		                ? (size_t)(j->tier.exact_tokens - j->request.t0) * row
		                : 0;
		FUZZ_CHECK(kvi_lossy_generation(o->payload, 1) ==
		           (j->tier.generation < 255 ? j->tier.generation + 1 : 255));
	}
	FUZZ_CHECK(!memcmp(o->raw, j->was, exact < j->bytes ? exact : j->bytes));
	for (size_t t = 0; t < j->request.chunk.n_tokens && j->request.token_rate; t++)
		FUZZ_CHECK(j->token_rate[t] != KVARC_LOSSY_NOTHING ||
		           !memcmp(o->raw + t * row, j->was + t * row, row));
}

static kvarc_ret on_set(const struct lossy_job *j, struct fuzz_env *env, uint32_t isa,
                        struct outcome *o)
{
	struct kvi_coder_tables *own = NULL;
	struct kvi_coder *coder = NULL;
	struct kvi_alloc a;
	kvi_alloc_init(&a, &env->allocator, FUZZ_MEMLIMIT);
	memset(&o->out, 0, sizeof o->out);
	memcpy(o->raw, j->was, j->bytes);
	o->ret = env->failing ? kvi_coder_tables_open(&own, &a) : KVARC_OK;
	if (!o->ret && own)
		o->ret = kvi_coder_tables_lossy(own);
	if (!o->ret)
		o->ret = kvi_coder_open(&coder, &a, own ? own : fuzz_tables(), isa);
	if (!o->ret)
		run(j, coder, &a, o);
	kvi_params_free(o->out.params);
	kvi_free(&a, o->out.params_content);
	kvi_coder_close(coder);
	kvi_coder_tables_close(own);
	return o->ret;
}

void fuzz_one(const uint8_t *data, size_t n, struct fuzz_env *env)
{
	struct lossy_job j = { .bytes = 0 };
	struct outcome first, other;
	if (n < fuzz_parameters)
		return;
	n -= fuzz_parameters;
	struct fuzz_bytes b = { data, n }, parameters = { data + n, fuzz_parameters };
	if (!read_tier(&j, &b))
		return;
	job_init(&j, b, parameters);
	uint8_t *buffer = malloc(6 * j.bytes);
	FUZZ_CHECK(buffer);
	first = (struct outcome){ .raw = buffer,
		                  .back = buffer + j.bytes,
		                  .payload = buffer + 2 * j.bytes };
	other = (struct outcome){ .raw = buffer + 3 * j.bytes,
		                  .back = buffer + 4 * j.bytes,
		                  .payload = buffer + 5 * j.bytes };
	kvarc_ret ret = on_set(&j, env, KVARC_ISA_SCALAR, &first);
	FUZZ_CHECK(ret == KVARC_OK || env->failing || ret == KVARC_MEMLIMIT);
	for (uint32_t isa = KVARC_ISA_AVX2; isa <= KVARC_ISA_NEON; isa <<= 1) {
		if (!(isa & kvarc_isa_available()) || env->failing || ret)
			continue;
		FUZZ_CHECK(on_set(&j, env, isa, &other) == KVARC_OK);
		FUZZ_CHECK(other.out.codec == first.out.codec &&
		           other.out.payload_bytes == first.out.payload_bytes &&
		           !memcmp(other.payload, first.payload, other.out.payload_bytes) &&
		           !memcmp(other.raw, first.raw, j.bytes));
	}
	free(buffer);
	free(j.was);
}
