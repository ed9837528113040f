/* SPDX-License-Identifier: BSD-3-Clause */
/* cmd_session.c - kvarc session: files that grow, in a store */
#include "config.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "commands.h"
#include "message.h"
#include "profiles.h"
#include "report.h"
#include "session_files.h"
#include "session_server.h"
#include "session_transfer.h"
#include "times.h"
#include "units.h"

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
