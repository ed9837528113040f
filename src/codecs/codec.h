/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * codec.h - one chunk in, one payload out: the codecs' interface for readers and writers
 *
 * Spec 7, 8 and spec/codecs/. Nothing here knows frames or files.
 */
#ifndef KVI_CODEC_H
#define KVI_CODEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "format/chunk_header.h"
#include "format/codec_ids.h"
#include "kvarc.h"
#include "util/alloc.h"
#include "util/shared.h"

struct kvi_linear_in; /* profile/linear_model.h */
struct kvi_features;
struct kvi_pool; /* util/pool.h */

/* A chunk without its elements. positions (n_tokens) and rope may be NULL: no rotation. */
struct kvi_chunk {
	uint8_t dtype;
	uint32_t n_tokens; /* 1..256 */
	uint32_t heads;
	uint32_t head_channels;
	const int32_t *positions;
	const kvarc_rope *rope;
};
/* The tokens first to end - 1 of a chunk, those that its mask removed among them. */
struct kvi_tokens {
	size_t first, end;
};
/* The sources that a chunk is predicted from, and its features, a source of others. */
struct kvi_linear_io {
	/* The tensor's linear model and the features of its sources (codecs linear and klt), with
	 * what a transformer predicts (codecs model and predicted); NULL: none. */
	const struct kvi_linear_in *in;
	/* Features of the chunk for upper layers, filled from its elements whatever the codec;
	 * needs `in`. NULL: not wanted. */
	struct kvi_features *features;
};

/* Channels of all heads of the chunk. */
static inline size_t kvi_chunk_channels(const struct kvi_chunk *chunk)
{
	return (size_t)chunk->heads * chunk->head_channels;
}
/* Bytes of the chunk's elements. */
static inline size_t kvi_chunk_bytes(const struct kvi_chunk *chunk)
{
	return kvi_chunk_channels(chunk) * chunk->n_tokens * kvarc_dtype_bytes(chunk->dtype);
}

/* Parameters of one tensor and head group; immutable, shared by threads. */
struct kvi_params;

/*
 * Parses parameters and checks everything that the codec's page asks for. content: the PARAMS
 * frame's content after `u8 codec`. rope as in the chunk, NULL for none. Returns OK, MEM, MEMLIMIT,
 * DATA, OPTIONS.
 */
kvarc_ret kvi_params_parse(struct kvi_params **out, const struct kvi_alloc *alloc, uint8_t codec,
                           uint8_t dtype, uint32_t heads, uint32_t head_channels,
                           const kvarc_rope *rope, const uint8_t *content, size_t bytes);
/* Whether an encoder may use parameters that an archive held: they are of a lossless codec. */
bool kvi_params_may_encode(const struct kvi_params *params);
void kvi_params_free(struct kvi_params *params); /* NULL-safe */
/* True when decoding needs the positions of the tokens (rotating grid). */
bool kvi_params_rotates(const struct kvi_params *params);

/* Tables that the format fixes, for decoders that are not this library's: kvi_grid_set_0,
 * kvi_cells_lo and kvi_cells_nb. */
struct kvi_fixed_tables {
	const uint16_t *grid;
	const int8_t *cells_lo;
	const uint8_t *cells_nb;
};
KVI_SHARED extern const struct kvi_fixed_tables kvi_fixed_tables;

/* The codec of a level for a dtype (spec 7), of chunks that are neither constant nor predicted;
 * KVI_CODEC_RAW: none but those of any bytes. */
unsigned kvi_level_codec(int level, unsigned dtype);

/* Scratch memory and tables of one worker. Not shared by threads. */
struct kvi_coder;
/* Tables that all coders of a handle share, read-only after open. */
struct kvi_coder_tables;
/* Makes the tables that all coders share. Returns OK, MEM, MEMLIMIT; on failure *t is NULL. */
KVI_SHARED kvarc_ret kvi_coder_tables_open(struct kvi_coder_tables **t,
                                           const struct kvi_alloc *alloc);
/* Frees the tables; NULL-safe. */
KVI_SHARED void kvi_coder_tables_close(struct kvi_coder_tables *tables);
/* Adds the tables of lossy codecs; call it before coders use the tables. Returns OK, MEM,
 * MEMLIMIT. */
kvarc_ret kvi_coder_tables_lossy(struct kvi_coder_tables *tables);
/* A coder for one thread; the tables must outlive it. Returns OK, MEM, MEMLIMIT. */
kvarc_ret kvi_coder_open(struct kvi_coder **c, const struct kvi_alloc *alloc,
                         const struct kvi_coder_tables *tables, uint32_t isa_mask);
/* Workers of a pool that have nothing to do help the coder, which is used inside jobs of it. */
void kvi_coder_share(struct kvi_coder *coder, struct kvi_pool *pool);
/* Memory that was allocated with a coder's allocator. */
struct kvi_coder_memory {
	uint8_t *p;
	size_t bytes;
};
/* Gives the caller the memory that a payload with free_around lies in, and the coder another piece
 * in exchange, which may be {NULL, 0}. */
void kvi_coder_exchange(struct kvi_coder *coder, const uint8_t *payload,
                        struct kvi_coder_memory *memory);
/* Frees the coder; NULL-safe. */
void kvi_coder_close(struct kvi_coder *coder);

/* A chunk to be encoded. */
struct kvi_encode_request {
	struct kvi_chunk chunk;
	uint8_t kind; /* kvarc_kind */
	int level;    /* 0 to 8 */
	/* The parameters in force for this tensor and head group; NULL: there are none. */
	const struct kvi_params *params;
	/* Encoders of level 2 and up try linear.in first, and fall back where it does not pay. */
	struct kvi_linear_io linear;
	/* Called by an encoder of the codecs linear and model once features are filled, long before
	 * it is done; NULL: not wanted. */
	void (*made)(void *opaque);
	void *made_opaque;
	/* Codec state: the elements of a chunk that it may refer to, kvi_chunk_bytes, with the
	 * sequence number and offset of its frame; NULL: none. */
	const uint8_t *before;
	uint64_t before_sequence, before_offset;
	uint64_t t0;  /* index of the first token in its track */
	uint64_t end; /* number of tokens of the track, as far as known; 0: not known */
	bool ends;    /* no tokens will follow those: new parameters have to pay for themselves */
	/* Lossy tiers. */
	/* Rate of each token above the tier's, in 1/16 bit; KVARC_LOSSY_NOTHING: stays exact. NULL:
	 * all tokens have the tier's rate. */
	const int16_t *token_rate;
};

/* Bytes around a payload with free_around, where a frame can be made. */
enum { KVI_ENCODED_FRONT = 80, KVI_ENCODED_BEHIND = 32 };

/* An encoded chunk. */
struct kvi_encoded {
	uint8_t codec;
	struct kvi_chunk_cut cut;
	uint64_t raw_check; /* check of the elements that a decoder makes (spec 7) */
	bool uses_params;
	bool refers;            /* the payload refers to request->before */
	const uint8_t *payload; /* memory of the coder, valid until its next call */
	bool free_around;       /* bytes in front of it and behind it are the caller's */
	size_t payload_bytes;
	/* New parameters, to be written before the chunk; NULL: those in force serve. The caller
	 * owns both then (kvi_params_free, kvi_free with the coder's allocator). */
	struct kvi_params *params;
	uint8_t *params_content; /* PARAMS content after `u8 codec` */
	size_t params_bytes;
	uint8_t params_codec;
};

/*
 * Encodes one chunk. raw: kvi_chunk_bytes, packed token-major. Never larger than raw: falls back to
 * RAW. Decides itself when new parameters pay.
 * The same input gives the same output on every machine and instruction set.
 * Returns OK, MEM, MEMLIMIT, PROG (level, dtype). From level 2 on it tries the codecs predicted
 * and linear or model, as far as request->linear allows, then level 1.
 */
kvarc_ret kvi_chunk_encode(struct kvi_coder *coder, const struct kvi_encode_request *request,
                           const uint8_t *raw, struct kvi_encoded *out);

/*
 * Encodes a chunk with a lossy tier where the tier takes the chunk and makes it smaller than its
 * elements; raw is then overwritten with the decoded elements. Other chunks go to kvi_chunk_encode.
 * Returns the errors of kvi_chunk_encode.
 */
kvarc_ret kvi_chunk_encode_lossy(struct kvi_coder *coder, const struct kvi_encode_request *request,
                                 const kvarc_lossy *tier, uint8_t *raw, struct kvi_encoded *out);
/* Whether the numbers of a tier are in their ranges. */
bool kvi_lossy_valid(const kvarc_lossy *tier);
/* The highest rate of tiers that have rates between whole bits; 0: other tiers. */
KVI_SHARED int kvi_lossy_max_rate(kvarc_tier tier);
/* The tier of a layer; false: the layer stays lossless. */
bool kvi_lossy_of_layer(const kvarc_lossy *all, uint32_t layer, kvarc_lossy *one);
/* The rate of a token whose rate is `more` above the tier's, in 1/16 bit: the nearest one that the
 * tier has for a kind, which for near and vq is its only one. */
int kvi_lossy_token_rate(const kvarc_lossy *tier, unsigned kind, int more);
/* The entry of kvarc_lossy.token_rate for a token of a track of `end` tokens, but a token
 * that stays exact is never dropped. tier may be NULL. */
KVI_SHARED int kvi_lossy_rate_at(const kvarc_lossy *tier, uint64_t token, uint64_t end);
/* Number of times that the elements of a lossy payload were coded by a lossy codec; 0: bytes is
 * 0. */
static inline unsigned kvi_lossy_generation(const uint8_t *payload, size_t bytes)
{
	return bytes ? payload[0] : 0;
}

/* A chunk to be decoded. */
struct kvi_decode_request {
	struct kvi_chunk chunk;
	uint8_t codec;
	struct kvi_chunk_cut cut;
	const struct kvi_params *params; /* NULL where the codec needs none */
	const uint8_t *payload;
	size_t payload_bytes;
	/* The tokens that are wanted; end 0: all. Elements and features of other tokens are
	 * undefined. The codec linear wants whole streams, others round up to streams. */
	struct kvi_tokens wanted;
	struct kvi_linear_io linear;
	/* Codec state: the elements of the chunk that it refers to, kvi_chunk_bytes; NULL: none. */
	const uint8_t *before;
	/* Threads that wait for the chunk, as far as is known, and so will help. */
	unsigned helpers;
};

/*
 * Decodes a payload of any codec but REPEAT to raw, kvi_chunk_bytes. Of several streams those
 * without wanted tokens are not decoded. raw_check: what that of the chunk has to be, which the
 * checks of all streams make, as they stand in the payload; those of decoded streams are compared.
 * NULL: not wanted, and no check of a stream is compared. PREDICTOR: request->linear.in
 * is missing or of another shape, or predicts otherwise than the writer's did.
 * Returns OK, MEM, MEMLIMIT, DATA, OPTIONS, LOSSY, PREDICTOR.
 */
kvarc_ret kvi_chunk_decode(struct kvi_coder *coder, const struct kvi_decode_request *request,
                           uint8_t *raw, uint64_t *raw_check);

/* Bytes in front of the mask of a payload of codec state. */
enum { KVI_STATE_HEAD = 17 };
/* Whether a payload of codec state refers to another chunk, and to which. */
bool kvi_state_reference(const uint8_t *payload, size_t bytes, uint64_t *sequence,
                         uint64_t *offset);

/*
 * Fills linear->features from the wanted tokens of a chunk (end 0: all; needs linear->in), for
 * chunks that no call here coded, such as repeated ones. only_z: z alone, which needs no sources;
 * an encoder does this first, so that upper layers need not wait for the rest, and sets has_z. With
 * has_z other threads may be reading z: nothing here writes it again.
 * Returns OK, MEM, MEMLIMIT, PROG, DATA (sources are missing).
 */
kvarc_ret kvi_chunk_features(struct kvi_coder *coder, const struct kvi_chunk *chunk,
                             const struct kvi_linear_io *linear, struct kvi_tokens wanted,
                             const uint8_t *raw, bool only_z);

#endif
