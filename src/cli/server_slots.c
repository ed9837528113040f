/* SPDX-License-Identifier: BSD-3-Clause */
/* server_slots.c - kvarc session save, load, check with a running llama.cpp server */
#include "config.h"

#include "server_slots.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "infile.h"
#include "library.h"
#include "message.h"
#include "paths.h"
#include "readers.h"
#include "report.h"
#include "session_files.h"
#include "signals.h"
#include "slot_version.h"
#include "kvarc/server.h"

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
	char *server_shown; /* URL of the server, without a password */
	kvarc_error error;
	int dirfd;
	/* The version; what the slot held before; what the server computed in it. */
	struct shared_slot file, guest, computed;
	struct shared_slot many;  /* computed with more tokens at a time */
	struct shared_slot other; /* the version as servers of another version write it */
	uint64_t guest_tokens;
	bool disturbed; /* the slot does not hold its guest any more; signals are held meanwhile */
	kvarc_next_words next; /* words that may follow `computed` */
	/* Identity of the origin, from the archive of the version. */
	char keys[IDENTITY_KEYS][32], values[IDENTITY_KEYS][VALUE_BYTES];
	size_t n_keys;
	char *canary; /* its fingerprint; NULL: none */
};

/* Verdicts on a version before it is restored. */
struct slot_verdict {
	kvarc_server_verdict fits;
	kvarc_canary_verdict canary;
};

static void show_error(const struct slot_access *access, kvarc_ret ret)
{
	library_error(access->server_shown, ret, &access->error, NULL, NULL);
}

/* A name that nobody has in the folder, remembered so that its file goes when the command is
 * interrupted. */
static bool name_file(struct slot_access *access, struct shared_slot *slot, const char *what)
{
	struct timespec t;
	bool remembered;

	clock_gettime(CLOCK_REALTIME, &t);
	snprintf(slot->name, sizeof(slot->name), "kvarc-%ld-%08lx-%s.bin", (long)getpid(),
	         (unsigned long)(t.tv_nsec ^ t.tv_sec << 4), what);
	slot->path = paths_join(access->o->server.slot_folder, slot->name);
	signals_hold();
	remembered = slot->path && signals_remember(access->dirfd, slot->name, -1, NULL);
	signals_release();
	if (!remembered)
		msg_error(NULL, "out of memory");
	return remembered;
}

static void close_file(struct shared_slot *slot)
{
	kvarc_import_close(&slot->im);
	if (slot->in.name)
		input_close(&slot->in);
	memset(&slot->in, 0, sizeof(slot->in));
}

static void remove_file(struct shared_slot *slot)
{
	close_file(slot);
	if (slot->path)
		signals_remove(slot->name);
	free(slot->path);
}

/* Opens the server and the folder; false: a message was shown. */
static bool open_access(struct slot_access *access, const struct options *options)
{
	kvarc_server_options so = KVARC_SERVER_OPTIONS_INIT;
	kvarc_ret ret;

	memset(access, 0, sizeof(*access));
	access->o = options;
	access->dirfd = -1;
	access->server_shown = store_access_shown(options->server.url);
	if (!access->server_shown)
		return false;
	if (!options->server.slot_folder) {
		msg_error(NULL,
		          "say where the server keeps its slots with --slot-folder DIR: the folder "
		          "of its --slot-save-path");
		return false;
	}
	access->dirfd = open(options->server.slot_folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (access->dirfd < 0) {
		msg_error(options->server.slot_folder, "cannot open the folder of slots: %s",
		          strerror(errno));
		return false;
	}
	library_common(&options->work, &so.common, &access->error);
	so.api_key = getenv("LLAMA_API_KEY");
	ret = kvarc_server_open(&access->server, options->server.url, &so);
	if (ret != KVARC_OK)
		show_error(access, ret);
	return ret == KVARC_OK && name_file(access, &access->file, "load") &&
	       name_file(access, &access->guest, "guest") &&
	       name_file(access, &access->computed, "canary") &&
	       name_file(access, &access->many, "canaries") &&
	       name_file(access, &access->other, "version");
}

static void close_access(struct slot_access *access)
{
	remove_file(&access->file);
	remove_file(&access->guest);
	remove_file(&access->computed);
	remove_file(&access->many);
	remove_file(&access->other);
	free(access->canary);
	kvarc_server_close(&access->server);
	free(access->server_shown);
	if (access->dirfd >= 0)
		close(access->dirfd);
}

static bool open_import(struct slot_access *access, struct shared_slot *slot)
{
	kvarc_import_options io = KVARC_IMPORT_OPTIONS_INIT;
	kvarc_ret ret;

	if (!input_open_as(&slot->in, slot->path, true, INPUT_SLOT))
		return false;
	readers_import_options(&access->o->work, &access->o->import, &io, &access->error);
	io.rope = "none";
	slot->source = input_source(&slot->in);
	ret = kvarc_import_open(&slot->im, &slot->source, NULL, &io);
	if (ret != KVARC_OK)
		library_error(slot->path, ret, &access->error, &slot->in, NULL);
	return ret == KVARC_OK;
}

/* The server writes the slot. false: a message was shown. */
static bool save_slot(struct slot_access *access, struct shared_slot *slot, uint64_t *tokens)
{
	struct stat st;
	kvarc_ret ret = kvarc_server_save(access->server, (unsigned)access->o->server.slot,
	                                  slot->name, tokens);

	if (ret != KVARC_OK) {
		show_error(access, ret);
	} else if (fstatat(access->dirfd, slot->name, &st, AT_SYMLINK_NOFOLLOW) != 0) {
		msg_error(slot->path,
		          "the server says that it wrote this file, but it is not here: %s; "
		          "is --slot-folder its --slot-save-path? The file of that name is there "
		          "now: remove it",
		          strerror(errno));
	} else {
		return true;
	}
	return false;
}

/* The slot holds what it should. */
static void settle(struct slot_access *access)
{
	if (access->disturbed)
		signals_release();
	access->disturbed = false;
}

/* The server computes tokens in the slot, in place of what it held: bring_back is due then.
 * OPTIONS: it does not, the slot is at work, say, and holds what it held before this call. */
static kvarc_ret compute_ids(struct slot_access *access, const int32_t *ids, size_t n)
{
	const bool held = access->disturbed;
	kvarc_ret ret;

	if (!held)
		signals_hold(); /* a slot that is not brought back is lost to its client */
	access->disturbed = true;
	ret = kvarc_server_compute(access->server, (unsigned)access->o->server.slot, ids, n,
	                           &access->next);
	if (ret == KVARC_OPTIONS && !held)
		settle(access);
	return ret;
}

/* The same, and writes it: opened as `slot`, in place of what that was before. false: a message was
 * shown. */
static bool compute(struct slot_access *access, struct shared_slot *slot, const int32_t *ids,
                    size_t n)
{
	kvarc_ret ret;

	close_file(slot);
	ret = compute_ids(access, ids, n);
	if (ret != KVARC_OK) {
		show_error(access, ret);
		return false;
	}
	return save_slot(access, slot, NULL) && open_import(access, slot);
}

/* The slot holds again what it held before others were computed in it. */
static void bring_back(struct slot_access *access)
{
	const unsigned slot = (unsigned)access->o->server.slot;
	kvarc_ret ret;

	if (!access->disturbed)
		return;
	ret = access->guest_tokens
	              ? kvarc_server_restore(access->server, slot, access->guest.name, NULL)
	              : kvarc_server_erase(access->server, slot);
	if (ret != KVARC_OK) {
		show_error(access, ret);
		if (access->guest_tokens) {
			signals_forget(access->guest.name);
			msg_warning(access->server_shown,
			            "slot %u does not hold what it held before; that stays in %s, "
			            "from which the server can restore it",
			            slot, access->guest.path);
		}
	}
	settle(access);
}

/* ----- save ------------------------------------------------ */

/* Saves what the slot holds, as the guest. false: a message was shown. */
static bool take_guest(struct slot_access *access)
{
	close_file(&access->guest);
	if (!save_slot(access, &access->guest, &access->guest_tokens))
		return false;
	if (!access->guest_tokens)
		msg_error(access->server_shown,
		          "slot %" PRIu64 " is empty: there is nothing to save",
		          access->o->server.slot);
	/* A file that cannot be opened could not be brought back. */
	return access->guest_tokens && open_import(access, &access->guest);
}

/* The server computes the tokens of a fingerprint, in the slot that was saved just now, and then
 * reads that again; one that computes nothing is no reason not to save. A slot that is at work is
 * asked, and saved, once more. false: a message was shown. */
static bool make_fingerprint(struct slot_access *access)
{
	const struct timespec pause = { .tv_sec = 1 };
	kvarc_server_info info;
	int32_t ids[KVARC_CANARY_TOKENS];
	kvarc_ret ret;
	bool good;

	kvarc_server_get_info(access->server, &info);
	if (kvarc_canary_ids(ids, info.vocabulary, NULL) != KVARC_OK) {
		msg_result(access->server_shown,
		           "no fingerprint: the server does not say how many tokens there are");
		return true;
	}
	ret = compute_ids(access, ids, KVARC_CANARY_TOKENS);
	if (ret == KVARC_OPTIONS) {
		nanosleep(&pause, NULL);
		if (!take_guest(access))
			return false;
		ret = compute_ids(access, ids, KVARC_CANARY_TOKENS);
	}
	if (ret != KVARC_OK)
		msg_result(access->server_shown, "no fingerprint: %s", access->error.text);
	good = ret != KVARC_OK || (save_slot(access, &access->computed, NULL) &&
	                           open_import(access, &access->computed));
	bring_back(access);
	return good;
}

void server_slots_save(const struct options *options, struct store_access *access, const char *name)
{
	struct options one = *options;
	struct slot_access x;

	one.slot_files = true;
	if (open_access(&x, options) && take_guest(&x) &&
	    (options->server.no_canary || make_fingerprint(&x))) {
		const struct session_origin origin = { x.server, x.computed.im, &x.next };
		session_save(&one, access, name, x.guest.path, &origin);
	}
	close_access(&x);
}

/* ----- find ------------------------------------------------ */

void server_slots_find(const struct options *options, struct store_access *access)
{
	struct options one = *options;
	struct slot_access x;

	one.slot_files = true;
	if (open_access(&x, options) && take_guest(&x))
		session_find(&one, access, x.guest.path);
	close_access(&x);
}

/* ----- check ------------------------------------------------ */

static int take_identity(void *opaque, const char *key, const char *value)
{
	struct slot_access *x = opaque;
	size_t i = x->n_keys;

	if (strcmp(key, "canary") == 0 && !x->canary) {
		x->canary = strdup(value);
		return x->canary == NULL;
	}
	if (i < IDENTITY_KEYS && strlen(key) < sizeof(x->keys[i]) &&
	    (strncmp(key, "model", 5) == 0 || strncmp(key, "engine_", 7) == 0)) {
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

/* Ids of the tokens at positions 0 .. most - 1 of the file, up to one that it lacks, or whose id
 * stands for something else. *n: how many. */
static bool first_ids(const kvarc_import *im, int32_t *ids, size_t most, size_t *n)
{
	enum { SOME = 1024 };
	const uint64_t tokens = kvarc_import_tokens(im, 0);
	int32_t id[SOME], position[SOME];

	for (size_t i = 0; i < most; i++)
		ids[i] = -1;
	for (uint64_t t0 = 0; t0 < tokens; t0 += SOME) {
		const uint64_t some = tokens - t0 < SOME ? tokens - t0 : SOME;
		if (kvarc_import_read_tokens(im, 0, t0, some, id, position) != KVARC_OK)
			return false;
		for (uint64_t i = 0; i < some; i++)
			if (position[i] >= 0 && (uint32_t)position[i] < most)
				ids[position[i]] = id[i];
	}
	for (*n = 0; *n < most && ids[*n] >= 0;)
		++*n;
	return true;
}

/* The server computes the first tokens of the file: as many at a time as one of its two kernels of
 * attention takes, and then fewer, for the other one. A cache has the bits of either. */
static bool compare_rows(struct slot_access *access, kvarc_canary_verdict *verdict)
{
	/* 80 of which 64 are compared: with a sliding window a server computes the last tokens of a
	 * request on their own. The other kernel is that of fewer than 64 tokens. */
	enum { MANY = 80, FEW = 32, ROWS = 64 };
	int32_t ids[MANY];
	kvarc_canary_rows rows[2];
	size_t n, n_rows = 0;
	bool good = first_ids(access->file.im, ids, MANY, &n);
	kvarc_ret ret;

	if (n >= ROWS && good) {
		good = compute(access, &access->many, ids, n);
		rows[n_rows++] = (kvarc_canary_rows){ access->many.im, ROWS };
	}
	/* Products of one token are made by another kernel. */
	if (n > 1 && good) {
		n = n < FEW ? n : FEW;
		good = compute(access, &access->computed, ids, n);
		rows[n_rows++] = (kvarc_canary_rows){ access->computed.im, (unsigned)n };
	}
	ret = good ? kvarc_canary_compare(access->file.im, rows, n_rows, verdict) : KVARC_OK;
	if (ret != KVARC_OK)
		library_error(access->file.path, ret, &access->error, NULL, NULL);
	return good && ret == KVARC_OK;
}

/* Whether the version comes from a server of this build; servers that were built without a number
 * say "b0-unknown". */
static bool same_build(const struct slot_access *access)
{
	const char *build = give_identity((void *)(uintptr_t)access, "engine_version");
	kvarc_server_info info;

	kvarc_server_get_info(access->server, &info);
	return build && strcmp(build, info.build) == 0 && strncmp(build, "b0-", 3) != 0;
}

/* Has the server compute tokens of which it is known what they were like when the version was
 * saved, and fills the verdict. Its caches are in `computed` then. */
static bool ask_canary(struct slot_access *access, kvarc_canary_verdict *verdict)
{
	int32_t ids[KVARC_CANARY_TOKENS];
	kvarc_canary_verdict rows;
	bool doubtful; /* of another build */
	kvarc_ret ret;

	if (!access->canary || kvarc_canary_ids(ids, 0, access->canary) != KVARC_OK)
		return compare_rows(access, verdict);
	if (!compute(access, &access->computed, ids, KVARC_CANARY_TOKENS))
		return false;
	ret = kvarc_canary_check(access->canary, access->computed.im, &access->next, verdict);
	if (ret != KVARC_OK)
		return compare_rows(access, verdict);
	doubtful = verdict->first_token_alone && !same_build(access);
	if (verdict->answer == KVARC_BELONGS_EXACT ||
	    (verdict->answer == KVARC_BELONGS_NOT && !doubtful))
		return true;
	/* A fingerprint does not say how far apart numbers are, and one bit is enough for it. The
	 * cache itself does: it may be further from what is computed now than other arithmetic is,
	 * or no further than another build's. */
	if (!compare_rows(access, &rows))
		return false;
	if (rows.answer == KVARC_BELONGS_NOT || (doubtful && rows.answer == KVARC_BELONGS_NEAR))
		*verdict = rows;
	return true;
}

/* A slot that the server writes now: its caches have the types and the layout that a restored slot
 * must have. */
static bool look_at_server(struct slot_access *access, kvarc_canary_verdict *verdict)
{
	const kvarc_geometry *g = kvarc_import_geometry(access->file.im);
	int32_t first = 1;

	memset(verdict, 0, sizeof(*verdict));
	if (!save_slot(access, &access->guest, &access->guest_tokens))
		return false;
	/* A slot that could not be brought back stays as it is. */
	if (access->guest_tokens && !open_import(access, &access->guest))
		return false;
	if (!access->o->server.no_canary && g->n_tensors)
		return ask_canary(access, verdict);
	if (access->guest_tokens)
		return true;
	if (kvarc_import_read_tokens(access->file.im, 0, 0, 1, &first, NULL) != KVARC_OK ||
	    first < 0)
		first = 1;
	return compute(access, &access->computed, &first, 1);
}

/* Refuses what does not belong; exact: also what is not known to belong. */
static void judge(bool exact, struct slot_verdict *verdict)
{
	const kvarc_canary_verdict *c = &verdict->canary;
	const bool refused = c->answer == KVARC_BELONGS_NOT ||
	                     (exact && c->answer != KVARC_BELONGS_EXACT);

	if (!*verdict->fits.refuse && refused)
		snprintf(verdict->fits.refuse, sizeof(verdict->fits.refuse), "%s",
		         c->text[0] ? c->text : "the server was not asked to compute anything");
}

static const char *belongs_name(kvarc_belongs answer)
{
	static const char *const names[] = { "unknown", "exact", "near", "moved", "not" };

	return names[answer];
}

/* Makes the file one of the version that the server writes, so that an update of the server takes
 * no session away. *why: why it cannot be one, a clause; else NULL. false: a message was shown. */
static bool convert(struct slot_access *access, const kvarc_import *probe, const char **why)
{
	const unsigned from = slot_version(access->file.im), to = slot_version(probe);
	const struct shared_slot file = access->file;
	struct slot_target as = { access->dirfd, access->other.name, access->other.path, 0600 };
	struct stat st;

	*why = NULL;
	if (!from || !to || from == to)
		return true;
	if (fstatat(access->dirfd, file.name, &st, AT_SYMLINK_NOFOLLOW) == 0)
		as.mode = st.st_mode & 0666;
	if (slot_version_write(&access->o->work, file.im, to, &as, why)) {
		access->file = access->other;
		access->other = file;
		close_file(&access->other);
	} else if (*why) {
		close_file(&access->file);
	} else {
		return false;
	}
	return open_import(access, &access->file);
}

/* Puts the file of a version into the folder and compares it with the server. */
static bool compare(struct slot_access *access, struct store_access *handle, const char *version,
                    struct slot_verdict *verdict)
{
	const kvarc_import *probe;
	const char *why;
	uint64_t number;
	size_t n;
	char *name;
	kvarc_ret ret;

	if (!session_split(version, &name, &number))
		return false;
	ret = kvarc_store_identity(handle->s, name, number, take_identity, access);
	free(name);
	if (ret != KVARC_OK) {
		store_access_error(handle, version, ret);
		return false;
	}
	if (!session_load_into(access->o, handle, version, access->file.path) ||
	    !open_import(access, &access->file) || !look_at_server(access, &verdict->canary))
		return false;
	probe = access->computed.im ? access->computed.im : access->guest.im;
	if (!convert(access, probe, &why))
		return false;
	ret = kvarc_server_check(access->server, (unsigned)access->o->server.slot, access->file.im,
	                         probe, give_identity, access, &verdict->fits);
	if (ret != KVARC_OK)
		show_error(access, ret);
	n = strlen(verdict->fits.refuse);
	if (n && why)
		snprintf(verdict->fits.refuse + n, sizeof(verdict->fits.refuse) - n, "; %s", why);
	judge(access->o->server.exact, verdict);
	return ret == KVARC_OK;
}

/* Whether a version could be restored, and the next request would use it. */
void server_slots_check(const struct options *options, struct store_access *access,
                        const char *version)
{
	struct slot_verdict v;
	struct slot_access x;
	struct report r;

	if (open_access(&x, options) && compare(&x, access, version, &v)) {
		const bool fits = !*v.fits.refuse;
		report_start(&r, options->json);
		report_string(&r, "session", version);
		report_u64(&r, "tokens", v.fits.tokens);
		report_string(&r, "refuse", fits ? NULL : v.fits.refuse);
		report_string(&r, "warn", *v.fits.warn ? v.fits.warn : NULL);
		report_string(&r, "canary",
		              options->server.no_canary ? NULL : belongs_name(v.canary.answer));
		report_u64(&r, "canary_tokens", v.canary.tokens);
		report_string(&r, "canary_text", *v.canary.text ? v.canary.text : NULL);
		if (options->json || fits)
			report_result(&r, version,
			              "{tokens:C} tokens fit the server[; {canary_text}][; but "
			              "{warn}]");
		report_end(&r);
		if (!fits)
			msg_error(version, "does not fit the server: %s", v.fits.refuse);
	}
	bring_back(&x);
	close_access(&x);
}

/* ----- load ------------------------------------------------ */

static void restore(struct slot_access *access, const char *version,
                    const struct slot_verdict *verdict)
{
	uint64_t tokens;
	struct report r;
	kvarc_ret ret = kvarc_server_restore(access->server, (unsigned)access->o->server.slot,
	                                     access->file.name, &tokens);

	if (ret != KVARC_OK) {
		show_error(access, ret);
		return;
	}
	settle(access);
	if (tokens != verdict->fits.tokens) {
		msg_error(access->server_shown, "restored %" PRIu64 " of %" PRIu64 " tokens of %s",
		          tokens, verdict->fits.tokens, version);
		return;
	}
	report_start(&r, access->o->json);
	report_string(&r, "session", version);
	report_u64(&r, "slot", access->o->server.slot);
	report_u64(&r, "tokens", tokens);
	report_string(&r, "canary",
	              access->o->server.no_canary ? NULL : belongs_name(verdict->canary.answer));
	report_string(&r, "canary_text", *verdict->canary.text ? verdict->canary.text : NULL);
	report_string(&r, "warn", *verdict->fits.warn ? verdict->fits.warn : NULL);
	report_result(&r, version,
	              "{tokens:C} tokens restored to slot {slot}[; {canary_text}][; "
	              "but {warn}]");
	report_end(&r);
}

void server_slots_load(const struct options *options, struct store_access *access,
                       const char *version)
{
	struct slot_verdict v;
	struct slot_access x;

	if (open_access(&x, options) && compare(&x, access, version, &v)) {
		if (*v.fits.refuse)
			msg_error(version, "not restored: %s", v.fits.refuse);
		else
			restore(&x, version, &v);
	}
	bring_back(&x);
	close_access(&x);
}
