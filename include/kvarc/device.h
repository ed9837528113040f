/* SPDX-License-Identifier: BSD-3-Clause */
/* kvarc/device.h - a GPU: chunks of an archive decoded, and encoded, in its memory */
/*
 * These calls are in libkvarc-device, which needs the libkvarc of the same version. Nothing of CUDA
 * is linked: kvarc_device_open loads NVIDIA's driver, so programs start without one.
 */
#ifndef KVARC_DEVICE_H
#define KVARC_DEVICE_H

#include <kvarc.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * A device: a GPU, a context of its driver, and the kernels in it. A handle serves one thread at a
 * time. The context that is current in the thread is the same after each call as before it. No
 * call waits for the device unless it says so, and none but kvarc_device_alloc allocates memory of
 * it: the caller gives addresses (CUdeviceptr, or a pointer of the CUDA runtime) and a stream
 * (CUstream, cudaStream_t; NULL: the default one). A device has 8 MiB of pinned memory of the host,
 * which memlimit does not count, and a stream of its own.
 *
 * Once a kernel has failed (IO, and the error says so), its own or another of the context, nothing
 * works in the context any more: the primary one lasts as long as the process.
 *
 * Copies in the order of a stream (kvarc_device_send, kvarc_device_place) wait for nothing as long
 * as those of the device that have not run yet are of 4 MiB and 16 pieces of 256 KiB at most; then
 * for the oldest. They read memory of any kind, pinned or not, before they return.
 */
typedef struct kvarc_device kvarc_device;

/* How a device is opened; set unused members to 0. */
typedef struct kvarc_device_options {
	/* error must outlive the device */
	kvarc_common common;
	/* number of the GPU, as the driver counts them; not looked at with a context */
	uint64_t ordinal;
	/* CUcontext to work in, which must outlive the device. NULL: the primary context of the
	 * GPU, which the CUDA runtime and torch use, too */
	void *context;
	/* file of the driver. NULL: libcuda.so.1 */
	const char *driver;
	/* file of the kernels. NULL: the one that was installed with this library */
	const char *kernels;
	/* file of the kernels that encode, which the first plan that writes loads; must outlive the
	 * device. NULL: the one that was installed with this library */
	const char *encoders;
	/* the same of those of the exact engine, which the first kvarc_device_model loads */
	const char *exact;
	uint64_t reserved[6]; /* zero */
} kvarc_device_options;
#define KVARC_DEVICE_OPTIONS_INIT KVARC_ZERO

/*
 * Opens a GPU. options may be NULL. On failure *d is NULL.
 * Returns OK, OPTIONS (no driver, no such GPU, no kernels, none for this architecture or for this
 * driver: the error says which, and the host can decode instead), IO (the driver failed otherwise),
 * MEM (of the GPU, too), MEMLIMIT, PROG.
 */
KVARC_API KVARC_MUST_CHECK kvarc_ret kvarc_device_open(kvarc_device **d,
                                                       const kvarc_device_options *options);
/* Waits for nothing: what was queued on streams must be done, and its models closed. NULL-safe;
 * sets *d to NULL. */
KVARC_API void kvarc_device_close(kvarc_device **d);

/* Properties of a device. */
typedef struct kvarc_device_info {
	char name[96];            /* as the driver has it, printable ASCII */
	uint64_t memory;          /* bytes */
	uint32_t ordinal;         /* number of the GPU */
	uint32_t major, minor;    /* compute capability: 9 and 0 of an H100 */
	uint32_t multiprocessors; /* of the GPU */
	uint32_t driver_version;  /* CUDA version of the driver, 13000 for 13.0 */
	uint32_t unused;          /* zero */
	uint64_t reserved[8];     /* zero */
} kvarc_device_info;

/* Returns OK, PROG. */
KVARC_API KVARC_MUST_CHECK kvarc_ret kvarc_device_get_info(const kvarc_device *d,
                                                           kvarc_device_info *info);

/*
 * Memory of the device for callers that have no allocator of their own, such as torch's or that of
 * the CUDA runtime. *address is a multiple of 256. Returns OK, MEM (also of the GPU), IO, PROG.
 */
KVARC_API KVARC_MUST_CHECK kvarc_ret kvarc_device_alloc(kvarc_device *d, uint64_t bytes,
                                                        uint64_t *address);
/* Waits for the device. 0 is nothing. */
KVARC_API void kvarc_device_free(kvarc_device *d, uint64_t address);
/* Copies bytes of the host to the device, in the order of the stream, as said above; the caller may
 * change them as soon as this returns. Returns OK, IO, MEM, PROG. */
KVARC_API KVARC_MUST_CHECK kvarc_ret kvarc_device_send(kvarc_device *d, uint64_t to,
                                                       const void *from, uint64_t bytes,
                                                       void *stream);
/* Waits for what was queued on the stream, then copies bytes to the host. Returns OK, IO (also of
 * a kernel that failed), PROG. */
KVARC_API KVARC_MUST_CHECK kvarc_ret kvarc_device_fetch(kvarc_device *d, void *to, uint64_t from,
                                                        uint64_t bytes, void *stream);

/*
 * A model whose predictions kernels make (levels 4 to 8): its weights in the arithmetic of an
 * archive, in memory of the device. Readers and writers do not use it yet.
 */
typedef struct kvarc_device_model kvarc_device_model;
/*
 * Opens the model that an archive was made with, which r has (kvarc_reader_options.predictor).
 * *bytes: of the memory that its weights take. The device must outlive the model; the predictor is
 * needed until kvarc_device_model_load has returned, r is not. On failure *m is NULL.
 * Returns OK; OPTIONS (the archive needs no model, or one that kernels do not compute: E4M3,
 * products or attention in other forms than those of levels 4 to 8, numbers in the embedding that
 * are not finite; or there are no kernels: the host predicts); PREDICTOR (r does not have the
 * model or the profile); DATA, IO, MEM, MEMLIMIT, PROG.
 */
KVARC_API KVARC_MUST_CHECK kvarc_ret kvarc_device_model_open(kvarc_device_model **m,
                                                             kvarc_device *d, kvarc_reader *r,
                                                             uint64_t *bytes);
/*
 * As kvarc_device_model_open, of the model that a writer predicts with (levels 4 to 8), once it has
 * a geometry. Returns the same; OPTIONS also at other levels; PROG: the writer has no geometry.
 */
KVARC_API KVARC_MUST_CHECK kvarc_ret kvarc_device_model_open_writer(kvarc_device_model **m,
                                                                    kvarc_device *d,
                                                                    kvarc_writer *w,
                                                                    uint64_t *bytes);
/*
 * Copies the weights to memory, aligned to 256, once; then compares what kernels predict of 16
 * tokens with what the library's engine predicts, bit by bit, for which it waits. The memory must
 * stay as it is until the model is closed.
 * Returns OK, OPTIONS (as kvarc_device_model_open), IO (also where the predictions differ: the GPU,
 * its memory or the kernels are faulty), MEM, MEMLIMIT, PROG.
 */
KVARC_API KVARC_MUST_CHECK kvarc_ret kvarc_device_model_load(kvarc_device_model *m, uint64_t memory,
                                                             void *stream);
/* NULL-safe; sets *m to NULL. */
KVARC_API void kvarc_device_model_close(kvarc_device_model **m);

/*
 * Steps of reading a range into a device: kvarc_device_plan_read looks at the archive;
 * kvarc_device_stage brings bytes of the file into staging memory; kvarc_device_place says where
 * elements go; kvarc_device_decode launches kernels; and kvarc_device_plan_answer says what came of
 * it. Steps of writing: kvarc_device_plan_write looks at the writer; kvarc_device_stage brings
 * its parameters into staging memory; kvarc_device_place says where elements are;
 * kvarc_device_encode launches kernels; and kvarc_device_append gives their payloads to the writer.
 * A plan serves one thread at a time. The device must outlive it, and so must the writer; the
 * reader has to be there until the last kvarc_device_stage and kvarc_device_place have returned.
 * Calls for plans of the other kind are PROG.
 */
typedef struct kvarc_device_plan kvarc_device_plan;

/* Needs of a plan, and what it will do. */
typedef struct kvarc_device_plan_info {
	/* memory of the device, aligned to 256: staging from kvarc_device_stage on, work while
	 * kernels run, for the chunks that the GPU has in hand at a time; status: of a plan that
	 * reads one uint32_t a chunk */
	uint64_t staging_bytes, work_bytes, status_bytes;
	/* of payloads that are read, or that kvarc_device_append took; of the elements of chunks */
	uint64_t file_bytes, raw_bytes;
	uint32_t chunks;
	/* of these, chunks that the host decodes in kvarc_device_stage: other codecs than 0, 2, 4,
	 * 5 and 16 (levels 2 to 8, tiers), f32 and e5m2 of codecs 4 and 5, f32 of codec 16, chunks
	 * of more than 8192 channels, encrypted, or in a store. Or that it encodes in
	 * kvarc_device_append: final behind that call, before it those that no kernel will try */
	uint32_t host_chunks;
	uint32_t layer0, n_layers; /* of the tensors that the range has */
	uint64_t reserved[8];      /* zero */
} kvarc_device_plan_info;

/*
 * Plans a range. r can seek and does not salvage. On failure *p is NULL.
 * Returns OK, GEOMETRY (the range), OPTIONS, DATA, IO, MEM, MEMLIMIT, PROG. What the reader
 * answers is in its error, everything else in that of the device.
 */
KVARC_API KVARC_MUST_CHECK kvarc_ret kvarc_device_plan_read(kvarc_device_plan **p, kvarc_device *d,
                                                            kvarc_reader *r,
                                                            const kvarc_range *range);
/*
 * Plans the append of n tokens, 1 or more, to a track of a writer. No token may wait for a full
 * segment (kvarc_writer_commit); the last segment may be short, as in kvarc_writer_append_fetch.
 * ids and positions, as of kvarc_writer_append, of the n tokens, are copied; NULL: they are not
 * known, and they go on.
 *
 * Kernels encode f16, bf16 and e4m3: at level 0 from the first token on; at level 1 with the
 * parameters that the writer has: the host fits those of a tensor when it encodes its first
 * segment. So at level 1 a first plan of one segment is encoded by the host, and one of all further
 * tokens by kernels. The host also encodes chunks that parameters no longer fit, or whose codec is
 * one of two that are compared, those whose tokens repeat, constant ones, those that hardly become
 * smaller, states of recurrent layers, other formats, chunks of more than 8192 channels, and all
 * chunks at other levels and with lossy tiers.
 *
 * On failure *p is NULL. Returns OK, GEOMETRY, OPTIONS (no kernels that encode, none for this
 * architecture), IO, MEM, MEMLIMIT, PROG. What the writer answers is in its error, everything else
 * in that of the device.
 */
KVARC_API KVARC_MUST_CHECK kvarc_ret kvarc_device_plan_write(kvarc_device_plan **p, kvarc_device *d,
                                                             kvarc_writer *w, uint32_t track,
                                                             uint64_t n, const int32_t *ids,
                                                             const int32_t *positions);
/* NULL-safe; sets *p to NULL. What was queued for it must be done. */
KVARC_API void kvarc_device_plan_close(kvarc_device_plan **p);
/* Returns OK, PROG. */
KVARC_API KVARC_MUST_CHECK kvarc_ret kvarc_device_plan_get_info(const kvarc_device_plan *p,
                                                                kvarc_device_plan_info *info);

/* Where the payload of a chunk is in the file of the archive. */
typedef struct kvarc_device_payload {
	uint64_t offset; /* a multiple of 16 */
	uint32_t bytes;  /* 0: the host decodes the chunk */
	uint32_t layer;
} kvarc_device_payload;

/*
 * The payloads of a plan that reads, in the order of layers; n: chunks of its info. For callers
 * that bring them to the device by other ways: RDMA, a pool of archives. Returns OK, PROG.
 */
KVARC_API KVARC_MUST_CHECK kvarc_ret kvarc_device_plan_payloads(const kvarc_device_plan *p,
                                                                kvarc_device_payload *payloads,
                                                                size_t n);
/*
 * Says that the bytes from an offset on in the file of the archive are at an address that kernels
 * can read: in memory of the device, or pinned and mapped. Kernels read payloads there that are in
 * these bytes up to the next multiple of 16, so kvarc_device_stage leaves them out and the plan's
 * info has fewer staging_bytes and file_bytes. May be called for several windows; stage behind it.
 * The bytes are needed until what was queued for the plan is done, and have to be there when a
 * decode runs, not when it is queued. They are checked like any others.
 * Returns OK; PROG (also: offset and address differ in their lowest 4 bits).
 */
KVARC_API KVARC_MUST_CHECK kvarc_ret kvarc_device_plan_use(kvarc_device_plan *p, uint64_t offset,
                                                           uint64_t bytes, uint64_t address);

/*
 * Reads the payloads and copies them into staging memory; decodes what the host has to decode.
 * Copies go in a stream of the device's own while the next bytes are read: work that was queued
 * before may not use staging memory any more, and `stream` waits for them, so that what is queued
 * there behind this call finds all of it. Waits for the file and for its own copies, and not for
 * `stream`. Of a plan that writes it copies parameters alone.
 * Returns as kvarc_reader_read does, and IO (the driver). What the reader answers is in its error,
 * everything else in that of the device.
 */
KVARC_API KVARC_MUST_CHECK kvarc_ret kvarc_device_stage(kvarc_device_plan *p, uint64_t staging,
                                                        void *stream);

/*
 * As kvarc_device_stage, but of some layers; n_layers UINT32_MAX: to the last. The first call is of
 * the plan's first layer, and each one continues where the one before ended, in the same staging
 * memory. Behind it, and behind a kvarc_device_place that may come between any two, its layers can
 * be decoded: so a layer is decoded while the next ones are read and copied. `stream` waits for
 * these layers; for another one to wait, call it with that one's, or record an event behind it.
 * What the host predicts of all layers (levels 2 to 8) comes in one pass, in the first call.
 * Returns as kvarc_device_stage does, and GEOMETRY (no such layers).
 */
KVARC_API KVARC_MUST_CHECK kvarc_ret kvarc_device_stage_layers(kvarc_device_plan *p,
                                                               uint64_t staging, uint32_t layer0,
                                                               uint32_t n_layers, void *stream);

/*
 * Where the elements of a tensor go, or are. Token t of the range is row t - range.t0; of a plan
 * that writes, row 0 is the first token of the append. Without pages the row's element (head,
 * channel) is at base + row * token_stride + head * head_stride + channel * elem_stride; with pages
 * row / page_tokens selects an entry of the page table, whose page begins at base + page *
 * page_stride, and row % page_tokens is the row in it. A page below 0 is not written; one from
 * n_pages on is not written either, and is an error of its chunks. A plan that writes needs a view
 * of each tensor of the track, and all pages. Strides are in bytes, and multiples of the size of an
 * element, as is base.
 */
typedef struct kvarc_device_view {
	uint64_t base;       /* 0: the tensor is left alone */
	uint64_t bytes;      /* of the memory at base; nothing outside is read or written */
	uint64_t page_table; /* address of int32_t[n_table] in the device; 0: there are no pages */
	uint64_t page_stride, token_stride, head_stride;
	uint32_t elem_stride;
	uint32_t page_tokens, n_pages, n_table;
	uint64_t reserved[4]; /* zero */
} kvarc_device_view;
#define KVARC_DEVICE_VIEW_INIT KVARC_ZERO

/*
 * Says where everything is: views, one a tensor of the geometry; work memory; and status, which
 * kernels that decode set to 0 for each chunk that was decoded and checked. Behind
 * kvarc_device_stage; may be called again for other addresses. Copies a job for each chunk, of some
 * 200 bytes, in the order of the stream, as said at kvarc_device.
 * Returns OK, GEOMETRY (a view is too small for the range, or not aligned: nothing was done), IO,
 * MEM, MEMLIMIT, PROG.
 */
KVARC_API KVARC_MUST_CHECK kvarc_ret kvarc_device_place(kvarc_device_plan *p,
                                                        const kvarc_device_view *views,
                                                        uint64_t work, uint64_t status,
                                                        void *stream);

/*
 * Decodes the chunks of some layers of a plan that was staged and placed; n_layers UINT32_MAX: to
 * the last. One kernel is launched for all of them, in the order of the stream, so that a CUDA
 * graph can record it, the first decode of a device, too: kernels are loaded when the device is
 * opened (by drivers of CUDA 12.4 and newer). The graph is one of this plan as it was placed. Work
 * memory serves one decode at a time. Elements may be written before the check of their chunk is
 * known: rows of a chunk whose status is not 0 must not be used, whatever they have. Nothing but
 * the rows of the chunks is written. Returns OK, GEOMETRY (no such layers), IO, MEM, PROG (also: a
 * layer was not staged).
 */
KVARC_API KVARC_MUST_CHECK kvarc_ret kvarc_device_decode(kvarc_device_plan *p, uint32_t layer0,
                                                         uint32_t n_layers, void *stream);

/*
 * As kvarc_device_decode, of n plans of one device in one launch (for each 128 of them): ranges of
 * any archives, each with its staging memory, its views and its status. They may have been placed
 * with the same work memory: that of the plan with the largest work_bytes serves all. Returns the
 * same; GEOMETRY: a plan has no such layers, and nothing was launched.
 */
KVARC_API KVARC_MUST_CHECK kvarc_ret kvarc_device_decode_plans(kvarc_device_plan *const *plans,
                                                               size_t n, uint32_t layer0,
                                                               uint32_t n_layers, void *stream);

/*
 * Reads the status words of a decode of layers; status: on the host, as many as the plan has
 * chunks. Returns OK; DATA (a chunk is damaged, or was not decoded: the first one is in the error);
 * GEOMETRY (its page table has a page that is not there), PROG.
 */
KVARC_API KVARC_MUST_CHECK kvarc_ret kvarc_device_plan_answer(kvarc_device_plan *p, uint32_t layer0,
                                                              uint32_t n_layers,
                                                              const uint32_t *status);

/*
 * Encodes the chunks of some layers of a plan that writes and was staged and placed; n_layers
 * UINT32_MAX: to the last. One kernel is launched for all of them, in the order of the stream, so
 * that a CUDA graph can record it. Work memory serves one encode at a time. Payloads lie in staging
 * memory, one behind the other; those of layers that are encoded again, without another
 * kvarc_device_place, lie behind all of these, and where there is no place left the host encodes a
 * chunk. Returns OK, GEOMETRY (no such layers), IO, MEM, PROG.
 */
KVARC_API KVARC_MUST_CHECK kvarc_ret kvarc_device_encode(kvarc_device_plan *p, uint32_t layer0,
                                                         uint32_t n_layers, void *stream);

/*
 * As kvarc_device_encode, of n plans of one device in one launch (for each 128 of them): requests
 * with writers of their own, each with its staging memory, its views and its status. They may have
 * been placed with the same work memory, as those of kvarc_device_decode_plans. Returns the same;
 * GEOMETRY: a plan has no such layers, and nothing was launched.
 */
KVARC_API KVARC_MUST_CHECK kvarc_ret kvarc_device_encode_plans(kvarc_device_plan *const *plans,
                                                               size_t n, uint32_t layer0,
                                                               uint32_t n_layers, void *stream);

/*
 * Appends the tokens of a plan to its writer, once, when all of its layers were encoded in the
 * order of the stream: copies all payloads to memory of the host at once, and what the host has to
 * encode. Waits for the stream. The elements must be the same from kvarc_device_encode until this
 * returns, and no other tokens may be appended to the track in between. Chunks are verified as the
 * writer's options say, and those of the first segment of a writer of which kernels encoded some,
 * so that a device or kernels that are faulty are noticed. The archive is the one that
 * kvarc_writer_append_fetch makes of the elements. kvarc_device_plan_get_info then says how many
 * chunks the host encoded.
 *
 * Returns OK; DATA (a chunk does not decode to its elements: encode on the host); GEOMETRY (a page
 * is not there: nothing was appended); IO (the driver, or kernels that have not run: nothing was
 * appended either where they answer before the first chunk); PROG; and what
 * kvarc_writer_append_fetch returns. What the writer answers is in its error, everything else in
 * that of the device.
 */
KVARC_API KVARC_MUST_CHECK kvarc_ret kvarc_device_append(kvarc_device_plan *p, void *stream);

#ifdef __cplusplus
}
#endif

#endif
