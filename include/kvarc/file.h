/* SPDX-License-Identifier: BSD-3-Clause */
/* kvarc/file.h - whole files in and out: llama.cpp slots, safetensors, npz, tar, zip, anything */
#ifndef KVARC_H_INTERNAL
#error Include <kvarc.h> instead of this file.
#endif
#ifndef KVARC_FILE_H
#define KVARC_FILE_H

/*
 * Packing. An import parses a file, finds the caches in it and describes every other byte, so
 * that kvarc_unpack restores the file exactly. A file that does not parse to its exact end is kept
 * as an opaque file (kvarc_import_note says why).
 * A tar, zip or npz file is one item like any other file and comes back byte for byte: caches in
 * members that are stored without compression become tensors. With a compressed member the whole
 * container is kept as an opaque file, unless `members` is set.
 */
typedef struct kvarc_import kvarc_import;

/* How a file is read; set unused members to 0. */
typedef struct kvarc_import_options {
	kvarc_common common;
	/* rules for the names of tensors in safetensors and npy, one a line: PATTERN [AXES]
	 * [if KEY=VALUE|VALUE]. A pattern is literal text with {layer} and {number}, decimal
	 * numbers, and {K|V}, one of two words; axes are as below, or "-": kept as bytes; a test
	 * of the metadata holds where the key has one of the values. kvarc(1) has all of it. They
	 * are tried before those of known engines and "layers.{layer}.{key|value}" and other
	 * usual names. At most 256 rules and 64 KiB; NULL: none */
	const char *kv_rule;
	/* axes of those tensors, one letter per axis, from the outermost on: l layers (first, alone
	 * or with 2 before or behind it), b batch (next; each of its sequences becomes a track),
	 * 2 keys and values, h head, t token, 1 an axis of size 1, and last c channel, p channels
	 * of the key and as many of the value, or m channels of an MLA latent; or "s" alone, a
	 * state of any number of axes, of which the last one has the channels; NULL: guess ("htc",
	 * "thc", "bhtc", "bthc", "tc") */
	const char *axes;
	const char *rope; /* NULL, "auto": by fitting; "none"; "THETA[,half|interleaved][,DIMS]" */
	const kvarc_source *model; /* a GGUF whose header has RoPE and identity, or NULL */
	/* for deflated members (see members); NULL: files that need it are kept as opaque files */
	const char *temp_dir;
	int opaque; /* 1: keep every file as an opaque file, without parsing it */
	/* 1: the files in a tar, zip or npz file with caches become the items, deflated ones too:
	 * unpacking restores them, not the container. Not done, with a note, when they could not be
	 * unpacked side by side (links, names that are not relative paths in UTF-8, duplicates) or
	 * are neither stored nor deflated */
	int members;
	/* profiles with the RoPE and the number of heads of the keys that they model */
	const kvarc_profile *const *profiles;
	size_t n_profiles;
	/* a model with layers like the file's, for RoPE and heads of each layer, scaled frequencies
	 * included; it has precedence over profiles. It must outlive the import. NULL: none */
	const kvarc_predictor *predictor;
	/* the file is elements without a header: their type, the order of the axes (outermost
	 * first), and extents, "bf16,2LTHD,L=30,H=3,D=64". 2: keys, then values; L layers, T tokens
	 * or P pages of B tokens, H heads, D channels. One extent may be missing, it follows from
	 * the size. Without 2 the tensors are latents (MLA), without H the heads are found. NULL:
	 * the file is parsed */
	const char *raw;
	/* 1: of a file in which no cache is found, tensors with names and floats are coded by their
	 * type alone, as KVARC_OPAQUE, where a sample of them is smaller so; the tokens of their
	 * tracks, KVARC_TRACK_OTHER, are rows. 0: such a file is kept as it is */
	int by_type;
	uint64_t reserved[3]; /* zero */
} kvarc_import_options;
#define KVARC_IMPORT_OPTIONS_INIT KVARC_ZERO

/* Parses a file. name: the base name to record, or NULL. The source has a known size and stays
 * until close. It must not change before kvarc_pack has returned: it is read more than once, and
 * a change need not be noticed. Compare size, mtime, ctime and inode from before this call with
 * those after kvarc_pack, and discard the archive when they differ. On failure *im is NULL.
 * Returns OK, MEM, MEMLIMIT, OPTIONS (a part that was not built in), DATA (a container that cannot
 * be read), GEOMETRY (the size of the file does not fit options.raw), IO, PROG (also a line of
 * kv_rule that is no rule, or a description of options.raw that is none). */
KVARC_API KVARC_MUST_CHECK kvarc_ret kvarc_import_open(kvarc_import **im,
                                                       const kvarc_source *source, const char *name,
                                                       const kvarc_import_options *options);
/*
 * The text for kvarc_import_options.raw that describes the page files of an engine. layout: "vllm"
 * (file system tier; also "vllm:hnd", "vllm:split", "vllm:mla"), "sglang:layer_first",
 * "sglang:page_first", "sglang:page_first_direct", "sglang:page_head", "lmcache" (also
 * "lmcache:t2d", "lmcache:mla"), and behind it a type and extents, "lmcache,bf16,L=30,H=3,D=64",
 * which go before those of config: the config.json of the tier or of the model, or NULL; its size
 * is known and at most 1 MiB. path: of the file, for what names say, or NULL. Writes at most
 * `bytes` bytes to raw, with the 0 at the end: 160 suffice. error may be NULL.
 * Returns OK, PROG (no such layout, or something is missing), DATA (config is not JSON), OPTIONS
 * (no JSON was built in), IO, MEM; raw is not to be used then.
 */
KVARC_API KVARC_MUST_CHECK kvarc_ret kvarc_raw_layout(const char *layout, const char *path,
                                                      const kvarc_source *config, char *raw,
                                                      size_t bytes, kvarc_error *error);
/* Frees the import and sets *im to NULL; NULL-safe. */
KVARC_API void kvarc_import_close(kvarc_import **im);
/* The geometry of the cache in the file, owned by the import. */
KVARC_API const kvarc_geometry *kvarc_import_geometry(const kvarc_import *im);
/* Number of tokens of a track; 0 for a track that does not exist. */
KVARC_API uint64_t kvarc_import_tokens(const kvarc_import *im, uint32_t track);
/* Token ids and positions of [t0, t0+n) of a track; either pointer may be NULL.
 * Returns OK, OPTIONS (the file has no ids), GEOMETRY (range), IO, PROG. */
KVARC_API KVARC_MUST_CHECK kvarc_ret kvarc_import_read_tokens(const kvarc_import *im,
                                                              uint32_t track, uint64_t t0,
                                                              uint64_t n, int32_t *ids,
                                                              int32_t *positions);
/* "llama.cpp sequence file, version 4", ...; owned by the import. */
KVARC_API const char *kvarc_import_format(const kvarc_import *im);
/* How the file lays its tensors out, as the identity "layout" of its archive says; "": it says
 * nothing. Owned by the import. */
KVARC_API const char *kvarc_import_layout(const kvarc_import *im);
/* Number of streams that the caches of a llama.cpp server had when it wrote the file, one for each
 * of its parallel sequences, or 1 for all. 0: another file, or one that does not say. */
KVARC_API uint32_t kvarc_import_streams(const kvarc_import *im);
/* With the option members: the number of files that are packed instead of their container, which
 * unpacking does not restore; 0: the file itself is packed. */
KVARC_API size_t kvarc_import_members(const kvarc_import *im);
/*
 * A pair of the identity that kvarc_pack records, copied; it replaces one of the same key, also
 * what the file itself says (engine, model). An empty value leaves the key out. Other keys that
 * kvarc knows: "time", the time of the last change of what is packed ("2026-11-24T09:55:12Z", in
 * UTC), which kvarc unpack gives to the restored files. The library records no time by itself, so
 * that the same input and options give the same bytes.
 * Returns OK, MEM, MEMLIMIT, PROG (a pointer is NULL or the key empty; created_by, layout and
 * lossy, which the library records itself; more than 4096 pairs, or one that is too long).
 */
KVARC_API KVARC_MUST_CHECK kvarc_ret kvarc_import_identity(kvarc_import *im, const char *key,
                                                           const char *value);
/* Name of the model, from the header given in the options, or NULL; owned by the import. */
KVARC_API const char *kvarc_import_model(const kvarc_import *im);
/* Why something was kept opaque, one line, or NULL. */
KVARC_API const char *kvarc_import_note(const kvarc_import *im);
/* Bytes of all items and of the tensors in them. */
KVARC_API void kvarc_import_sizes(const kvarc_import *im, uint64_t *file_bytes,
                                  uint64_t *tensor_bytes);
/* A fetch for kvarc_writer_append_fetch; opaque is the import. */
KVARC_API int kvarc_import_fetch(void *im, uint32_t tensor, uint32_t head, uint32_t heads,
                                 uint64_t t0, uint32_t n, void *dst);

/* Packs the import into a sink: geometry, identity, items, all segments, close. Tokens that several
 * tracks begin with are written once, as kvarc_writer_fork does, but with KVARC_WRITE_STREAMABLE, a
 * tier, or levels 4 to 8.
 * options.file_id is derived from the content when it is all zero, so that the same
 * input and options give the same bytes. Where a tier drops tokens the files cannot be restored:
 * there are no items, and the identity "lossy" ends with "N of M tokens left out", of all tracks.
 * With KVARC_WRITE_KEEP_WHOLE files of a few tokens may get an archive without tensors:
 * stats->elements is 0 then.
 * stats may be NULL. */
KVARC_API KVARC_MUST_CHECK kvarc_ret kvarc_pack(kvarc_import *im, const kvarc_sink *sink,
                                                const kvarc_writer_options *options,
                                                kvarc_writer_stats *stats);

/* How a file is appended; set unused members to 0. */
typedef struct kvarc_append_options {
	/* level 0 to 3; its common options are those of all handles of the call */
	kvarc_writer_options writer;
	/* how earlier tokens are decoded where that is needed: profiles, find_profile, predictor;
	 * the other members are not used */
	kvarc_reader_options reader;
	const char *label;    /* of the checkpoint, as kvarc_writer_checkpoint; NULL: none */
	uint64_t time;        /* of the checkpoint: milliseconds since 1970, UTC; 0: not known */
	uint64_t reserved[4]; /* zero */
} kvarc_append_options;
#define KVARC_APPEND_OPTIONS_INIT KVARC_ZERO

/* Account of an append. Tokens are those of the longest sequence of the file: rows of windows,
 * indexers and states are none. */
typedef struct kvarc_append_result {
	uint64_t tokens;      /* of the file */
	uint64_t kept_tokens; /* leading ones that the archive had, bit for bit */
	uint64_t checkpoint;  /* its number */
	uint64_t file_bytes;  /* of all items of the import */
	/* to the sink. 0: the last checkpoint is this file already, and the archive ends as it
	 * should; after a crash its end is written again */
	uint64_t written_bytes;
	uint64_t archive_bytes; /* of the archive, now */
	/* tokens that the archive had, too, but of which the first ones are damaged there, of all
	 * tracks: they are new, not kept */
	uint64_t lost_tokens;
	uint64_t lost_bytes; /* outside of tensors, likewise */
	uint64_t reserved[4];
} kvarc_append_result;

/*
 * Appends an import to an archive as its next checkpoint: a session that is saved after each turn
 * is one archive, of which each checkpoint restores the file of its turn (kvarc_unpack of a reader
 * with kvarc_reader_options.checkpoint), and each costs what is new in it. source reads the
 * archive and must be able to seek; NULL: there is none yet, and the sink gets a new one, as from
 * kvarc_pack but with a checkpoint and a random file id. sink writes behind the end of the archive,
 * needs truncate where the last append was cut, and is flushed in front of the checkpoint, behind
 * it, and around the footer: in this order a crash at any byte, with any of the unflushed writes
 * lost, leaves the last checkpoint, and the next call removes what is behind it and not whole.
 *
 * The leading tokens of each track are kept whose ids, positions and bytes are those of the last
 * state. Bytes are compared by raw_check (spec 7), without decoding, up to the segment in which
 * they first differ, and the checks of all frames that the kept tokens need are verified; with
 * KVARC_WRITE_VERIFY all kept tokens are decoded and compared. The tokens behind the kept ones
 * replace those of the archive (kvarc_writer_rewind). Bytes outside of tensors are references where
 * earlier checkpoints have them. What is damaged in the archive is not kept: it is written again,
 * from the import, and the result says so. A file that is the last checkpoint, by name
 * and bytes, is not written again unless it has a label.
 *
 * The import gives heads, channels and RoPE of its tensors up for those of the archive. The archive
 * keeps its identity: pairs of the import that say the same, or that it does not have, are no
 * fault. Of an archive without a checkpoint its last state becomes the first one.
 *
 * Returns OK; GEOMETRY: the import is of another model, cache type or layout, or its identity says
 * so: nothing was written; OPTIONS: levels 4 to 8, a pipe, or an archive that cannot be continued;
 * LOSSY: a tier was asked for, or has changed the archive's tokens; PROG: a bad argument; or what
 * readers, writers and kvarc_pack return. result may be NULL.
 */
KVARC_API KVARC_MUST_CHECK kvarc_ret kvarc_append_import(kvarc_import *im,
                                                         const kvarc_source *source,
                                                         const kvarc_sink *sink,
                                                         const kvarc_append_options *options,
                                                         kvarc_append_result *result);

/* An append to a writer: arguments and answers are those of kvarc_writer_append_fetch. */
typedef kvarc_ret (*kvarc_append_call)(void *opaque, kvarc_writer *w, uint32_t track, uint64_t n,
                                       const int32_t *ids, const int32_t *positions,
                                       kvarc_fetch fetch, void *fetch_opaque);
/* kvarc_pack and kvarc_append_import of im append tokens by `append`, which may encode them on a
 * GPU (kvarc/device.h), in place of kvarc_writer_append_fetch; at levels 4 to 8 all tokens of a
 * track at once. append NULL: they do not. */
KVARC_API void kvarc_import_append_by(kvarc_import *im, kvarc_append_call append, void *opaque);

/* Unpacking. */
typedef struct kvarc_item {
	size_t index;
	uint16_t kind;    /* spec 10; 0: salvage lost its description, kvarc_unpack leaves it out */
	const char *name; /* "" when not known; not checked for safety as a path */
	uint64_t bytes;
	uint64_t reserved[4];
} kvarc_item;

/* Called once for each item before its first byte; fills a sink that takes
 * writes at any offset below item->bytes. Return 0, or 1 to skip the item, anything else fails. */
typedef int (*kvarc_item_open)(void *opaque, const kvarc_item *item, kvarc_sink *sink);

/* Item i; END past the last. On a pipe the items are known after open. */
KVARC_API kvarc_ret kvarc_reader_item(kvarc_reader *r, size_t i, kvarc_item *item);

/*
 * Restores every item, reading the archive once, in order (also from a pipe), or, where it has 8 MB
 * of elements or more and its source can seek and has no read_ranges, the chunks of several
 * segments tensor by tensor: sinks then get large writes. Where that meets damage, and the archive
 * is closed and its source can seek, the items are written again from the frames that their state
 * needs: damage in what later appends have replaced is not met.
 * Bytes that salvage could not read are left as the sink has them (zero in a new file), or written
 * as zero. Returns OK, or the reader's codes; PROG when segments were read before; OPTIONS when the
 * archive holds no items (made through the C API: read its tensors instead).
 */
KVARC_API KVARC_MUST_CHECK kvarc_ret kvarc_unpack(kvarc_reader *r, kvarc_item_open open,
                                                  void *opaque);

/* Reads a range: arguments and answers are those of kvarc_reader_read_deliver; on any thread. */
typedef kvarc_ret (*kvarc_read_call)(void *opaque, kvarc_reader *r, const kvarc_range *range,
                                     kvarc_deliver deliver, void *deliver_opaque);
/* As kvarc_unpack, with elements by `read`, which may decode them on a GPU (kvarc/device.h), in
 * place of kvarc_reader_read_deliver. PROG, too, for a pipe, or with KVARC_READ_SALVAGE. read NULL:
 * kvarc_unpack. */
KVARC_API KVARC_MUST_CHECK kvarc_ret kvarc_unpack_by(kvarc_reader *r, kvarc_item_open open,
                                                     void *opaque, kvarc_read_call read,
                                                     void *read_opaque);

/* A llama.cpp slot that salvage or an export shortens. */
typedef struct kvarc_slot_prefix {
	uint64_t tokens;       /* of the slot that was packed; of an export: that were wanted */
	uint64_t whole_tokens; /* leading tokens of the shorter slot: whole in all layers */
	uint64_t bytes;        /* of the shorter slot */
	const char *why;       /* OPTIONS: why it cannot be shortened, a clause; static storage */
	uint64_t reserved[2];
} kvarc_slot_prefix;

/*
 * After kvarc_unpack of an archive with KVARC_READ_SALVAGE: writes item i, a llama.cpp slot,
 * once more, with only the leading tokens that are whole: token list, cells, keys, values and
 * checkpoints agree, so that an engine restores these tokens and computes the others again,
 * where the file that kvarc_unpack has written holds zeros in silence. source is that file.
 * A sliding window is put together from those of the slot and its checkpoints. Where they do not
 * have it, and for a recurrent state, the last checkpoint that is whole is used instead. The sink
 * takes writes at any offset, and gets them in order.
 * Returns OK; END (nothing of the slot is lost) or OPTIONS (it cannot be shortened), nothing
 * is written then; IO, MEM, MEMLIMIT, PROG.
 */
KVARC_API KVARC_MUST_CHECK kvarc_ret kvarc_salvage_slot(kvarc_reader *r, size_t item,
                                                        const kvarc_source *source,
                                                        const kvarc_sink *sink,
                                                        kvarc_slot_prefix *prefix);

/* Writes the tensors of a range as a safetensors file, any archive. Needs a source that can seek;
 * the sink takes writes at any offset. */
KVARC_API KVARC_MUST_CHECK kvarc_ret kvarc_export_safetensors(kvarc_reader *r,
                                                              const kvarc_range *range,
                                                              const kvarc_sink *sink);

/* Not a shorter file than was wanted: OPTIONS instead. */
#define KVARC_LLAMA_EXACT 0x1u

/* How a llama.cpp file is written; set unused members to 0. */
typedef struct kvarc_llama_options {
	uint64_t flags; /* KVARC_LLAMA_* */
	/* LLAMA_STATE_SEQ_VERSION of a sequence file, 2 to 4; 0: as it was. OPTIONS where the
	 * file has what that version cannot say, or the version asks for what the file does not
	 * say: whether elements are rotated, that is */
	uint64_t state_version;
	uint64_t reserved[2]; /* zero */
} kvarc_llama_options;
#define KVARC_LLAMA_OPTIONS_INIT KVARC_ZERO

/*
 * Writes the first tokens of a track as a llama.cpp sequence file, or a session file where they
 * come from one, which an engine restores: token list, cells, keys, values and checkpoints agree.
 * The range begins at token 0 and has all layers; its track is the first one of the file in the
 * archive. Archives of kvarc_cut have no files: there the file is made from the tensors, and from
 * what the identity pair "llama_state", which kvarc_cut adds, says of it. Where the archive has
 * the file, the file of all of its tokens is the one that was packed, byte for byte.
 *
 * A sliding window is put together from those of the file and its context checkpoints. Where they
 * do not have it, where a recurrent state cannot be rewound to these tokens, or some are lost
 * (KVARC_READ_SALVAGE, which decodes the archive twice), the file has fewer: those up to the last
 * context checkpoint before, or the leading ones that are whole. prefix, which may be NULL, says
 * how many. options may be NULL.
 *
 * Needs a source that can seek; the sink takes writes at any offset, and each byte once. sink NULL:
 * nothing is written, and prefix says what would be.
 * Returns OK; OPTIONS: it cannot be done, and prefix->why says why not, or a pipe; nothing is
 * written then, and the reader can still be used; PROG: a bad argument, or a member of options
 * that is not known; GEOMETRY: no such track or tokens; as kvarc_reader_read.
 */
KVARC_API KVARC_MUST_CHECK kvarc_ret kvarc_export_llama(kvarc_reader *r, const kvarc_range *range,
                                                        const kvarc_sink *sink,
                                                        const kvarc_llama_options *options,
                                                        kvarc_slot_prefix *prefix);

/*
 * Copies part of an archive (layers and tokens) into a new one, without RESTORE items; of a track
 * of a llama.cpp file the identity gets the pair "llama_state" (kvarc_export_llama). Segments
 * with chunks of a lossy tier that lie in the range as a whole keep their payloads, and readers
 * need no KVARC_READ_ALLOW_LOSSY for them, unless the options have a tier or a level of 4 and up;
 * parts of such segments are decoded (LOSSY without the flag) and coded again at the level of the
 * options.
 */
KVARC_API KVARC_MUST_CHECK kvarc_ret kvarc_cut(kvarc_reader *r, const kvarc_range *range,
                                               const kvarc_sink *sink,
                                               const kvarc_writer_options *options,
                                               kvarc_writer_stats *stats);

/*
 * Writes the state that a reader was opened at, the last one or a checkpoint, as a new archive:
 * short segments, as of commits token by token, become full ones, and what rewinds have replaced,
 * earlier states and their packed files are left out. Identity, token ids, positions and packed
 * files stay, the new archive has no checkpoints. r: not started, not salvaging, on a source that
 * can seek. Segments of a lossy tier keep their payloads, and so their length; one that a rewind
 * has cut is decoded and coded again without a loss (LOSSY without KVARC_READ_ALLOW_LOSSY).
 * options as for kvarc_writer_open, without a tier: any level.
 * Returns OK, or what readers and writers return; DATA also for an archive that was cut while
 * files were packed.
 */
KVARC_API KVARC_MUST_CHECK kvarc_ret kvarc_compact(kvarc_reader *r, const kvarc_sink *sink,
                                                   const kvarc_writer_options *options,
                                                   kvarc_writer_stats *stats);

#endif
