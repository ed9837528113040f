/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * backend.h - what holds the objects of a store: a folder, an S3-compatible service, Redis
 *
 * A few calls over immutable objects with keys of at most KVI_KEY_MAX bytes: components of letters,
 * digits, '.', '_', '-', '%' and '=', separated by '/', none of which begins with a dot. A store
 * asks for no locks: an object is put once, whole, and never changes; of two puts of one key one
 * wins, and the other one learns of it.
 *
 * A handle may be used by one thread at a time. What an object holds is checked by its reader: a
 * backend passes bytes on.
 */
#ifndef KVI_BACKEND_H
#define KVI_BACKEND_H

#include <stddef.h>
#include <stdint.h>

#include "kvarc.h"

/* Bytes of a key at most; bytes at most of an object that remove_if removes. */
enum { KVI_KEY_MAX = 512, KVI_REMOVE_MAX = 1 << 16 };
/* Capacity for a clause of `promise`. */
enum { KVI_WHY_MAX = 160 };

/* An object as list and stat give it. */
struct kvi_object {
	const char *key; /* valid until the call returns */
	uint64_t bytes;
	int64_t time;   /* seconds since 1970 of its put; 0: not known */
	uint64_t stamp; /* differs where the object is another one, or was changed; 0: not known */
};

/* Takes one object of a list; another return value than 0 ends the list, which returns IO. */
typedef int (*kvi_object_fn)(void *opaque, const struct kvi_object *object);

struct kvi_backend;

/* Calls of a kind of backend. Errors go to *e, which may be NULL, in one line that names the
 * key. */
struct kvi_backend_calls {
	/* Reads up to n bytes of an object from an offset on; *got is less at its end alone. At
	 * offset 0 the bytes are those of the object that is there now; later reads may return that
	 * object, also where it was removed meanwhile. Returns OK, END (no such object), IO,
	 * MEM. */
	kvarc_ret (*get)(struct kvi_backend *b, const char *key, uint64_t offset, void *data,
	                 size_t n, size_t *got, kvarc_error *e);
	/*
	 * Puts all bytes of a source, whose size is known, under a key that has no object.
	 * Durable when it returns OK, as far as the service promises that; after any other
	 * return nothing is there, or what another put has put. Returns OK, END (the key has an
	 * object), IO, MEM.
	 */
	kvarc_ret (*put)(struct kvi_backend *b, const char *key, const kvarc_source *source,
	                 kvarc_error *e);
	/* Size and time of an object; object->key is `key`. Returns OK, END (no such object),
	 * IO. */
	kvarc_ret (*stat)(struct kvi_backend *b, const char *key, struct kvi_object *object,
	                  kvarc_error *e);
	/* Removes an object, also one that is not there. Returns OK, IO. */
	kvarc_ret (*remove)(struct kvi_backend *b, const char *key, kvarc_error *e);
	/* Removes an object whose bytes are the n bytes of `data`, at most KVI_REMOVE_MAX, and no
	 * other one, durably as a put is. Returns OK, END (it is not there, or is another one), IO,
	 * MEM. */
	kvarc_ret (*remove_if)(struct kvi_backend *b, const char *key, const void *data, size_t n,
	                       kvarc_error *e);
	/* Lists all objects whose keys begin with a prefix, in any order. Objects that come or go
	 * meanwhile may be in it or not. Returns OK, IO, MEM. */
	kvarc_ret (*list)(struct kvi_backend *b, const char *prefix, kvi_object_fn fn, void *opaque,
	                  kvarc_error *e);
	/* The time of an object becomes now. NULL: such objects keep the time of their put. Returns
	 * OK, END (no such object), IO. */
	kvarc_ret (*touch)(struct kvi_backend *b, const char *key, kvarc_error *e);
	/* Whether the service keeps what was put, and lets one of two puts of a key win. NULL: it
	 * does. `known`: it was found to do so before, as far as that does not change. Returns OK;
	 * OPTIONS: it does not, and `why` says so, a clause; IO, MEM. */
	kvarc_ret (*promise)(struct kvi_backend *b, int known, char why[KVI_WHY_MAX],
	                     kvarc_error *e);
	void (*close)(struct kvi_backend *b);
};

/* Begins the handle of every kind. */
struct kvi_backend {
	const struct kvi_backend_calls *calls;
};

/* Options for opening a backend; strings may be NULL, and are copied. */
struct kvi_backend_options {
	const kvarc_allocator *allocator; /* NULL: malloc */
	int create;                       /* a folder is made when it is not there */
	int no_sync;                      /* a folder: without fsync, for tests of many objects */
	/* S3: credentials; without access_key requests are not signed. The URL's region and
	 * endpoint have precedence over these. */
	const char *access_key, *secret_key, *session_token;
	const char *region;   /* NULL: us-east-1 */
	const char *endpoint; /* "https://HOST[:PORT]"; NULL: that of AWS in the region */
	/* Milliseconds in which a service has answered a request, or the request, which is sent
	 * once, fails with IO; 0: as long as bytes come, and minutes without any */
	uint32_t timeout_ms;
};

/*
 * Opens what a URL names: a path or file:PATH, s3://BUCKET[/PREFIX][?endpoint=URL&region=NAME],
 * redis://HOST[:PORT][/DB][?prefix=TEXT]. Returns OK; OPTIONS (a kind that is not known or was not
 * built in; no such folder), IO, MEM. *backend is NULL then.
 */
kvarc_ret kvi_backend_open(struct kvi_backend **backend, const char *url,
                           const struct kvi_backend_options *options, kvarc_error *error);
/* NULL-safe; sets *backend to NULL. */
void kvi_backend_close(struct kvi_backend **backend);

/* Kinds of backends, for kvi_backend_open alone: each returns as it does. This one is a folder. */
kvarc_ret kvi_backend_folder(struct kvi_backend **backend, const char *path,
                             const struct kvi_backend_options *options, kvarc_error *error);
/* Opens a bucket of an S3-compatible service; rest: the URL behind s3://. */
kvarc_ret kvi_backend_s3(struct kvi_backend **backend, const char *rest,
                         const struct kvi_backend_options *options, kvarc_error *error);
/* Opens a database of a Redis server; rest: the URL behind redis://. */
kvarc_ret kvi_backend_redis(struct kvi_backend **backend, const char *rest,
                            const struct kvi_backend_options *options, kvarc_error *error);

/* Whether the bytes of an object are these, for remove_if. Returns OK, END (it is not there, or
 * another one), IO, MEM. */
kvarc_ret kvi_object_is(struct kvi_backend *backend, const char *key, const void *data, size_t n,
                        kvarc_error *error);
/* Whether a key is as this header demands. */
int kvi_key_valid(const char *key);
/* A source of an object, for readers; its size is asked once. backend and key stay the caller's
 * until kvi_object_source_close. Returns OK, END (no such object), IO, MEM. */
kvarc_ret kvi_object_source(kvarc_source *source, struct kvi_backend *backend, const char *key,
                            kvarc_error *error);
void kvi_object_source_close(kvarc_source *source); /* zeroed: nothing */

#endif
