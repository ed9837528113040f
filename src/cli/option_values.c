/* SPDX-License-Identifier: BSD-3-Clause */
/* option_values.c - takes the values of options by their types */
#include "config.h"

#include "option_values.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kvarc.h"
#include "message.h"
#include "units.h"

static int bad_value(const struct options *o, const struct option_row *r, const char *value,
                     const char *wanted)
{
	msg_error(NULL, "%s: '%s' is not a value for --%s; give %s", o->verb->name, value, r->name,
	          wanted);
	return -1;
}

static int add_string(struct option_list *list, const char *value)
{
	const char **p = realloc(list->p, (list->n + 1) * sizeof(*p));

	if (!p) {
		msg_error(NULL, "out of memory");
		return -1;
	}
	p[list->n++] = value;
	list->p = p;
	return 0;
}

/* Number of a choice of the row, from 1; 0: none of them. */
static unsigned choice_of(const struct option_row *r, const char *value)
{
	size_t n = strlen(value);
	unsigned i = 1;

	for (const char *p = r->choices; *p; i++) {
		size_t len = strcspn(p, " ");
		if (len == n && strncmp(p, value, n) == 0)
			return i;
		p += len + (p[len] == ' ');
	}
	return 0;
}

int options_set(struct options *o, const struct option_row *r, const char *value)
{
	const struct option_value *v = &r->value;
	char *member = (char *)o + v->at;
	uint64_t n;

	if (value && value[0] == '\0')
		return bad_value(o, r, value, "something that is not empty");
	switch (v->type) {
	case OPTION_FLAG:
		*(bool *)member = true;
		return 0;
	case OPTION_STRING:
		*(const char **)member = value;
		return 0;
	case OPTION_LIST:
		return add_string((struct option_list *)member, value);
	case OPTION_CHOICE:
		*(unsigned *)member = choice_of(r, value);
		return *(unsigned *)member ? 0 : bad_value(o, r, value, v->wanted);
	case OPTION_NUMBER:
		if (!units_parse_u64(value, v->max, &n) || n < v->min)
			return bad_value(o, r, value, v->wanted);
		*(uint64_t *)member = n;
		return 0;
	default:
		return v->set(o, r, value);
	}
}

/* ---- options with a way of their own ---- */

int options_set_quiet(struct options *o, const struct option_row *r, const char *value)
{
	(void)r, (void)value;
	o->verbosity = -1;
	return 0;
}

int options_set_verbose(struct options *o, const struct option_row *r, const char *value)
{
	(void)r, (void)value;
	o->verbosity++;
	return 0;
}

int options_set_level(struct options *o, const struct option_row *r, const char *value)
{
	uint64_t n;

	if (!units_parse_u64(value, 9, &n))
		return bad_value(o, r, value, "a level, 0 to 8");
	if (n > KVARC_LEVEL_MAX) {
		msg_error(NULL,
		          "level %d is not in kvarc %s; use -0 (fast), -1 (small), -2 "
		          "and -3 with a profile of the model, or -4 to -8 with the model itself",
		          (int)n, kvarc_version());
		return -1;
	}
	o->level = (int)n;
	o->level_given = true;
	return 0;
}

int options_set_threads(struct options *o, const struct option_row *r, const char *value)
{
	uint64_t n;

	if (!units_parse_u64(value, 1024, &n))
		return bad_value(o, r, value, "a number up to 1024, 0 for all cores");
	if (n == 0) {
		long cores = sysconf(_SC_NPROCESSORS_ONLN);
		n = cores > 1 ? (uint64_t)cores : 1;
	}
	o->threads = (unsigned)n;
	o->threads_given = true;
	return 0;
}

int options_set_device(struct options *o, const struct option_row *r, const char *value)
{
	if (strncmp(value, "cuda:", 5) || !units_parse_u64(value + 5, 1023, &o->device))
		return bad_value(o, r, value, "cuda: and the number of a GPU, such as cuda:0");
	o->device_given = true;
	return 0;
}

int options_set_memory(struct options *o, const struct option_row *r, const char *value)
{
	if (!units_parse_size(value, &o->memlimit) || o->memlimit == 0)
		return bad_value(o, r, value, "a size such as 64M or 1G");
	return 0;
}

int options_set_budget(struct options *o, const struct option_row *r, const char *value)
{
	/* 20 would be 20 bytes, which nobody means. */
	if (value[strspn(value, "0123456789")] == '\0' || !units_parse_size(value, &o->budget) ||
	    o->budget == 0)
		return bad_value(o, r, value, "a size with its unit, such as 500M or 20G");
	return 0;
}

int options_set_grace(struct options *o, const struct option_row *r, const char *value)
{
	if (!units_parse_seconds(value, &o->grace))
		return bad_value(o, r, value, "a time such as 90s, 30m, 2h or 1d");
	o->grace_given = true;
	return 0;
}

int options_set_isa(struct options *o, const struct option_row *r, const char *value)
{
	static const struct {
		const char *name;
		uint32_t bit;
	} sets[] = {
		{ "scalar", KVARC_ISA_SCALAR },
		{ "avx2", KVARC_ISA_AVX2 },
		{ "avx512", KVARC_ISA_AVX512 },
		{ "neon", KVARC_ISA_NEON },
	};

	for (size_t i = 0; i < sizeof(sets) / sizeof(sets[0]); i++) {
		if (strcmp(sets[i].name, value) != 0)
			continue;
		if (!(kvarc_isa_available() & sets[i].bit)) {
			msg_error(NULL,
			          "%s: this build on this processor has no "
			          "%s kernels; leave --isa out to use '%s'",
			          o->verb->name, value, kvarc_isa_name(KVARC_ISA_ALL));
			return -1;
		}
		o->isa_mask = sets[i].bit;
		return 0;
	}
	return bad_value(o, r, value, "scalar, avx2, avx512 or neon");
}

static int set_range(struct options *o, const struct option_row *r, const char *value,
                     uint64_t *first, uint64_t *n)
{
	if (!units_parse_range(value, first, n))
		return bad_value(o, r, value, "A-B counted from 0, both included, or A, or A-");
	o->range_given = true;
	return 0;
}

int options_set_layers(struct options *o, const struct option_row *r, const char *value)
{
	if (set_range(o, r, value, &o->layer0, &o->n_layers) != 0)
		return -1;
	return o->layer0 > 65535 ? bad_value(o, r, value, "layers up to 65535") : 0;
}

int options_set_tokens(struct options *o, const struct option_row *r, const char *value)
{
	return set_range(o, r, value, &o->token0, &o->n_tokens);
}

int options_set_track(struct options *o, const struct option_row *r, const char *value)
{
	o->range_given = true;
	return units_parse_u64(value, 4095, &o->track)
	               ? 0
	               : bad_value(o, r, value, "a whole number in range");
}

/* --max-error ERROR is --tier near:ERROR; a second one is one tier too many, whatever it says. */
int options_add_max_error(struct options *o, const struct option_row *r, const char *value)
{
	static const char near[] = "near:";

	(void)r;
	if (o->near_tier)
		return add_string(&o->tiers, o->near_tier);
	o->near_tier = malloc(strlen(value) + sizeof(near));
	if (!o->near_tier) {
		msg_error(NULL, "out of memory");
		return -1;
	}
	strcat(strcpy(o->near_tier, near), value);
	return add_string(&o->tiers, o->near_tier);
}

int options_add_identity(struct options *o, const struct option_row *r, const char *value)
{
	if (!strchr(value, '=') || value[0] == '=')
		return bad_value(o, r, value, "KEY=VALUE, as 'kvarc info' shows them");
	return add_string(&o->identity, value);
}

int options_set_predict(struct options *o, const struct option_row *r, const char *value)
{
	uint64_t n = 0;

	if (strcmp(value, "embedding") == 0)
		n = KVARC_BLIND_EMBEDDING;
	else if (strcmp(value, "token") != 0 &&
	         (strncmp(value, "top-", 4) != 0 ||
	          !units_parse_u64(value + 4, KVARC_BLIND_TOP_MAX, &n) || n == 0))
		return bad_value(o, r, value, "token, top-1 to top-16, or embedding");
	o->blind = (unsigned)n;
	return 0;
}

int options_set_dtype(struct options *o, const struct option_row *r, const char *value)
{
	static const unsigned known[] = { KVARC_F32, KVARC_F16, KVARC_BF16 };

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
		if (strcmp(value, kvarc_dtype_name(known[i])) == 0) {
			o->dtype = known[i];
			o->dtype_given = true;
			return 0;
		}
	}
	return bad_value(o, r, value, "f32, f16 or bf16");
}

int options_set_max_kl(struct options *o, const struct option_row *r, const char *value)
{
	char *end;

	o->max_kl = strtod(value, &end);
	if (*end || !(o->max_kl > 0) || o->max_kl > 100)
		return bad_value(o, r, value, "nats a token, such as 0.01");
	return 0;
}

int options_set_first_token(struct options *o, const struct option_row *r, const char *value)
{
	uint64_t n;

	if (!units_parse_u64(value, INT32_MAX, &n))
		return bad_value(o, r, value, "a whole number in range");
	o->first_token = (int32_t)n;
	return 0;
}

int options_set_repeat(struct options *o, const struct option_row *r, const char *value)
{
	uint64_t n;

	if (!units_parse_u64(value, 1000, &n))
		return bad_value(o, r, value, "a whole number in range");
	o->repeat = n ? (unsigned)n : 1;
	return 0;
}

int options_set_parity(struct options *o, const struct option_row *r, const char *value)
{
	enum { PIECES = 16, ALL = 100, FEW = 10 };
	uint64_t percent;

	if (!units_parse_u64(value, ALL, &percent) || percent < 1)
		return bad_value(o, r, value, "a percentage, 1 to 100");
	/* One row for many pieces; more rows where there is more of it. */
	o->parity_pieces = percent < FEW ? (uint32_t)(ALL / percent) : PIECES;
	o->parity_rows = percent < FEW ? 1 : (uint32_t)((PIECES * percent + ALL - 1) / ALL);
	return 0;
}
