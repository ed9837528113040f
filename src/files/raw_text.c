/* SPDX-License-Identifier: BSD-3-Clause */
/* raw_text.c - the text that describes raw pages, and what a file's size adds to it */
#include <inttypes.h>
#include <stdbool.h>
#include <string.h>

#include "raw_pages.h"
#include "util/ckd.h"
#include "util/error.h"

const char *kvi_raw_shown(char to[KVI_RAW_SHOWN], const char *text, size_t n)
{
	size_t i = 0;
	for (; i < n && i < KVI_RAW_SHOWN - 1; i++)
		to[i] = text[i] >= 0x20 && text[i] < 0x7f ? text[i] : '?';
	to[i] = '\0';
	return to;
}

static bool take_dtype(const char *p, size_t n, uint8_t *dtype)
{
	for (unsigned d = KVARC_F32; d <= KVARC_U8; d++) {
		const char *name = kvarc_dtype_name(d);
		if (strlen(name) == n && !strncmp(name, p, n)) {
			*dtype = (uint8_t)d;
			return true;
		}
	}
	return false;
}

/* Each letter is one of those known, and stands there once; tokens and channels are there. */
static bool take_order(const char *p, size_t n, struct kvi_raw *r)
{
	if (n == 0 || n > KVI_RAW_AXES_MAX)
		return false;
	for (size_t i = 0; i < n; i++) {
		if (!strchr(KVI_RAW_LETTERS, p[i]) || strchr(r->order, p[i]))
			return false;
		r->order[i] = p[i];
		r->extent[i] = p[i] == '2' ? 2 : 0;
	}
	const bool t = strchr(r->order, 'T'), b = strchr(r->order, 'B');
	return strchr(r->order, 'D') && t != b && (b || !strchr(r->order, 'P'));
}

/* "L=30" of an axis that has no extent yet. */
static bool take_extent(const char *p, size_t n, struct kvi_raw *r)
{
	const char *at = n > 2 && p[1] == '=' && p[0] != '2' ? strchr(r->order, p[0]) : NULL;
	uint64_t v = 0;
	if (!at || !*at || r->extent[at - r->order])
		return false;
	for (size_t i = 2; i < n; i++) {
		if (p[i] < '0' || p[i] > '9')
			return false;
		v = v * 10 + (uint64_t)(p[i] - '0');
		if (v > UINT32_MAX)
			return false;
	}
	r->extent[at - r->order] = v;
	return v > 0;
}

kvarc_ret kvi_raw_parse(struct kvi_raw *r, const char *text, kvarc_error *e)
{
	*r = (struct kvi_raw){ 0 };
	for (unsigned k = 0; *text || k < 2; k++) {
		const size_t n = strcspn(text, ",");
		char shown[KVI_RAW_SHOWN];
		kvi_raw_shown(shown, text, n);
		if (k == 0 && !take_dtype(text, n, &r->dtype))
			return kvi_fail(e, KVARC_PROG,
			                "raw pages: '%s' is no type of elements; give bf16, f16, "
			                "f32, e4m3, e5m2, i8 or u8",
			                shown);
		if (k == 1 && !take_order(text, n, r))
			return kvi_fail(e, KVARC_PROG,
			                "raw pages: '%s' is no order of axes; give letters "
			                "of %s once each, with D and with T or B",
			                shown, KVI_RAW_LETTERS);
		if (k > 1 && !take_extent(text, n, r))
			return kvi_fail(e, KVARC_PROG,
			                "raw pages: '%s' is no extent; give one for each axis of "
			                "'%s', like D=64",
			                shown, r->order);
		text += n + (text[n] == ',');
	}
	size_t missing = 0;
	for (size_t i = 0; r->order[i]; i++)
		missing += r->extent[i] == 0;
	if (missing > 1)
		return kvi_fail(e, KVARC_PROG,
		                "raw pages: %zu axes of '%s' have no extent; one of them follows "
		                "from the size of the file, give the others",
		                missing, r->order);
	return KVARC_OK;
}

kvarc_ret kvi_raw_fit(struct kvi_raw *r, uint64_t bytes, kvarc_error *e)
{
	uint64_t unit = kvarc_dtype_bytes(r->dtype);
	size_t missing = KVI_RAW_AXES_MAX;
	for (size_t i = 0; r->order[i]; i++) {
		if (r->extent[i] == 0)
			missing = i;
		else if (kvi_mul(unit, r->extent[i], &unit))
			unit = UINT64_MAX;
	}
	if (missing < KVI_RAW_AXES_MAX && bytes && bytes % unit == 0) {
		r->extent[missing] = bytes / unit;
		return KVARC_OK;
	}
	if (missing < KVI_RAW_AXES_MAX)
		return kvi_fail(e, KVARC_GEOMETRY,
		                "raw pages: the file has %" PRIu64 " bytes, which is not a number "
		                "of times the %" PRIu64 " bytes of one %c",
		                bytes, unit, r->order[missing]);
	if (bytes != unit)
		return kvi_fail(e, KVARC_GEOMETRY,
		                "raw pages: the file has %" PRIu64 " bytes, and the axes '%s' have "
		                "%" PRIu64,
		                bytes, r->order, unit);
	return KVARC_OK;
}
