/* SPDX-License-Identifier: BSD-3-Clause */
/* cmd_test.c - kvarc test: decode everything, name what is damaged */
#include <inttypes.h>
#include <stdio.h>

#include "commands.h"
#include "damage_report.h"
#include "json_out.h"
#include "library.h"
#include "message.h"
#include "models.h"
#include "paths.h"
#include "profiles.h"
#include "progress.h"
#include "units.h"

static void report_json(const char *file, kvarc_ret ret, const kvarc_error *error,
                        const kvarc_info *info, const struct damage_list *damage,
                        const kvarc_geometry *geometry)
{
	static const kvarc_geometry none = { 0 };
	struct json j;

	json_init(&j, stdout);
	json_object(&j, NULL);
	json_string(&j, "file", file);
	json_bool(&j, "ok", ret == KVARC_OK);
	json_string(&j, "state", library_state_name(info->state));
	if (ret == KVARC_OK)
		json_null(&j, "error");
	else
		json_string(&j, "error", error->text[0] ? error->text : kvarc_strerror(ret));
	json_u64(&j, "raw_bytes", info->raw_bytes + info->literal_bytes);
	json_u64(&j, "frames", info->frames);
	json_u64(&j, "chunks", info->chunks);
	json_u64(&j, "dropped_bytes", info->dropped_bytes);
	json_u64(&j, "tokens", damage->loss.tokens);
	damage_json(&j, damage, geometry ? geometry : &none);
	json_end_object(&j);
	json_line(&j);
}

static void report(const struct options *o, struct input *in, kvarc_reader *r, kvarc_ret ret,
                   const kvarc_error *error, double seconds, struct damage_list *damage)
{
	kvarc_info info = { .state = KVARC_STATE_UNKNOWN };
	char size[32], rate[32];
	double raw;

	if (r && kvarc_reader_get_info(r, &info) != KVARC_OK)
		info.state = KVARC_STATE_UNKNOWN;
	if (r && !damage_sum(damage, in->name, r))
		return;
	if (o->json)
		report_json(in->name, ret, error, &info, damage, kvarc_reader_geometry(r));
	if (ret != KVARC_OK) {
		if (damage->n)
			damage_show(in->name, damage, kvarc_reader_geometry(r), true);
		if (damage->n == 0)
			library_error(in->name, ret, error, in, NULL);
		else
			damage_show_sum(in->name, damage, true,
			                "'kvarc unpack --salvage' saves the rest");
		return;
	}
	library_warn_state(in->name, &info, library_tokens(r));
	raw = (double)(info.raw_bytes + info.literal_bytes);
	units_bytes(size, sizeof(size), (uint64_t)raw);
	units_rate(rate, sizeof(rate), raw / seconds);
	if (info.state == KVARC_STATE_CLOSED)
		msg_note(in->name, "ok, %s in %" PRIu64 " chunks, %s", size, info.chunks, rate);
}

/* The damage in a file that does not open may still be found. */
static kvarc_reader *open_any(const struct options *o, struct input *in, kvarc_error *error,
                              kvarc_ret *ret)
{
	kvarc_reader_options ro = KVARC_READER_OPTIONS_INIT;
	kvarc_source source = input_source(in);
	kvarc_reader *r;

	library_common(o, &ro.common, error);
	profiles_reader(&ro);
	ro.predictor = models_given();
	*ret = kvarc_reader_open(&r, &source, &ro);
	if (*ret == KVARC_DATA) {
		/* Only the first error is shown. */
		ro.common.error = NULL;
		ro.flags = KVARC_READ_SALVAGE;
		if (kvarc_reader_open(&r, &source, &ro) != KVARC_OK)
			return NULL;
	}
	return r;
}

static void test_one(const struct options *o, const char *file)
{
	struct damage_list damage = { 0 };
	struct input in;
	kvarc_error error;
	kvarc_reader *r;
	kvarc_ret ret, verified = KVARC_OK;
	double start = units_now();

	if (!input_open(&in, file, true))
		return;
	progress_start(file, KVARC_UNKNOWN);
	r = open_any(o, &in, &error, &ret);
	if (r) {
		progress_tokens(models_tokens(r, NULL));
		verified = kvarc_reader_verify(r, damage_collect, &damage);
	}
	progress_stop();
	if (ret == KVARC_OK)
		ret = verified;
	report(o, &in, r, ret, &error, units_now() - start, &damage);
	kvarc_reader_close(&r);
	damage_free(&damage);
	input_close(&in);
}

void cmd_test(const struct options *o)
{
	if (!paths_check_reading(o))
		return;
	for (size_t i = 0; i < o->n_files; i++)
		test_one(o, o->files[i]);
}
