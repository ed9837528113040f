/* SPDX-License-Identifier: BSD-3-Clause */
/* coder.h - what the codecs share: scratch memory, tables, parameters */
#ifndef KVI_CODER_H
#define KVI_CODER_H

#include "codecs/codec.h"
#include "codecs/lanes.h"
#include "codecs/mask.h"
#include "profile/expect.h"
#include "numeric/formats.h"
#include "profile/linear_model.h"
#include "util/bytes.h"

/* Limits of fits, and the Zstandard level of planes. */
enum {
	KVI_TABLES_MAX = 16, /* of codecs 4 and 6 */
	KVI_ZSTD_LEVEL = 3
};

/* Bytes of a stream in front of its words (spec rans 1). */
enum { KVI_STREAM_HEAD = 4 + 4 * KVI_LANES };

/* Scratch memory by purpose; each grows to what the largest chunk needs. */
enum kvi_scratch {
	KVI_SCRATCH_OUT,  /* the payload */
	KVI_SCRATCH_OUT2, /* others, to compare */
	KVI_SCRATCH_OUT3,
	KVI_SCRATCH_PACKED,   /* what remains after the mask, token-major */
	KVI_SCRATCH_ELEMENTS, /* u16 or u8, in stream order */
	KVI_SCRATCH_OTHER,    /* the same in token-major order */
	KVI_SCRATCH_CONTEXT,  /* contexts or tables in stream order */
	KVI_SCRATCH_CHANNELS, /* per-channel arrays */
	KVI_SCRATCH_PLANE,
	KVI_SCRATCH_PLANE_OUT,
	KVI_SCRATCH_RUNS,
	KVI_SCRATCH_FIT,
	KVI_SCRATCH_TABLES,
	KVI_SCRATCH_SLOTS,  /* elements by slot, codecs 7 and 8 */
	KVI_SCRATCH_LINEAR, /* what its model works with */
	KVI_SCRATCH_ROTATIONS,
	KVI_SCRATCH_LINEAR_OUT,
	KVI_SCRATCH_SAMPLE, /* some tokens, to see what level 1 would do */
	KVI_SCRATCH_LOSSY,  /* a lossy chunk's elements, and what they become */
	KVI_SCRATCH_LOSSY_OUT,
	KVI_SCRATCH_COEFFICIENTS,
	KVI_SCRATCH_PREDICTION, /* of coefficients' elements, codec 14 */
	KVI_SCRATCH_CODES,
	KVI_N_SCRATCH
};

/* Tables that do not depend on a chunk, shared by all coders. */
struct kvi_coder_tables {
	const struct kvi_alloc *alloc;
	struct kvi_tables grid;            /* table set 0 */
	struct kvi_tables codes;           /* of lossy chunks; lut NULL: not made */
	uint16_t cost[KVI_PROB_TOTAL + 1]; /* of a frequency, in 1/256 bit */
};

/* A coder: the scratch memory and state of one thread. */
struct kvi_coder {
	const struct kvi_alloc *alloc;
	const struct kvi_coder_tables *tables;
	const struct kvi_kernels *kernels;
	void *zstd_c, *zstd_d; /* made when first needed */
	int order;             /* of the streams to be written */
	struct {
		void *p;
		size_t bytes;
	} scratch[KVI_N_SCRATCH];
	struct kvi_tables lut;      /* of codecs 4 and 6, built for each chunk */
	struct kvi_rotations turns; /* of the last chunk that rotated by them */
};

/* At least `bytes` of uninitialised memory, until the next call for the same
 * purpose. NULL: no memory (kvi_alloc_error says which). */
void *kvi_scratch(struct kvi_coder *c, enum kvi_scratch which, size_t bytes);

/* Cosines and sines of n tokens, until the next call; NULL without memory. */
const struct kvi_rotations *kvi_coder_rotations(struct kvi_coder *c, const kvarc_rope *rope,
                                                const int32_t *positions, size_t n);

/* Frees the Zstandard contexts of a coder. */
void kvi_zstd_close(struct kvi_coder *c);
/* One frame that decodes to exactly n bytes. */
kvarc_ret kvi_zstd_read(struct kvi_coder *c, const uint8_t *frame, size_t bytes, uint8_t *to,
                        size_t n);
/* 0 when it does not fit in room, or failed. */
size_t kvi_zstd_write(struct kvi_coder *c, const uint8_t *from, size_t n, uint8_t *to,
                      size_t capacity, int level);

/* Mean code length of a sample of bytes, order 0, in 1/256 bit a byte. */
unsigned kvi_sample_entropy(const struct kvi_coder *c, const uint8_t *p, size_t n);

/* Whether a chunk keeps the limits of spec 4.2 and 7. */
bool kvi_chunk_valid(const struct kvi_chunk *chunk);
/* Whether a codec takes elements of a dtype. */
bool kvi_codec_takes(unsigned codec, unsigned dtype);

/*
 * Packed little-endian elements as u16 in the machine's order: the bytes
 * themselves where they serve, else in scratch memory. And room to decode to,
 * put back with kvi_elements16_done.
 */
bool kvi_elements16_lie(const uint8_t *packed); /* as numbers of this machine */
/* The elements themselves, or a copy in scratch memory; NULL: no memory. */
const uint16_t *kvi_elements16(struct kvi_coder *c, const uint8_t *packed, size_t n);
/* Where to decode elements to; NULL: no memory. */
uint16_t *kvi_elements16_buffer(struct kvi_coder *c, uint8_t *packed, size_t n);
/* Moves decoded elements to packed, where they are not there already. */
void kvi_elements16_done(const uint16_t *elements, uint8_t *packed, size_t n);

/*
 * What codecs 5, 7 and 8 code of a packed matrix, token-major: its elements, of f32 the
 * high halves. Room to decode to, which kvi_coded_place puts into the matrix;
 * of f32 it reads the planes of the low halves from `in`, which
 * kvi_coded_planes wrote (it returns the end).
 */
size_t kvi_coded_planes_capacity(unsigned dtype, size_t n);
/* The 16-bit elements that are coded; NULL: no memory. */
const uint16_t *kvi_coded_elements(struct kvi_coder *c, unsigned dtype, const uint8_t *packed,
                                   size_t n);
/* Writes the planes of the bits that are not coded; returns their end, NULL: no memory. */
uint8_t *kvi_coded_planes(struct kvi_coder *c, unsigned dtype, const uint8_t *packed, size_t n,
                          uint8_t *to);
/* Where to decode the coded elements to; NULL: no memory. */
uint16_t *kvi_coded_buffer(struct kvi_coder *c, unsigned dtype, uint8_t *packed, size_t n);
/* Puts decoded elements and planes together as packed elements. Returns OK, MEM, MEMLIMIT, DATA,
 * OPTIONS. */
kvarc_ret kvi_coded_place(struct kvi_coder *c, unsigned dtype, const uint16_t *e, size_t n,
                          struct kvi_in *in, uint8_t *packed);

/* Parameters of a codec for chunks of some tensors (spec 8). */
struct kvi_params {
	const struct kvi_alloc *alloc;
	uint8_t codec, dtype;
	uint32_t heads, head_channels;
	/* Encoder only: bits per 1000 elements of the chunk that they were
	 * fitted to, 0 when not known. */
	uint64_t expected;
	size_t books; /* and bytes of codebooks that new ones would bring */
	/* codec 5; arrays of C, in one block of memory */
	bool rotate;
	int16_t *k, *mean;
	uint8_t *set;
	uint32_t *ctx; /* contexts without rotation */
	/* codec 13, in the same block of memory */
	struct kvi_had_params *had;
	/* codec 12, with freq below */
	struct kvi_vq_params *vq;
	/* codecs 4, 6 and 12 */
	unsigned n_tables;
	uint16_t *freq; /* n_tables * symbols */
	uint8_t *table, *top;
};

/* Of encoders: size in 1/1000 bit an element; whether a chunk is so much larger than the one that
 * its parameters were fitted to that new ones may pay; whether they are for such a chunk. */
uint64_t kvi_params_rate(size_t bytes, size_t elements);
bool kvi_params_drifted(const struct kvi_params *p, size_t bytes, size_t elements);
bool kvi_params_serve(const struct kvi_params *p, const struct kvi_chunk *chunk, unsigned codec);

static inline size_t kvi_params_channels(const struct kvi_params *p)
{
	return (size_t)p->heads * p->head_channels;
}

/* A chunk on its way in or out: what remains of it after the mask. */
struct kvi_coder_job {
	const struct kvi_chunk *chunk;
	/* Encoder: all T x C elements, the mask section, what remains. */
	const uint8_t *raw, *section, *packed;
	size_t section_bytes;
	const struct kvi_params *params;
	struct kvi_mask mask;
	struct kvi_lanes lanes;
};

/* A payload under construction: words grow down from `words`, planes up. */
struct kvi_payload {
	uint8_t *words; /* end of the words, 2-aligned */
	uint8_t *begin, *end;
	bool expected; /* codecs 7 and 8: the elements are as far from their
	                 * predictions as the model says */
};

/*
 * A codec with parameters and a mask. What remains after the mask is packed:
 * rows x channels elements, token-major, without gaps.
 */
struct kvi_codec {
	const char *name;
	/* Most that its planes add to a payload. */
	size_t (*planes_capacity)(unsigned dtype, size_t elements);
	/* Reads and writes what follows `u8 codec` in PARAMS. shape: dtype,
	 * heads, channels and rope. */
	kvarc_ret (*parse)(const struct kvi_alloc *alloc, const struct kvi_chunk *shape,
	                   struct kvi_in *in, struct kvi_params **out);
	void (*serialise)(const struct kvi_params *p, struct kvi_out *out);
	/* Parameters for this chunk, without `expected`. */
	kvarc_ret (*fit)(struct kvi_coder *c, const struct kvi_coder_job *job,
	                 struct kvi_params **out);
	kvarc_ret (*encode)(struct kvi_coder *c, const struct kvi_coder_job *job,
	                    struct kvi_payload *out);
	kvarc_ret (*decode)(struct kvi_coder *c, const struct kvi_coder_job *job, struct kvi_in *in,
	                    uint8_t *packed);
};

extern const struct kvi_codec kvi_codec_exponent, kvi_codec_grid, kvi_codec_bytes;
/* Codecs 7 and 8: no parameters of their own, the chunk's `linear` instead. */
extern const struct kvi_codec kvi_codec_linear;
/* Whether a model can be used on a chunk: it is of the chunk's shape, and its
 * sources are there. */
bool kvi_linear_shape(const struct kvi_chunk *chunk);
bool kvi_linear_sources(const struct kvi_chunk *chunk);
/* 7 or 8, by what its model is given. */
static inline unsigned kvi_linear_codec(const struct kvi_chunk *chunk)
{
	if (chunk->linear->model->flags & KVI_MODEL_BASIS)
		return KVI_CODEC_KLT; /* it predicts nothing */
	return chunk->linear->expected ? KVI_CODEC_MODEL : KVI_CODEC_LINEAR;
}
/* Codec 9 (predicted.c). Whoever predicts has found the elements to be that, and finite. */
bool kvi_predicted_exact(const struct kvi_chunk *chunk, const uint8_t *raw);
/* Its payloads: of such a chunk; of a chunk of finite elements, as far as it is smaller than `room`
 * bytes (0: it is not). NULL: no memory. */
const uint8_t *kvi_predicted_put(struct kvi_coder *c, const struct kvi_chunk *chunk,
                                 const uint8_t *raw);
const uint8_t *kvi_predicted_patch(struct kvi_coder *c, const struct kvi_chunk *chunk,
                                   const uint8_t *raw, size_t capacity, size_t *bytes);
kvarc_ret kvi_predicted_decode(struct kvi_coder *c, const struct kvi_chunk *chunk,
                               const uint8_t *payload, size_t bytes, uint8_t *raw);
/* Of codecs 4, 5 and 6; NULL for the others. */
const struct kvi_codec *kvi_codec_get(unsigned codec);

/* Parameters with zeroed arrays: those of the grid codec when n_tables is 0,
 * else n_tables tables of `symbols`. NULL without memory. */
struct kvi_params *kvi_params_new(const struct kvi_alloc *alloc, uint8_t codec,
                                  const struct kvi_chunk *shape, unsigned n_tables,
                                  unsigned symbols);
/* The tables of codecs 4 and 6: number, frequencies, table of each channel. */
kvarc_ret kvi_params_get_tables(const struct kvi_alloc *alloc, uint8_t codec,
                                const struct kvi_chunk *shape, struct kvi_in *in, unsigned symbols,
                                struct kvi_params **out);
/* One of them: its frequencies. */
bool kvi_params_get_table(struct kvi_in *in, unsigned symbols, uint16_t *freq);
void kvi_params_put_tables(const struct kvi_params *p, unsigned symbols, struct kvi_out *out);
/* The kernels' form of the tables, in the coder until the next call; stride:
 * a power of two. with_lut: the large half, which encoders do without. */
const struct kvi_tables *kvi_params_tables(struct kvi_coder *c, const struct kvi_params *p,
                                           unsigned symbols, unsigned stride, bool with_lut);

/* Values of the remaining channels, moved together. */
void kvi_job_channels8(const struct kvi_coder_job *job, const uint8_t *all, uint8_t *rest);
void kvi_job_channels32(const struct kvi_coder_job *job, const uint32_t *all, uint32_t *rest);

/* The stream of spec rans 1 in front of the words; states as the kernel left
 * them. Sets out->begin. */
void kvi_stream_put(struct kvi_payload *out, size_t n_words, const uint32_t state[KVI_LANES]);
bool kvi_stream_get(struct kvi_in *in, struct kvi_stream *s);

#endif
