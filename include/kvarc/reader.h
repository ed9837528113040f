/* SPDX-License-Identifier: BSD-3-Clause */
/* kvarc/reader.h - reading an archive: in order, by range, verify, salvage */
#ifndef KVARC_H_INTERNAL
#error Include <kvarc.h> instead of this file.
#endif
#ifndef KVARC_READER_H
#define KVARC_READER_H

typedef struct kvarc_reader kvarc_reader;

/* Read what is undamaged in a damaged file instead of failing (needs a source that can seek). */
#define KVARC_READ_SALVAGE 0x1u
/* Elements of lossy chunks (spec/codecs/lossy.md) are welcome; without it they answer LOSSY. Both
 * give what kvarc_reader_verify checks. */
#define KVARC_READ_ALLOW_LOSSY 0x2u

/*
 * Asked once for a profile that an archive names, does not hold and that is not among the
 * options' profiles, when the first chunk needs it. Returns it, to stay until the reader is
 * closed, or NULL. May be called from a worker thread, by one at a time.
 */
typedef const kvarc_profile *(*kvarc_find_profile)(void *opaque, const uint8_t digest[16],
                                                   const char *name);

/* Options of a reader; set unused members to 0. */
typedef struct kvarc_reader_options {
	kvarc_common common;
	unsigned flags; /* KVARC_READ_* */
	/* for archives that name one; must outlive the reader */
	const kvarc_profile *const *profiles;
	size_t n_profiles;
	kvarc_find_profile find_profile; /* may be NULL */
	void *find_opaque;
	/* for archives that a model predicts (levels 4 to 8), or NULL; must outlive the reader */
	const kvarc_predictor *predictor;
	/* number of the checkpoint to open the archive at, as if it ended there; 0: its end */
	uint64_t checkpoint;
	/* How many bytes of the source pass in the time that a request takes; 0: 65,536. Ranges
	 * that lie closer are read in one request. A quarter of it is read at each end of the file
	 * when it is opened. 1: nothing is read but what is needed. */
	uint64_t request_cost;
	/* for archives with parts in a store; NULL: what needs them answers STORE */
	kvarc_stored_read stored_read;
	void *stored_opaque;
	const kvarc_keys *keys; /* for archives that are encrypted; NULL: none */
	uint64_t reserved[2];   /* zero */
} kvarc_reader_options;
#define KVARC_READER_OPTIONS_INIT KVARC_ZERO

/* How the file ended. */
typedef enum kvarc_state {
	KVARC_STATE_CLOSED = 0,  /* footer present, or opened at a checkpoint */
	KVARC_STATE_OPEN = 1,    /* ends with a commit, without a footer */
	KVARC_STATE_CUT = 2,     /* behind the last commit there are whole frames at most, and then
	                           * the remains of one: a write that did not end. Dropped */
	KVARC_STATE_DAMAGED = 3, /* salvage skipped something; without salvage: there is no footer
	                           * that leads to all frames, a frame behind the last commit
	                           * that was reached is damaged, and others follow it */
	KVARC_STATE_UNKNOWN = 4  /* a pipe that was not read to its end */
} kvarc_state;

/* Properties of an archive, and its contents. */
typedef struct kvarc_info {
	uint16_t format_major, format_minor;
	uint8_t file_id[16];
	uint64_t file_bytes;    /* KVARC_UNKNOWN on a pipe */
	uint64_t raw_bytes;     /* of all tensors */
	uint64_t elements;      /* of all tensors; those that tracks share (spec 6.3) once */
	uint64_t literal_bytes; /* raw bytes outside tensors, in items */
	uint64_t frames, chunks, segments;
	uint64_t dropped_bytes; /* after the last commit, or unreadable in salvage */
	kvarc_state state;
	size_t n_items;
	/* number of times that this processor's kernels mispredicted and scalar arithmetic took
	 * over: all elements are right, but report the processor */
	uint64_t fallbacks;
	/* tokens that a tier left out when files were packed, of all tracks; 0 when the archive
	 * was cut later */
	uint64_t dropped_tokens;
	uint64_t
		stored_tokens; /* whose ids, positions and elements lie in a store, of all tracks */
	uint64_t encrypted;    /* 1: its frames are encrypted */
	/* bit c: the file has chunks of codec c, or had before they were rewound; 63: of one above
	 * 62 (spec 9.2). 0 in salvage: not known */
	uint64_t codecs;
	uint64_t reserved[4];
} kvarc_info;

/* One chunk as kvarc_reader_chunk returns it. */
typedef struct kvarc_chunk_info {
	uint32_t tensor, head, heads;
	uint64_t t0;
	uint32_t n;
	uint8_t codec;       /* spec 7 */
	uint8_t stream_size; /* 0 to 3: its streams have 32, 64, 128, 256 tokens (spec 7) */
	uint8_t generation;  /* lossy chunks, and what repeats them: how often the elements have
	                         * been changed, 255: that often or more; 0: others */
	uint64_t offset;     /* of its frame in the file */
	uint64_t sequence;
	uint32_t payload_bytes; /* of the frame */
	uint32_t raw_bytes;
	uint64_t frame_bytes;  /* all that it takes in the file */
	int predicted_exactly; /* its elements are, bit for bit, what a model predicts */
	uint64_t reserved[4];
} kvarc_chunk_info;

#define KVARC_CODEC_PREDICTS 0x1u /* decoding needs the archive's profile or model */
#define KVARC_CODEC_LOSSY 0x2u    /* elements are not those that were packed */
/* A codec number (spec 7) in words. */
typedef struct kvarc_codec {
	const char *name; /* "grid"; static storage */
	unsigned flags;   /* KVARC_CODEC_* */
	uint64_t reserved[4];
} kvarc_codec;
/* Returns OK, END (no codec has the number), PROG. */
KVARC_API kvarc_ret kvarc_codec_info(unsigned number, kvarc_codec *codec);

/* Tokens [t0, t0 + n) of one track, of layers [layer0, layer0 + n_layers), all heads. Layers or
 * tokens that do not exist are answered with GEOMETRY. A range that was zeroed, and at most its
 * track set, is all layers and tokens, as KVARC_RANGE_ALL; beside another member, n 0 is no token
 * and n_layers 0 no layer. */
typedef struct kvarc_range {
	uint32_t track;
	uint32_t layer0, n_layers; /* n_layers UINT32_MAX: to the last */
	uint64_t t0, n;            /* n UINT64_MAX: to the last */
	uint64_t reserved[1];      /* zero */
} kvarc_range;
#define KVARC_RANGE_ALL(track_)                         \
	{                                               \
		(track_), 0, UINT32_MAX, 0, UINT64_MAX, \
		{                                       \
			0                               \
		}                                       \
	}

/* A segment as kvarc_reader_next_segment returns it; pointers live until the next call. */
typedef struct kvarc_segment {
	uint32_t track;
	uint64_t t0;
	uint32_t n;
	const int32_t *ids;       /* NULL: not stored, or not known (then ids_coded) */
	const int32_t *positions; /* n; NULL: lost (only in salvage) */
	int ids_coded; /* by a model (spec/codecs/tokens.md); ids is NULL when the options do
	                           * not have it, or (only in salvage) earlier ids are lost */
	uint64_t reserved[4];
} kvarc_segment;

/* A damaged place, and what is lost because of it. */
typedef struct kvarc_damage {
	uint64_t offset, bytes; /* place in the file */
	uint32_t track, tensor; /* UINT32_MAX: not known */
	uint64_t t0;
	uint32_t n;       /* tokens that are missing, 0: none or not known */
	const char *what; /* static storage */
	uint64_t reserved[4];
} kvarc_damage;
typedef void (*kvarc_damage_fn)(void *opaque, const kvarc_damage *damage);

/*
 * Opens an archive: superblock, geometry, and with a source that can seek the
 * index (rebuilt by scanning when it is missing). source and options are
 * copied. On failure *r is NULL. OPTIONS, too, when there is no such checkpoint (on a pipe: from
 * kvarc_reader_next_segment).
 * Returns OK, MEM, MEMLIMIT, FORMAT, OPTIONS, DATA, IO, PROG.
 */
KVARC_API KVARC_MUST_CHECK kvarc_ret kvarc_reader_open(kvarc_reader **r, const kvarc_source *source,
                                                       const kvarc_reader_options *options);

/* NULL-safe; sets *r to NULL. */
KVARC_API void kvarc_reader_close(kvarc_reader **r);

/* Owned by the reader, valid until close. */
KVARC_API const kvarc_geometry *kvarc_reader_geometry(const kvarc_reader *r);

/* On a pipe the totals grow while segments are read. */
KVARC_API kvarc_ret kvarc_reader_get_info(const kvarc_reader *r, kvarc_info *info);

/* Tokens of a track known so far. 0 for a track that does not exist. */
KVARC_API uint64_t kvarc_reader_tokens(const kvarc_reader *r, uint32_t track);

/* A predictor that the archive names (spec 5.2). */
typedef struct kvarc_predictor_info {
	unsigned level; /* 0: it is of a kind that a later version has */
	uint8_t digest[16];
	const char *name; /* never NULL */
	int embedded;
	int present; /* embedded, or among the options' profiles */
	int model;   /* levels 4 to 8: a model is needed, with these weights */
	uint8_t weights[16];
	const char *model_name; /* never NULL */
	/* of the model, and its loop: "w8a8 closed", "fp8 open"; "other"; never NULL */
	const char *arithmetic;
	int token_ids; /* some may be coded by the model */
	uint64_t reserved[4];
} kvarc_predictor_info;
/* Predictor i in file order; END past the last. On a pipe: those read so far. */
KVARC_API kvarc_ret kvarc_reader_predictor(const kvarc_reader *r, size_t i,
                                           kvarc_predictor_info *info);

/* Value of an identity key, NULL when absent. kvarc_reader_identity_at walks all pairs in key
 * order. */
KVARC_API const char *kvarc_reader_identity(const kvarc_reader *r, const char *key);
/* Pair i of the identity, owned by the reader. Returns OK, END past the last, PROG. */
KVARC_API kvarc_ret kvarc_reader_identity_at(const kvarc_reader *r, size_t i, const char **key,
                                             const char **value);

/* Token ids and positions of [t0, t0+n) of a track; either pointer may be NULL. Ids that a model
 * has coded take it through all tokens from the first one on; they are kept until close.
 * Returns OK, OPTIONS (ids are not in the file: the reader can still be used; or a pipe),
 * PREDICTOR (the model is needed and not there: the same), STORE (the same), GEOMETRY (range),
 * DATA, IO, MEM, MEMLIMIT. */
KVARC_API KVARC_MUST_CHECK kvarc_ret kvarc_reader_read_tokens(kvarc_reader *r, uint32_t track,
                                                              uint64_t t0, uint64_t n, int32_t *ids,
                                                              int32_t *positions);

/* The chain value of the first `tokens` tokens of a track (spec 5.3): it names them and what their
 * elements depend on. Returns OK, END (the archive has none: no segment ends there, it has no token
 * ids, or elements depend on more than they say), GEOMETRY (no such track), OPTIONS (a pipe), PROG.
 */
KVARC_API KVARC_MUST_CHECK kvarc_ret kvarc_reader_chain(kvarc_reader *r, uint32_t track,
                                                        uint64_t tokens, uint8_t chain[16]);

#define KVARC_SEGMENT_STORED 0x1u /* it lies in a store: digest is set */
#define KVARC_SEGMENT_CUT 0x2u    /* later segments have left its first tokens alone: see left */
#define KVARC_SEGMENT_FORKED 0x4u /* a fork took it from another track, whose frames it is */
/*
 * Segment i of the state that the reader was opened at, in the order of the file, without decoding
 * anything; flags: KVARC_SEGMENT_*, may be NULL. Segments of which no token is left are not
 * counted. Ascending i is fast. Returns OK, END past the last, OPTIONS (a pipe), PROG.
 */
KVARC_API kvarc_ret kvarc_reader_segment_at(kvarc_reader *r, uint64_t i, kvarc_stored *segment,
                                            unsigned *flags);

/* A checkpoint (spec 9.1). */
typedef struct kvarc_checkpoint {
	uint64_t number;   /* ascending, at least 1 */
	uint64_t time;     /* milliseconds since 1970, UTC; 0: not known */
	const char *label; /* label_bytes, not terminated; until the next call or close */
	size_t label_bytes;
	uint64_t tokens;     /* of the longest track */
	uint64_t new_tokens; /* of these, those that were written since the checkpoint before */
	uint64_t end;        /* bytes of the archive up to it */
	uint64_t reserved[1];
} kvarc_checkpoint;
/* Checkpoint i in the order of the file, up to the one that it was opened at. Returns OK, END past
 * the last and on pipes, DATA, IO, MEM, MEMLIMIT, PROG. */
KVARC_API KVARC_MUST_CHECK kvarc_ret kvarc_reader_checkpoint(kvarc_reader *r, size_t i,
                                                             kvarc_checkpoint *checkpoint);

/* How many token ids a model has coded, and their bytes in the file; 0: none. On a pipe 0.
 * Returns OK, DATA, IO, MEM, MEMLIMIT, PROG. */
KVARC_API KVARC_MUST_CHECK kvarc_ret kvarc_reader_coded_ids(kvarc_reader *r, uint64_t *tokens,
                                                            uint64_t *bytes);

/*
 * Reads a range into views, one a tensor of the geometry in its order; views
 * with data NULL, of other tracks or other layers are left alone. Token t of the range goes
 * to row t - range.t0 of a view. Only the chunks that the range touches are read, and
 * of a chunk only the streams that hold tokens of the range are decoded, each with its own check.
 * While it runs, views may hold bytes that are not checked yet: chunks are decoded in place
 * where a view is packed. After it, also after a failure, they hold checked tokens, zeros,
 * or what they held.
 * A segment that lies in a store is asked for whole, which takes memory. The last ones are kept, at
 * least two, at most 16 where they take a quarter of the memory limit. After STORE the reader can
 * be used, and asks again.
 * Returns OK, MEM, MEMLIMIT, OPTIONS (pipe), GEOMETRY (range outside), DATA, PREDICTOR, IO, PROG,
 * STORE.
 */
KVARC_API KVARC_MUST_CHECK kvarc_ret kvarc_reader_read(kvarc_reader *r, const kvarc_range *range,
                                                       const kvarc_view *views);

/* Reads as kvarc_reader_read, by callback: whole blocks, cut to the range. */
KVARC_API KVARC_MUST_CHECK kvarc_ret kvarc_reader_read_deliver(kvarc_reader *r,
                                                               const kvarc_range *range,
                                                               kvarc_deliver deliver, void *opaque);

/*
 * The bytes of the source that kvarc_reader_read of a range into views (NULL: of all tensors) will
 * read, ascending, joined as kvarc_reader_options.request_cost says: to have them at hand, or on
 * their way, when the reader asks for them. It asks for no others, but for chunks that chunks of
 * the range repeat (spec codecs/repeat.md), for what a missing profile would have named, and after
 * damage; for as many at once as the memory limit allows, through read_ranges if the source has it.
 * Segments that lie in a store are not of the source.
 * Nothing is read twice within a call while the memory limit allows it. From call to call a reader
 * keeps what it read to open the file, and parameters, which are not in the plan; but no chunks. An
 * embedded profile is read now. *n is 0 for a source with `memory`. *ranges lives until the next
 * call on the reader.
 * Returns OK, MEM, MEMLIMIT, OPTIONS (pipe), GEOMETRY (range outside), IO, PROG.
 */
KVARC_API KVARC_MUST_CHECK kvarc_ret kvarc_reader_plan(kvarc_reader *r, const kvarc_range *range,
                                                       const kvarc_view *views,
                                                       const kvarc_byte_range **ranges, size_t *n);

/*
 * In order, also from a pipe: moves to the next segment, END after the last.
 * Where the source can seek and the archive was cut (KVARC_STATE_CUT), END comes after the last
 * committed segment, as for an archive that was not closed (KVARC_STATE_OPEN):
 * kvarc_reader_get_info returns the state. DATA: something is damaged, packed files need tokens
 * behind the cut (salvage reads those that are left), or a pipe ends inside a frame. STORE: a
 * segment lies in a store, which does not have it. Every failure stays.
 * Follow with kvarc_reader_segment_deliver to decode its chunks, or call again to skip it.
 */
KVARC_API KVARC_MUST_CHECK kvarc_ret kvarc_reader_next_segment(kvarc_reader *r,
                                                               kvarc_segment *segment);
/* Decodes the current segment and hands out its blocks. Returns as kvarc_reader_read_deliver. */
KVARC_API KVARC_MUST_CHECK kvarc_ret kvarc_reader_segment_deliver(kvarc_reader *r,
                                                                  kvarc_deliver deliver,
                                                                  void *opaque);

/* Chunk i of the file in file order; END past the last. Needs a source that can seek. */
KVARC_API kvarc_ret kvarc_reader_chunk(kvarc_reader *r, uint64_t i, kvarc_chunk_info *chunk);

/*
 * Reads and decodes everything and checks every check and every frame.
 * An archive that was cut is verified up to its last commit: OK then, and kvarc_reader_get_info
 * gives KVARC_STATE_CUT and how many bytes behind that were dropped. So OK together with
 * KVARC_STATE_CLOSED means that nothing is missing, OK with OPEN or CUT that all committed tokens
 * are good. When packed files need more than was committed it is DATA. From a pipe a cut is always
 * DATA. damage may be NULL; with it the whole file is read and each damaged place
 * reported, and the return is still DATA when there was any. STORE when a store lacks a segment
 * that has tokens left; others are not asked for.
 */
KVARC_API KVARC_MUST_CHECK kvarc_ret kvarc_reader_verify(kvarc_reader *r, kvarc_damage_fn damage,
                                                         void *opaque);

/* With KVARC_READ_SALVAGE: reports each damaged or missing place once, after
 * reading. Returns how many there were. */
KVARC_API uint64_t kvarc_reader_damage(kvarc_reader *r, kvarc_damage_fn damage, void *opaque);

/* Losses of a track, or of the whole archive. */
typedef struct kvarc_loss {
	uint64_t n_damages; /* of the whole archive, as kvarc_reader_damage counts them */
	/* tokens that the track had, as far as the archive still shows; of all tracks: of the
	 * longest track */
	uint64_t tokens;
	/* leading tokens that are complete in every tensor: what an engine can restore; of all
	 * tracks: the fewest of a track that lost some, or tokens */
	uint64_t whole_tokens;
	uint64_t lost_tokens; /* with at least one lost element; of all tracks: the most */
	/* of lost elements; of all tracks: the sum, and bytes of packed files that lie outside of
	 * their tensors */
	uint64_t lost_bytes;
	/* 1: the end of the archive is missing, and the number of lost tokens is not known */
	int end_unknown;
	uint64_t reserved[4];
} kvarc_loss;

/*
 * With KVARC_READ_SALVAGE, after reading all segments, or after a kvarc_reader_verify with a
 * callback that returned DATA: what is lost of a track; UINT32_MAX: of the whole archive. Tokens
 * behind the end of a cut are counted when a COMMIT, an INDEX or the description of a packed file
 * names them. Before all segments are read, chunks that cannot be decoded are not in it yet.
 * Returns OK, GEOMETRY (no such track), MEM, MEMLIMIT, PROG (none of both has happened).
 */
KVARC_API KVARC_MUST_CHECK kvarc_ret kvarc_reader_loss(kvarc_reader *r, uint32_t track,
                                                       kvarc_loss *loss);

/* One shot: reads track 0 of an archive in memory into views. */
KVARC_API KVARC_MUST_CHECK kvarc_ret kvarc_decode_buffer(const void *in, size_t in_bytes,
                                                         const kvarc_view *views, size_t n_views,
                                                         const kvarc_reader_options *options);

#endif
