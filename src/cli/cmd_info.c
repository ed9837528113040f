/* SPDX-License-Identifier: BSD-3-Clause */
/* cmd_info.c - kvarc info: identity, sizes, files, chain value; demands and plots */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "describe.h"
#include "library.h"
#include "message.h"
#include "outfile.h"
#include "paths.h"
#include "plot.h"
#include "profiles.h"
#include "readers.h"
#include "report.h"
#include "shape.h"
#include "units.h"

/* The chain value of an archive: one hash that names all tokens of track 0 (spec 5.3). */
struct chain {
	bool present;  /* the archive has one */
	char text[72]; /* hex of the last segment of track 0, or why there is none */
};

/* Fills chain from the index. Returns OK or the code of the reader. */
static kvarc_ret chain_make(struct chain *chain, kvarc_reader *r)
{
	uint8_t value[16];
	kvarc_ret ret = kvarc_reader_chain(r, 0, kvarc_reader_tokens(r, 0), value);

	chain->present = ret == KVARC_OK;
	if (chain->present)
		units_digest(chain->text, value);
	else
		strcpy(chain->text, "none, the archive does not name its tokens");
	return ret == KVARC_END ? KVARC_OK : ret;
}

static const char *item_kind(unsigned kind)
{
	switch (kind) { /* spec 10 */
	case 1:
		return "plain bytes";
	case 2:
		return "llama.cpp sequence file";
	case 3:
		return "llama.cpp session file";
	case 4:
		return "safetensors";
	case 5:
		return "npy";
	case 6:
		return "context checkpoint";
	case 7:
		return "media";
	case 8:
		return "workspace";
	case 255:
		return "other";
	default:
		return "of a kind that a later version has";
	}
}

static void report_items(struct report *report, kvarc_reader *r)
{
	const size_t n_tensors = kvarc_reader_geometry(r)->n_tensors;
	kvarc_item item;

	report_array(report, "files");
	for (size_t i = 0; kvarc_reader_item(r, i, &item) == KVARC_OK; i++) {
		report_object(report, NULL);
		report_string(report, ".label", i ? "" : "files");
		report_string(report, ".name", item.name[0] ? item.name : "(no name)");
		report_string(report, "name", item.name);
		report_string(report, "kind", item_kind(item.kind));
		report_u64(report, "bytes", item.bytes);
		/* Files of these kinds were parsed: without tensors they were kept whole. */
		const bool whole = !n_tensors &&
		                   (item.kind == 255 || (item.kind > 1 && item.kind < 6));
		if (whole)
			report_bool(report, "kept_whole", true);
		report_string(report, ".whole", whole ? ", kept whole" : "");
		report_print(report, "  {.label:-11} {.name}, {bytes:B}, {kind}{.whole}\n");
		report_end_object(report);
	}
	report_end_array(report);
}

/* "grid+raw": names of the codecs whose bits are set (kvarc_info), as cmd_list has them. */
static const char *codec_names(uint64_t codecs, char *out, size_t size)
{
	size_t n = 0;

	out[0] = 0;
	for (unsigned i = 0; i < 64 && n < size; i++)
		if (codecs >> i & 1)
			n += (size_t)snprintf(out + n, size - n, "%s%s", n ? "+" : "",
			                      library_codec_name(i));
	return out;
}

static void print_identity(kvarc_reader *r)
{
	const char *key, *value;

	for (size_t i = 0; kvarc_reader_identity_at(r, i, &key, &value) == KVARC_OK; i++) {
		printf("  %-11s ", i ? "" : "identity");
		msg_put_safe(stdout, key);
		putchar('=');
		msg_put_safe(stdout, value);
		putchar('\n');
	}
}

static void report(bool json, const char *file, const struct shape *shape, kvarc_reader *r,
                   const struct chain *chain)
{
	struct report x;
	char id[33], codecs[512];

	report_start(&x, json);
	describe_archive(&x, file, shape, r);
	report_string(&x, "file_id", units_digest(id, shape->info.file_id));
	report_bool(&x, "encrypted", shape->info.encrypted);
	report_string(&x, ".encrypted", shape->info.encrypted ? "XChaCha20-Poly1305" : NULL);
	report_u64(&x, "segments", shape->info.segments);
	report_string(&x, "codecs", codec_names(shape->info.codecs, codecs, sizeof(codecs)));
	report_string(&x, "token_chain", chain->present ? chain->text : NULL);
	report_string(&x, ".token_chain", chain->text);
	report_u64(&x, ".frames", shape->info.frames);
	report_print(&x, "[  codecs      {codecs}\n]"
	                 "[  encryption  {.encrypted}\n]"
	                 "  file id     {file_id}\n"
	                 "  checks      xxh3-128 of each of {.frames:C} frames and its offset, "
	                 "its low half of each chunk's bytes\n"
	                 "  token chain {.token_chain}\n");
	report_items(&x, r);
	if (!json)
		print_identity(r);
	report_end(&x);
}

/* Every --identity must match. */
static void demand(const struct archive_options *archive, const char *file, kvarc_reader *r)
{
	for (size_t i = 0; i < archive->identity.n; i++) {
		const char *wanted = strchr(archive->identity.p[i], '=') + 1;
		char *key = strndup(archive->identity.p[i],
		                    (size_t)(wanted - 1 - archive->identity.p[i]));
		const char *value = key ? kvarc_reader_identity(r, key) : NULL;

		if (!key)
			msg_error(NULL, "out of memory");
		else if (!value)
			msg_error(file, "says nothing about '%s'; '%s' is demanded", key, wanted);
		else if (strcmp(value, wanted) != 0)
			msg_error(file, "%s is '%s'; '%s' is demanded", key, value, wanted);
		free(key);
	}
}

static void info_profile(const struct options *options, struct input *in, bool first)
{
	kvarc_profile *p = profiles_read(&options->work, in);

	if (p && (options->json || msg_level() >= 0)) {
		printf("%s", first || options->json ? "" : "\n");
		describe_profile(in->name, p, options->json);
	}
	kvarc_profile_close(&p);
}

/* The stages are drawn where the profile is at hand. */
static void plot(const struct options *options, const struct input *in, const struct shape *shape,
                 kvarc_reader *r, const kvarc_error *error)
{
	struct stages stages;
	kvarc_ret ret = stages_make(&stages, r);

	if (ret == KVARC_PREDICTOR || ret == KVARC_MEM || ret == KVARC_MEMLIMIT) {
		msg_warning(in->name, "the stages of the prediction are not drawn: %s%s",
		            error->text,
		            ret == KVARC_PREDICTOR ? "; give it with --profile FILE" : "");
		stages_free(&stages);
	}
	if (ret == KVARC_OK || stages.n == 0)
		plot_write(options->plot, options->force, in->name, shape, &stages, r);
	if (ret == KVARC_DATA || ret == KVARC_IO)
		library_error(in->name, ret, error, in, NULL);
	stages_free(&stages);
}

/* Describes an encrypted archive as far as it is readable without its key. */
static void info_envelope(bool json, struct input *in, const kvarc_error *error, bool first)
{
	kvarc_source source = input_source(in);
	kvarc_envelope e;

	if (kvarc_read_envelope(&source, NULL, &e) == KVARC_OK && (json || msg_level() >= 0)) {
		printf("%s", first || json ? "" : "\n");
		describe_envelope(in->name, &e, json);
	}
	msg_flush();
	library_error(in->name, KVARC_AUTH, error, in, NULL);
}

/* Opens the archive; NULL: what there is to show was shown. */
static kvarc_reader *open_archive(const struct options *options, struct input *in,
                                  kvarc_error *error, bool first)
{
	kvarc_reader_options ro = KVARC_READER_OPTIONS_INIT;
	kvarc_reader *r = NULL;
	kvarc_ret ret;

	library_common(&options->work, &ro.common, error);
	ret = readers_open_with(in, &ro, &r);
	if (ret == KVARC_AUTH)
		info_envelope(options->json, in, error, first);
	else if (ret != KVARC_OK)
		library_error(in->name, ret, error, in, NULL);
	return r;
}

static void info_one(const struct options *options, const char *file, bool first)
{
	struct input in;
	struct shape s;
	struct chain chain;
	kvarc_error error;
	kvarc_reader *r;
	kvarc_ret ret;

	if (!input_open(&in, file, true))
		return;
	if (profiles_is_one(&in)) {
		info_profile(options, &in, first);
		input_close(&in);
		return;
	}
	r = open_archive(options, &in, &error, first);
	if (!r) {
		input_close(&in);
		return;
	}
	ret = shape_make(&s, r);
	if (ret == KVARC_OK) {
		ret = chain_make(&chain, r);
		if (ret != KVARC_OK)
			shape_free(&s);
	}
	if (ret != KVARC_OK) {
		library_error(file, ret, &error, &in, NULL);
	} else {
		if (options->json || msg_level() >= 0) {
			printf("%s", first || options->json ? "" : "\n");
			report(options->json, file, &s, r, &chain);
		}
		msg_flush();
		demand(&options->archive, file, r);
		if (options->plot)
			plot(options, &in, &s, r, &error);
		library_warn_state(file, &s.info, s.tokens);
		shape_free(&s);
	}
	kvarc_reader_close(&r);
	input_close(&in);
}

void cmd_info(const struct options *options)
{
	if (!paths_check_reading(options))
		return;
	if (options->plot && options->n_files > 1) {
		msg_usage("--plot draws one archive");
		return;
	}
	if (options->plot && !output_check(options->plot, options->force))
		return; /* checks before the work, not after it */
	for (size_t i = 0; i < options->n_files; i++)
		info_one(options, options->files[i], i == 0);
}
