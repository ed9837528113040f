/* SPDX-License-Identifier: BSD-3-Clause */
/* cmd_store.c - kvarc store: what a store holds, its checks, exports, imports */
#include "config.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "infile.h"
#include "library.h"
#include "message.h"
#include "outfile.h"
#include "report.h"
#include "session_files.h"
#include "store_access.h"
#include "units.h"
#include "kvarc/exchange.h"

/* ==== kvarc store export and import: sessions as a tar ==== */

/* ----- export ------------------------------------------------ */

/* Whether the command line says where to; false: a message was shown. */
static bool store_export_check(const struct options *options)
{
	if (options->output)
		return true;
	msg_error(NULL, "store export: say where to with -o FILE or -o -");
	return false;
}

/* The versions that are named; names are to be freed. */
struct version_names {
	kvarc_version_name *list;
	char **names;
	size_t n;
};

static bool read_names(struct version_names *names, const struct options *options)
{
	names->n = 0;
	names->list = calloc(options->n_files, sizeof(*names->list));
	names->names = calloc(options->n_files, sizeof(*names->names));
	if (!names->list || !names->names) {
		msg_error(NULL, "out of memory");
		return false;
	}
	for (size_t i = 1; i < options->n_files; i++) {
		if (!session_split(options->files[i], &names->names[names->n],
		                   &names->list[names->n].number)) {
			names->names[names->n] = NULL;
			return false;
		}
		names->list[names->n].session = names->names[names->n];
		names->n++;
	}
	return true;
}

static void free_names(struct version_names *names)
{
	for (size_t i = 0; names->names && i < names->n; i++)
		free(names->names[i]);
	free((void *)names->names);
	free(names->list);
}

static void report_exported(bool json, const char *target, const kvarc_exported *n)
{
	struct report r;

	report_start(&r, json && strcmp(target, "-") != 0);
	report_string(&r, "output", target);
	report_u64(&r, "versions", n->versions);
	report_u64(&r, "archives", n->archives);
	report_u64(&r, "archive_bytes", n->archive_bytes);
	report_result(&r, target,
	              "{versions:C} version{versions:s}, {archives:C} archive{archives:s}, "
	              "{archive_bytes:B} written");
	report_end(&r);
}

static void export_tar(const struct options *options, struct store_access *access,
                       const struct version_names *names)
{
	struct output out;
	kvarc_exported n;
	kvarc_sink sink;
	kvarc_ret ret;

	if (!output_open(&out, options->output, options->force ? OUTPUT_FORCE : 0, 0600))
		return;
	sink = output_sink(&out);
	ret = kvarc_store_export(access->s, names->n, names->list, &sink, &n);
	if (ret == KVARC_OK) {
		if (output_commit(&out))
			report_exported(options->json, options->output, &n);
		return;
	}
	if (out.error)
		output_report(&out);
	else
		store_access_error(access, access->url, ret);
	output_abort(&out);
}

/* The versions behind "export", "NAME[@N]", or all sessions; shows a report or messages. */
static void store_export(const struct options *options, struct store_access *access)
{
	struct version_names v;

	if (read_names(&v, options))
		export_tar(options, access, &v);
	free_names(&v);
}

/* ----- import ------------------------------------------------ */

/* Checks that store import has a source. */
static bool store_import_check(const struct options *options)
{
	if (options->n_files > 1)
		return true;
	msg_error(NULL, "store import: give FILE or -");
	return false;
}

static int show_imported(void *opaque, const kvarc_imported *imported)
{
	const struct options *o = opaque;
	struct report r;

	report_start(&r, o->json);
	report_string(&r, "session", imported->session);
	report_u64(&r, "version", imported->version);
	report_bool(&r, "was_here", imported->was_here);
	report_u64(&r, "archives", imported->archives);
	report_u64(&r, "archive_bytes", imported->archive_bytes);
	if (imported->was_here)
		report_result(&r, imported->session, "version {version} was here already");
	else
		report_result(&r, imported->session,
		              "version {version}: {archives} archive{archives:s} came, "
		              "{archive_bytes:B}");
	report_end(&r);
	return 0;
}

/* The sessions behind "import", or all; shows a line for each version, or messages. */
static void store_import(const struct options *options, struct store_access *access)
{
	const char *const *names = (const char *const *)options->files + 2;
	const char *from = options->files[1];
	struct input in;
	kvarc_source source;
	kvarc_ret ret;

	if (!input_open(&in, from, false))
		return;
	source = input_source(&in);
	ret = kvarc_store_import(access->s, &source, options->n_files - 2, names, show_imported,
	                         (void *)options);
	if (ret != KVARC_OK)
		library_error(from, ret, &access->error, &in, NULL);
	input_close(&in);
}

/* ==== kvarc store: what a store holds, its checks, its cleaning ==== */

static void report_stat(bool json, const char *url, const kvarc_store_sizes *n)
{
	struct report r;

	report_start(&r, json);
	report_string(&r, "store", url);
	report_u64(&r, "sessions", n->sessions);
	report_u64(&r, "versions", n->versions);
	report_u64(&r, "file_bytes", n->file_bytes);
	report_u64(&r, "archives", n->archives);
	report_u64(&r, "archive_bytes", n->archive_bytes);
	report_u64(&r, "segments", n->segments);
	report_u64(&r, "unnamed", n->unnamed);
	report_u64(&r, "unnamed_bytes", n->unnamed_bytes);
	report_u64(&r, "unreadable", n->unreadable);
	report_u64(&r, "encrypted", n->encrypted);
	report_u64(&r, "blocks", n->blocks);
	report_u64(&r, "block_bytes", n->block_bytes);
	report_u64(&r, ".blocks", n->blocks ? n->blocks : KVARC_UNKNOWN);
	report_u64(&r, ".sealed", n->encrypted ? n->encrypted : KVARC_UNKNOWN);
	if (n->archive_bytes)
		report_real(&r, ".factor", (double)n->file_bytes / (double)n->archive_bytes, 0);
	else
		report_u64(&r, ".factor", KVARC_UNKNOWN);
	report_print(&r, "store       {store}\n"
	                 "sessions    {sessions:C}, {versions:C} version{versions:s}\n"
	                 "files       {file_bytes:B}\n"
	                 "archives    {archives:C}, {archive_bytes:B}[, {.factor:.1fx} less], "
	                 "{segments:C} segment{segments:s}\n"
	                 "not needed  {unnamed:C}, {unnamed_bytes:B}\n"
	                 "[encrypted   {.sealed:C}\n]"
	                 "[blocks      {.blocks:C}, {block_bytes:B}\n]");
	report_end(&r);
	if (n->unreadable)
		msg_warning(url, "%llu object%s cannot be read: 'kvarc store verify' says which",
		            (unsigned long long)n->unreadable, n->unreadable == 1 ? "" : "s");
}

static void run_stat(const struct options *options, struct store_access *access)
{
	kvarc_store_sizes n;
	kvarc_ret ret = kvarc_store_stat(access->s, &n);

	if (ret == KVARC_OK)
		report_stat(options->json, access->url, &n);
	else
		store_access_error(access, access->url, ret);
}

static void show_loss(void *opaque, const char *text)
{
	(void)opaque;
	msg_error(NULL, "%s", text);
}

static void run_verify(const struct options *options, struct store_access *access)
{
	struct report r;
	uint64_t losses = 0;
	kvarc_ret ret = kvarc_store_verify(access->s, show_loss, NULL, &losses);

	if (ret != KVARC_OK) {
		store_access_error(access, access->url, ret);
		return;
	}
	report_start(&r, options->json);
	report_string(&r, "store", access->url);
	report_u64(&r, "losses", losses);
	report_end(&r);
	if (losses)
		msg_result(access->url, "the next save of a session stores what is lost again");
}

static void show_line(void *opaque, const char *text)
{
	(void)opaque;
	msg_result(NULL, "%s", text);
}

static void report_gc(const struct options *options, const char *url, const kvarc_gc_result *n)
{
	char bytes[32];
	struct report r;

	report_start(&r, options->json);
	report_string(&r, "store", url);
	report_u64(&r, "archives", n->archives);
	report_u64(&r, "archive_bytes", n->archive_bytes);
	report_u64(&r, "removed", n->removed);
	report_u64(&r, "removed_bytes", n->removed_bytes);
	report_u64(&r, "repacked", n->repacked);
	report_u64(&r, "repacked_bytes", n->repacked_bytes);
	report_u64(&r, "versions", n->versions);
	report_u64(&r, "young", n->young);
	report_u64(&r, "unreadable", n->unreadable);
	report_u64(&r, "over_budget", n->over_budget);
	report_bool(&r, "dry_run", options->gc.dry_run);
	report_string(&r, ".would", options->gc.dry_run ? "would be removed" : "removed");
	report_result(
		&r, url,
		"{removed:C} of {archives:C} archive{archives:s} {.would}, {removed_bytes:B} of "
		"{archive_bytes:B}[, {versions:C} version{versions:s}]"
		"[, {repacked:C} repacked, which frees {repacked_bytes:B}]"
		"[; {young:C} not needed but too young]");
	report_end(&r);
	units_bytes(bytes, sizeof(bytes), n->over_budget);
	if (n->over_budget)
		msg_warning(url,
		            "the budget is not met: versions that were used within the grace "
		            "period (--grace) need %s more",
		            bytes);
}

static void run_gc(const struct options *options, struct store_access *access)
{
	kvarc_gc_options go = KVARC_GC_OPTIONS_INIT;
	kvarc_gc_result n;
	kvarc_ret ret;

	go.budget = options->gc.budget;
	go.keep = options->gc.keep_versions;
	go.grace = options->gc.grace_given ? options->gc.grace : 0;
	go.no_grace = options->gc.grace_given && options->gc.grace == 0;
	go.dry_run = options->gc.dry_run;
	go.no_repack = options->gc.no_repack;
	go.report = show_line;
	ret = kvarc_store_gc(access->s, &go, &n);
	if (ret == KVARC_OK)
		report_gc(options, access->url, &n);
	else
		store_access_error(access, access->url, ret);
}

static void run_rebuild(const struct options *options, struct store_access *access)
{
	struct report r;
	uint64_t archives, segments;
	kvarc_ret ret = kvarc_store_rebuild(access->s, &archives, &segments);

	if (ret != KVARC_OK) {
		store_access_error(access, access->url, ret);
		return;
	}
	report_start(&r, options->json);
	report_string(&r, "store", access->url);
	report_u64(&r, "archives", archives);
	report_u64(&r, "segments", segments);
	report_result(
		&r, access->url,
		"the index has {archives:C} archive{archives:s}, {segments:C} segment{segments:s}");
	report_end(&r);
}

/* The ids of all archives, a line each, for --have of another host. */
static int print_id(void *opaque, const uint8_t id[16])
{
	char digits[2 * 16 + 1];

	(void)opaque;
	return puts(units_digest(digits, id)) < 0;
}

static void run_have(const struct options *options, struct store_access *access)
{
	kvarc_ret ret = kvarc_store_have(access->s, print_id, NULL);

	(void)options;
	if (ret != KVARC_OK)
		store_access_error(access, access->url, ret);
}

/* An action: whether it takes operands, and makes a store. */
static const struct store_action {
	const char *name;
	void (*run)(const struct options *o, struct store_access *a);
	bool operands, creates;
} store_actions[] = {
	{ "stat", run_stat, false, false },     { "verify", run_verify, false, false },
	{ "gc", run_gc, false, false },         { "rebuild", run_rebuild, false, false },
	{ "have", run_have, false, false },     { "export", store_export, true, false },
	{ "import", store_import, true, true },
};

static const struct store_action *find_action(const struct options *options)
{
	for (size_t i = 0; i < sizeof(store_actions) / sizeof(store_actions[0]); i++) {
		const struct store_action *x = &store_actions[i];
		if (strcmp(x->name, options->files[0]) == 0 &&
		    (options->n_files == 1 || x->operands))
			return x;
	}
	msg_usage("give nothing behind '%s'", options->files[0]);
	return NULL;
}

static bool check(const struct options *options, const struct store_action *action)
{
	const bool gc = options->gc.budget || options->gc.keep_versions || options->gc.dry_run ||
	                options->gc.grace_given || options->gc.no_repack;

	if (gc && action->run != run_gc)
		msg_error(NULL,
		          "store %s: --budget, --keep-versions, --dry-run, --grace and "
		          "--no-repack are for 'store gc'",
		          action->name);
	else if ((options->output || options->force) && action->run != store_export)
		msg_error(NULL, "store %s: -o and -f are for 'store export'", action->name);
	else
		return action->run == store_export   ? store_export_check(options)
		       : action->run == store_import ? store_import_check(options)
		                                     : true;
	return false;
}

void cmd_store(const struct options *options)
{
	const struct store_action *x = find_action(options);
	struct store_access a;

	if (!x || !check(options, x))
		return;
	if (store_access_open(&a, &options->store, &options->keys, &options->work, x->creates))
		x->run(options, &a);
	store_access_close(&a);
}
