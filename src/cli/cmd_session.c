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
#include "server_slots.h"
#include "session_files.h"
#include "signals.h"
#include "times.h"
#include "units.h"
#include "kvarc/server.h"

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

static bool add_line(struct have_list *list, const char *file, const char *line)
{
	size_t n = strcspn(line, "\r\n");

	if (n != DIGEST_DIGITS || strspn(line, "0123456789abcdef") != n) {
		msg_error(file, "is not a list of 'kvarc store have'");
		return false;
	}
	if (list->n == list->capacity) {
		size_t capacity = list->capacity ? 2 * list->capacity : 1024;
		void *ids = realloc(list->ids, capacity * sizeof(*list->ids));
		if (!ids) {
			msg_error(file, "out of memory");
			return false;
		}
		list->ids = ids;
		list->capacity = capacity;
	}
	memcpy(list->ids[list->n], line, n);
	list->ids[list->n++][n] = '\0';
	return true;
}

static bool read_have(struct have_list *list, const char *file)
{
	char line[128];
	bool good = true;
	FILE *f = input_fopen(file);

	if (!f)
		return false;
	while (good && fgets(line, sizeof(line), f))
		good = add_line(list, file, line);
	if (good && ferror(f)) {
		msg_error(file, "cannot be read: %s", strerror(errno));
		good = false;
	}
	fclose(f);
	if (list->n)
		qsort(list->ids, list->n, sizeof(*list->ids), compare_ids);
	return good;
}

static int has_archive(void *opaque, const uint8_t id[16])
{
	const struct have_list *h = opaque;
	char digits[DIGEST_DIGITS + 1];

	units_digest(digits, id);
	return h->n && bsearch(digits, h->ids, h->n, sizeof(*h->ids), compare_ids);
}

static void report_sent(const struct options *options, const char *version, const kvarc_sent *n)
{
	struct report r;

	report_start(&r, options->json && options->output && strcmp(options->output, "-") != 0);
	report_string(&r, "session", version);
	report_u64(&r, "archives", n->archives);
	report_u64(&r, "archive_bytes", n->archive_bytes);
	report_u64(&r, "left_out", n->left_out);
	report_u64(&r, "bytes", n->bytes);
	report_note(&r, version,
	            "sent {archives} archive{archives:s}, {bytes:B}; the receiver has {left_out}");
	report_end(&r);
}

/* Sends a version, "NAME" or "NAME@N"; shows its report and messages. */
static void session_send(const struct options *options, struct store_access *access,
                         const char *version)
{
	const char *target = options->output ? options->output : "-";
	struct have_list have = { NULL, 0, 0 };
	struct output out;
	kvarc_sent sent;
	kvarc_sink sink;
	uint64_t number;
	char *name = NULL;
	kvarc_ret ret;

	if ((options->have && !read_have(&have, options->have)) ||
	    !session_split(version, &name, &number) ||
	    !output_open(&out, target, options->force ? OUTPUT_FORCE : 0, 0600)) {
		free(name);
		free(have.ids);
		return;
	}
	sink = output_sink(&out);
	ret = kvarc_store_send(access->s, name, number, &sink, has_archive, &have, &sent);
	if (ret == KVARC_OK && output_commit(&out)) {
		report_sent(options, version, &sent);
	} else if (ret != KVARC_OK) {
		if (out.error)
			output_report(&out);
		else
			store_access_error(access, version, ret);
		output_abort(&out);
	}
	free(name);
	free(have.ids);
}

/* file: NULL: standard input. */
static void session_receive(bool json, struct store_access *access, const char *name,
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
	ret = kvarc_store_receive(access->s, name, &source, &n);
	if (ret != KVARC_OK) {
		library_error(name, ret, &access->error, &in, NULL);
		if (n.archives)
			msg_note(name, "%llu archives came and stay",
			         (unsigned long long)n.archives);
	} else {
		report_start(&r, json);
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
	bool server;                                   /* allows --server in place of a file */
	void (*run)(const struct options *o, struct store_access *a);
};

static const char *operand(const struct options *options, size_t i)
{
	return i + 1 < options->n_files ? options->files[i + 1] : NULL;
}

static void run_save(const struct options *options, struct store_access *access)
{
	session_save(options, access, operand(options, 0), operand(options, 1), NULL);
}

static void run_load(const struct options *options, struct store_access *access)
{
	session_load(options, access, operand(options, 0));
}

static void run_save_slot(const struct options *options, struct store_access *access)
{
	server_slots_save(options, access, operand(options, 0));
}

static void run_load_slot(const struct options *options, struct store_access *access)
{
	server_slots_load(options, access, operand(options, 0));
}

static void run_check(const struct options *options, struct store_access *access)
{
	server_slots_check(options, access, operand(options, 0));
}

static void run_find(const struct options *options, struct store_access *access)
{
	session_find(options, access, operand(options, 0));
}

static void run_find_slot(const struct options *options, struct store_access *access)
{
	server_slots_find(options, access);
}

/* ----- log, list ------------------------------------------------ */

/* Reports a version in a line: one of a session, or the last one of each session. */
static void report_version(bool json, const kvarc_session_version *version, const char *template)
{
	const struct timespec t = { (time_t)(version->time / 1000),
		                    (long)(version->time % 1000) * 1000000 };
	char date[24], utc[TIMES_BYTES], archive[33], parent[256];
	struct report r;

	times_local(date, sizeof(date), t);
	snprintf(parent, sizeof(parent), "%s@%" PRIu64, version->parent, version->parent_number);
	report_start(&r, json);
	report_string(&r, "session", version->session);
	report_u64(&r, "version", version->number);
	report_string(&r, "time", version->time && times_write(utc, t) ? utc : NULL);
	report_string(&r, ".date", version->time ? date : NULL);
	report_u64(&r, "tokens", version->tokens);
	report_u64(&r, "file_bytes", version->file_bytes);
	report_string(&r, "label", *version->label ? version->label : NULL);
	report_string(&r, "parent", *version->parent ? parent : NULL);
	report_string(&r, "archive", units_digest(archive, version->archive));
	report_bool(&r, "encrypted", version->encrypted);
	report_print(&r, template);
	report_end(&r);
}

static int show_log(void *opaque, const kvarc_session_version *version)
{
	const struct options *o = opaque;

	report_version(o->json, version,
	               "{version:6}  {.date:-16}  {tokens:9C} tokens  {file_bytes:9B}[  {label}]"
	               "[  from {parent}]\n");
	return 0;
}

/* Shows a session of session list if its name begins with the operand. */
static int show_session(void *opaque, const kvarc_session_version *version)
{
	const struct options *o = opaque;
	const char *prefix = operand(o, 0);

	if (prefix && strncmp(version->session, prefix, strlen(prefix)) != 0)
		return 0;
	report_version(
		o->json, version,
		"{version:6}  {.date:-16}  {tokens:9C} tokens  {file_bytes:9B}  {session}\n");
	return 0;
}

static void run_log(const struct options *options, struct store_access *access)
{
	kvarc_ret ret = kvarc_store_log(access->s, operand(options, 0), show_log, (void *)options);

	if (ret != KVARC_OK)
		store_access_error(access, operand(options, 0), ret);
}

static void run_list(const struct options *options, struct store_access *access)
{
	kvarc_ret ret = kvarc_store_list(access->s, show_session, (void *)options);

	if (ret != KVARC_OK)
		store_access_error(access, NULL, ret);
}

/* ----- fork, rm ------------------------------------------------ */

static void run_fork(const struct options *options, struct store_access *access)
{
	const char *from = operand(options, 0), *to = operand(options, 1);
	struct report r;
	uint64_t number;
	char *name;
	kvarc_ret ret;

	if (!session_split(from, &name, &number))
		return;
	ret = kvarc_store_fork(access->s, name, number, to);
	if (ret != KVARC_OK) {
		store_access_error(access, ret == KVARC_OPTIONS ? to : from, ret);
	} else {
		report_start(&r, options->json);
		report_string(&r, "session", to);
		report_u64(&r, "version", 1);
		report_string(&r, "parent", from);
		report_result(&r, to, "version {version}: forked from {parent}");
		report_end(&r);
	}
	free(name);
}

static void run_remove(const struct options *options, struct store_access *access)
{
	const char *name = operand(options, 0);
	struct report r;
	uint64_t n = 0;
	kvarc_ret ret;

	if (session_is_version(name)) {
		msg_error(name, "versions are not removed one by one: name the session, or use "
		                "'kvarc store gc --keep-versions'");
		return;
	}
	ret = kvarc_store_remove(access->s, name, &n);
	if (ret != KVARC_OK) {
		store_access_error(access, name, ret);
		return;
	}
	report_start(&r, options->json);
	report_string(&r, "session", name);
	report_u64(&r, "versions", n);
	report_result(&r, name,
	              "{versions} version{versions:s} removed; 'kvarc store gc' frees space");
	report_end(&r);
}

static void run_send(const struct options *options, struct store_access *access)
{
	session_send(options, access, operand(options, 0));
}

static void run_receive(const struct options *options, struct store_access *access)
{
	session_receive(options->json, access, operand(options, 0), operand(options, 1));
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
	{ "find", "--server URL", 0, 0, false, NO_FILE, true, run_find_slot },
	{ "send", "NAME[@N]", 1, 1, false, MAY_FILE, false, run_send },
	{ "receive", "NAME [FILE]", 1, 2, true, NO_FILE, false, run_receive },
};

static const struct action *find_action(const struct options *options)
{
	const struct action *known = &actions[0];

	for (size_t i = 0; options->n_files && i < sizeof(actions) / sizeof(actions[0]); i++) {
		const struct action *x = &actions[i];
		if (strcmp(x->name, options->files[0]) != 0)
			continue;
		if (strcmp(known->name, x->name) != 0 || x->server == (options->server.url != NULL))
			known = x;
	}
	if (known && known->server == (options->server.url != NULL) &&
	    options->n_files - 1 >= known->least && options->n_files - 1 <= known->most)
		return known;
	msg_error(NULL, "session %s: give %s", known->name,
	          *known->operands ? known->operands : "nothing behind it");
	return NULL;
}

static bool check(const struct options *options, const struct action *action)
{
	if (action->output == NEEDS_FILE && !options->output)
		msg_error(NULL, "session %s: say where to write it with -o FILE", action->name);
	else if (action->output == NO_FILE && options->output && action->server)
		msg_error(NULL, "session %s: -o does not go with --server", action->name);
	else if (action->output == NO_FILE && options->output)
		msg_error(NULL, "session %s: -o is for 'session load' and 'session send'",
		          action->name);
	else if ((options->keys.encrypt || options->keys.decrypt) &&
	         strcmp(action->name, "save") != 0)
		msg_error(NULL, "session %s: --encrypt and --decrypt are for 'session save'",
		          action->name);
	else if (options->import.opaque && strcmp(action->name, "save") != 0)
		msg_error(NULL, "session %s: --opaque is for 'session save'", action->name);
	else if (options->archive.identity.n && strcmp(action->name, "save") != 0)
		msg_error(NULL, "session %s: --identity is for 'session save'", action->name);
	else if (options->archive.attach && strcmp(action->name, "save") != 0 &&
	         strcmp(action->name, "load") != 0)
		msg_error(NULL, "session %s: --attach is for 'session save' and 'session load'",
		          action->name);
	else if (options->coding.level_given && options->coding.level > 3)
		msg_usage("a store takes levels 0 to 3: a model would have to go through all "
		          "tokens of each save");
	else
		return profiles_check_level(&options->coding, true);
	return false;
}

void cmd_session(const struct options *options)
{
	const struct action *x = find_action(options);
	struct store_access a;

	if (!x || !check(options, x))
		return;
	if (store_access_open(&a, &options->store, &options->keys, &options->work, x->creates))
		x->run(options, &a);
	store_access_close(&a);
}
