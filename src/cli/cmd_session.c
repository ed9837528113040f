/* SPDX-License-Identifier: BSD-3-Clause */
/* cmd_session.c - kvarc session: files that grow, in a store or a server */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "commands.h"
#include "infile.h"
#include "library.h"
#include "message.h"
#include "outfile.h"
#include "paths.h"
#include "profiles.h"
#include "readers.h"
#include "report.h"
#include "session_files.h"
#include "signals.h"
#include "times.h"
#include "units.h"
#include "kvarc/server.h"

/* ==== kvarc session save, load, check with a running llama.cpp server ==== */

/*
 * The server writes and reads files in the folder of its --slot-save-path, which --slot-folder
 * names. These files are the command's own and are removed, also when it is interrupted.
 */

enum { NAME_BYTES = 64, IDENTITY_KEYS = 8, VALUE_BYTES = 256 };

/* A file in the folder that the server shares with the command. */
struct shared_slot {
	char name[NAME_BYTES];
	char *path;
	struct input in;
	kvarc_source source;
	kvarc_import *im;
};

/* A server, and the files of a slot. */
struct slot_access {
	const struct options *o;
	kvarc_server *server;
	char *server_shown; /* its URL, without a password */
	kvarc_error error;
	int dirfd;
	struct shared_slot file, probe;
	/* What the archive of the version says of its origin. */
	char keys[IDENTITY_KEYS][32], values[IDENTITY_KEYS][VALUE_BYTES];
	size_t n_keys;
};

static void show_error(const struct slot_access *x, kvarc_ret ret)
{
	library_error(x->server_shown, ret, &x->error, NULL, NULL);
}

/* A name that nobody has in the folder, remembered so that its file goes when the command is
 * interrupted. */
static bool name_file(struct slot_access *x, struct shared_slot *f, const char *what)
{
	struct timespec t;
	bool remembered;

	clock_gettime(CLOCK_REALTIME, &t);
	snprintf(f->name, sizeof(f->name), "kvarc-%ld-%08lx-%s.bin", (long)getpid(),
	         (unsigned long)(t.tv_nsec ^ t.tv_sec << 4), what);
	f->path = paths_join(x->o->slot_folder, f->name);
	signals_hold();
	remembered = f->path && signals_remember(x->dirfd, f->name, -1, NULL);
	signals_release();
	if (!remembered)
		msg_error(NULL, "out of memory");
	return remembered;
}

static void remove_file(struct shared_slot *f)
{
	kvarc_import_close(&f->im);
	if (f->in.name)
		input_close(&f->in);
	if (f->path) {
		signals_hold();
		signals_remove(f->name);
		signals_release();
	}
	free(f->path);
}

/* Opens the server and the folder; false: a message was shown. */
static bool open_access(struct slot_access *x, const struct options *o)
{
	kvarc_server_options so = KVARC_SERVER_OPTIONS_INIT;
	kvarc_ret ret;

	memset(x, 0, sizeof(*x));
	x->o = o;
	x->dirfd = -1;
	x->server_shown = store_access_shown(o->server);
	if (!x->server_shown)
		return false;
	if (!o->slot_folder) {
		msg_error(NULL,
		          "say where the server keeps its slots with --slot-folder DIR: the folder "
		          "of its --slot-save-path");
		return false;
	}
	x->dirfd = open(o->slot_folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (x->dirfd < 0) {
		msg_error(o->slot_folder, "cannot open the folder of slots: %s", strerror(errno));
		return false;
	}
	library_common(o, &so.common, &x->error);
	so.api_key = getenv("LLAMA_API_KEY");
	ret = kvarc_server_open(&x->server, o->server, &so);
	if (ret != KVARC_OK)
		show_error(x, ret);
	return ret == KVARC_OK;
}

static void close_access(struct slot_access *x)
{
	remove_file(&x->file);
	remove_file(&x->probe);
	kvarc_server_close(&x->server);
	free(x->server_shown);
	if (x->dirfd >= 0)
		close(x->dirfd);
}

static bool open_import(struct slot_access *x, struct shared_slot *f)
{
	kvarc_import_options io = KVARC_IMPORT_OPTIONS_INIT;
	kvarc_ret ret;

	if (!input_open_as(&f->in, f->path, true, INPUT_SLOT))
		return false;
	readers_import_options(x->o, &io, &x->error);
	io.rope = "none";
	f->source = input_source(&f->in);
	ret = kvarc_import_open(&f->im, &f->source, NULL, &io);
	if (ret != KVARC_OK)
		library_error(f->path, ret, &x->error, &f->in, NULL);
	return ret == KVARC_OK;
}

/* The server writes the slot. false: a message was shown. */
static bool save_slot(struct slot_access *x, struct shared_slot *f, const char *what,
                      uint64_t *tokens)
{
	struct stat st;
	kvarc_ret ret;

	if (!name_file(x, f, what))
		return false;
	ret = kvarc_server_save(x->server, (unsigned)x->o->slot, f->name, tokens);
	if (ret != KVARC_OK) {
		show_error(x, ret);
	} else if (fstatat(x->dirfd, f->name, &st, AT_SYMLINK_NOFOLLOW) != 0) {
		msg_error(f->path,
		          "the server says that it wrote this file, but it is not here: %s; "
		          "is --slot-folder its --slot-save-path? The file of that name is there "
		          "now: remove it",
		          strerror(errno));
	} else {
		return true;
	}
	return false;
}

/* Each shows its report and messages. version: "NAME" or "NAME@N". */
static void session_save_slot(const struct options *o, struct store_access *a, const char *name)
{
	struct options one = *o;
	struct slot_access x;
	uint64_t tokens = 0;

	one.slot_files = true;
	if (open_access(&x, o) && save_slot(&x, &x.file, "save", &tokens)) {
		if (tokens)
			session_save_from(&one, a, name, x.file.path, x.server);
		else
			msg_error(x.server_shown,
			          "slot %" PRIu64 " is empty: there is nothing to save", o->slot);
	}
	close_access(&x);
}

/* ----- check ------------------------------------------------ */

static int take_identity(void *opaque, const char *key, const char *value)
{
	struct slot_access *x = opaque;
	size_t i = x->n_keys;

	if (i < IDENTITY_KEYS && strlen(key) < sizeof(x->keys[i]) &&
	    (strncmp(key, "model", 5) == 0 || strcmp(key, "engine_version") == 0)) {
		snprintf(x->keys[i], sizeof(x->keys[i]), "%s", key);
		snprintf(x->values[i], sizeof(x->values[i]), "%s", value);
		x->n_keys++;
	}
	return 0;
}

static const char *give_identity(void *opaque, const char *key)
{
	const struct slot_access *x = opaque;

	for (size_t i = 0; i < x->n_keys; i++) {
		if (strcmp(x->keys[i], key) == 0)
			return x->values[i];
	}
	return NULL;
}

/* A slot that the server writes now: its caches have the types and the layout that a restored slot
 * must have. An empty slot computes a token first. */
static bool look_at_server(struct slot_access *x)
{
	uint64_t tokens;
	int32_t first = 1;
	kvarc_ret ret;

	if (!save_slot(x, &x->probe, "probe", &tokens))
		return false;
	if (tokens == 0) {
		if (kvarc_import_read_tokens(x->file.im, 0, 0, 1, &first, NULL) != KVARC_OK ||
		    first < 0)
			first = 1;
		remove_file(&x->probe);
		memset(&x->probe, 0, sizeof(x->probe));
		ret = kvarc_server_touch(x->server, (unsigned)x->o->slot, first);
		if (ret != KVARC_OK) {
			show_error(x, ret);
			return false;
		}
		if (!save_slot(x, &x->probe, "probe", &tokens))
			return false;
	}
	return open_import(x, &x->probe);
}

/* Puts the file of a version into the folder and compares it with the server. */
static bool compare(struct slot_access *x, struct store_access *a, const char *version,
                    kvarc_server_verdict *verdict)
{
	uint64_t number;
	char *name;
	kvarc_ret ret;

	if (!session_split(version, &name, &number))
		return false;
	ret = kvarc_store_identity(a->s, name, number, take_identity, x);
	free(name);
	if (ret != KVARC_OK) {
		store_access_error(a, version, ret);
		return false;
	}
	if (!name_file(x, &x->file, "load"))
		return false;
	if (!session_load_into(x->o, a, version, x->file.path) || !open_import(x, &x->file) ||
	    !look_at_server(x))
		return false;
	ret = kvarc_server_check(x->server, (unsigned)x->o->slot, x->file.im, x->probe.im,
	                         give_identity, x, verdict);
	if (ret != KVARC_OK)
		show_error(x, ret);
	return ret == KVARC_OK;
}

/* Whether a version could be restored, and the next request would use it. */
static void session_check_slot(const struct options *o, struct store_access *a, const char *version)
{
	kvarc_server_verdict v;
	struct slot_access x;
	struct report r;

	if (open_access(&x, o) && compare(&x, a, version, &v)) {
		report_start(&r, o->json);
		report_string(&r, "session", version);
		report_u64(&r, "tokens", v.tokens);
		report_string(&r, "refuse", *v.refuse ? v.refuse : NULL);
		report_string(&r, "warn", *v.warn ? v.warn : NULL);
		report_string(&r, ".fits",
		              *v.refuse ? NULL
		                        : "the next request that begins with them "
		                          "uses them");
		if (o->json || !*v.refuse)
			report_result(&r, version, "{tokens:C} tokens: {.fits}[; but {warn}]");
		report_end(&r);
		if (*v.refuse)
			msg_error(version, "does not fit the server: %s", v.refuse);
	}
	close_access(&x);
}

/* ----- load ------------------------------------------------ */

static void restore(struct slot_access *x, const char *version, const kvarc_server_verdict *v)
{
	uint64_t tokens;
	struct report r;
	kvarc_ret ret = kvarc_server_restore(x->server, (unsigned)x->o->slot, x->file.name,
	                                     &tokens);

	if (ret != KVARC_OK) {
		show_error(x, ret);
		return;
	}
	if (tokens != v->tokens) {
		msg_error(x->server_shown, "restored %" PRIu64 " of %" PRIu64 " tokens of %s",
		          tokens, v->tokens, version);
		return;
	}
	report_start(&r, x->o->json);
	report_string(&r, "session", version);
	report_u64(&r, "slot", x->o->slot);
	report_u64(&r, "tokens", tokens);
	report_note(&r, version, "{tokens:C} tokens restored to slot {slot}");
	report_end(&r);
}

/* Into the server, if it fits. */
static void session_load_slot(const struct options *o, struct store_access *a, const char *version)
{
	kvarc_server_verdict v;
	struct slot_access x;

	if (open_access(&x, o) && compare(&x, a, version, &v)) {
		if (*v.refuse) {
			msg_error(version, "not restored: %s", v.refuse);
		} else {
			if (*v.warn)
				msg_warning(version, "%s", v.warn);
			restore(&x, version, &v);
		}
	}
	close_access(&x);
}

/* ==== kvarc session send and receive ==== */

enum { DIGEST_DIGITS = 32 };

/* The ids of --have, sorted; a text of DIGEST_DIGITS digits and a 0 each. */
struct have_list {
	char (*ids)[DIGEST_DIGITS + 1];
	size_t n, capacity;
};

static int compare_ids(const void *a, const void *b)
{
	return strcmp(a, b);
}

static bool add_line(struct have_list *h, const char *file, const char *line)
{
	size_t n = strcspn(line, "\r\n");

	if (n != DIGEST_DIGITS || strspn(line, "0123456789abcdef") != n) {
		msg_error(file, "is not a list of 'kvarc store have'");
		return false;
	}
	if (h->n == h->capacity) {
		size_t capacity = h->capacity ? 2 * h->capacity : 1024;
		void *ids = realloc(h->ids, capacity * sizeof(*h->ids));
		if (!ids) {
			msg_error(file, "out of memory");
			return false;
		}
		h->ids = ids;
		h->capacity = capacity;
	}
	memcpy(h->ids[h->n], line, n);
	h->ids[h->n++][n] = '\0';
	return true;
}

static bool read_have(struct have_list *h, const char *file)
{
	char line[128];
	bool good = true;
	FILE *f = input_fopen(file);

	if (!f)
		return false;
	while (good && fgets(line, sizeof(line), f))
		good = add_line(h, file, line);
	if (good && ferror(f)) {
		msg_error(file, "cannot be read: %s", strerror(errno));
		good = false;
	}
	fclose(f);
	if (h->n)
		qsort(h->ids, h->n, sizeof(*h->ids), compare_ids);
	return good;
}

static int has_archive(void *opaque, const uint8_t id[16])
{
	const struct have_list *h = opaque;
	char digits[DIGEST_DIGITS + 1];

	units_digest(digits, id);
	return h->n && bsearch(digits, h->ids, h->n, sizeof(*h->ids), compare_ids);
}

static void report_sent(const struct options *o, const char *version, const kvarc_sent *n)
{
	struct report r;

	report_start(&r, o->json && o->output && strcmp(o->output, "-") != 0);
	report_string(&r, "session", version);
	report_u64(&r, "archives", n->archives);
	report_u64(&r, "archive_bytes", n->archive_bytes);
	report_u64(&r, "left_out", n->left_out);
	report_u64(&r, "bytes", n->bytes);
	report_note(&r, version,
	            "sent {archives} archive{archives:s}, {bytes:B}; the receiver has {left_out}");
	report_end(&r);
}

/* Each shows its report and messages. version: "NAME" or "NAME@N". */
static void session_send(const struct options *o, struct store_access *a, const char *version)
{
	const char *target = o->output ? o->output : "-";
	struct have_list have = { NULL, 0, 0 };
	struct output out;
	kvarc_sent sent;
	kvarc_sink sink;
	uint64_t number;
	char *name = NULL;
	kvarc_ret ret;

	if ((o->have && !read_have(&have, o->have)) || !session_split(version, &name, &number) ||
	    !output_open(&out, target, o->force ? OUTPUT_FORCE : 0, 0600)) {
		free(name);
		free(have.ids);
		return;
	}
	sink = output_sink(&out);
	ret = kvarc_store_send(a->s, name, number, &sink, has_archive, &have, &sent);
	if (ret == KVARC_OK && output_commit(&out)) {
		report_sent(o, version, &sent);
	} else if (ret != KVARC_OK) {
		if (out.error)
			output_report(&out);
		else
			store_access_error(a, version, ret);
		output_abort(&out);
	}
	free(name);
	free(have.ids);
}

/* file: NULL: standard input. */
static void session_receive(const struct options *o, struct store_access *a, const char *name,
                            const char *file)
{
	struct input in;
	kvarc_source source;
	kvarc_received n;
	struct report r;
	kvarc_ret ret;

	if (!input_open(&in, file ? file : "-", false))
		return;
	source = input_source(&in);
	ret = kvarc_store_receive(a->s, name, &source, &n);
	if (ret != KVARC_OK) {
		library_error(name, ret, &a->error, &in, NULL);
		if (n.archives)
			msg_note(name, "%llu archives came and stay",
			         (unsigned long long)n.archives);
	} else {
		report_start(&r, o->json);
		report_string(&r, "session", name);
		report_u64(&r, "version", n.version);
		report_u64(&r, "archives", n.archives);
		report_u64(&r, "archive_bytes", n.archive_bytes);
		report_u64(&r, "left_out", n.left_out);
		report_bool(&r, "was_here", n.was_here);
		report_result(&r, name,
		              n.was_here ? "version {version} was here already"
		                         : "version {version}: received {archives} "
		                           "archive{archives:s}, {archive_bytes:B}");
		report_end(&r);
	}
	input_close(&in);
}

/* ==== kvarc session: files that grow, in a store ==== */

/* An action: its operands behind it, and whether it makes a store. */
struct action {
	const char *name, *operands;
	size_t least, most;
	bool creates;
	enum { NO_FILE, MAY_FILE, NEEDS_FILE } output; /* -o */
	bool server;                                   /* with --server in place of a file */
	void (*run)(const struct options *o, struct store_access *a);
};

static const char *operand(const struct options *o, size_t i)
{
	return i + 1 < o->n_files ? o->files[i + 1] : NULL;
}

static void run_save(const struct options *o, struct store_access *a)
{
	session_save(o, a, operand(o, 0), operand(o, 1));
}

static void run_load(const struct options *o, struct store_access *a)
{
	session_load(o, a, operand(o, 0));
}

static void run_save_slot(const struct options *o, struct store_access *a)
{
	session_save_slot(o, a, operand(o, 0));
}

static void run_load_slot(const struct options *o, struct store_access *a)
{
	session_load_slot(o, a, operand(o, 0));
}

static void run_check(const struct options *o, struct store_access *a)
{
	session_check_slot(o, a, operand(o, 0));
}

static void run_find(const struct options *o, struct store_access *a)
{
	session_find(o, a, operand(o, 0));
}

/* ----- log, list ------------------------------------------------ */

/* One line for a version: of one session, or of the session that it is the last of. */
static void report_version(const struct options *o, const kvarc_session_version *v,
                           const char *template)
{
	const struct timespec t = { (time_t)(v->time / 1000), (long)(v->time % 1000) * 1000000 };
	char date[24], utc[TIMES_BYTES], archive[33], parent[256];
	struct report r;

	times_local(date, sizeof(date), t);
	snprintf(parent, sizeof(parent), "%s@%" PRIu64, v->parent, v->parent_number);
	report_start(&r, o->json);
	report_string(&r, "session", v->session);
	report_u64(&r, "version", v->number);
	report_string(&r, "time", v->time && times_write(utc, t) ? utc : NULL);
	report_string(&r, ".date", v->time ? date : NULL);
	report_u64(&r, "tokens", v->tokens);
	report_u64(&r, "file_bytes", v->file_bytes);
	report_string(&r, "label", *v->label ? v->label : NULL);
	report_string(&r, "parent", *v->parent ? parent : NULL);
	report_string(&r, "archive", units_digest(archive, v->archive));
	report_bool(&r, "encrypted", v->encrypted);
	report_print(&r, template);
	report_end(&r);
}

static int show_log(void *opaque, const kvarc_session_version *v)
{
	report_version(opaque, v,
	               "{version:6}  {.date:-16}  {tokens:9C} tokens  {file_bytes:9B}[  {label}]"
	               "[  from {parent}]\n");
	return 0;
}

/* Of session list: those whose names begin with the operand. */
static int show_session(void *opaque, const kvarc_session_version *v)
{
	const char *prefix = operand(opaque, 0);

	if (prefix && strncmp(v->session, prefix, strlen(prefix)) != 0)
		return 0;
	report_version(
		opaque, v,
		"{version:6}  {.date:-16}  {tokens:9C} tokens  {file_bytes:9B}  {session}\n");
	return 0;
}

static void run_log(const struct options *o, struct store_access *a)
{
	kvarc_ret ret = kvarc_store_log(a->s, operand(o, 0), show_log, (void *)o);

	if (ret != KVARC_OK)
		store_access_error(a, operand(o, 0), ret);
}

static void run_list(const struct options *o, struct store_access *a)
{
	kvarc_ret ret = kvarc_store_list(a->s, show_session, (void *)o);

	if (ret != KVARC_OK)
		store_access_error(a, NULL, ret);
}

/* ----- fork, rm ------------------------------------------------ */

static void run_fork(const struct options *o, struct store_access *a)
{
	const char *from = operand(o, 0), *to = operand(o, 1);
	struct report r;
	uint64_t number;
	char *name;
	kvarc_ret ret;

	if (!session_split(from, &name, &number))
		return;
	ret = kvarc_store_fork(a->s, name, number, to);
	if (ret != KVARC_OK) {
		store_access_error(a, ret == KVARC_OPTIONS ? to : from, ret);
	} else {
		report_start(&r, o->json);
		report_string(&r, "session", to);
		report_u64(&r, "version", 1);
		report_string(&r, "parent", from);
		report_result(&r, to, "version {version}: forked from {parent}");
		report_end(&r);
	}
	free(name);
}

static void run_remove(const struct options *o, struct store_access *a)
{
	const char *name = operand(o, 0);
	struct report r;
	uint64_t n = 0;
	kvarc_ret ret;

	if (session_is_version(name)) {
		msg_error(name, "versions are not removed one by one: name the session, or use "
		                "'kvarc store gc --keep-versions'");
		return;
	}
	ret = kvarc_store_remove(a->s, name, &n);
	if (ret != KVARC_OK) {
		store_access_error(a, name, ret);
		return;
	}
	report_start(&r, o->json);
	report_string(&r, "session", name);
	report_u64(&r, "versions", n);
	report_result(&r, name,
	              "{versions} version{versions:s} removed; 'kvarc store gc' frees space");
	report_end(&r);
}

static void run_send(const struct options *o, struct store_access *a)
{
	session_send(o, a, operand(o, 0));
}

static void run_receive(const struct options *o, struct store_access *a)
{
	session_receive(o, a, operand(o, 0), operand(o, 1));
}

static const struct action actions[] = {
	{ "save", "NAME FILE", 2, 2, true, NO_FILE, false, run_save },
	{ "save", "NAME --server URL", 1, 1, true, NO_FILE, true, run_save_slot },
	{ "load", "NAME[@N] -o FILE", 1, 1, false, NEEDS_FILE, false, run_load },
	{ "load", "NAME[@N] --server URL", 1, 1, false, NO_FILE, true, run_load_slot },
	{ "check", "NAME[@N] --server URL", 1, 1, false, NO_FILE, true, run_check },
	{ "log", "NAME", 1, 1, false, NO_FILE, false, run_log },
	{ "list", "[PREFIX]", 0, 1, false, NO_FILE, false, run_list },
	{ "fork", "NAME[@N] NEW", 2, 2, false, NO_FILE, false, run_fork },
	{ "rm", "NAME", 1, 1, false, NO_FILE, false, run_remove },
	{ "find", "FILE", 1, 1, false, NO_FILE, false, run_find },
	{ "send", "NAME[@N]", 1, 1, false, MAY_FILE, false, run_send },
	{ "receive", "NAME [FILE]", 1, 2, true, NO_FILE, false, run_receive },
};

static const struct action *find_action(const struct options *o)
{
	const struct action *known = NULL;

	for (size_t i = 0; o->n_files && i < sizeof(actions) / sizeof(actions[0]); i++) {
		const struct action *x = &actions[i];
		if (strcmp(x->name, o->files[0]) != 0)
			continue;
		if (!known || x->server == (o->server != NULL))
			known = x;
	}
	if (known && known->server == (o->server != NULL) && o->n_files - 1 >= known->least &&
	    o->n_files - 1 <= known->most)
		return known;
	if (known)
		msg_error(NULL, "session %s: give %s", known->name,
		          *known->operands ? known->operands : "nothing behind it");
	else
		msg_error(NULL,
		          "session: give 'save', 'load', 'check', 'log', 'list', 'fork', 'rm', "
		          "'find', 'send' or 'receive'");
	return NULL;
}

static bool check(const struct options *o, const struct action *x)
{
	if (x->output == NEEDS_FILE && !o->output)
		msg_error(NULL, "session %s: say where to write it with -o FILE", x->name);
	else if (x->output == NO_FILE && o->output && x->server)
		msg_error(NULL, "session %s: -o does not go with --server", x->name);
	else if (x->output == NO_FILE && o->output)
		msg_error(NULL, "session %s: -o is for 'session load' and 'session send'", x->name);
	else if ((o->encrypt || o->decrypt) && strcmp(x->name, "save") != 0)
		msg_error(NULL, "session %s: --encrypt and --decrypt are for 'session save'",
		          x->name);
	else if (o->opaque && strcmp(x->name, "save") != 0)
		msg_error(NULL, "session %s: --opaque is for 'session save'", x->name);
	else if (o->attach && strcmp(x->name, "save") != 0 && strcmp(x->name, "load") != 0)
		msg_error(NULL, "session %s: --attach is for 'session save' and 'session load'",
		          x->name);
	else if (o->level_given && o->level > 3)
		msg_error(NULL, "session: a store takes levels 0 to 3: a model would have to go "
		                "through all tokens of each save");
	else
		return profiles_check_level(o, false);
	return false;
}

void cmd_session(const struct options *o)
{
	const struct action *x = find_action(o);
	struct store_access a;

	if (!x || !check(o, x))
		return;
	if (store_access_open(&a, o, x->creates))
		x->run(o, &a);
	store_access_close(&a);
}
