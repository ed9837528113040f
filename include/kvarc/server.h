/* SPDX-License-Identifier: BSD-3-Clause */
/* kvarc/server.h - slots of a running llama.cpp server: saved, checked, restored */
/*
 * The server writes and reads the files of slots itself, in the folder of its --slot-save-path, so
 * the caller runs where that folder is. These calls are in libkvarc-store, and return OPTIONS where
 * there is no libcurl, or it was built without jansson.
 */
#ifndef KVARC_SERVER_H
#define KVARC_SERVER_H

#include <kvarc/canary.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct kvarc_server kvarc_server;

/* How a server is reached; set unused members to 0. */
typedef struct kvarc_server_options {
	kvarc_common common;
	const char *api_key;  /* of llama-server's --api-key, or NULL */
	uint64_t timeout;     /* seconds in which an answer has come; 0: 600 */
	uint64_t reserved[3]; /* zero */
} kvarc_server_options;
#define KVARC_SERVER_OPTIONS_INIT KVARC_ZERO

/* Answer of a server about itself; strings are owned by the kvarc_server, "" where it says
 * nothing. */
typedef struct kvarc_server_info {
	const char *model; /* base name of the file, without ".gguf" */
	const char *quantization;
	const char *build;
	uint64_t slots;
	uint64_t context;     /* tokens that a slot can hold; 0: not known */
	uint64_t vocabulary;  /* token ids are below it; 0: not known */
	uint64_t parameters;  /* of the model; 0: not known */
	uint64_t model_bytes; /* of its tensors; 0: not known */
	uint64_t reserved[6];
} kvarc_server_info;

/* Asks a server what it is. url: "http://[USER:PASSWORD@]HOST:PORT", without a path; no error has
 * its user or password. On failure *s is NULL. Of its answers so much is taken as memlimit allows.
 * Returns OK, IO (no answer, or another one than llama.cpp gives), OPTIONS, MEM, MEMLIMIT, PROG. */
KVARC_API KVARC_MUST_CHECK kvarc_ret kvarc_server_open(kvarc_server **s, const char *url,
                                                       const kvarc_server_options *options);
/* NULL-safe; sets *s to NULL. */
KVARC_API void kvarc_server_close(kvarc_server **s);
/* Gives the answer that the server gave when it was opened. */
KVARC_API void kvarc_server_get_info(const kvarc_server *s, kvarc_server_info *info);

/*
 * The server writes a slot to the file `name` of its folder. A slot that is at work, or that does
 * not exist, is OPTIONS. *tokens, where it is not NULL, gets how many it holds; with 0 the file has
 * no cache in it. Returns OK, IO, OPTIONS, MEM, MEMLIMIT, PROG.
 */
KVARC_API KVARC_MUST_CHECK kvarc_ret kvarc_server_save(kvarc_server *s, unsigned slot,
                                                       const char *name, uint64_t *tokens);
/* The server reads a slot from such a file, which replaces what the slot held. Check it first
 * (kvarc_server_check): a file that does not fit can leave a server unusable. Returns as _save. */
KVARC_API KVARC_MUST_CHECK kvarc_ret kvarc_server_restore(kvarc_server *s, unsigned slot,
                                                          const char *name, uint64_t *tokens);
/* The most tokens that kvarc_server_compute takes. */
enum { KVARC_SERVER_COMPUTES = 512 };
/* The server computes n tokens in a slot, in place of what it held, and takes none from a cache:
 * kvarc_server_save then shows what its caches are like. ids: of its vocabulary. next, where it is
 * not NULL, gets the words that may follow. Returns as _save; IO, too, when it computed fewer. */
KVARC_API KVARC_MUST_CHECK kvarc_ret kvarc_server_compute(kvarc_server *s, unsigned slot,
                                                          const int32_t *ids, size_t n,
                                                          kvarc_next_words *next);
/* The server forgets what a slot holds. Returns as _save. */
KVARC_API KVARC_MUST_CHECK kvarc_ret kvarc_server_erase(kvarc_server *s, unsigned slot);

/* Facts of a file that are known before it is restored. */
typedef struct kvarc_server_verdict {
	/* clauses, the first ones that were found; "": none */
	char refuse[200]; /* it does not fit: the server would refuse it, or compute nonsense */
	char warn[200];   /* it fits, but the next request may compute tokens again */
	uint64_t tokens;  /* of the file */
	uint64_t reserved[4];
} kvarc_server_verdict;

/*
 * Compares a slot file with a server. file: the import of the file that is to be restored; probe:
 * that of one which the server saved just now, from any slot that holds a token, or NULL: then
 * dtypes, layers and layout of its caches are not compared, and the verdict warns. identity: value
 * of a key that was recorded when the file was saved (kvarc_server_identity), NULL where there is
 * none; the callback may be NULL. Returns OK (the verdict is filled), IO, MEM, MEMLIMIT, PROG.
 */
KVARC_API KVARC_MUST_CHECK kvarc_ret kvarc_server_check(
	kvarc_server *s, unsigned slot, const kvarc_import *file, const kvarc_import *probe,
	const char *(*identity)(void *opaque, const char *key), void *opaque,
	kvarc_server_verdict *verdict);

/* Records in an import which server its file comes from: engine_model, engine_quantization,
 * engine_version, model_parameters, model_bytes: nothing that chain values depend on. Returns as
 * kvarc_import_identity. */
KVARC_API KVARC_MUST_CHECK kvarc_ret kvarc_server_identity(const kvarc_server *s,
                                                           kvarc_import *import);

#ifdef __cplusplus
}
#endif

#endif
