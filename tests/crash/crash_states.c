/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * crash_states.c - what a disk may hold after a crash in an append:
 * crash_states SLOT STATES [SEED [encrypted]]
 *
 * Five slots, made of SLOT, are appended to an archive, an encrypted one if asked, and all writes,
 * truncations and flushes recorded. A crash behind any of them leaves what was flushed, and of the
 * later operations any: each sector of 512 bytes of each write alone, the size of the file before
 * or behind any of them.
 * Every prefix with nothing lost and STATES random states are replayed. Each opens, the last
 * checkpoint that an append had acknowledged restores its slot, and the next append succeeds, with
 * which all of them restore theirs. Prints the number of states; exit 1 at the first that fails.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kvarc.h>

enum { SECTOR = 512, OPERATIONS_MAX = 4096, TURNS = 5 };

/* Bytes in memory. */
struct disk_bytes {
	uint8_t *p;
	size_t n, capacity;
};

/* A write (data not NULL), a truncation to `offset`, or a flush. */
struct operation {
	enum { WRITE, TRUNCATE, FLUSH } kind;
	uint64_t offset;
	size_t n;
	uint8_t *data;
};

/* The archive as its process sees it, and how it came about. */
struct recorder {
	struct disk_bytes now;
	struct operation list[OPERATIONS_MAX];
	size_t n, acknowledged[TURNS]; /* operations when an append had returned */
};

static struct disk_bytes turns[TURNS];
static uint64_t seed = 1;
static const uint8_t key_bytes[KVARC_KEY_BYTES] = { 1, 2, 3 };
static const kvarc_key key = { .kind = KVARC_KEY_GIVEN, .bytes = key_bytes, .n = sizeof key_bytes };
static const kvarc_keys key_list = { .list = &key, .n = 1 };
static const kvarc_keys *keys; /* NULL: nothing is encrypted */

static _Noreturn void die(const char *what, const char *why)
{
	fprintf(stderr, "crash_states: %s: %s\n", what, why);
	exit(1);
}

static void *checked(void *p)
{
	if (!p)
		die("memory", "there is none");
	return p;
}

static uint64_t random_below(uint64_t n)
{
	seed = seed * 6364136223846793005u + 1442695040888963407u;
	return n ? (seed >> 33) % n : 0;
}

static void put(struct disk_bytes *b, const void *data, size_t n, uint64_t at)
{
	size_t end = (size_t)at + n;
	if (end > b->capacity) {
		b->capacity = 2 * end;
		b->p = checked(realloc(b->p, b->capacity));
	}
	if (at > b->n)
		memset(b->p + b->n, 0, (size_t)at - b->n); /* a hole */
	if (n)
		memcpy(b->p + at, data, n);
	b->n = end > b->n ? end : b->n;
}

static struct disk_bytes copy(const struct disk_bytes *from)
{
	struct disk_bytes b = { 0 };
	put(&b, from->p, from->n, 0);
	return b;
}

/* ----- sources and sinks --------------------------------------------------- */

static int64_t read_bytes(void *opaque, void *buf, size_t n, uint64_t at)
{
	const struct disk_bytes *b = opaque;
	size_t left = at < b->n ? b->n - (size_t)at : 0;
	n = n < left ? n : left;
	memcpy(buf, b->p + at, n);
	return (int64_t)n;
}

static kvarc_source source_of(struct disk_bytes *b)
{
	return (kvarc_source){ .read = read_bytes, .opaque = b, .size = b->n };
}

static int write_bytes(void *opaque, const void *data, size_t n, uint64_t at)
{
	put(opaque, data, n, at);
	return 0;
}

static int cut_bytes(void *opaque, uint64_t n)
{
	((struct disk_bytes *)opaque)->n = (size_t)n;
	return 0;
}

static int record(struct recorder *r, struct operation o, const void *data)
{
	if (r->n == OPERATIONS_MAX)
		die("the record", "too many operations");
	if (o.kind == WRITE) {
		o.data = checked(malloc(o.n));
		memcpy(o.data, data, o.n);
	}
	r->list[r->n++] = o;
	return 0;
}

static int record_write(void *opaque, const void *data, size_t n, uint64_t at)
{
	struct recorder *r = opaque;
	put(&r->now, data, n, at);
	return record(r, (struct operation){ WRITE, at, n, NULL }, data);
}

static int record_truncate(void *opaque, uint64_t n)
{
	struct recorder *r = opaque;
	r->now.n = (size_t)n;
	return record(r, (struct operation){ TRUNCATE, n, 0, NULL }, NULL);
}

static int record_flush(void *opaque)
{
	return record(opaque, (struct operation){ FLUSH, 0, 0, NULL }, NULL);
}

/* ----- what is tested ------------------------------------------------------- */

static kvarc_ret append(struct disk_bytes *archive, const kvarc_sink *sink, struct disk_bytes *turn,
                        kvarc_error *e)
{
	kvarc_append_options o = KVARC_APPEND_OPTIONS_INIT;
	kvarc_import_options io = KVARC_IMPORT_OPTIONS_INIT;
	kvarc_source slot = source_of(turn), source = source_of(archive);
	kvarc_import *im;
	o.writer.common.error = io.common.error = e;
	o.writer.segment_tokens = 64;
	o.writer.keys = o.reader.keys = keys;
	io.rope = "none";
	kvarc_ret ret = kvarc_import_open(&im, &slot, "slot", &io);
	if (!ret)
		ret = kvarc_append_import(im, archive->n ? &source : NULL, sink, &o, NULL);
	kvarc_import_close(&im);
	return ret;
}

static int open_item(void *opaque, const kvarc_item *item, kvarc_sink *sink)
{
	(void)item;
	*sink = (kvarc_sink){ .write = write_bytes, .opaque = opaque };
	return 0;
}

/* The checkpoint restores its slot; NULL: it does. */
static const char *restores(struct disk_bytes *archive, size_t checkpoint)
{
	static kvarc_error e;
	const struct disk_bytes *want = &turns[checkpoint - 1];
	kvarc_reader_options o = { .checkpoint = checkpoint,
		                   .common = { .error = &e },
		                   .keys = keys };
	kvarc_source source = source_of(archive);
	struct disk_bytes out = { 0 };
	kvarc_reader *r;
	kvarc_ret ret = kvarc_reader_open(&r, &source, &o);
	if (!ret)
		ret = kvarc_unpack(r, open_item, &out);
	kvarc_reader_close(&r);
	int same = out.n == want->n && !memcmp(out.p, want->p, out.n);
	free(out.p);
	return ret ? e.text : same ? NULL : "the slot is another one";
}

/* What is on the disk: the last acknowledged checkpoint, and an append behind it. */
static const char *check_state(struct disk_bytes *disk, size_t acknowledged)
{
	static kvarc_error e;
	kvarc_sink sink = { .write = write_bytes, .opaque = disk, .truncate = cut_bytes };
	kvarc_source source = source_of(disk);
	kvarc_reader *r;
	kvarc_reader_options o = { .common = { .error = &e }, .keys = keys };
	const char *why = NULL;
	if (!acknowledged)
		return NULL; /* a new archive has no name before it is complete */
	if (kvarc_reader_open(&r, &source, &o))
		return e.text;
	kvarc_reader_close(&r);
	why = restores(disk, acknowledged);
	if (why || acknowledged == TURNS)
		return why;
	if (append(disk, &sink, &turns[acknowledged], &e))
		return e.text;
	for (size_t i = 1; i <= acknowledged + 1 && !why; i++)
		why = restores(disk, i);
	source = source_of(disk);
	if (!why && (kvarc_reader_open(&r, &source, &o) || kvarc_reader_verify(r, NULL, NULL)))
		why = e.text;
	kvarc_reader_close(&r);
	return why;
}

/* ----- crashes --------------------------------------------------------------- */

/* Each sector of a write, or not. */
static void write_torn(struct disk_bytes *disk, const struct operation *o)
{
	for (size_t i = 0; i < o->n;) {
		size_t n = SECTOR - (size_t)(o->offset + i) % SECTOR;
		n = n < o->n - i ? n : o->n - i;
		if (random_below(4))
			put(disk, o->data + i, n, o->offset + i);
		i += n;
	}
}

/* The operations from `from` to `end`, of which nothing was flushed: some of them. */
static void apply_some(struct disk_bytes *disk, const struct recorder *r, size_t from, size_t end)
{
	const size_t keep = (size_t)random_below(4); /* 0: not all writes */
	size_t last = from + (size_t)random_below(end - from + 1);
	uint64_t size = disk->n;
	for (size_t i = from; i < end; i++) {
		const struct operation *o = &r->list[i];
		const uint64_t behind = o->kind == WRITE ? o->offset + o->n : o->offset;
		if (o->kind == TRUNCATE && random_below(2))
			disk->n = (size_t)o->offset;
		if (o->kind == WRITE && (keep || random_below(3)))
			write_torn(disk, o);
		size = i < last && behind > size ? behind : size;
	}
	/* The size is written by itself. */
	if (random_below(2) && size >= disk->n)
		put(disk, "", 0, size);
	else if (random_below(2) && size < disk->n)
		disk->n = (size_t)size;
}

static void apply(struct disk_bytes *disk, const struct operation *o)
{
	if (o->kind == WRITE)
		put(disk, o->data, o->n, o->offset);
	else if (o->kind == TRUNCATE)
		disk->n = (size_t)o->offset;
}

static size_t acknowledged_at(const struct recorder *r, size_t operations)
{
	size_t n = 0;
	while (n < TURNS && r->acknowledged[n] <= operations)
		n++;
	return n;
}

/* A crash behind `operations` of them; some: of those that were not flushed. */
static void crash(const struct recorder *r, size_t operations, int some)
{
	struct disk_bytes disk = { 0 };
	size_t flushed = 0, i = 0;
	for (size_t k = 0; k < operations; k++)
		flushed = r->list[k].kind == FLUSH ? k + 1 : flushed;
	for (; i < (some ? flushed : operations); i++)
		apply(&disk, &r->list[i]);
	if (some)
		apply_some(&disk, r, flushed, operations);
	struct disk_bytes was = copy(&disk);
	const char *why = check_state(&disk, acknowledged_at(r, operations));
	if (why) {
		FILE *f = fopen("crash_states.kva", "wb");
		if (f && fwrite(was.p, 1, was.n, f) == was.n)
			fprintf(stderr, "crash_states: the state is in crash_states.kva\n");
		if (f)
			fclose(f);
		fprintf(stderr, "crash_states: behind operation %zu of %zu, checkpoint %zu\n",
		        operations, r->n, acknowledged_at(r, operations));
		die(some ? "some writes lost" : "a prefix", why);
	}
	free(was.p);
	free(disk.p);
}

/* ----- the session ------------------------------------------------------------ */

static struct disk_bytes load(const char *path)
{
	struct disk_bytes b = { 0 };
	uint8_t buffer[1 << 16];
	size_t got;
	FILE *f = fopen(path, "rb");
	if (!f)
		die(path, "cannot be opened");
	while ((got = fread(buffer, 1, sizeof buffer, f)) > 0)
		put(&b, buffer, got, b.n);
	fclose(f);
	return b;
}

/* The first n tokens of a slot. */
static struct disk_bytes prefix(struct disk_bytes *slot, uint64_t n)
{
	const kvarc_range range = { .n_layers = UINT32_MAX, .n = n };
	struct disk_bytes archive = { 0 }, out = { 0 };
	kvarc_sink sink = { .write = write_bytes, .opaque = &archive };
	kvarc_source source = source_of(slot);
	kvarc_import *im;
	kvarc_reader *r = NULL;
	kvarc_ret ret = kvarc_import_open(&im, &source, "slot", NULL);
	if (!ret)
		ret = kvarc_pack(im, &sink, NULL, NULL);
	source = source_of(&archive);
	if (!ret)
		ret = kvarc_reader_open(&r, &source, NULL);
	sink.opaque = &out;
	if (!ret)
		ret = kvarc_export_llama(r, &range, &sink, NULL, NULL);
	if (ret)
		die("a shorter slot", kvarc_strerror(ret));
	kvarc_reader_close(&r);
	kvarc_import_close(&im);
	free(archive.p);
	return out;
}

/* Turns that grow; one whose old rows have changed, and one that goes back. */
static void make_turns(const char *path)
{
	struct disk_bytes slot = load(path);
	kvarc_source source = source_of(&slot);
	kvarc_import *im;
	if (kvarc_import_open(&im, &source, "slot", NULL))
		die(path, "is no slot");
	const uint64_t n = kvarc_import_tokens(im, 0);
	kvarc_import_close(&im);
	turns[0] = prefix(&slot, n / 3);
	turns[1] = prefix(&slot, n / 2);
	turns[2] = copy(&turns[1]);
	turns[2].p[2 * turns[2].n / 3] ^= 0x20;
	turns[3] = prefix(&slot, n / 4);
	turns[4] = slot;
}

static void play(struct recorder *r)
{
	kvarc_sink sink = { .write = record_write,
		            .flush = record_flush,
		            .opaque = r,
		            .truncate = record_truncate };
	kvarc_error e = { 0 };
	for (size_t i = 0; i < TURNS; i++) {
		if (append(&r->now, &sink, &turns[i], &e))
			die("an append", e.text);
		/* A new archive is flushed once more, and gets its name. */
		if (i == 0)
			record_flush(r);
		r->acknowledged[i] = r->n;
	}
}

int main(int argc, char **argv)
{
	static struct recorder r;
	if (argc < 3)
		die("usage", "crash_states SLOT STATES [SEED [encrypted]]");
	const size_t states = (size_t)strtoull(argv[2], NULL, 10);
	seed = argc > 3 ? strtoull(argv[3], NULL, 10) : 1;
	keys = argc > 4 ? &key_list : NULL;
	make_turns(argv[1]);
	play(&r);
	for (size_t i = r.acknowledged[0]; i <= r.n; i++)
		crash(&r, i, 0);
	for (size_t i = 0; i < states; i++)
		crash(&r, r.acknowledged[0] + (size_t)random_below(r.n - r.acknowledged[0] + 1), 1);
	printf("%zu operations; %zu prefixes and %zu states with lost writes: none lost\n", r.n,
	       r.n - r.acknowledged[0] + 1, states);
	for (size_t i = 0; i < r.n; i++)
		free(r.list[i].data);
	for (size_t i = 0; i < TURNS; i++)
		free(turns[i].p);
	free(r.now.p);
	return 0;
}
