/* SPDX-License-Identifier: BSD-3-Clause */
/* kvarc/profile.h - profiles: linear models of a cache's tensors (spec/profile.md) */
#ifndef KVARC_H_INTERNAL
#error Include <kvarc.h> instead of this file.
#endif
#ifndef KVARC_PROFILE_H
#define KVARC_PROFILE_H

/* A profile in memory. Immutable; may be shared by readers, writers and threads. */
typedef struct kvarc_profile kvarc_profile;

/* Properties of a profile, and its contents. */
typedef struct kvarc_profile_info {
	uint8_t digest[16];
	uint64_t file_bytes;   /* of the .kvp file, packed */
	uint64_t coefficients; /* of all models */
	unsigned levels;       /* bit 2: level 2 ... bit 7: level 7; level 8 uses those of 7;
	                          * bit 9: transforms for KVARC_TIER_KLT */
	size_t n_models, n_pairs, n_ropes;
	uint64_t reserved[4];
} kvarc_profile_info;

/* One model as kvarc_profile_model returns it. */
typedef struct kvarc_model_info {
	unsigned level;
	uint32_t layer;
	uint8_t kind; /* kvarc_kind */
	uint32_t heads, channels, rotary;
	uint64_t coefficients;
	uint32_t table_rows; /* token ids in its table */
	uint32_t corrects;   /* width of the hidden state that it corrects, 0: none */
	uint64_t reserved[2];
} kvarc_model_info;

/*
 * Reads a whole profile. source need not seek. common: memory limit and allocator, NULL for
 * none. On failure *p is NULL.
 * Returns OK, MEM, MEMLIMIT, FORMAT (not a profile), OPTIONS (newer), DATA, IO, PROG.
 */
KVARC_API KVARC_MUST_CHECK kvarc_ret kvarc_profile_open(kvarc_profile **p,
                                                        const kvarc_source *source,
                                                        const kvarc_common *common);
/* NULL-safe; sets *p to NULL. Readers and writers that use it must be closed before. */
KVARC_API void kvarc_profile_close(kvarc_profile **p);
/*
 * A profile without coefficients, for predictors that need no correction
 * (kvarc_predictor_open_external): how large the channels of keys and values are in n tokens of a
 * sample. views as of kvarc_writer_append; tensors whose data is NULL are left out. level: 4 to 8,
 * where it is used. common as above. On failure *p is NULL.
 * Returns OK, MEM, MEMLIMIT, GEOMETRY (not valid, or no tensor that could be predicted), PROG.
 */
KVARC_API KVARC_MUST_CHECK kvarc_ret kvarc_profile_of_sizes(kvarc_profile **p, unsigned level,
                                                            const kvarc_geometry *geometry,
                                                            uint64_t n, const kvarc_view *views,
                                                            const kvarc_common *common);
/*
 * One profile of n others: a tensor's model at a level is that of the first profile which has
 * one, unless what it is predicted from comes from another. The others stay as they are and are not
 * needed any more. common as above. On failure *out is NULL.
 * Returns OK, MEM, MEMLIMIT, GEOMETRY (they say that they are of different models), PROG.
 */
KVARC_API KVARC_MUST_CHECK kvarc_ret kvarc_profile_merge(kvarc_profile **out,
                                                         const kvarc_profile *const *list, size_t n,
                                                         const kvarc_common *common);
/* Writes the file. Returns OK, MEM, IO, PROG. */
KVARC_API KVARC_MUST_CHECK kvarc_ret kvarc_profile_write(const kvarc_profile *p,
                                                         const kvarc_sink *sink);

/* Copies what the profile is. Returns OK, PROG (a pointer is NULL). */
KVARC_API kvarc_ret kvarc_profile_get_info(const kvarc_profile *p, kvarc_profile_info *info);
/* END past the last. */
KVARC_API kvarc_ret kvarc_profile_model(const kvarc_profile *p, size_t i, kvarc_model_info *info);
/* Pair i of the identity, owned by the profile. Returns OK, END past the last, PROG. */
KVARC_API kvarc_ret kvarc_profile_identity_at(const kvarc_profile *p, size_t i, const char **key,
                                              const char **value);
/* Rope i: frequencies as in kvarc_rope, pairing KVARC_ROPE_HALF; owned by the profile. END past
 * the last. */
KVARC_API kvarc_ret kvarc_profile_rope(const kvarc_profile *p, size_t i, kvarc_rope *rope);

/* Whether the profile has a model of a level for a tensor; rope: the tensor's, or NULL. */
KVARC_API int kvarc_profile_fits(const kvarc_profile *p, unsigned level, const kvarc_tensor *tensor,
                                 const kvarc_rope *rope);
/* How many tensors of a cache a writer of this level predicts: those with a model that
 * fits and with all tensors that it predicts from. 0 also when the geometry is not valid. */
KVARC_API size_t kvarc_profile_predicts(const kvarc_profile *p, unsigned level,
                                        const kvarc_geometry *geometry);

#endif
