/* SPDX-License-Identifier: BSD-3-Clause */
/* oci_folder.c - the files of an OCI image layout: blobs under their SHA-256, and index.json */
#include "config.h"

#include "oci_folder.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "util/hash.h"
#include "util/jansson_calls.h"
#include "util/sodium_calls.h"
#include "write_file.h"

#define LAYOUT "oci-layout"
#define INDEX "index.json"
enum { COPY_BYTES = 1 << 20, LAYOUT_MAX = 4096, TEMP_NAME = 64, TRIES = 8 };

static kvarc_ret fail_file(const struct kvi_oci_folder *x, const char *what, const char *name)
{
	return kvi_fail(x->s->error, errno == ENOMEM ? KVARC_MEM : KVARC_IO,
	                "store: cannot %s %s of the OCI layout %s: %s", what, name, x->path,
	                strerror(errno));
}

static void write_hex(char hex[65], const uint8_t sum[crypto_hash_sha256_BYTES])
{
	kvi_hex(hex, sum);
	kvi_hex(hex + 32, sum + 16);
}

/* ----- writing ------------------------------------------------ */

/* Copies a source into a file, and hashes it. */
static kvarc_ret copy(struct kvi_oci_folder *x, const kvarc_source *source, int fd, char hex[65])
{
	crypto_hash_sha256_state state;
	uint8_t sum[crypto_hash_sha256_BYTES];
	uint8_t *block = kvi_malloc(&x->s->alloc, COPY_BYTES);
	kvarc_ret ret = KVARC_OK;
	if (!block)
		return kvi_fail_alloc(x->s->error, &x->s->alloc);
	crypto_hash_sha256_init(&state);
	for (uint64_t at = 0; at < source->size && !ret;) {
		uint64_t left = source->size - at;
		int64_t n = source->read(source->opaque, block,
		                         left < COPY_BYTES ? (size_t)left : COPY_BYTES, at);
		if (n <= 0) {
			ret = kvi_fail(x->s->error, KVARC_IO,
			               "store: what is exported cannot be read");
		} else {
			crypto_hash_sha256_update(&state, block, (unsigned long long)n);
			if (fd >= 0 && kvi_write_file(fd, block, (size_t)n) != 0)
				ret = fail_file(x, "write", "a file");
			at += (uint64_t)n;
		}
	}
	crypto_hash_sha256_final(&state, sum);
	write_hex(hex, sum);
	kvi_free(&x->s->alloc, block);
	return ret;
}

static int make_temporary(struct kvi_oci_folder *x, int dir, char name[TEMP_NAME])
{
	uint8_t id[16];
	char hex[33];
	for (int i = 0; i < TRIES; i++) {
		if (kvi_store_random(x->s, id))
			return -1;
		kvi_hex(hex, id);
		snprintf(name, TEMP_NAME, ".kvarc-%s", hex);
		int fd = openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW,
		                0600);
		if (fd >= 0 || errno != EEXIST)
			return fd;
	}
	return -1;
}

/* Whether a blob is there with the content that its name says: one that is not is written again. */
static bool has_blob(struct kvi_oci_folder *x, const char *hex, uint64_t bytes)
{
	struct kvi_oci_blob blob = { .bytes = bytes };
	struct kvi_oci_source source;
	strcpy(blob.digest, hex);
	if (kvi_oci_get(x, &blob, &source) != KVARC_OK)
		return false;
	kvi_oci_get_close(&source);
	return true;
}

/* Writes a source under a name; name NULL: its SHA-256, which *hex gets, unless that is there. */
static kvarc_ret put_file(struct kvi_oci_folder *x, int dir, const kvarc_source *source,
                          const char *name, char hex[65], bool *had)
{
	char temp[TEMP_NAME];
	int fd = make_temporary(x, dir, temp);
	if (fd < 0)
		return fail_file(x, "make", "a temporary file");
	kvarc_ret ret = copy(x, source, fd, hex);
	if (!ret && kvi_sync_file(fd) != 0)
		ret = fail_file(x, "synchronise", "a file");
	if (close(fd) != 0 && !ret)
		ret = fail_file(x, "write", "a file");
	*had = !ret && !name && has_blob(x, hex, source->size);
	if (!ret && !*had && renameat(dir, temp, dir, name ? name : hex) != 0)
		ret = fail_file(x, "name", name ? name : "a blob");
	if (ret || *had)
		(void)unlinkat(dir, temp, 0);
	if (!ret && kvi_sync_file(dir) != 0)
		ret = fail_file(x, "synchronise", "the folder");
	return ret;
}

kvarc_ret kvi_oci_put(struct kvi_oci_folder *x, const kvarc_source *source,
                      struct kvi_oci_blob *blob, bool *had)
{
	blob->bytes = source->size;
	return put_file(x, x->blobs, source, NULL, blob->digest, had);
}

static kvarc_ret put_text(struct kvi_oci_folder *x, const char *name, const char *text, size_t n)
{
	const kvarc_source source = kvi_text_source(text, n);
	char hex[65];
	bool had;
	return put_file(x, x->fd, &source, name, hex, &had);
}

kvarc_ret kvi_oci_put_index(struct kvi_oci_folder *x)
{
	struct kvi_out out;
	kvi_out_init(&out, &x->s->alloc);
	kvarc_ret ret = kvi_oci_index_write(x->index, &out)
	                        ? put_text(x, INDEX, (const char *)out.p, out.n)
	                        : kvi_fail_alloc(x->s->error, &x->s->alloc);
	kvi_out_free(&out);
	return ret;
}

/* ----- reading ------------------------------------------------ */

/* A regular file; links are not followed, and a pipe is not waited for. */
static kvarc_ret open_file(struct kvi_oci_folder *x, int dir, const char *name, int *fd,
                           uint64_t *bytes)
{
	struct stat st;
	*fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (*fd < 0 && (errno == ENOENT || errno == ELOOP))
		return kvi_fail(x->s->error, KVARC_DATA,
		                "store: the OCI layout %s lacks %.80s, or has a link there",
		                x->path, name);
	if (*fd < 0)
		return fail_file(x, "open", name);
	if (fstat(*fd, &st) == 0 && S_ISREG(st.st_mode)) {
		*bytes = (uint64_t)st.st_size;
		return KVARC_OK;
	}
	close(*fd);
	*fd = -1;
	return kvi_fail(x->s->error, KVARC_DATA, "store: %.80s of the OCI layout %s is no file",
	                name, x->path);
}

static kvarc_ret read_bytes(struct kvi_oci_folder *x, int fd, const char *name, uint64_t bytes,
                            uint8_t **p)
{
	size_t at = 0;
	*p = kvi_malloc(&x->s->alloc, (size_t)bytes + 1);
	if (!*p)
		return kvi_fail_alloc(x->s->error, &x->s->alloc);
	while (at < bytes) {
		ssize_t n = read(fd, *p + at, (size_t)bytes - at);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			break;
		at += (size_t)n;
	}
	if (at == bytes)
		return KVARC_OK;
	kvi_free(&x->s->alloc, *p);
	*p = NULL;
	return fail_file(x, "read", name);
}

/* A whole file of the layout's folder, of at most `most` bytes. */
static kvarc_ret read_file(struct kvi_oci_folder *x, const char *name, size_t most, uint8_t **p,
                           size_t *n)
{
	uint64_t bytes;
	int fd;
	*p = NULL;
	kvarc_ret ret = open_file(x, x->fd, name, &fd, &bytes);
	if (ret)
		return ret;
	if (bytes > most)
		ret = kvi_fail(x->s->error, KVARC_DATA,
		               "store: %s of the OCI layout %s is too large", name, x->path);
	else
		ret = read_bytes(x, fd, name, bytes, p);
	*n = ret ? 0 : (size_t)bytes;
	close(fd);
	return ret;
}

kvarc_ret kvi_oci_get(struct kvi_oci_folder *x, const struct kvi_oci_blob *blob,
                      struct kvi_oci_source *source)
{
	kvarc_common common = x->s->options.common;
	uint64_t bytes;
	char hex[65];
	*source = (struct kvi_oci_source){ .fd = -1 };
	common.error = x->s->error;
	common.progress = NULL;
	kvarc_ret ret = open_file(x, x->blobs, blob->digest, &source->fd, &bytes);
	if (ret)
		return ret;
	if (bytes != blob->bytes)
		ret = kvi_fail(x->s->error, KVARC_DATA,
		               "store: blob %.12s... has %" PRIu64 " of %" PRIu64 " bytes",
		               blob->digest, bytes, blob->bytes);
	if (!ret)
		ret = kvarc_source_fd(&source->source, source->fd, &common);
	if (!ret)
		ret = copy(x, &source->source, -1, hex);
	if (!ret && strcmp(hex, blob->digest) != 0)
		ret = kvi_fail(x->s->error, KVARC_DATA,
		               "store: blob %.12s... is damaged: its SHA-256 is another one",
		               blob->digest);
	if (ret)
		kvi_oci_get_close(source);
	return ret;
}

void kvi_oci_get_close(struct kvi_oci_source *source)
{
	kvarc_source_close(&source->source);
	if (source->fd >= 0)
		close(source->fd);
	source->fd = -1;
}

kvarc_ret kvi_oci_get_bytes(struct kvi_oci_folder *x, const struct kvi_oci_blob *blob, size_t most,
                            uint8_t **p)
{
	struct kvi_oci_source source;
	*p = NULL;
	if (blob->bytes > most)
		return kvi_fail(x->s->error, KVARC_DATA, "store: blob %.12s... is too large",
		                blob->digest);
	kvarc_ret ret = kvi_oci_get(x, blob, &source);
	if (ret)
		return ret;
	ret = lseek(source.fd, 0, SEEK_SET) == 0
	              ? read_bytes(x, source.fd, blob->digest, blob->bytes, p)
	              : fail_file(x, "read", "a blob");
	kvi_oci_get_close(&source);
	return ret;
}

/* ----- the layout ------------------------------------------------ */

static int open_folder(int at, const char *name, bool create)
{
	if (create && mkdirat(at, name, 0700) != 0 && errno != EEXIST)
		return -1;
	return openat(at, name,
	              O_RDONLY | O_DIRECTORY | O_CLOEXEC | (at == AT_FDCWD ? 0 : O_NOFOLLOW));
}

static bool lacks(const struct kvi_oci_folder *x, const char *name)
{
	struct stat st;
	return fstatat(x->fd, name, &st, AT_SYMLINK_NOFOLLOW) != 0 && errno == ENOENT;
}

static kvarc_ret new_index(struct kvi_oci_folder *x)
{
	x->index = kvi_oci_index_new();
	return x->index ? KVARC_OK : kvi_fail(x->s->error, KVARC_MEM, "store: no memory");
}

/* create: the index may be missing, as the first export has failed before it. */
static kvarc_ret load_layout(struct kvi_oci_folder *x, bool create)
{
	uint8_t *p;
	size_t n;
	kvarc_ret ret = read_file(x, LAYOUT, LAYOUT_MAX, &p, &n);
	if (!ret && !kvi_oci_layout_known(p, n))
		ret = kvi_fail(x->s->error, KVARC_OPTIONS,
		               "store: %s is an OCI layout of an unknown version", x->path);
	kvi_free(&x->s->alloc, p);
	if (ret)
		return ret;
	if (create && lacks(x, INDEX))
		return new_index(x);
	ret = read_file(x, INDEX, KVI_OCI_JSON_MAX, &p, &n);
	if (!ret)
		ret = kvi_oci_index_load(p, n, x->s->alloc.limit, &x->index, x->s->error);
	kvi_free(&x->s->alloc, p);
	return ret;
}

static kvarc_ret new_layout(struct kvi_oci_folder *x)
{
	kvarc_ret ret = new_index(x);
	return ret ? ret : put_text(x, LAYOUT, KVI_OCI_LAYOUT, sizeof KVI_OCI_LAYOUT - 1);
}

static kvarc_ret open_blobs(struct kvi_oci_folder *x, bool create)
{
	int blobs = open_folder(x->fd, "blobs", create);
	if (blobs >= 0)
		x->blobs = open_folder(blobs, "sha256", create);
	if (blobs >= 0)
		close(blobs);
	if (x->blobs >= 0)
		return KVARC_OK;
	return create ? fail_file(x, "make", "blobs/sha256")
	              : kvi_fail(x->s->error, KVARC_OPTIONS, "store: %s is no OCI layout", x->path);
}

kvarc_ret kvi_oci_open(struct kvi_oci_folder *x, struct kvarc_store *s, const char *path,
                       bool create)
{
	*x = (struct kvi_oci_folder){ .s = s, .path = path, .fd = -1, .blobs = -1 };
	if (!kvi_sodium(s->error) || !kvi_jansson(s->error))
		return KVARC_OPTIONS;
	x->fd = open_folder(AT_FDCWD, path, create);
	if (x->fd < 0)
		return kvi_fail(s->error, KVARC_OPTIONS, "store: cannot open the folder %s: %s",
		                path, strerror(errno));
	if (create && flock(x->fd, LOCK_EX | LOCK_NB) != 0)
		return kvi_fail(s->error, KVARC_IO,
		                "store: another program writes the OCI layout %s; try again", path);
	const bool made = create && lacks(x, LAYOUT);
	if (made && !lacks(x, INDEX))
		return kvi_fail(s->error, KVARC_OPTIONS,
		                "store: %s has an index.json but is no OCI layout", path);
	kvarc_ret ret = open_blobs(x, create);
	return ret ? ret : made ? new_layout(x) : load_layout(x, create);
}

void kvi_oci_close(struct kvi_oci_folder *x)
{
	kvi_oci_release(x->index);
	if (x->blobs >= 0)
		close(x->blobs);
	if (x->fd >= 0)
		close(x->fd);
}
