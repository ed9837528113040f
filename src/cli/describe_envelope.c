/* SPDX-License-Identifier: BSD-3-Clause */
/* describe_envelope.c - what shows of an encrypted archive without its key */
#include "config.h"

#include <stdio.h>

#include "describe.h"
#include "message.h"
#include "report.h"
#include "units.h"

void describe_envelope(const char *file, const kvarc_envelope *envelope, bool json)
{
	struct report x;
	char version[16], id[33];

	snprintf(version, sizeof(version), "%u.%u", envelope->format_major, envelope->format_minor);
	report_start(&x, json);
	report_string(&x, "file", file);
	report_string(&x, ".file", msg_name(file));
	report_string(&x, "format_version", version);
	report_bool(&x, "encrypted", envelope->encrypted);
	report_u64(&x, "file_bytes", envelope->file_bytes);
	report_u64(&x, "frames", envelope->frames);
	report_u64(&x, "parity_frames", envelope->parity_frames);
	report_u64(&x, "keys", envelope->keys);
	report_u64(&x, "passphrases", envelope->passphrases);
	report_u64(&x, "argon2_passes", envelope->passes);
	report_u64(&x, "argon2_bytes", (uint64_t)envelope->memory_kib << 10);
	report_string(&x, "file_id", units_digest(id, envelope->file_id));
	report_print(&x, "{.file}: kvarc archive, format {format_version}, encrypted\n"
	                 "  opened by   {keys} key{keys:s} and {passphrases} "
	                 "passphrase{passphrases:s}"
	                 "[ (Argon2id: {argon2_passes} passes, {argon2_bytes:B})]\n"
	                 "  size        {file_bytes:B} in {frames:C} frames\n"
	                 "[  parity      {parity_frames} frames\n]"
	                 "  file id     {file_id}\n");
	report_end(&x);
}
