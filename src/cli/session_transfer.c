/* SPDX-License-Identifier: BSD-3-Clause */
/* session_transfer.c - kvarc session send and receive, kvarc store have */
#include "config.h"

#include "session_transfer.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "infile.h"
#include "library.h"
#include "message.h"
#include "outfile.h"
#include "report.h"
#include "session_files.h"
#include "units.h"

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

void session_send(const struct options *o, struct store_access *a, const char *version)
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

void session_receive(const struct options *o, struct store_access *a, const char *name,
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

static int print_id(void *opaque, const uint8_t id[16])
{
	char digits[DIGEST_DIGITS + 1];

	(void)opaque;
	return puts(units_digest(digits, id)) < 0;
}

void store_have(const struct options *o, struct store_access *a)
{
	kvarc_ret ret = kvarc_store_have(a->s, print_id, NULL);

	(void)o;
	if (ret != KVARC_OK)
		store_access_error(a, a->url, ret);
}
