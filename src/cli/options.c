/* SPDX-License-Identifier: BSD-3-Clause */
/* options.c - parses the command line by the table in option_table.c */
#include "options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kvarc.h"
#include "message.h"
#include "nearest.h"
#include "option_ids.h"
#include "units.h"

const struct verb *options_verb(const char *name)
{
	for (const struct verb *v = options_verbs; v->name; v++) {
		if (strcmp(v->name, name) == 0)
			return v;
	}
	return NULL;
}

const char *options_nearest_verb(const char *name)
{
	struct nearest n;

	nearest_init(&n, name);
	for (const struct verb *v = options_verbs; v->name; v++)
		nearest_try(&n, v->name);
	return nearest_result(&n);
}

static int unknown_option(const struct verb *verb, const char *shown, const char *name)
{
	struct nearest n;
	const char *near;

	nearest_init(&n, name);
	for (const struct option_row *r = options_rows; r->name; r++) {
		if (strcmp(r->name, name) == 0) {
			const struct verb *v = options_verbs;
			while (!(v->bit & r->verbs))
				v++;
			msg_error(NULL,
			          "%s: option '--%s' belongs to 'kvarc %s'; "
			          "see 'kvarc %s --help'",
			          verb->name, name, v->name, verb->name);
			return -1;
		}
		if (r->verbs & verb->bit)
			nearest_try(&n, r->name);
	}
	near = nearest_result(&n);
	if (near)
		msg_error(NULL, "%s: unknown option '%s'; did you mean '--%s'?", verb->name, shown,
		          near);
	else
		msg_error(NULL, "%s: unknown option '%s'; see 'kvarc %s --help'", verb->name, shown,
		          verb->name);
	return -1;
}

static int bad_value(const struct options *o, const struct option_row *r, const char *value,
                     const char *wanted)
{
	msg_error(NULL, "%s: '%s' is not a value for --%s; give %s", o->verb->name, value, r->name,
	          wanted);
	return -1;
}

static int set_level(struct options *o, const struct option_row *r, const char *value)
{
	uint64_t n;

	if (!units_parse_u64(value, 9, &n))
		return bad_value(o, r, value, "a level, 0 to 8");
	if (n > KVARC_LEVEL_MAX) {
		msg_error(NULL,
		          "level %d is not in kvarc %s; use -0 (fast), -1 (small), -2 "
		          "and -3 with a profile of the model, or -4 to -8 with the "
		          "model itself",
		          (int)n, kvarc_version());
		return -1;
	}
	o->level = (int)n;
	o->level_given = true;
	return 0;
}

static int set_threads(struct options *o, const struct option_row *r, const char *value)
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

static int set_memory(struct options *o, const struct option_row *r, const char *value)
{
	if (!units_parse_size(value, &o->memlimit) || o->memlimit == 0)
		return bad_value(o, r, value, "a size such as 64M or 1G");
	return 0;
}

static int set_isa(struct options *o, const struct option_row *r, const char *value)
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

static int set_number(struct options *o, const struct option_row *r, const char *value,
                      uint64_t max, uint64_t *n)
{
	if (!units_parse_u64(value, max, n))
		return bad_value(o, r, value, "a whole number in range");
	return 0;
}

/* One more of an option that may be repeated. */
static int add_string(const char ***list, size_t *n, const char *value)
{
	const char **p = realloc(*list, (*n + 1) * sizeof(*p));

	if (!p) {
		msg_error(NULL, "out of memory");
		return -1;
	}
	p[(*n)++] = value;
	*list = p;
	return 0;
}

/* --max-error ERROR is --tier near:ERROR; a second one is one tier too many, whatever it says. */
static int add_max_error(struct options *o, const char *value)
{
	static const char near[] = "near:";

	if (o->near_tier)
		return add_string(&o->tiers, &o->n_tiers, o->near_tier);
	o->near_tier = malloc(strlen(value) + sizeof(near));
	if (!o->near_tier) {
		msg_error(NULL, "out of memory");
		return -1;
	}
	strcat(strcpy(o->near_tier, near), value);
	return add_string(&o->tiers, &o->n_tiers, o->near_tier);
}

static int add_identity(struct options *o, const struct option_row *r, const char *value)
{
	if (!strchr(value, '=') || value[0] == '=')
		return bad_value(o, r, value, "KEY=VALUE, as 'kvarc info' shows them");
	return add_string(&o->identity, &o->n_identity, value);
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

static int set_choice(struct options *o, const struct option_row *r, const char *value,
                      unsigned *to, const char *wanted)
{
	*to = choice_of(r, value);
	return *to ? 0 : bad_value(o, r, value, wanted);
}

/* --arith and --loop without a level: the one whose own they are, else that of its loop. */
static int choose_level(struct options *o)
{
	if (o->blind && (!o->model || o->loop == KVARC_LOOP_CLOSED)) {
		msg_error(NULL, "%s: --predict needs --model and an open loop", o->verb->name);
		return -1;
	}
	if (o->blind && o->arithmetic)
		o->loop = KVARC_LOOP_OPEN;
	bool open = o->loop == KVARC_LOOP_OPEN;

	if ((!o->arithmetic && !o->loop) || o->verb->bit == VERB_EVAL)
		return 0;
	if (o->level_given && o->level < 4) {
		msg_error(NULL, "%s: --arith and --loop are for levels 4 to 8", o->verb->name);
		return -1;
	}
	if (!o->level_given)
		o->level = open                                       ? 4
		           : o->arithmetic == KVARC_ARITHMETIC_W8A15  ? 6
		           : o->arithmetic == KVARC_ARITHMETIC_W15A15 ? 7
		                                                      : 5;
	o->loop = o->level_given || o->loop ? o->loop : KVARC_LOOP_CLOSED;
	o->level_given = true;
	return 0;
}

static int set_predict(struct options *o, const struct option_row *r, const char *value)
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

static int set_to(struct options *o, const struct option_row *r, const char *value)
{
	if (strcmp(value, "safetensors") != 0)
		return bad_value(o, r, value, "safetensors");
	o->to = value;
	return 0;
}

static int set_dtype(struct options *o, const struct option_row *r, const char *value)
{
	static const unsigned known[] = { KVARC_F32, KVARC_F16, KVARC_BF16 };

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
		if (strcmp(value, kvarc_dtype_name(known[i])) == 0) {
			o->dtype = known[i];
			return 0;
		}
	}
	return bad_value(o, r, value, "f32, f16 or bf16");
}

static int set_write(struct options *o, const struct option_row *r, const char *value)
{
	if (!units_parse_u64(value, 1 << 30, &o->write) || o->write < 2)
		return bad_value(o, r, value, "a number of tokens");
	return 0;
}

static int set_tokens(struct options *o, const struct option_row *r, const char *value,
                      uint64_t least, uint64_t *n)
{
	if (!units_parse_u64(value, 1 << 24, n) || *n < least)
		return bad_value(o, r, value,
		                 least > 1 ? "a number, at least 2" : "a number, at least 1");
	return 0;
}

static int set_max_kl(struct options *o, const struct option_row *r, const char *value)
{
	char *end;

	o->max_kl = strtod(value, &end);
	if (*end || !(o->max_kl > 0) || o->max_kl > 100)
		return bad_value(o, r, value, "nats a token, such as 0.01");
	return 0;
}

/* An option with an argument. */
static int set_value(struct options *o, const struct option_row *r, const char *value)
{
	uint64_t n;

	if (value[0] == '\0')
		return bad_value(o, r, value, "something that is not empty");
	switch (r->id) {
	case OPT_OUTPUT:
		o->output = value;
		return 0;
	case OPT_ROPE:
		o->rope = value;
		return 0;
	case OPT_MODEL:
		o->model = value;
		return 0;
	case OPT_KV_RULE:
		o->kv_rule = value;
		return 0;
	case OPT_AXES:
		o->axes = value;
		return 0;
	case OPT_PLOT:
		o->plot = value;
		return 0;
	case OPT_TO:
		return set_to(o, r, value);
	case OPT_SALVAGE_TOKENS:
		return set_choice(o, r, value, &o->salvage_tokens, "keep or zero");
	case OPT_ARITH:
		return set_choice(o, r, value, &o->arithmetic, "w8a8, w8a15, w15a15 or fp8");
	case OPT_LOOP:
		return set_choice(o, r, value, &o->loop, "open or closed");
	case OPT_PREDICT:
		return set_predict(o, r, value);
	case OPT_TOKEN_IDS:
		return set_choice(o, r, value, &o->token_ids, "stored or model");
	case OPT_LEVEL:
		return set_level(o, r, value);
	case OPT_THREADS:
		return set_threads(o, r, value);
	case OPT_MEMORY:
		return set_memory(o, r, value);
	case OPT_ISA:
		return set_isa(o, r, value);
	case OPT_IDENTITY:
		return add_identity(o, r, value);
	case OPT_PROFILE:
		return add_string(&o->profiles, &o->n_profiles, value);
	case OPT_TIER:
		return add_string(&o->tiers, &o->n_tiers, value);
	case OPT_MAX_ERROR:
		return add_max_error(o, value);
	case OPT_SEQUENCES:
		return set_tokens(o, r, value, 1, &o->sequences);
	case OPT_PREFIX:
		return set_tokens(o, r, value, 1, &o->prefix);
	case OPT_CONTINUE:
		return set_tokens(o, r, value, 2, &o->continuation);
	case OPT_MAX_KL:
		return set_max_kl(o, r, value);
	case OPT_SCORES:
		o->scores = value;
		return 0;
	case OPT_MEASURE:
		return add_string(&o->measure, &o->n_measure, value);
	case OPT_LAYERS:
		if (set_range(o, r, value, &o->layer0, &o->n_layers) != 0)
			return -1;
		return o->layer0 > 65535 ? bad_value(o, r, value, "layers up to 65535") : 0;
	case OPT_TOKENS:
		return set_range(o, r, value, &o->token0, &o->n_tokens);
	case OPT_TRACK:
		o->range_given = true;
		return set_number(o, r, value, 4095, &o->track);
	case OPT_DTYPE:
		return set_dtype(o, r, value);
	case OPT_WRITE:
		return set_write(o, r, value);
	case OPT_SEED:
		return set_number(o, r, value, UINT64_MAX, &o->seed);
	case OPT_FIRST_TOKEN:
		if (set_number(o, r, value, INT32_MAX, &n) != 0)
			return -1;
		o->first_token = (int32_t)n;
		return 0;
	case OPT_GROUP:
		return set_tokens(o, r, value, 1, &o->group);
	case OPT_HELD_OUT:
		if (!units_parse_u64(value, 50, &n))
			return bad_value(o, r, value, "a percentage, 0 to 50");
		o->held_out = (unsigned)n;
		return 0;
	default: /* OPT_REPEAT */
		if (set_number(o, r, value, 1000, &n) != 0)
			return -1;
		o->repeat = n ? (unsigned)n : 1;
		return 0;
	}
}

static void set_flag(struct options *o, int id)
{
	switch (id) {
	case OPT_STDOUT:
		o->output = "-";
		break;
	case OPT_FORCE:
		o->force = true;
		break;
	case OPT_HEAD_BLOCK:
		o->head_block = true;
		break;
	case OPT_WHOLE_LAYER:
		o->whole_layer = true;
		break;
	case OPT_NO_TABLE:
		o->no_table = true;
		break;
	case OPT_NO_STAGES:
		o->no_stages = true;
		break;
	case OPT_KEEP:
		o->keep = true;
		break;
	case OPT_RM:
		o->remove = true;
		break;
	case OPT_QUIET:
		o->verbosity = -1;
		break;
	case OPT_VERBOSE:
		o->verbosity++;
		break;
	case OPT_JSON:
		o->json = true;
		break;
	case OPT_OPAQUE:
		o->opaque = true;
		break;
	case OPT_MEMBERS:
		o->members = true;
		break;
	case OPT_VERIFY:
		o->verify = true;
		break;
	case OPT_STREAMABLE:
		o->streamable = true;
		break;
	case OPT_SALVAGE:
		o->salvage = true;
		break;
	case OPT_ALLOW_LOSSY:
		o->allow_lossy = true;
		break;
	case OPT_KLT:
		o->klt = true;
		break;
	case OPT_EMBED:
		o->embed_profile = true;
		break;
	default:
		break;
	}
}

/* "--name", "--name=value", "--name value" at argv[*i]. */
static int long_option(struct options *o, int argc, char **argv, int *i)
{
	const char *text = argv[*i], *equal = strchr(text, '=');
	size_t len = equal ? (size_t)(equal - text) - 2 : strlen(text) - 2;
	const struct option_row *r = options_rows;
	char name[64];

	if (len >= sizeof(name))
		len = sizeof(name) - 1;
	memcpy(name, text + 2, len);
	name[len] = '\0';
	while (r->name && !(strcmp(r->name, name) == 0 && (r->verbs & o->verb->bit)))
		r++;
	if (!r->name) {
		char shown[72];
		snprintf(shown, sizeof(shown), "--%s", name);
		return unknown_option(o->verb, shown, name);
	}
	if (r->id == OPT_HELP) {
		help_verb(o->verb);
		return 1;
	}
	if (!r->arg) {
		if (equal) {
			msg_error(NULL, "%s: option '--%s' takes no value", o->verb->name, name);
			return -1;
		}
		set_flag(o, r->id);
		return 0;
	}
	if (equal)
		return set_value(o, r, equal + 1);
	if (*i + 1 >= argc) {
		msg_error(NULL, "%s: option '--%s' needs a value: --%s %s", o->verb->name, name,
		          name, r->arg);
		return -1;
	}
	return set_value(o, r, argv[++*i]);
}

/* "-kvT4", "-T 4" at argv[*i]. */
static int short_options(struct options *o, int argc, char **argv, int *i)
{
	for (const char *p = argv[*i] + 1; *p; p++) {
		const struct option_row *r = options_rows;
		char digit[2] = { *p, '\0' };
		bool is_level = *p >= '0' && *p <= '9';

		while (r->name && !((is_level ? r->id == OPT_LEVEL : r->letter == *p) &&
		                    (r->verbs & o->verb->bit)))
			r++;
		if (!r->name) {
			msg_error(NULL, "%s: unknown option '-%c'; see 'kvarc %s --help'",
			          o->verb->name, *p, o->verb->name);
			return -1;
		}
		if (r->id == OPT_HELP) {
			help_verb(o->verb);
			return 1;
		}
		if (is_level) {
			if (set_level(o, r, digit) != 0)
				return -1;
		} else if (!r->arg) {
			set_flag(o, r->id);
		} else if (p[1]) {
			return set_value(o, r, p + 1);
		} else if (*i + 1 >= argc) {
			msg_error(NULL, "%s: option '-%c' needs a value: -%c %s", o->verb->name, *p,
			          *p, r->arg);
			return -1;
		} else {
			return set_value(o, r, argv[++*i]);
		}
	}
	return 0;
}

/* Options that stand in the place of a verb. */
static int without_verb(int argc, char **argv)
{
	const char *text = argv[1];
	const char *near;

	if (strcmp(text, "--version") == 0 || strcmp(text, "-V") == 0) {
		printf("kvarc %s (format %d.%d, kernels: %s)\n", kvarc_version(),
		       KVARC_FORMAT_MAJOR, KVARC_FORMAT_MINOR, kvarc_isa_name(KVARC_ISA_ALL));
		return 1;
	}
	if (strcmp(text, "--help") == 0 || strcmp(text, "-h") == 0) {
		help_overview();
		return 1;
	}
	if (strcmp(text, "--option-table") == 0) {
		completions_print_table();
		return 1;
	}
	if (strcmp(text, "--completions") == 0) {
		if (argc == 3 && completions_print(argv[2]))
			return 1;
		msg_error(NULL, "--completions needs a shell: bash, zsh or fish");
		return -1;
	}
	if (text[0] == '-') {
		msg_error(NULL,
		          "'%s' stands where a verb belongs; "
		          "try 'kvarc pack %s ...' or 'kvarc help'",
		          text, text);
		return -1;
	}
	near = options_nearest_verb(text);
	if (near)
		msg_error(NULL, "unknown verb '%s'; did you mean 'kvarc %s'?", text, near);
	else if (access(text, F_OK) == 0)
		msg_error(NULL,
		          "'%s' stands where a verb belongs; "
		          "did you mean 'kvarc pack %s'?",
		          text, text);
	else
		msg_error(NULL, "unknown verb '%s'; see 'kvarc help'", text);
	return -1;
}

static void set_defaults(struct options *o)
{
	long cores = sysconf(_SC_NPROCESSORS_ONLN);

	memset(o, 0, sizeof(*o));
	o->level = KVARC_LEVEL_DEFAULT;
	/* More than four seldom pays for itself in memory. */
	o->threads = cores < 1 ? 1 : cores > 4 ? 4 : (unsigned)cores;
	o->repeat = 5;
	o->held_out = 10;
	o->first_token = -1;
	o->dtype = KVARC_BF16;
	o->sequences = 64;
	o->prefix = 512;
	o->continuation = 64;
	o->n_layers = UINT64_MAX;
	o->n_tokens = UINT64_MAX;
}

int options_parse(struct options *o, int argc, char **argv)
{
	bool only_files = false;

	set_defaults(o);
	if (argc < 2) {
		msg_error(NULL, "a verb is missing; see 'kvarc help'");
		return -1;
	}
	o->verb = options_verb(argv[1]);
	if (!o->verb)
		return without_verb(argc, argv);
	o->files = calloc((size_t)argc, sizeof(*o->files));
	if (!o->files) {
		msg_error(NULL, "out of memory");
		return -1;
	}
	for (int i = 2; i < argc; i++) {
		const char *text = argv[i];
		int ret = 0;

		if (only_files || text[0] != '-' || text[1] == '\0') {
			if (text[0] == '\0') {
				msg_error(NULL, "%s: a file name is empty", o->verb->name);
				return -1;
			}
			o->files[o->n_files++] = argv[i];
		} else if (strcmp(text, "--") == 0) {
			only_files = true;
		} else if (text[1] == '-') {
			ret = long_option(o, argc, argv, &i);
		} else {
			ret = short_options(o, argc, argv, &i);
		}
		if (ret != 0)
			return ret;
	}
	return choose_level(o);
}

void options_free(struct options *o)
{
	free(o->files);
	free(o->identity);
	free(o->profiles);
	free(o->measure);
	free(o->tiers);
	free(o->near_tier);
}
