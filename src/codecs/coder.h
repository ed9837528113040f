/* SPDX-License-Identifier: BSD-3-Clause */
/* coder.h - what the codecs share: scratch memory, tables, parameters */
#ifndef KVI_CODER_H
#define KVI_CODER_H

#include "codecs/codec.h"
#include "codecs/lanes.h"
#include "codecs/mask.h"
#include "codecs/streams.h"
#include "profile/expect.h"
#include "numeric/formats.h"
#include "profile/linear_model.h"
#include "util/bytes.h"
#include "util/pool.h"

/* Limits of fits, and Zstandard levels of planes and of chunks. */
enum {
	KVI_TABLES_MAX = 16, /* tables of codec bytes */
	KVI_ZSTD_LEVEL = 3,
	/* Level of rows that repeat others: level 3 skips too much between them. */
	KVI_ZSTD_ROWS_LEVEL = 6
};

/* Bytes of the stream of a lossy body in front of its words (spec lossy 4). */
enum { KVI_STREAM_HEAD = 4 + 4 * KVI_LANES };

/* Scratch memory by purpose; each grows to what the largest chunk needs. */
enum kvi_scratch {
	KVI_SCRATCH_OUT,  /* the payload */
	KVI_SCRATCH_OUT2, /* payloads to compare with it */
	KVI_SCRATCH_OUT3,
	KVI_SCRATCH_GRID_OUT, /* the same chunk in the grid codec */
	KVI_SCRATCH_PACKED,   /* elements that remain after the mask, token-major */
	KVI_SCRATCH_ELEMENTS, /* u16 or u8, in stream order */
	KVI_SCRATCH_OTHER,    /* elements in token-major order; symbols and escapes */
	KVI_SCRATCH_CONTEXT,  /* contexts or tables in stream order */
	KVI_SCRATCH_CHANNELS, /* per-channel arrays */
	KVI_SCRATCH_PLANE,
	KVI_SCRATCH_PLANE_OUT,
	KVI_SCRATCH_RUNS,
	KVI_SCRATCH_FIT,
	KVI_SCRATCH_TABLES,
	KVI_SCRATCH_SLOTS,  /* elements by slot, codecs linear and model */
	KVI_SCRATCH_LINEAR, /* work of linear models */
	KVI_SCRATCH_ROTATIONS,
	KVI_SCRATCH_TURNS,
	KVI_SCRATCH_LINEAR_OUT,
	KVI_SCRATCH_STATE_OUT,  /* codec state, with a reference */
	KVI_SCRATCH_LAYERS_OUT, /* codec layers in place of that of level 1 */
	KVI_SCRATCH_SAMPLE,     /* some tokens, to estimate the size at level 1 */
	KVI_SCRATCH_LOSSY,      /* elements of a lossy chunk, before and after */
	KVI_SCRATCH_LOSSY_OUT,
	KVI_SCRATCH_COEFFICIENTS,
	KVI_SCRATCH_PREDICTION, /* predicted elements, codec klt */
	KVI_SCRATCH_CODES,
	KVI_SCRATCH_WORK, /* stream_work.h */
	KVI_N_SCRATCH
};

/* Tables that do not depend on a chunk, shared by all coders. */
struct kvi_coder_tables {
	const struct kvi_alloc *alloc;
	struct kvi_tables grid;                /* table set 0, for encoders: lut NULL */
	struct kvi_late_tables *late;          /* table set 0 for decoders, made when first
	                                        * needed */
	struct kvi_tables codes;               /* tables of lossy codes; lut NULL: not made */
	uint16_t cost[KVI_PROB_TOTAL + 1];     /* code length of a frequency, in 1/256 bit */
	uint16_t scale_pairs[KVI_SCALE_PAIRS]; /* kvi_rotation.scales */
};

/* A coder: the scratch memory and state of one thread. */
struct kvi_coder {
	const struct kvi_alloc *alloc;
	const struct kvi_coder_tables *tables;
	const struct kvi_kernels *kernels;
	struct kvi_pool *pool; /* its idle workers may help; NULL: nobody */
	void *zstd_c, *zstd_d; /* made when first needed */
	struct {
		void *p;
		size_t bytes;
	} scratch[KVI_N_SCRATCH];
	struct kvi_tables lut;  /* tables of a chunk's parameters (kernels/rans.h) */
	struct kvi_tables grid; /* table set 0; lut NULL until kvi_grid_decodes */
	/* Rotations of the last chunk that had some: results of kvi_coder_rotations and
	 * kvi_coder_token_turns. */
	struct kvi_rotations turns;
	struct kvi_token_turns token_turns;
};

/* Allocates and builds n tables of `symbols` from their frequencies; the caller frees
 * tables->lut. Returns OK, MEM, MEMLIMIT, PROG (frequencies that are not valid). */
kvarc_ret kvi_coder_table_make(struct kvi_tables *tables, const struct kvi_alloc *alloc, unsigned n,
                               unsigned symbols, unsigned stride, const uint16_t *freq);

/* Makes coder->grid fit for decoders: their table takes 1.5 MB, and more time than a small
 * archive of level 0. False: no memory (kvi_alloc_error says which). */
bool kvi_grid_decodes(struct kvi_coder *coder);

/* Returns at least `bytes` of uninitialised memory, valid until the next call for the same purpose.
 * NULL: no memory (kvi_alloc_error says which). */
void *kvi_scratch(struct kvi_coder *coder, enum kvi_scratch which, size_t bytes);
/* The 2-aligned end of scratch memory with at least `bytes` in front of it; NULL: no memory. */
uint8_t *kvi_scratch_end(struct kvi_coder *coder, enum kvi_scratch which, size_t bytes);

/* Cosines and sines of n tokens, until the next call; NULL without memory. */
const struct kvi_rotations *kvi_coder_rotations(struct kvi_coder *coder, const kvarc_rope *rope,
                                                const int32_t *positions, size_t n);

/* Turns of n tokens, token by token and rounded (spec grid 2), until the next call; NULL without
 * memory. */
const struct kvi_token_turns *kvi_coder_token_turns(struct kvi_coder *coder, const kvarc_rope *rope,
                                                    const int32_t *positions, size_t n);

/* Frees the Zstandard contexts of a coder. */
void kvi_zstd_close(struct kvi_coder *coder);
/* Decodes one frame to exactly n bytes. Returns OK, MEM, MEMLIMIT, DATA. */
kvarc_ret kvi_zstd_read(struct kvi_coder *coder, const uint8_t *frame, size_t bytes, uint8_t *to,
                        size_t n);
/* Bytes of the frame; 0 when it does not fit in capacity, or failed. */
size_t kvi_zstd_write(struct kvi_coder *coder, const uint8_t *from, size_t n, uint8_t *to,
                      size_t capacity, int level);

/* Mean code length of a sample of bytes, order 0, in 1/256 bit per byte. */
unsigned kvi_sample_entropy(const struct kvi_coder *coder, const uint8_t *p, size_t n);

/* Whether a chunk keeps the limits of spec 4.2 and 7. */
bool kvi_chunk_valid(const struct kvi_chunk *chunk);

/* The little-endian number of 1, 2 or 4 bytes at p. */
static inline uint32_t kvi_load_element(const uint8_t *p, unsigned size)
{
	return size == 1 ? *p : size == 2 ? kvi_load16(p) : kvi_load32(p);
}
/* Stores the lower `size` bytes of v at p. */
static inline void kvi_store_element(uint8_t *p, unsigned size, uint32_t v)
{
	if (size == 1)
		*p = (uint8_t)v;
	else if (size == 2)
		kvi_store16(p, (uint16_t)v);
	else
		kvi_store32(p, v);
}
/* Whether packed elements of 16 bits can be read in place: little-endian machine, aligned. */
bool kvi_elements16_lie(const uint8_t *packed);
/* Packed little-endian elements in the machine's order: in place, or a copy in scratch memory;
 * NULL: no memory. */
const uint16_t *kvi_elements16(struct kvi_coder *coder, const uint8_t *packed, size_t n);
/* The buffer to decode n elements of 16 bits to: packed itself where its elements can be read in
 * place, else scratch memory, from which kvi_elements16_done moves them. NULL: no memory. */
uint16_t *kvi_elements16_buffer(struct kvi_coder *coder, uint8_t *packed, size_t n);
/* Moves decoded elements to packed, where they are not there already. */
void kvi_elements16_done(const uint16_t *elements, uint8_t *packed, size_t n);

/* The grid, linear and model codecs code the upper 16 bits of elements; the rest, which only f32
 * has, is stored in planes. The number of planes. */
unsigned kvi_coded_n_planes(unsigned dtype);
/* The coded elements of a packed, token-major matrix; NULL: no memory. */
const uint16_t *kvi_coded_elements(struct kvi_coder *coder, unsigned dtype, const uint8_t *packed,
                                   size_t n);
/* Writes the planes; returns their end. */
uint8_t *kvi_coded_planes(struct kvi_coder *coder, unsigned dtype, const uint8_t *packed, size_t n,
                          uint8_t *to);
/* The buffer to decode the coded elements to, from which kvi_coded_place puts them into packed;
 * NULL: no memory. */
uint16_t *kvi_coded_buffer(struct kvi_coder *coder, unsigned dtype, uint8_t *packed, size_t n);
/* The planes of coded elements, a byte of each element. */
struct kvi_coded_planes {
	const uint8_t *low, *high;
};
/* Reads the planes of n elements. Returns OK, MEM, MEMLIMIT, DATA, OPTIONS. */
kvarc_ret kvi_coded_planes_get(struct kvi_coder *coder, unsigned dtype, size_t n, struct kvi_in *in,
                               struct kvi_coded_planes *planes);
/* Puts the packed elements at .. at + n - 1 together; e: all of kvi_coded_buffer. */
void kvi_coded_place(unsigned dtype, const uint16_t *e, const struct kvi_coded_planes *planes,
                     size_t at, size_t n, uint8_t *packed);

/*
 * The part that the parameters of all codecs have in common. A codec with parameters has a struct
 * of its own whose first member is a kvi_params (symbols.h, grid.h, ...); arrays follow in the
 * same block of memory. Readers and writers pass parameters to the codec that `codec` names and to
 * no other.
 */
struct kvi_params {
	const struct kvi_alloc *alloc;
	uint8_t codec, dtype;
	uint32_t heads, head_channels;
	bool rotates; /* decoding needs rope and positions */
	/* Encoders alone: bits per 1000 elements of the chunk that the parameters were fitted to, 0
	 * when not known; bytes that others of this size take, estimated. */
	uint64_t expected;
	size_t refit_bytes;
};

/* Parameters of `bytes`, a codec's struct and its arrays, zeros but for the common part; more: what
 * tables and codebooks add to refit_bytes. NULL: no memory. kvi_params_free frees them. */
void *kvi_params_new(const struct kvi_alloc *alloc, uint8_t codec, const struct kvi_chunk *shape,
                     size_t bytes, size_t more);
/* Whether parameters are those of this codec (kvi_codec_params), and for chunks of this shape.
 * params may be NULL: false. */
bool kvi_params_match(const struct kvi_params *params, const struct kvi_chunk *chunk,
                      unsigned codec);
/* Whether kvi_params_match, and the chunk has rope and positions where the parameters rotate. */
bool kvi_params_serve(const struct kvi_params *params, const struct kvi_chunk *chunk,
                      unsigned codec);
/* Size in 1/1000 bit per element. */
uint64_t kvi_params_rate(size_t bytes, size_t elements);
/* Encoders: whether a chunk came out so much larger than the one that its parameters were fitted
 * to that new ones may pay. */
bool kvi_params_drifted(const struct kvi_params *params, size_t bytes, size_t elements);
/* Makes the PARAMS content after `u8 codec`, which the caller frees. Returns OK, MEM, MEMLIMIT; on
 * failure content is empty. */
kvarc_ret kvi_params_write(const struct kvi_params *params, const struct kvi_alloc *alloc,
                           struct kvi_out *content);

/* Number of channels of all heads. */
static inline size_t kvi_params_channels(const struct kvi_params *params)
{
	return (size_t)params->heads * params->head_channels;
}

/*
 * A chunk on its way in or out. Codecs with a mask: what remains of it after the mask. Lossy
 * codecs: the tokens of one body, none of them masked.
 */
struct kvi_coder_job {
	const struct kvi_chunk *chunk;
	const struct kvi_params *params; /* NULL: the codec has none */
	struct kvi_linear_io linear;
	struct kvi_mask mask;
	struct kvi_lanes lanes;
	/* Codec state: the elements of the reference, T x C, NULL: it has none, of decoders those
	 * of the request until the head is read; of decoders: rows of a group. */
	const uint8_t *before;
	unsigned group;
	/* Decoders of codecs with streams. */
	struct kvi_streams streams;
	const struct kvi_streams_in *streams_in;
	uint8_t *whole;   /* buffer for all T x C elements */
	bool checked;     /* checks of streams are compared */
	unsigned helpers; /* of the request */
	/* Encoders: what was asked for, of a chunk that may have more tokens. */
	const struct kvi_encode_request *request;
	/* Encoders: all T x C elements, the mask section, what remains: rows x channels elements,
	 * token-major, without gaps. */
	const uint8_t *raw, *section, *packed;
	size_t section_bytes;
	/* Decoders, and encoders of lossy codecs: where elements go, as `packed`. */
	uint8_t *decoded;
	/* Lossy codecs: index of each token in the segment. Their encoders: the tier at the rate of
	 * these tokens; a flag per token, set where it has to stay exact. */
	const uint8_t *token;
	const kvarc_lossy *tier;
	uint8_t *refused;
};

/* The payload that an encoder makes of a job. */
struct kvi_payload {
	/* Codecs with streams: these grow down from `words`, which is aligned to
	 * KVI_STREAM_ALIGN, planes up. begin: the table. */
	uint8_t *words;
	uint8_t *begin, *end;
	struct kvi_streams streams;
	bool expected;  /* linear, model: the elements are as far from their predictions as the
	                * linear model predicts */
	unsigned group; /* codec state: rows of a group */
	/* Lossy codecs append here. refused: nothing was appended, some of job->refused are set. */
	struct kvi_out *body;
	bool refused;
	bool doubtful; /* codec cells: the grid codec may make less of these elements */
};

/* Sets of dtypes that codecs take. */
enum {
	KVI_TAKES_WIDE = 1, /* floating-point dtypes of 16 bits and more */
	KVI_TAKES_FLOATS = 3,
	KVI_TAKES_BYTES = 4,   /* other dtypes of 8 bits */
	KVI_TAKES_UNKNOWN = 8, /* wider dtypes of later versions */
	KVI_TAKES_ALL = 15
};

/*
 * The functions of a codec; the row stands beside its implementation. Name and properties are in
 * format/codec_ids.h; codec.c lists the rows. Functions that a codec does not need are NULL.
 * Functions return OK, MEM, MEMLIMIT and the errors that their comments name.
 */
struct kvi_codec {
	unsigned takes; /* KVI_TAKES_* */
	/* Reads the PARAMS content after `u8 codec`. shape: dtype, heads, channels and rope. DATA,
	 * OPTIONS. */
	kvarc_ret (*parse)(const struct kvi_alloc *alloc, const struct kvi_chunk *shape,
	                   struct kvi_in *in, struct kvi_params **out);
	void (*serialise)(const struct kvi_params *p, struct kvi_out *out);
	/* Parameters for a job, without `expected`. Lossy codecs: *out stays NULL where tokens were
	 * refused; END (too few tokens, or numbers that the codec does not work with). */
	kvarc_ret (*fit)(struct kvi_coder *c, const struct kvi_coder_job *job,
	                 struct kvi_params **out);
	/* Codecs with a mask: bytes in front of it, with what writes them and what reads them;
	 * NULL: there are none. get_head: DATA, PREDICTOR. */
	size_t head_bytes;
	void (*put_head)(const struct kvi_coder_job *job, const struct kvi_payload *out,
	                 uint8_t *to);
	kvarc_ret (*get_head)(struct kvi_coder_job *job, struct kvi_in *in);
	/* Codecs with a mask: most words that an element takes in the stream; number of planes
	 * with a byte of each element. */
	unsigned words_each;
	unsigned (*n_planes)(unsigned dtype);
	/* Reads the zeros behind the section and what goes before the streams, the checks among
	 * it; writes the checks of two streams or more to where get_table finds them. NULL: the
	 * coder's table (spec rans 4). */
	bool (*get_table)(struct kvi_streams_in *streams_in, const struct kvi_streams *streams,
	                  size_t section_bytes, struct kvi_in *in);
	void (*put_checks)(const struct kvi_streams *streams, uint8_t *begin,
	                   const uint64_t check[KVI_STREAMS_MAX]);
	/* Most bytes of other planes; NULL: there are none. */
	size_t (*side_bytes)(const struct kvi_mask *m);
	/* Encodes the job to out; lossy codecs also fill job->decoded. Lossy: END (the codec does
	 * not take these elements). */
	kvarc_ret (*encode)(struct kvi_coder *c, const struct kvi_coder_job *job,
	                    struct kvi_payload *out);
	/* Decodes all of `in` to job->decoded; codecs with streams: the wanted streams, by
	 * kvi_streams_decode. DATA, OPTIONS, PREDICTOR. */
	kvarc_ret (*decode)(struct kvi_coder *c, const struct kvi_coder_job *job,
	                    struct kvi_in *in);
};

/* The row of a codec; of REPEAT, which readers resolve, and of unknown numbers an empty one. */
const struct kvi_codec *kvi_codec_get(unsigned codec);
extern const struct kvi_codec kvi_codec_raw, kvi_codec_zstd, kvi_codec_constant, kvi_codec_layers,
	kvi_codec_grid, kvi_codec_bytes, kvi_codec_linear, kvi_codec_model, kvi_codec_predicted,
	kvi_codec_near, kvi_codec_tsc, kvi_codec_vq, kvi_codec_had, kvi_codec_klt, kvi_codec_state,
	kvi_codec_cells;

/* Whether a linear model is for chunks of this shape; in NULL: there is none. */
bool kvi_linear_shape(const struct kvi_linear_in *in, const struct kvi_chunk *chunk);
/* Whether the sources of a linear model are there. */
bool kvi_linear_sources(const struct kvi_linear_in *in);
/* The codec that a linear model is for. */
static inline unsigned kvi_linear_codec(const struct kvi_linear_in *in)
{
	if (in->model->flags & KVI_MODEL_BASIS)
		return KVI_CODEC_KLT; /* a KLT basis predicts nothing */
	return in->expected ? KVI_CODEC_MODEL : KVI_CODEC_LINEAR;
}

/* The payload of a chunk whose elements are the predicted ones, KVI_PREDICTED_EXACT bytes; NULL: no
 * memory. */
const uint8_t *kvi_predicted_put(struct kvi_coder *coder, const struct kvi_chunk *chunk,
                                 const uint8_t *raw);
/* The payload of a chunk of finite elements as differences from the predicted ones. *bytes: its
 * size, below capacity; 0: it is not smaller. NULL: no memory. */
const uint8_t *kvi_predicted_patch(struct kvi_coder *coder, const struct kvi_chunk *chunk,
                                   const uint8_t *predicted, const uint8_t *raw, size_t capacity,
                                   size_t *bytes);

/* Writes the head of the stream of a lossy body (spec lossy 4) in front of its words, which end at
 * `end`; state: of the encoding kernel after its last word. Returns its begin. */
uint8_t *kvi_stream_put(uint8_t *end, size_t n_words, const uint32_t state[KVI_LANES]);
/* Reads such a stream; stream->words points into the input. false: it is not valid. */
bool kvi_stream_get(struct kvi_in *in, struct kvi_stream *stream);

#endif
