/* SPDX-License-Identifier: BSD-3-Clause */
/* kvarc/writer.h - writing an archive, segment by segment */
#ifndef KVARC_H_INTERNAL
#error Include <kvarc.h> instead of this file.
#endif
#ifndef KVARC_WRITER_H
#define KVARC_WRITER_H

typedef struct kvarc_writer kvarc_writer;

#define KVARC_LEVEL_DEFAULT 1
#define KVARC_LEVEL_MAX 8
/* kvarc_writer_options.level of level n: zero there is the default level, level 0 is -1. */
#define KVARC_LEVEL(n) ((n) ? (n) : -1)

/* Every chunk is decoded again and compared after it was encoded; at levels 4 to 8 always, but for
 * what kernels of a GPU predict there (kvarc/device.h): with this flag they predict nothing. */
#define KVARC_WRITE_VERIFY 0x1u
/* No chunk refers back to another one: readable from a pipe (spec 3.5). */
#define KVARC_WRITE_STREAMABLE 0x2u
/* file_id below is used even if it is all zero bytes. */
#define KVARC_WRITE_FILE_ID 0x4u

/* The profile is put into the archive, so that readers need no file of it. */
#define KVARC_WRITE_EMBED_PROFILE 0x8u
/* The archive may have parts in a store: kvarc_writer_append_stored. Readers without a store then
 * know from its first bytes that they may lack something. */
#define KVARC_WRITE_STORED 0x10u
/* For kvarc_pack, other calls have no use for it: files of at most 1 MiB whose archive would be
 * more than 200 bytes larger than they are, as of a few tokens of many layers, are kept whole where
 * that is smaller; files of at most 4 KiB only where the archive is then not 200 bytes larger. So
 * are files of 64 KiB and more where their tensors would take a 32nd more. Such an archive gives
 * its files back, and has no tensors and no tokens. Not with a tier. */
#define KVARC_WRITE_KEEP_WHOLE 0x20u

/* How token ids are kept. */
typedef enum kvarc_token_ids {
	KVARC_TOKEN_IDS_STORED = 0, /* readable without a model: about 13 bits per token */
	/* levels 4 to 8: coded with the next-token distributions of the predictor, a model with an
	 * LM head (spec/codecs/tokens.md): about 4 bits per token, not readable without the model.
	 * Costs a second pass of the model; to read them the model runs token by token */
	KVARC_TOKEN_IDS_MODEL = 1
} kvarc_token_ids;

/* The profile_name of a profile that was fitted to the file alone. */
#define KVARC_PROFILE_NAME_FITTED "fitted to this file"

/* Options of a writer; KVARC_WRITER_OPTIONS_INIT has the defaults. */
typedef struct kvarc_writer_options {
	kvarc_common common;
	/* KVARC_LEVEL(n), n from 0 to KVARC_LEVEL_MAX; zero: the default. 0 fast, 1 cells, 2 and 3
	 * with a profile, 4 to 8 with a model and its profile (8: that of level 7, and patches of
	 * predicted elements) */
	int level;
	unsigned flags;               /* KVARC_WRITE_* */
	uint32_t segment_tokens;      /* 0: 256; 32..256 */
	uint32_t chunk_bytes;         /* raw bytes that a chunk aims at; 0: 1 MiB */
	uint8_t file_id[16];          /* all zero: random (see KVARC_WRITE_FILE_ID) */
	const kvarc_profile *profile; /* levels 2 to 8, and tier klt; must outlive the writer */
	const char *profile_name;     /* recorded, human-readable; NULL: none */
	/* levels 4 to 8; must outlive the writer. Appends then need token ids, and every chunk is
	 * verified */
	const kvarc_predictor *predictor;
	const char *predictor_name; /* recorded, human-readable; NULL: none */
	/* levels 4 to 8: 0, or as the profile was trained for: otherwise kvarc_writer_set_geometry
	 * returns PREDICTOR */
	kvarc_arithmetic arithmetic;
	kvarc_loop loop;
	/* KVARC_TOKEN_IDS_MODEL needs a model with an LM head: otherwise kvarc_writer_set_geometry
	 * returns OPTIONS */
	kvarc_token_ids token_ids;
	/* the tier that may change keys and values; copied, its pointers must stay valid. NULL:
	 * nothing changes. Level 0 or 1 codes the other tensors */
	const kvarc_lossy *lossy;
	/* of kvarc_writer_open_append, which has to know the ids and positions of stored segments
	 * that it continues or cuts; NULL: there is no store */
	kvarc_stored_read stored_read;
	void *stored_opaque;
	/* The archive is encrypted; each of the keys opens it. Its file_id is random unless given,
	 * and no two archives of the same content are the same. NULL: not encrypted */
	const kvarc_keys *keys;
	/* Frames from which kvarc_repair restores what is lost, of what this writer writes; behind
	 * each commit and checkpoint they cover all before it. NULL: none */
	const kvarc_parity *parity;
	uint64_t reserved[3]; /* zero */
} kvarc_writer_options;
#define KVARC_WRITER_OPTIONS_INIT KVARC_ZERO

/* Totals since open, in bytes, tokens and elements; file_bytes: the size of the file. Tokens that a
 * tier leaves out count in raw_bytes and elements as well. */
typedef struct kvarc_writer_stats {
	uint64_t raw_bytes, file_bytes, elements, chunks, frames;
	uint64_t dropped_tokens; /* that were left out, of all tracks */
	uint64_t reserved[6];
} kvarc_writer_stats;

/*
 * Opens a writer; nothing is written before _set_geometry. sink and options
 * are copied, what they point to must stay. On failure *w is NULL and nothing
 * is owned.
 * Returns OK, MEM, OPTIONS (level not known), PREDICTOR (the profile has no models of the level),
 * PROG.
 */
KVARC_API KVARC_MUST_CHECK kvarc_ret kvarc_writer_open(kvarc_writer **w, const kvarc_sink *sink,
                                                       const kvarc_writer_options *options);

/*
 * Opens a writer that continues an archive behind its last commit. source reads it, and must
 * be able to seek; sink writes behind its end and never before it, so that after a crash at any
 * byte the archive is that of the last commit. Both are copied, what they point to must stay.
 * Geometry, identity and file_id are those of the archive: no _set_geometry follows, and _identity
 * only where no token was committed. options are for what is appended: level, segments and profile
 * may differ from those before.
 *
 * An archive that was closed gets its new frames behind the footer. Of one that was cut (a crash,
 * a full disk) the bytes behind the last commit are removed by sink.truncate; without that call
 * the return is OPTIONS, and nothing has changed. kvarc_writer_close writes a new footer.
 *
 * Where positions is NULL they follow those of the archive; if a tier has left tokens out, or the
 * last ones lie in a store that is not given, positions must be given (PROG). kvarc_fetch counts
 * from the first token that the archive holds of the track. Chunks repeat what this writer wrote,
 * not what was there before. Packed files can still be restored when tokens follow; behind a
 * checkpoint they belong to the checkpoint alone.
 *
 * Levels 4 to 8 cannot continue (OPTIONS): a model would have to go through all tokens again.
 * Append at a level below to any archive, and use kvarc_compact for a smaller one. With
 * KVARC_WRITE_STREAMABLE an archive that can be read from a pipe stays so.
 *
 * On failure *w is NULL and nothing was written. Returns OK, MEM, MEMLIMIT, IO, PROG, FORMAT,
 * OPTIONS (also a pipe, and features that forbid an append), DATA (damaged, or cut while files were
 * packed), PREDICTOR (as kvarc_writer_open and _set_geometry), LOSSY (a lossy tier is asked for,
 * but the identity of the archive has no "lossy": its tokens are unchanged), STORE (the store that
 * is given does not have the last tokens).
 */
KVARC_API KVARC_MUST_CHECK kvarc_ret kvarc_writer_open_append(kvarc_writer **w,
                                                              const kvarc_source *source,
                                                              const kvarc_sink *sink,
                                                              const kvarc_writer_options *options);

/* Sets the geometry, once, before anything else. It is copied.
 * Returns OK, MEM, IO, PROG (called twice), GEOMETRY (values out of range). */
KVARC_API KVARC_MUST_CHECK kvarc_ret kvarc_writer_set_geometry(kvarc_writer *w,
                                                               const kvarc_geometry *geometry);

/* Identity pairs, after _set_geometry and before the first append; may be repeated.
 * Returns OK, MEM, IO, PROG. */
KVARC_API KVARC_MUST_CHECK kvarc_ret kvarc_writer_identity(kvarc_writer *w, size_t n,
                                                           const char *const keys[],
                                                           const char *const values[]);

/*
 * Appends n tokens to a track. ids are n token ids or NULL; positions are n
 * positions or NULL (then they go on from the last one, from 0 at the start).
 * views has one entry a tensor of the geometry, in its order; entries of
 * tensors of other tracks are ignored. Full segments are encoded before the
 * call returns, a rest of less than segment_tokens is kept and joined with
 * the next append. To avoid that copy append multiples of segment_tokens. Elements are read more
 * than once: they must not change until the call returns. Tokens that the options'
 * tier leaves out (KVARC_LOSSY_DROP) are counted, but not written: those behind them keep their
 * positions. Returns OK, MEM, MEMLIMIT, IO, PROG, GEOMETRY.
 */
KVARC_API KVARC_MUST_CHECK kvarc_ret kvarc_writer_append(kvarc_writer *w, uint32_t track,
                                                         uint64_t n, const int32_t *ids,
                                                         const int32_t *positions,
                                                         const kvarc_view *views);

/*
 * The same with data on demand, for caches larger than memory: fetch is called
 * for every block of every full segment, t0 counted from the start of the track. Ends the
 * segment at the last token even if it is short. Must not be called while
 * tokens of an earlier kvarc_writer_append wait for a full segment (PROG): commit first.
 */
KVARC_API KVARC_MUST_CHECK kvarc_ret kvarc_writer_append_fetch(kvarc_writer *w, uint32_t track,
                                                               uint64_t n, const int32_t *ids,
                                                               const int32_t *positions,
                                                               kvarc_fetch fetch, void *opaque);

/*
 * Appends n segments that lie in a store: their keys and digests alone, and a commit. All are of
 * one track, the first one begins behind its last token and each other one behind the one before;
 * bytes and the chain values, where a segment has one, are compared with what they must be. ids
 * (NULL: the segments have none) and positions (NULL: they go on) are of all of their tokens, and
 * are not written. Appends follow as ever, at levels 0 to 3; after a kvarc_writer_rewind into a
 * segment, too. Readers need the store, which has all segments for as long as the archive is.
 * Needs KVARC_WRITE_STORED, or to append to an archive that has parts in a store.
 * Returns OK, MEM, MEMLIMIT, IO, PROG, GEOMETRY (no such track; tokens, bytes or a chain value that
 * do not fit).
 */
KVARC_API KVARC_MUST_CHECK kvarc_ret kvarc_writer_append_stored(kvarc_writer *w, size_t n,
                                                                const kvarc_stored *segments,
                                                                const int32_t *ids,
                                                                const int32_t *positions);

/* Encodes waiting tokens as short segments, writes a commit record and calls
 * the sink's flush. Everything before it survives a cut. */
KVARC_API KVARC_MUST_CHECK kvarc_ret kvarc_writer_commit(kvarc_writer *w);

/*
 * The next append to a track begins at token `tokens`, 0 .. the number of tokens appended, and
 * replaces those from there on (spec 6.2). Without an append nothing changes: until then commits
 * are of the tokens that were there. Tokens that no segment holds yet are dropped. Positions that
 * are not given follow those that are left. Not with KVARC_WRITE_STREAMABLE, token scores of a
 * lossy tier, or levels 4 to 8. Tokens of packed files can be replaced behind a checkpoint alone.
 * A writer that can rewind takes 4 bytes of memory per token, and a little more.
 * Returns OK, MEM, MEMLIMIT, IO, DATA, PROG, GEOMETRY (no such track or token), STORE (into a
 * segment of the archive that is appended to, which lies in a store that is not given).
 */
KVARC_API KVARC_MUST_CHECK kvarc_ret kvarc_writer_rewind(kvarc_writer *w, uint32_t track,
                                                         uint64_t tokens);

/*
 * A track begins as the first `tokens` tokens of another one, 1 .. the number of those appended,
 * which the archive has once for both (spec 6.3): sequences of a batch and beams share their
 * prompt so. They replace all tokens of `track`; the next append to it continues behind them. What
 * is appended to `from` or replaced there changes nothing in `track`, and the reverse. Tokens of
 * `from` that wait for a full segment are written. Tensors of both tracks pair in the order of
 * layer, kind and number: a pair differs in nothing but track and name. Readers need a source that
 * can seek. Not with KVARC_WRITE_STREAMABLE, or token scores of a lossy tier. Where packed files
 * need tokens of `track`, kvarc_writer_checkpoint comes before it.
 * Returns OK, MEM, MEMLIMIT, IO, DATA, PROG, OPTIONS (levels 4 to 8), GEOMETRY (no such tracks or
 * tokens, or tensors do not pair), STORE (as kvarc_writer_rewind).
 */
KVARC_API KVARC_MUST_CHECK kvarc_ret kvarc_writer_fork(kvarc_writer *w, uint32_t track,
                                                       uint32_t from, uint64_t tokens);

/*
 * A commit that readers can open the archive at (kvarc_reader_options.checkpoint). label: readable
 * text, at most 65535 bytes, or NULL; time: milliseconds since 1970, UTC, 0: not known. *number,
 * where number is not NULL, gets its number: 1, or that of the one before plus 1. Packed files
 * belong to this checkpoint; the next append begins a state without any.
 * Returns OK, MEM, MEMLIMIT, IO, PROG.
 */
KVARC_API KVARC_MUST_CHECK kvarc_ret kvarc_writer_checkpoint(kvarc_writer *w, const char *label,
                                                             uint64_t time, uint64_t *number);

/* Tokens of a track, as kvarc_writer_rewind counts them: what the archive held that is appended to,
 * and what was appended. 0 for a track that does not exist. */
KVARC_API uint64_t kvarc_writer_tokens(const kvarc_writer *w, uint32_t track);

/* Tokens of the segments of a track, but for its last one: segment_tokens of the options, or fewer
 * where tokens are large. 0 without a geometry, or for a track that does not exist. */
KVARC_API uint32_t kvarc_writer_segment_tokens(const kvarc_writer *w, uint32_t track);

/* Account of what was written so far. */
KVARC_API void kvarc_writer_get_stats(const kvarc_writer *w, kvarc_writer_stats *stats);

/*
 * Commits, writes index and footer, frees the writer in every case and sets
 * *w to NULL. The file is complete only if this returns OK.
 */
KVARC_API KVARC_MUST_CHECK kvarc_ret kvarc_writer_close(kvarc_writer **w);

/* Frees without finishing. NULL-safe. */
KVARC_API void kvarc_writer_abort(kvarc_writer **w);

/*
 * One shot: a single track. The archive of one set of tensors in memory.
 * kvarc_encode_bound gives a size of out that always suffices, 0 when the
 * geometry is not valid or the size overflows.
 * kvarc_encode_buffer returns OK, or what writer calls return; PROG when out_bytes is too small.
 */
KVARC_API size_t kvarc_encode_bound(const kvarc_geometry *geometry, uint64_t n_tokens);
/* Encodes one track of n_tokens tokens into memory. */
KVARC_API KVARC_MUST_CHECK kvarc_ret kvarc_encode_buffer(void *out, size_t out_bytes,
                                                         size_t *written,
                                                         const kvarc_geometry *geometry,
                                                         uint64_t n_tokens, const int32_t *ids,
                                                         const kvarc_view *views,
                                                         const kvarc_writer_options *options);

#endif
