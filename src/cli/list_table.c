/* SPDX-License-Identifier: BSD-3-Clause */
/* list_table.c - several archives as a table, a line for each one and a line of sums */
#include "config.h"

#include "list_table.h"

#include <stdio.h>
#include <string.h>

#include "identities.h"
#include "message.h"
#include "report.h"
#include "times.h"

enum { MODEL_COLUMNS = 20 };

static struct {
	uint64_t n, raw_bytes, file_bytes, tokens;
} sum;

/* The time that the archive records, else that of its file. */
static void date_of(char *out, size_t size, const struct input *in, kvarc_reader *r)
{
	const struct timespec t = identities_time(in, r);

	if (t.tv_sec || t.tv_nsec)
		times_local(out, size, t);
	else
		snprintf(out, size, "-");
}

/* The name of the model, cut to the width of its column at a character of UTF-8. */
static void model_of(char out[MODEL_COLUMNS + 1], kvarc_reader *r)
{
	const char *name = kvarc_reader_identity(r, "model");
	size_t n = name ? strlen(name) : 0;

	if (n > MODEL_COLUMNS) {
		n = MODEL_COLUMNS;
		while (n && ((unsigned char)name[n] & 0xc0) == 0x80)
			n--;
	}
	snprintf(out, MODEL_COLUMNS + 1, "%.*s", (int)n, n ? name : "-");
	if (n == 0)
		strcpy(out, "-");
}

static void report_row(struct report *report, uint64_t raw, uint64_t file, uint64_t tokens)
{
	report_start(report, false);
	report_u64(report, "file_bytes", file);
	report_real(report, ".ratio", (double)raw / (double)file, 0);
	report_u64(report, "tokens", tokens);
}

void list_table_add(const struct input *in, const struct shape *shape, kvarc_reader *r)
{
	const uint64_t raw = shape_raw_bytes(shape);
	char date[24], model[MODEL_COLUMNS + 1];
	struct report x;

	if (sum.n == 0)
		printf("%9s  %7s  %9s  %-16s  %-*s  %s\n", "size", "ratio", "tokens", "date",
		       MODEL_COLUMNS, "model", "archive");
	sum.n++;
	sum.raw_bytes += raw;
	sum.file_bytes += shape->info.file_bytes;
	sum.tokens += shape->tokens;
	date_of(date, sizeof(date), in, r);
	model_of(model, r);
	report_row(&x, raw, shape->info.file_bytes, shape->tokens);
	report_string(&x, ".date", date);
	report_string(&x, ".model", model);
	report_string(&x, ".name", msg_name(in->name));
	report_print(&x, "{file_bytes:9B}  {.ratio:7.2fx}  {tokens:9C}  {.date:-16}  {.model:-20}  "
	                 "{.name}\n");
	report_end(&x);
}

void list_table_end(void)
{
	struct report x;

	if (sum.n < 2)
		return;
	report_row(&x, sum.raw_bytes, sum.file_bytes, sum.tokens);
	report_u64(&x, ".n", sum.n);
	report_u64(&x, ".raw_bytes", sum.raw_bytes);
	report_string(&x, ".none", "");
	report_print(&x, "{file_bytes:9B}  {.ratio:7.2fx}  {tokens:9C}  {.none:-16}  {.none:-20}  "
	                 "{.n} archives, {.raw_bytes:B} unpacked\n");
	report_end(&x);
}
