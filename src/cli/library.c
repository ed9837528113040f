/* SPDX-License-Identifier: BSD-3-Clause */
/* library.c - options for the library, and its errors as messages */
#include "config.h"

#include "library.h"

#include <stdio.h>
#include <string.h>

#include "message.h"
#include "units.h"
#include "watch.h"
#include "weights.h"

static const char *(*predictor_hint)(const kvarc_error *error);

void library_set_hint(const char *(*hint)(const kvarc_error *error))
{
	predictor_hint = hint;
}

void library_common(const struct work_options *work, kvarc_common *common, kvarc_error *error)
{
	memset(common, 0, sizeof(*common));
	memset(error, 0, sizeof(*error));
	error->offset = error->frame = KVARC_UNKNOWN;
	common->error = error;
	common->memlimit = work->memlimit;
	common->threads = work->threads;
	/* Several threads that code leave each other the time to read and write; level 0 needs none
	 * beside it. */
	common->overlap = work->threads == 1;
	common->isa_mask = work->isa_mask;
	common->progress = progress_update;
	common->weight_cache = weights_cache();
}

bool library_has_parity(const struct input *in)
{
	struct input copy = *in;
	const kvarc_source source = input_source(&copy);
	kvarc_envelope e;

	return !in->is_stdin && kvarc_read_envelope(&source, NULL, &e) == KVARC_OK &&
	       e.parity_frames != 0;
}

/*
 * The library says what is wrong and where, and what to do in its own words;
 * this adds the words of the command line.
 */
static const char *in_our_words(kvarc_ret ret, const kvarc_error *error, const struct input *in)
{
	const kvarc_reason reason = error ? error->reason : KVARC_REASON_NONE;

	switch (ret) {
	case KVARC_MEM:
		return "; end other programs, or use fewer threads (-T 1)";
	case KVARC_MEMLIMIT:
		return error && error->bytes_needed
		               ? " with -M, for example -M 1G"
		               : "; raise the limit with -M, for example -M 1G";
	case KVARC_FORMAT:
		return "; 'kvarc pack' makes archives";
	case KVARC_DATA:
		return reason != KVARC_REASON_SALVAGE ? ""
		       : in && library_has_parity(in)
		               ? ": 'kvarc unpack --salvage', but try 'kvarc repair' first"
		               : ": 'kvarc unpack --salvage'";
	case KVARC_AUTH:
		return ": --key-file or --passphrase-file";
	case KVARC_PREDICTOR:
		return error && predictor_hint ? predictor_hint(error) : "";
	case KVARC_LOSSY:
		return "; --allow-lossy takes them as they are";
	case KVARC_OPTIONS:
		return reason == KVARC_REASON_NEEDS_SEEK ? "; save it as a file first" : "";
	default:
		return "";
	}
}

void library_error(const char *file, kvarc_ret ret, const kvarc_error *error,
                   const struct input *in, const struct output *out)
{
	const char *text = error && error->text[0] ? error->text : kvarc_strerror(ret);
	char what[96];

	if (out && out->error)
		output_report(out);
	else if (in && watch_input_changed(in, what, sizeof(what)))
		msg_error(in->name, "changed while it was read (%s): try again when it is complete",
		          what);
	else if (in && in->error)
		msg_error(in->name, "cannot read: %s", strerror(in->error));
	else
		msg_error(file, "%s%s", text, in_our_words(ret, error, in));
}

void library_archive(const struct archive_options *archive, bool direct, kvarc_parity *parity,
                     kvarc_writer_options *wo)
{
	*parity = (kvarc_parity){ .pieces = archive->parity_pieces, .rows = archive->parity_rows };
	if (archive->parity_pieces)
		wo->parity = parity;
	if (archive->verify)
		wo->flags |= KVARC_WRITE_VERIFY;
	if (archive->streamable || direct)
		wo->flags |= KVARC_WRITE_STREAMABLE;
}

uint64_t library_import_tokens(const kvarc_import *im)
{
	const kvarc_geometry *g = kvarc_import_geometry(im);
	uint64_t most[3] = { 0 }; /* of sequences, of other rows, of states */

	for (uint32_t i = 0; i < g->n_tracks; i++) {
		uint64_t n = kvarc_import_tokens(im, i);
		uint8_t kind = g->tracks[i].kind;
		uint64_t *to = &most[kind == KVARC_TRACK_SELF    ? 0
		                     : kind != KVARC_TRACK_STATE ? 1
		                                                 : 2];
		*to = n > *to ? n : *to;
	}
	return most[0] ? most[0] : most[1] ? most[1] : most[2];
}

void library_import_cause(const kvarc_import *im, char *why, size_t bytes)
{
	const char *note = kvarc_import_note(im);
	char *kept;

	snprintf(why, bytes, "%.*s", note ? (int)strcspn(note, ";") : 0, note ? note : "");
	kept = strstr(why, ": kept as");
	if (kept)
		*kept = '\0';
}

void library_warn_import(const char *file, const kvarc_import *im)
{
	uint64_t tensors;

	kvarc_import_sizes(im, NULL, &tensors);
	if (kvarc_import_note(im))
		msg_warning(file, "%s", kvarc_import_note(im));
	else if (tensors == 0 && !kvarc_import_members(im))
		msg_warning(file, "no cache was found in it; kept as plain bytes");
}

void library_refuse_import(const char *file, const kvarc_import *im, const char *to,
                           uint64_t tokens, const char *done)
{
	char why[200], n[32];

	library_import_cause(im, why, sizeof(why));
	units_count(n, tokens);
	msg_error(file,
	          "has no tokens%s%s%s, and %s has %s: nothing was %s; --opaque keeps it as plain "
	          "bytes all the same",
	          *why ? " (" : "", why, *why ? ")" : "", to, n, done);
}

const char *library_state_name(kvarc_state state)
{
	switch (state) {
	case KVARC_STATE_CLOSED:
		return "closed";
	case KVARC_STATE_OPEN:
		return "open";
	case KVARC_STATE_CUT:
		return "cut";
	case KVARC_STATE_DAMAGED:
		return "damaged";
	default:
		return "unknown";
	}
}

uint64_t library_tokens(const kvarc_reader *r)
{
	const kvarc_geometry *g = kvarc_reader_geometry(r);
	uint64_t most = 0;

	for (uint32_t i = 0; i < g->n_tracks; i++) {
		uint64_t n = kvarc_reader_tokens(r, i);
		most = n > most ? n : most;
	}
	return most;
}

void library_warn_state(const char *file, const kvarc_info *info, uint64_t tokens)
{
	char n[32], dropped[32];

	units_count(n, tokens);
	units_bytes(dropped, sizeof(dropped), info->dropped_bytes);
	if (info->fallbacks)
		msg_warning(file, "this processor's arithmetic is not exact; scalar "
		                  "arithmetic was used instead: the result is correct, "
		                  "but use --isa scalar, and report the processor");
	if (info->state == KVARC_STATE_OPEN)
		msg_warning(file,
		            "the archive was not closed; all %s tokens up to "
		            "its last commit are here",
		            n);
	else if (info->state == KVARC_STATE_CUT)
		msg_warning(file,
		            "the archive was cut, or something else was written behind it; "
		            "the %s tokens up to its last commit are here, %s after it "
		            "are dropped",
		            n, dropped);
	else if (info->state == KVARC_STATE_DAMAGED)
		msg_warning(file,
		            "the archive is damaged behind the %s tokens up to a "
		            "commit, which are here; 'kvarc unpack --salvage' may save more",
		            n);
}

const char *library_codec_name(unsigned number)
{
	kvarc_codec codec;

	return kvarc_codec_info(number, &codec) == KVARC_OK ? codec.name : "?";
}
