/* SPDX-License-Identifier: BSD-3-Clause */
/* store_exchange.c - kvarc store export and import: sessions as a tar */
#include "config.h"

#include "store_exchange.h"

#include <stdlib.h>
#include <string.h>

#include "infile.h"
#include "kvarc/exchange.h"
#include "library.h"
#include "message.h"
#include "outfile.h"
#include "report.h"
#include "session_files.h"

/* ----- export ------------------------------------------------ */

bool store_export_check(const struct options *o)
{
	if (o->output)
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

static bool read_names(struct version_names *v, const struct options *o)
{
	v->n = 0;
	v->list = calloc(o->n_files, sizeof(*v->list));
	v->names = calloc(o->n_files, sizeof(*v->names));
	if (!v->list || !v->names) {
		msg_error(NULL, "out of memory");
		return false;
	}
	for (size_t i = 1; i < o->n_files; i++) {
		if (!session_split(o->files[i], &v->names[v->n], &v->list[v->n].number)) {
			v->names[v->n] = NULL;
			return false;
		}
		v->list[v->n].session = v->names[v->n];
		v->n++;
	}
	return true;
}

static void free_names(struct version_names *v)
{
	for (size_t i = 0; v->names && i < v->n; i++)
		free(v->names[i]);
	free((void *)v->names);
	free(v->list);
}

static void report_exported(const struct options *o, const char *target, const kvarc_exported *n)
{
	struct report r;

	report_start(&r, o->json && strcmp(target, "-") != 0);
	report_string(&r, "output", target);
	report_u64(&r, "versions", n->versions);
	report_u64(&r, "archives", n->archives);
	report_u64(&r, "archive_bytes", n->archive_bytes);
	report_result(&r, target,
	              "{versions:C} version{versions:s}, {archives:C} archive{archives:s}, "
	              "{archive_bytes:B} written");
	report_end(&r);
}

static void export_tar(const struct options *o, struct store_access *a,
                       const struct version_names *v)
{
	struct output out;
	kvarc_exported n;
	kvarc_sink sink;
	kvarc_ret ret;

	if (!output_open(&out, o->output, o->force ? OUTPUT_FORCE : 0, 0600))
		return;
	sink = output_sink(&out);
	ret = kvarc_store_export(a->s, v->n, v->list, &sink, &n);
	if (ret == KVARC_OK) {
		if (output_commit(&out))
			report_exported(o, o->output, &n);
		return;
	}
	if (out.error)
		output_report(&out);
	else
		store_access_error(a, a->url, ret);
	output_abort(&out);
}

void store_export(const struct options *o, struct store_access *a)
{
	struct version_names v;

	if (read_names(&v, o))
		export_tar(o, a, &v);
	free_names(&v);
}

/* ----- import ------------------------------------------------ */

bool store_import_check(const struct options *o)
{
	if (o->n_files > 1)
		return true;
	msg_error(NULL, "store import: give FILE or -");
	return false;
}

static int show_imported(void *opaque, const kvarc_imported *v)
{
	const struct options *o = opaque;
	struct report r;

	report_start(&r, o->json);
	report_string(&r, "session", v->session);
	report_u64(&r, "version", v->version);
	report_bool(&r, "was_here", v->was_here);
	report_u64(&r, "archives", v->archives);
	report_u64(&r, "archive_bytes", v->archive_bytes);
	if (v->was_here)
		report_result(&r, v->session, "version {version} was here already");
	else
		report_result(&r, v->session,
		              "version {version}: {archives} archive{archives:s} came, "
		              "{archive_bytes:B}");
	report_end(&r);
	return 0;
}

void store_import(const struct options *o, struct store_access *a)
{
	const char *const *names = (const char *const *)o->files + 2;
	const char *from = o->files[1];
	struct input in;
	kvarc_source source;
	kvarc_ret ret;

	if (!input_open(&in, from, false))
		return;
	source = input_source(&in);
	ret = kvarc_store_import(a->s, &source, o->n_files - 2, names, show_imported, (void *)o);
	if (ret != KVARC_OK)
		library_error(from, ret, &a->error, &in, NULL);
	input_close(&in);
}
