/* SPDX-License-Identifier: BSD-3-Clause */
/* option_table.c - the verbs and options that there are, and how options take values */
#include "config.h"

#include "option_table.h"

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "commands.h"
#include "infile.h"
#include "kvarc.h"
#include "message.h"
#include "units.h"

/* ==== The word that was probably meant ==== */

enum { LONGEST = 31 };

static unsigned min3(unsigned a, unsigned b, unsigned c)
{
	unsigned m = a < b ? a : b;

	return m < c ? m : c;
}

/* Edits to turn a into b: insert, remove, replace, or swap two neighbours
 * (optimal string alignment). */
static unsigned edits(const char *a, const char *b)
{
	size_t na = strlen(a), nb = strlen(b);
	unsigned d[LONGEST + 1][LONGEST + 1];

	if (na > LONGEST || nb > LONGEST)
		return LONGEST;
	for (size_t i = 0; i <= na; i++)
		d[i][0] = (unsigned)i;
	for (size_t j = 0; j <= nb; j++)
		d[0][j] = (unsigned)j;
	for (size_t i = 1; i <= na; i++) {
		for (size_t j = 1; j <= nb; j++) {
			unsigned same = a[i - 1] == b[j - 1] ? 0 : 1;
			d[i][j] = min3(d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + same);
			if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
			    d[i - 2][j - 2] + 1 < d[i][j])
				d[i][j] = d[i - 2][j - 2] + 1;
		}
	}
	return d[na][nb];
}

/* The best candidate so far. Strings are borrowed. */
struct nearest {
	const char *wrong, *best;
	unsigned distance;
};

static void nearest_init(struct nearest *n, const char *wrong)
{
	n->wrong = wrong;
	n->best = NULL;
	n->distance = LONGEST;
}

/* Takes candidate if it is closer than all before. */
static void nearest_try(struct nearest *n, const char *candidate)
{
	unsigned distance = edits(n->wrong, candidate);
	size_t len = strlen(n->wrong);

	/* The beginning of a word is as good as one edit. */
	if (len >= 3 && strncmp(n->wrong, candidate, len) == 0)
		distance = 1;
	if (distance < n->distance) {
		n->distance = distance;
		n->best = candidate;
	}
}

/* NULL when no candidate is close. */
static const char *nearest_result(const struct nearest *n)
{
	size_t len = strlen(n->wrong);

	return n->distance <= (len < 3 ? 1 : 1 + len / 4) ? n->best : NULL;
}

/* ==== The names and letters that users of zstd, xz and tar give to verbs ==== */

static const struct {
	const char *alias, *verb;
} aliases[] = {
	{ "-z", "pack" },   { "--compress", "pack" },     { "compress", "pack" },
	{ "-d", "unpack" }, { "--decompress", "unpack" }, { "decompress", "unpack" },
	{ "-x", "unpack" }, { "--extract", "unpack" },    { "extract", "unpack" },
	{ "x", "unpack" },  { "--uncompress", "unpack" }, { "restore", "unpack" },
	{ "-t", "test" },   { "--test", "test" },         { "verify", "test" },
	{ "-l", "list" },   { "--list", "list" },         { "ls", "list" },
	{ "show", "info" },
};

const char *verb_alias(const char *text)
{
	for (size_t i = 0; i < sizeof(aliases) / sizeof(aliases[0]); i++) {
		if (strcmp(aliases[i].alias, text) == 0)
			return aliases[i].verb;
	}
	return NULL;
}

const char *verb_alias_of_letters(const char *text)
{
	const char first[] = { '-', text[0] == '-' ? text[1] : '\0', '\0' };

	return first[1] && first[1] != '-' && text[2] && !verb_of_tar(text) ? verb_alias(first)
	                                                                    : NULL;
}

const char *verb_of_tar(const char *text)
{
	static const char letters[] = "xtc";
	static const char *const verbs[] = { "unpack", "list", "pack" };
	const char *p = text + (text[0] == '-');
	const char *mode = *p ? strchr(letters, *p) : NULL;
	size_t n = strlen(p);

	if (!mode || n < 2 || strspn(p, "xtcfvzJj") != n || !strchr(p, 'f'))
		return NULL;
	return verbs[mode - letters];
}

/* ==== Takes the values of options by their types ==== */

static int bad_value(const struct option_row *r, const char *value, const char *wanted)
{
	msg_usage("'%s' is not a value for --%s; give %s", value, r->name, wanted);
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

int options_set(struct options *options, const struct option_row *r, const char *value)
{
	const struct option_value *v = &r->value;
	char *member = (char *)options + v->at;
	uint64_t n;

	if (value && value[0] == '\0')
		return bad_value(r, value, "something that is not empty");
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
		return *(unsigned *)member ? 0 : bad_value(r, value, v->wanted);
	case OPTION_NUMBER:
		if (!units_parse_u64(value, v->max, &n) || n < v->min)
			return bad_value(r, value, v->wanted);
		*(uint64_t *)member = n;
		return 0;
	default:
		return v->set(options, r, value);
	}
}

/* ---- options with a way of their own ---- */

static int options_set_quiet(struct options *options, const struct option_row *r, const char *value)
{
	(void)r, (void)value;
	options->verbosity = -1;
	return 0;
}

static int options_set_verbose(struct options *options, const struct option_row *r,
                               const char *value)
{
	(void)r, (void)value;
	options->verbosity++;
	return 0;
}

int options_set_level(struct options *options, const struct option_row *r, const char *value)
{
	uint64_t n;

	if (!units_parse_u64(value, 9, &n))
		return bad_value(r, value, "a level, 0 to 8");
	if (n > KVARC_LEVEL_MAX) {
		msg_error(NULL,
		          "level %d is not in kvarc %s; use -0 (fast), -1 (small), -2 "
		          "and -3 by a profile of the model, or -4 to -8 with the model itself",
		          (int)n, kvarc_version());
		return -1;
	}
	options->coding.level = (int)n;
	options->coding.level_given = true;
	return 0;
}

static int options_set_threads(struct options *options, const struct option_row *r,
                               const char *value)
{
	uint64_t n;

	if (!units_parse_u64(value, 1024, &n))
		return bad_value(r, value, "a number up to 1024, 0 for all cores");
	if (n == 0) {
		long cores = sysconf(_SC_NPROCESSORS_ONLN);
		n = cores > 1 ? (uint64_t)cores : 1;
	}
	options->work.threads = (unsigned)n;
	options->work.threads_given = true;
	return 0;
}

static int options_set_device(struct options *options, const struct option_row *r,
                              const char *value)
{
	if (strncmp(value, "cuda:", 5) ||
	    !units_parse_u64(value + 5, 1023, &options->device.number))
		return bad_value(r, value, "cuda: and the number of a GPU, such as cuda:0");
	options->device.given = true;
	return 0;
}

static int options_set_memory(struct options *options, const struct option_row *r,
                              const char *value)
{
	if (!units_parse_size(value, &options->work.memlimit) || options->work.memlimit == 0)
		return bad_value(r, value, "a size such as 64M or 1G");
	return 0;
}

static int options_set_budget(struct options *options, const struct option_row *r,
                              const char *value)
{
	/* 20 would be 20 bytes, which nobody means. */
	if (value[strspn(value, "0123456789")] == '\0' ||
	    !units_parse_size(value, &options->gc.budget) || options->gc.budget == 0)
		return bad_value(r, value, "a size with its unit, such as 500M or 20G");
	return 0;
}

static int options_set_grace(struct options *options, const struct option_row *r, const char *value)
{
	if (!units_parse_seconds(value, &options->gc.grace))
		return bad_value(r, value, "a time such as 90s, 30m, 2h or 1d");
	options->gc.grace_given = true;
	return 0;
}

static int options_set_isa(struct options *options, const struct option_row *r, const char *value)
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
			msg_usage("this build on this processor has no %s kernels; leave --isa out "
			          "to use '%s'",
			          value, kvarc_isa_name(KVARC_ISA_ALL));
			return -1;
		}
		options->work.isa_mask = sets[i].bit;
		return 0;
	}
	return bad_value(r, value, "scalar, avx2, avx512 or neon");
}

static int set_range(struct options *options, const struct option_row *r, const char *value,
                     uint64_t *first, uint64_t *n)
{
	if (!units_parse_range(value, first, n))
		return bad_value(r, value, "A-B counted from 0, both included, or A, or A-");
	options->extract.range_given = true;
	return 0;
}

static int options_set_layers(struct options *options, const struct option_row *r,
                              const char *value)
{
	if (set_range(options, r, value, &options->extract.layer0, &options->extract.n_layers) != 0)
		return -1;
	return options->extract.layer0 > 65535 ? bad_value(r, value, "layers up to 65535") : 0;
}

static int options_set_tokens(struct options *options, const struct option_row *r,
                              const char *value)
{
	return set_range(options, r, value, &options->extract.token0, &options->extract.n_tokens);
}

static int options_set_track(struct options *options, const struct option_row *r, const char *value)
{
	options->extract.range_given = true;
	return units_parse_u64(value, 4095, &options->extract.track)
	               ? 0
	               : bad_value(r, value, "a whole number in range");
}

/* --max-error ERROR is --tier near:ERROR; a second one is one tier too many, whatever it says. */
static int options_add_max_error(struct options *options, const struct option_row *r,
                                 const char *value)
{
	static const char near[] = "near:";

	(void)r;
	if (options->lossy.near_tier)
		return add_string(&options->lossy.tiers, options->lossy.near_tier);
	options->lossy.near_tier = malloc(strlen(value) + sizeof(near));
	if (!options->lossy.near_tier) {
		msg_error(NULL, "out of memory");
		return -1;
	}
	strcat(strcpy(options->lossy.near_tier, near), value);
	return add_string(&options->lossy.tiers, options->lossy.near_tier);
}

static int options_add_identity(struct options *options, const struct option_row *r,
                                const char *value)
{
	if (!strchr(value, '=') || value[0] == '=')
		return bad_value(r, value, "KEY=VALUE, as 'kvarc info' shows them");
	return add_string(&options->archive.identity, value);
}

static int options_set_predict(struct options *options, const struct option_row *r,
                               const char *value)
{
	uint64_t n = 0;

	if (strcmp(value, "embedding") == 0)
		n = KVARC_BLIND_EMBEDDING;
	else if (strcmp(value, "token") != 0 &&
	         (strncmp(value, "top-", 4) != 0 ||
	          !units_parse_u64(value + 4, KVARC_BLIND_TOP_MAX, &n) || n == 0))
		return bad_value(r, value, "token, top-1 to top-16, or embedding");
	options->coding.blind = (unsigned)n;
	return 0;
}

static int options_set_dtype(struct options *options, const struct option_row *r, const char *value)
{
	static const unsigned known[] = { KVARC_F32, KVARC_F16, KVARC_BF16 };

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
		if (strcmp(value, kvarc_dtype_name(known[i])) == 0) {
			options->dtype = known[i];
			options->dtype_given = true;
			return 0;
		}
	}
	return bad_value(r, value, "f32, f16 or bf16");
}

static int options_set_max_kl(struct options *options, const struct option_row *r,
                              const char *value)
{
	char *end;

	options->lossy.max_kl = strtod(value, &end);
	if (*end || !(options->lossy.max_kl > 0) || options->lossy.max_kl > 100)
		return bad_value(r, value, "nats a token, such as 0.01");
	return 0;
}

static int options_set_first_token(struct options *options, const struct option_row *r,
                                   const char *value)
{
	uint64_t n;

	if (!units_parse_u64(value, INT32_MAX, &n))
		return bad_value(r, value, "a whole number in range");
	options->train.first_token = (int32_t)n;
	return 0;
}

static int options_set_repeat(struct options *options, const struct option_row *r,
                              const char *value)
{
	uint64_t n;

	if (!units_parse_u64(value, 1000, &n))
		return bad_value(r, value, "a whole number in range");
	options->bench.repeat = n ? (unsigned)n : 1;
	return 0;
}

static int options_set_parity(struct options *options, const struct option_row *r,
                              const char *value)
{
	enum { PIECES = 16, ALL = 100, FEW = 10 };
	uint64_t percent;

	if (!units_parse_u64(value, ALL, &percent) || percent < 1)
		return bad_value(r, value, "a percentage, 1 to 100");
	/* One row serves many pieces; higher percentages need more rows. */
	options->archive.parity_pieces = percent < FEW ? (uint32_t)(ALL / percent) : PIECES;
	options->archive.parity_rows = percent < FEW
	                                       ? 1
	                                       : (uint32_t)((PIECES * percent + ALL - 1) / ALL);
	return 0;
}

/* ==== --kv-rule and --kv-rules: rules for tensor names, one text of lines ==== */

enum { RULES_BYTES = 64 << 10 }; /* limit of the library */

/* Adds n bytes and the end of a line. */
static int add_text(struct options *options, const char *text, size_t n)
{
	size_t had = options->import.kv_rule ? strlen(options->import.kv_rule) : 0;
	char *p = realloc(options->import.kv_rule, had + n + 2);

	if (!p) {
		msg_error(NULL, "out of memory");
		return -1;
	}
	memcpy(p + had, text, n);
	p[had + n] = '\n';
	p[had + n + 1] = '\0';
	options->import.kv_rule = p;
	return 0;
}

static int options_add_rule(struct options *options, const struct option_row *r, const char *value)
{
	(void)r;
	return add_text(options, value, strlen(value));
}

static int options_add_rules(struct options *options, const struct option_row *r, const char *value)
{
	FILE *f = input_fopen(value);
	char *text = f ? malloc(RULES_BYTES) : NULL;
	size_t n = text ? fread(text, 1, RULES_BYTES, f) : 0;
	int ret = -1;

	(void)r;
	if (!f)
		return -1;
	if (!text)
		msg_error(NULL, "out of memory");
	else if (ferror(f))
		msg_error(value, "cannot read: %s", strerror(errno));
	else if (n == RULES_BYTES || memchr(text, 0, n))
		msg_error(value,
		          "is no file of rules: a text of less than %d bytes, one rule a line",
		          RULES_BYTES);
	else
		ret = add_text(options, text, n);
	fclose(f);
	free(text);
	return ret;
}

/* ==== Every verb and option: --help, completions and manual follow it ==== */

const struct verb options_verbs[] = {
	{ "pack", VERB_PACK, "FILE...", "pack caches into archives (FILE.kva)",
	  "  kvarc pack slot.bin                  writes slot.bin.kva\n"
	  "  kvarc pack -0 cache.safetensors      faster, a little larger\n"
	  "  kvarc pack --profile smollm2.kvp slot.bin   much smaller\n"
	  "  cat slot.bin | kvarc pack - | ssh host 'kvarc unpack - > slot.bin'\n",
	  cmd_pack },
	{ "unpack", VERB_UNPACK, "ARCHIVE...", "restore the packed files, bit for bit",
	  "  kvarc unpack slot.bin.kva            writes slot.bin\n"
	  "  kvarc unpack -o copy.bin slot.bin.kva\n"
	  "  kvarc unpack --salvage damaged.kva   recovers what is intact\n"
	  "  kvarc unpack --to safetensors a.kva  writes the tensors instead\n"
	  "  kvarc unpack --to llama --tokens 0-433 -o turn.bin session.kva\n",
	  cmd_unpack },
	{ "test", VERB_TEST, "ARCHIVE...", "decode everything and verify every check",
	  "  kvarc test *.kva                     silent when all is well\n", cmd_test },
	{ "list", VERB_LIST, "ARCHIVE...",
	  "show the layers of one archive, a line for each of several",
	  "  kvarc list slot.bin.kva              the layers\n"
	  "  kvarc list *.kva                     a line for each archive\n"
	  "  kvarc list -r slots/                 of a folder and those below it\n",
	  cmd_list },
	{ "info", VERB_INFO, "ARCHIVE...", "show identity, sizes, state and checks",
	  "  kvarc info --json slot.bin.kva\n"
	  "  kvarc info --plot bits.svg slot.bin.kva\n"
	  "  kvarc info --identity engine=llama.cpp slot.bin.kva\n",
	  cmd_info },
	{ "cut", VERB_CUT, "ARCHIVE", "copy some layers and tokens into a new archive",
	  "  kvarc cut --tokens 0-511 -o prefix.kva session.kva\n"
	  "  kvarc cut --tokens 0-511 --to llama -o prefix.bin session.kva\n",
	  cmd_cut },
	{ "append", VERB_APPEND, "ARCHIVE FILE",
	  "append what is new in a cache to an archive, as a checkpoint",
	  "  kvarc append session.kva slot.bin    makes session.kva when there is none\n"
	  "  kvarc append --label 'turn 7' session.kva slot.bin\n"
	  "  kvarc unpack --checkpoint 1 -o first.bin session.kva\n",
	  cmd_append },
	{ "log", VERB_LOG, "ARCHIVE...", "show the checkpoints of an archive",
	  "  kvarc log session.kva                a line for each checkpoint\n"
	  "  kvarc log --plot turns.svg session.kva   a picture of what they took\n",
	  cmd_log },
	{ "compact", VERB_COMPACT, "ARCHIVE",
	  "write the last state of an archive as a smaller archive",
	  "  kvarc compact -o small.kva session.kva\n"
	  "  kvarc compact -f -o session.kva session.kva     in place\n"
	  "  kvarc compact --keep 3 -o small.kva session.kva the last three checkpoints\n",
	  cmd_compact },
	{ "train", VERB_TRAIN, "[FILE...]", "fit a profile to caches of a model, for levels 2 to 7",
	  "  kvarc train -o model.kvp caches/*.safetensors\n"
	  "  kvarc train -o wide.kvp --head-block *.kva\n"
	  "  kvarc train -o model-6.kvp --level 6 --model MODEL caches/*.safetensors\n"
	  "  kvarc train -o model-6.kvp --level 6 --model MODEL --generate 12000\n",
	  cmd_train },
	{ "bench", VERB_BENCH, "FILE...", "measure speed and size in memory",
	  "  kvarc bench slot.bin\n"
	  "  kvarc bench --json -1 -T 1 --isa scalar slot.bin\n"
	  "  kvarc bench --link 1G --prefill 2000 slot.bin   what restores soonest\n"
	  "  kvarc bench --link /srv/slots slot.bin          from the disk of a folder\n",
	  cmd_bench },
	{ "eval", VERB_EVAL, "FILE...", "measure what lossy caches do to a model's answers",
	  "  kvarc eval --model MODEL --tier 'lossless:0 lossless' ids.txt\n", cmd_eval },
	{ "profiles", VERB_PROFILES, "[ACTION]",
	  "install profiles, list those that are installed or fit a file",
	  "  kvarc profiles install model.kvp     found by its digest from now on\n"
	  "  kvarc profiles install --digest HEX https://HOST/model.kvp\n"
	  "  kvarc profiles list\n"
	  "  kvarc profiles list slot.bin         those that can pack it\n",
	  cmd_profiles },
	{ "weights", VERB_WEIGHTS, "[ACTION]", "show or clear the weight cache",
	  "  kvarc weights list\n"
	  "  kvarc weights clear\n",
	  cmd_weights },
	{ "repair", VERB_REPAIR, "ARCHIVE", "restore damaged bytes of an archive from its parity",
	  "  kvarc pack --parity 6 slot.bin\n"
	  "  kvarc repair -o fixed.kva slot.bin.kva\n",
	  cmd_repair },
	{ "keygen", VERB_KEYGEN, "FILE", "make a key file for encrypted archives",
	  "  kvarc keygen session.key\n"
	  "  kvarc pack --encrypt --key-file session.key slot.bin\n",
	  cmd_keygen },
	{ "session", VERB_SESSION, "ACTION", "save versions of files in a store, and load them",
	  "  kvarc session save chat/42 slot.bin  stores what is new since the last save\n"
	  "  kvarc session load chat/42 -o slot.bin\n"
	  "  kvarc session log chat/42\n"
	  "  kvarc session load chat/42@3 -o slot.bin     an earlier version\n"
	  "  kvarc session fork chat/42@3 chat/43         takes no space\n"
	  "  kvarc session find slot.bin          sessions that begin as it does\n"
	  "  kvarc session save chat/42 --server http://127.0.0.1:8080 --slot-folder /slots\n"
	  "  kvarc session load chat/42 --server http://127.0.0.1:8080 --slot-folder /slots\n"
	  "  kvarc session send chat/42 | ssh host kvarc session receive chat/42\n",
	  cmd_session },
	{ "store", VERB_STORE, "ACTION", "show, check and clean a store of sessions",
	  "  kvarc store stat\n"
	  "  kvarc store verify                   reads everything, names each loss\n"
	  "  kvarc store gc --dry-run             what could be removed\n"
	  "  kvarc store gc --budget 20G          removes versions that were used longest ago\n"
	  "  kvarc store rebuild                  makes the index again\n"
	  "  kvarc store export -o sessions.tar   all sessions, or those that are named\n"
	  "  kvarc store import sessions.tar\n",
	  cmd_store },
	{ "watch", VERB_WATCH, "FOLDER", "pack the slot files that appear in a folder",
	  "  kvarc watch /slots                   NAME.bin: a checkpoint of NAME.bin.kva\n"
	  "  kvarc watch -o /archives/ --rm /slots\n"
	  "  kvarc watch --store ~/sessions /slots        a version of the session NAME\n"
	  "  kvarc watch --once /slots            those that are there, then end\n",
	  cmd_watch },
	{ "help", VERB_HELP, "[VERB [ACTION]]", "explain a verb", "", NULL },
	{ NULL, 0, NULL, NULL, NULL, NULL }
};

const struct action_row options_actions[] = {
	{ VERB_SESSION, "save", "NAME FILE",
	  "store a version of a file, or of a slot of a server" },
	{ VERB_SESSION, "save", "NAME --server URL", NULL },
	{ VERB_SESSION, "load", "NAME[@N] -o FILE", "restore a version into a file or a slot" },
	{ VERB_SESSION, "load", "NAME[@N] --server URL", NULL },
	{ VERB_SESSION, "check", "NAME[@N] --server URL",
	  "say whether a version belongs to the server's model" },
	{ VERB_SESSION, "log", "NAME", "list the versions of a session" },
	{ VERB_SESSION, "list", "[PREFIX]", "list the sessions" },
	{ VERB_SESSION, "fork", "NAME[@N] NEW", "begin a session with a version of another one" },
	{ VERB_SESSION, "rm", "NAME", "remove a session" },
	{ VERB_SESSION, "find", "FILE", "list the sessions that begin with the same tokens" },
	{ VERB_SESSION, "find", "--server URL", NULL },
	{ VERB_SESSION, "send", "NAME[@N]", "write a version for another store" },
	{ VERB_SESSION, "receive", "NAME [FILE]", "take a version that was sent" },
	{ VERB_STORE, "stat", "", "show what the store holds" },
	{ VERB_STORE, "verify", "", "read everything, name each loss" },
	{ VERB_STORE, "gc", "", "remove what no version needs, and what is above a budget" },
	{ VERB_STORE, "rebuild", "", "make the index again" },
	{ VERB_STORE, "have", "", "list the ids of archives, for --have of another host" },
	{ VERB_STORE, "export", "[NAME[@N]...] -o FILE", "write sessions as a tar" },
	{ VERB_STORE, "import", "FILE [NAME...]", "take the sessions of a tar" },
	{ VERB_PROFILES, "list", "[FILE...]", "list profiles, all or those that fit a file" },
	{ VERB_PROFILES, "install", "FILE...", "copy profiles to where they are found" },
	{ VERB_PROFILES, "install", "https://HOST/FILE", NULL },
	{ VERB_WEIGHTS, "list", "", "show the files of the weight cache" },
	{ VERB_WEIGHTS, "clear", "", "remove them" },
	{ 0, NULL, NULL, NULL }
};

/* How an option takes its value: the member of struct options, and what it may be. */
/* clang-format off */
#define AT(member) .at = offsetof(struct options, member)
#define FLAG(member) { .type = OPTION_FLAG, AT(member) }
#define STRING(member) { .type = OPTION_STRING, AT(member) }
#define LIST(member) { .type = OPTION_LIST, AT(member) }
#define CHOICE(member, text) { .type = OPTION_CHOICE, AT(member), .wanted = (text) }
#define NUMBER(member, from, to, text) \
	{ .type = OPTION_NUMBER, AT(member), .min = (from), .max = (to), .wanted = (text) }
#define CALL(function) { .type = OPTION_CALL, .set = (function) }
/* clang-format on */

#define WRITES (VERB_PACK | VERB_UNPACK | VERB_CUT | VERB_COMPACT)
#define MAKES (VERB_PACK | VERB_CUT | VERB_COMPACT | VERB_APPEND)
#define CODES (WRITES | VERB_APPEND | VERB_TEST | VERB_BENCH | VERB_TRAIN | VERB_EVAL)
/* Verbs that read archives which may be encrypted. */
#define OPENS                                                                                     \
	(VERB_UNPACK | VERB_TEST | VERB_LIST | VERB_INFO | VERB_CUT | VERB_COMPACT | VERB_TRAIN | \
	 VERB_BENCH | VERB_EVAL | VERB_PROFILES | VERB_APPEND | VERB_LOG | VERB_SESSION |         \
	 VERB_STORE)
#define ISAS "scalar avx2 avx512 neon"

const struct option_row options_rows[] = {
	{ 'o', "output", "FILE", ARG_FILE, NULL,
	  WRITES | VERB_TRAIN | VERB_REPAIR | VERB_SESSION | VERB_STORE | VERB_WATCH,
	  "write to FILE, or into the folder FILE", STRING(output) },
	{ 'c', "stdout", NULL, ARG_NONE, NULL, WRITES, "write to standard output",
	  FLAG(to_stdout) },
	{ 0, "level", "N", ARG_CHOICE, "0 1 2 3 4 5 6 7 8",
	  VERB_PACK | VERB_CUT | VERB_COMPACT | VERB_APPEND | VERB_BENCH | VERB_TRAIN |
	          VERB_SESSION | VERB_WATCH,
	  "0 fast, 1 small (default), 2-3 by a profile (installed or fitted), 4-8 by a model",
	  CALL(options_set_level) },
	{ 0, "profile", "KVP", ARG_FILE, NULL, VERB_ALL & ~(VERB_PROFILES | VERB_WEIGHTS),
	  "use this profile of the model; may be repeated", LIST(coding.profiles) },
	{ 0, "embed-profile", NULL, ARG_NONE, NULL,
	  VERB_PACK | VERB_CUT | VERB_COMPACT | VERB_APPEND, "put the profile into the archive",
	  FLAG(coding.embed_profile) },
	{ 0, "rope", "SPEC", ARG_VALUE, NULL, VERB_PACK | VERB_APPEND | VERB_TRAIN,
	  "RoPE of keys: auto, none, THETA[,half|interleaved][,DIMS]", STRING(import.rope) },
	{ 0, "model", "MODEL", ARG_FILE, NULL, CODES | VERB_PROFILES,
	  "model: a GGUF, or a folder (config.json and safetensors)", STRING(coding.model) },
	{ 0, "arith", "NUMBERS", ARG_CHOICE, "w8a8 w8a15 w15a15 fp8",
	  VERB_PACK | VERB_CUT | VERB_COMPACT | VERB_TRAIN | VERB_EVAL,
	  "arithmetic of the model: w8a8, w8a15, w15a15 or fp8",
	  CHOICE(coding.arithmetic, "w8a8, w8a15, w15a15 or fp8") },
	{ 0, "loop", "LOOP", ARG_CHOICE, "open closed",
	  VERB_PACK | VERB_CUT | VERB_COMPACT | VERB_TRAIN,
	  "attend to predicted (open) or decoded (closed) values",
	  CHOICE(coding.loop, "open or closed") },
	{ 0, "predict", "WHAT", ARG_CHOICE, "token top-1 top-4 top-16 embedding",
	  CODES & ~(VERB_APPEND | VERB_BENCH | VERB_EVAL),
	  "predict with the current token (default) or without it", CALL(options_set_predict) },
	{ 0, "token-ids", "HOW", ARG_CHOICE, "stored model", VERB_PACK,
	  "token ids stored, or coded by the model (a third of the size)",
	  CHOICE(archive.token_ids, "stored or model") },
	{ 0, "tier", "SPEC", ARG_VALUE, NULL, VERB_PACK | VERB_BENCH | VERB_EVAL,
	  "lossy coding: had:4 keeps about 4 bits per element", LIST(lossy.tiers) },
	{ 0, "max-error", "ERROR", ARG_VALUE, NULL, VERB_PACK,
	  "largest element error (0.01: 1 %); with --tier, of attention",
	  CALL(options_add_max_error) },
	{ 0, "scores", "SCORES", ARG_FILE, NULL, VERB_PACK | VERB_EVAL,
	  "token scores for keep= of --tier: h2o, surprisal or FILE", STRING(lossy.scores) },
	{ 0, "allow-lossy", NULL, ARG_NONE, NULL,
	  VERB_UNPACK | VERB_CUT | VERB_COMPACT | VERB_TRAIN | VERB_BENCH,
	  "accept data that a lossy tier has changed", FLAG(reading.allow_lossy) },
	{ 0, "kv-rule", "RULE", ARG_VALUE, NULL, VERB_PACK | VERB_APPEND | VERB_BENCH | VERB_TRAIN,
	  "pattern of tensor names, \"layers.{layer}.{key|value}\"", CALL(options_add_rule) },
	{ 0, "kv-rules", "FILE", ARG_FILE, NULL, VERB_PACK | VERB_APPEND | VERB_BENCH | VERB_TRAIN,
	  "such patterns from a file, one a line", CALL(options_add_rules) },
	{ 0, "axes", "AXES", ARG_VALUE, NULL, VERB_PACK | VERB_APPEND | VERB_BENCH | VERB_TRAIN,
	  "order of their axes: head, token, channel; \"htc\"", STRING(import.axes) },
	{ 0, "attach", "DIR", ARG_FILE, NULL, VERB_PACK | VERB_APPEND | VERB_UNPACK | VERB_SESSION,
	  "keep the folder DIR beside the cache; unpack, load: extract it",
	  STRING(archive.attach) },
	{ 0, "raw", "PAGES", ARG_VALUE, NULL, VERB_PACK | VERB_APPEND | VERB_BENCH | VERB_TRAIN,
	  "elements without a header: \"bf16,2LTHD,L=30,H=3,D=64\"", STRING(import.raw) },
	{ 0, "layout", "LAYOUT", ARG_VALUE, NULL, VERB_PACK | VERB_APPEND | VERB_BENCH | VERB_TRAIN,
	  "page files of an engine: vllm, sglang:page_first, lmcache, ...", STRING(import.layout) },
	{ 0, "opaque", NULL, ARG_NONE, NULL, VERB_PACK | VERB_APPEND | VERB_SESSION,
	  "do not parse the file, store it as plain bytes", FLAG(import.opaque) },
	{ 0, "as-cache", NULL, ARG_NONE, NULL, VERB_PACK,
	  "keep tensors of few tokens, even where that is larger than the file",
	  FLAG(import.as_cache) },
	{ 0, "members", NULL, ARG_NONE, NULL, VERB_PACK,
	  "pack the files of a tar or zip instead of it, deflated ones too", FLAG(import.members) },
	{ 0, "verify", NULL, ARG_NONE, NULL,
	  VERB_PACK | VERB_CUT | VERB_COMPACT | VERB_APPEND | VERB_SESSION | VERB_WATCH,
	  "decode every chunk after encoding and compare", FLAG(archive.verify) },
	{ 0, "streamable", NULL, ARG_NONE, NULL, VERB_PACK | VERB_CUT | VERB_COMPACT,
	  "write an archive that needs no seeking to be read", FLAG(archive.streamable) },
	{ 0, "parity", "PERCENT", ARG_VALUE, NULL, MAKES,
	  "add parity, from which kvarc repair restores lost bytes (6: one of 16)",
	  CALL(options_set_parity) },
	{ 0, "encrypt", NULL, ARG_NONE, NULL, MAKES | VERB_SESSION | VERB_WATCH,
	  "encrypt the archive, with a key, a passphrase or both", FLAG(keys.encrypt) },
	{ 0, "decrypt", NULL, ARG_NONE, NULL, VERB_CUT | VERB_COMPACT | VERB_SESSION,
	  "do not encrypt what follows an encrypted archive", FLAG(keys.decrypt) },
	{ 0, "key-file", "FILE", ARG_FILE, NULL, VERB_PACK | VERB_WATCH | VERB_REPAIR | OPENS,
	  "key of encrypted archives: 32 bytes or 64 digits; may be repeated", LIST(keys.files) },
	{ 0, "passphrase-file", "FILE", ARG_FILE, NULL,
	  VERB_PACK | VERB_WATCH | VERB_REPAIR | OPENS,
	  "passphrase of encrypted archives; may be repeated", LIST(keys.passphrase_files) },
	{ 0, "salvage", NULL, ARG_NONE, NULL, VERB_UNPACK,
	  "recover what is intact in a damaged archive", FLAG(reading.salvage) },
	{ 0, "salvage-tokens", "WHAT", ARG_CHOICE, "keep zero", VERB_UNPACK,
	  "of a salvaged slot: keep its whole leading tokens, or zero what is lost (keep)",
	  CHOICE(reading.salvage_tokens, "keep or zero") },
	{ 0, "to", "FORMAT", ARG_CHOICE, "safetensors llama", VERB_UNPACK | VERB_CUT,
	  "write the tensors as FORMAT: safetensors, or llama, a slot",
	  CHOICE(extract.to, "safetensors or llama") },
	{ 0, "state-version", "N", ARG_VALUE, NULL, VERB_UNPACK | VERB_CUT,
	  "version of the slot that --to llama writes, 2 to 4 (as it was)",
	  NUMBER(extract.state_version, 2, 4, "a version of slots, 2 to 4") },
	{ 0, "layers", "A-B", ARG_VALUE, NULL, VERB_UNPACK | VERB_CUT,
	  "only layers A to B, counted from 0, inclusive", CALL(options_set_layers) },
	{ 0, "tokens", "A-B", ARG_VALUE, NULL, VERB_UNPACK | VERB_CUT,
	  "only tokens A to B, counted from 0, inclusive", CALL(options_set_tokens) },
	{ 0, "track", "N", ARG_VALUE, NULL, VERB_UNPACK | VERB_CUT,
	  "track (token axis) that --tokens counts on (0)", CALL(options_set_track) },
	{ 0, "checkpoint", "N", ARG_VALUE, NULL, VERB_UNPACK | VERB_TEST | VERB_CUT | VERB_COMPACT,
	  "read the archive as of this checkpoint, not its end",
	  NUMBER(reading.checkpoint, 1, UINT64_MAX, "a number, at least 1") },
	{ 0, "keep", "WHAT", ARG_CHOICE, "last labels", VERB_COMPACT,
	  "checkpoints to keep: last (state), labels, or the last N", STRING(keep_states) },
	{ 0, "label", "TEXT", ARG_VALUE, NULL, VERB_APPEND | VERB_SESSION,
	  "label of the checkpoint or version", STRING(archive.label) },
	{ 0, "plot", "SVG", ARG_FILE, NULL, VERB_INFO | VERB_EVAL | VERB_LOG,
	  "plot bits per element by layer, KL by tier, or bytes by checkpoint", STRING(plot) },
	{ 0, "identity", "KEY=VALUE", ARG_VALUE, NULL,
	  VERB_PACK | VERB_APPEND | VERB_INFO | VERB_TRAIN | VERB_SESSION,
	  "record this identity, or require it (info)", CALL(options_add_identity) },
	{ 0, "held-out", "PERCENT", ARG_VALUE, NULL, VERB_TRAIN,
	  "measure, not fit, the last PERCENT of each input (10)",
	  NUMBER(train.held_out, 0, 50, "a percentage, 0 to 50") },
	{ 0, "measure", "FILE", ARG_FILE, NULL, VERB_TRAIN,
	  "measure FILE, do not fit to it; may be repeated", LIST(train.measure) },
	{ 0, "generate", "N", ARG_VALUE, NULL, VERB_TRAIN,
	  "let the model generate N tokens and fit to them",
	  NUMBER(train.write, 2, 1 << 30, "a number of tokens") },
	{ 0, "seed", "N", ARG_VALUE, NULL, VERB_TRAIN, "random seed of --generate (0)",
	  NUMBER(train.seed, 0, UINT64_MAX, "a whole number in range") },
	{ 0, "first-token", "ID", ARG_VALUE, NULL, VERB_TRAIN,
	  "first token of generated sequences (the model's own)", CALL(options_set_first_token) },
	{ 0, "dtype", "DTYPE", ARG_CHOICE, "f32 f16 bf16", VERB_TRAIN | VERB_EVAL,
	  "element type of caches made from token ids (bf16)", CALL(options_set_dtype) },
	{ 0, "sequences", "N", ARG_VALUE, NULL, VERB_EVAL,
	  "number of sequences, evenly from all files (64)",
	  NUMBER(eval.sequences, 1, 1 << 24, "a number, at least 1") },
	{ 0, "prefix", "N", ARG_VALUE, NULL, VERB_EVAL,
	  "tokens of each sequence whose cache is archived (512)",
	  NUMBER(eval.prefix, 1, 1 << 24, "a number, at least 1") },
	{ 0, "continue", "N", ARG_VALUE, NULL, VERB_EVAL,
	  "tokens after the prefix that are compared (64)",
	  NUMBER(eval.continuation, 2, 1 << 24, "a number, at least 2") },
	{ 0, "max-kl", "X", ARG_VALUE, NULL, VERB_PACK | VERB_EVAL,
	  "limit the mean KL of the next token to X nats", CALL(options_set_max_kl) },
	{ 0, "head-block", NULL, ARG_NONE, NULL, VERB_TRAIN,
	  "predict within heads: smaller profile, less gain", FLAG(train.head_block) },
	{ 0, "whole-layer", NULL, ARG_NONE, NULL, VERB_TRAIN,
	  "predict from the whole layer, however wide it is", FLAG(train.whole_layer) },
	{ 0, "no-table", NULL, ARG_NONE, NULL, VERB_TRAIN, "no token-id table for the lowest layer",
	  FLAG(train.no_table) },
	{ 0, "klt", NULL, ARG_NONE, NULL, VERB_TRAIN, "fit only the transforms for pack --tier klt",
	  FLAG(train.klt) },
	{ 0, "group", "LAYERS", ARG_VALUE, NULL, VERB_TRAIN,
	  "with --klt: layers per prediction group (8)",
	  NUMBER(train.group, 1, 1 << 24, "a number, at least 1") },
	{ 0, "no-stages", NULL, ARG_NONE, NULL, VERB_TRAIN,
	  "fit only channel means and scales of the residual", FLAG(train.no_stages) },
	{ 0, "repeat", "N", ARG_VALUE, NULL, VERB_BENCH, "take the fastest of N runs (5)",
	  CALL(options_set_repeat) },
	{ 0, "link", "LINK", ARG_FILE, NULL, VERB_BENCH,
	  "what restores soonest over LINK: bits/s (1G), or a folder's disk", STRING(bench.link) },
	{ 0, "prefill", "N", ARG_VALUE, NULL, VERB_BENCH,
	  "with --link: compare a prefill of N tokens per second",
	  NUMBER(bench.prefill, 1, 1 << 30, "tokens per second") },
	{ 0, "store", "URL", ARG_FILE, NULL, VERB_SESSION | VERB_STORE | VERB_WATCH,
	  "store: a folder, s3://BUCKET/PREFIX or redis://HOST", STRING(store.url) },
	{ 0, "index", "PATH", ARG_FILE, NULL, VERB_SESSION | VERB_STORE | VERB_WATCH,
	  "index of the store, on a local disk", STRING(store.index) },
	{ 0, "accept-weak-store", NULL, ARG_NONE, NULL, VERB_SESSION | VERB_STORE | VERB_WATCH,
	  "save to a service that cannot keep what is saved; recorded in the store",
	  FLAG(store.accept_weak) },
	{ 0, "namespace", "NAME", ARG_VALUE, NULL, VERB_SESSION | VERB_STORE | VERB_WATCH,
	  "sessions of this namespace, which alone share tokens (default)",
	  STRING(store.name_space) },
	{ 0, "server", "URL", ARG_VALUE, NULL, VERB_SESSION,
	  "a llama.cpp server in place of a file: http://HOST:PORT", STRING(server.url) },
	{ 0, "slot", "N", ARG_VALUE, NULL, VERB_SESSION, "slot of the server (0)",
	  NUMBER(server.slot, 0, 1 << 20, "a number, from 0 on") },
	{ 0, "slot-folder", "DIR", ARG_FILE, NULL, VERB_SESSION,
	  "the folder of the server's --slot-save-path", STRING(server.slot_folder) },
	{ 0, "exact", NULL, ARG_NONE, NULL, VERB_SESSION,
	  "check, load: refuse what the server does not compute bit for bit", FLAG(server.exact) },
	{ 0, "no-canary", NULL, ARG_NONE, NULL, VERB_SESSION,
	  "the server computes no tokens for comparison", FLAG(server.no_canary) },
	{ 0, "have", "FILE", ARG_FILE, NULL, VERB_SESSION,
	  "send: leave out the archives of this list, of 'store have'", STRING(have) },
	{ 0, "digest", "HEX", ARG_VALUE, NULL, VERB_PROFILES,
	  "install: only the profile with this digest", STRING(digest) },
	{ 0, "budget", "SIZE", ARG_VALUE, NULL, VERB_STORE,
	  "gc: remove the least recently used versions down to SIZE", CALL(options_set_budget) },
	{ 0, "keep-versions", "N", ARG_VALUE, NULL, VERB_STORE,
	  "gc: of each session only the last N versions stay",
	  NUMBER(gc.keep_versions, 1, 1 << 30, "a number, at least 1") },
	{ 0, "grace", "TIME", ARG_VALUE, NULL, VERB_STORE,
	  "gc: leave archives younger than TIME alone (2h; 90s, 30m, 2d)",
	  CALL(options_set_grace) },
	{ 0, "dry-run", NULL, ARG_NONE, NULL, VERB_STORE, "gc: remove nothing", FLAG(gc.dry_run) },
	{ 0, "no-repack", NULL, ARG_NONE, NULL, VERB_STORE,
	  "gc: copy no archives of which little is needed", FLAG(gc.no_repack) },
	{ 'T', "threads", "N", ARG_VALUE, NULL, CODES | VERB_SESSION | VERB_STORE | VERB_WATCH,
	  "number of threads, 0 for all cores (default: up to 4)", CALL(options_set_threads) },
	{ 'M', "memory", "SIZE", ARG_VALUE, NULL, (VERB_ALL & ~VERB_WEIGHTS) | VERB_REPAIR,
	  "memory limit, with K, M or G (256M)", CALL(options_set_memory) },
	{ 0, "isa", "SET", ARG_CHOICE, ISAS, CODES,
	  "use only these kernels: scalar, avx2, avx512, neon", CALL(options_set_isa) },
	{ 0, "device", "GPU", ARG_VALUE, NULL, VERB_TEST | VERB_BENCH | VERB_PACK | VERB_UNPACK,
	  "code on a GPU: cuda:0, cuda:1, ...", CALL(options_set_device) },
	{ 'f', "force", NULL, ARG_NONE, NULL,
	  WRITES | VERB_REPAIR | VERB_INFO | VERB_TRAIN | VERB_EVAL | VERB_LOG | VERB_SESSION |
	          VERB_STORE,
	  "overwrite existing files", FLAG(force) },
	{ 'r', "recursive", NULL, ARG_NONE, NULL, VERB_WALKS,
	  "find the archives in folders and below", FLAG(recursive) },
	{ 'k', "keep", NULL, ARG_NONE, NULL, VERB_PACK | VERB_UNPACK,
	  "keep the sources (the default)", FLAG(keep) },
	{ 0, "once", NULL, ARG_NONE, NULL, VERB_WATCH,
	  "pack what is there, wait for what is being written, and end", FLAG(watch.once) },
	{ 0, "poll", NULL, ARG_NONE, NULL, VERB_WATCH,
	  "look every second, for folders of a network that report no changes", FLAG(watch.poll) },
	{ 0, "rm", NULL, ARG_NONE, NULL, VERB_PACK | VERB_WATCH,
	  "delete the source after success (implies --verify)", FLAG(remove) },
	{ 0, "json", NULL, ARG_NONE, NULL, VERB_ALL | VERB_REPAIR,
	  "print JSON, one object per line", FLAG(json) },
	{ 'q', "quiet", NULL, ARG_NONE, NULL, VERB_ALL | VERB_REPAIR | VERB_KEYGEN,
	  "show errors only", CALL(options_set_quiet) },
	{ 'v', "verbose", NULL, ARG_NONE, NULL, VERB_ALL | VERB_REPAIR | VERB_KEYGEN,
	  "show more messages", CALL(options_set_verbose) },
	{ 'h',
	  "help",
	  NULL,
	  ARG_NONE,
	  NULL,
	  VERB_ALL | VERB_REPAIR | VERB_KEYGEN | VERB_HELP,
	  "show this help",
	  { .type = OPTION_HELP } },
	{ 0, NULL, NULL, ARG_NONE, NULL, 0, NULL, { .type = OPTION_HELP } }
};

const struct verb *options_verb(const char *name)
{
	const char *alias = verb_alias(name);

	name = alias ? alias : name;
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

const struct action_row *options_action(const struct verb *verb, const char *name)
{
	for (const struct action_row *a = options_actions; a->name; a++) {
		if (a->verb == verb->bit && (!name || strcmp(a->name, name) == 0))
			return a;
	}
	return NULL;
}

const char *options_nearest_action(const struct verb *verb, const char *name)
{
	struct nearest n;

	nearest_init(&n, name);
	for (const struct action_row *a = options_actions; a->name; a++) {
		if (a->verb == verb->bit)
			nearest_try(&n, a->name);
	}
	return nearest_result(&n);
}

const char *options_nearest_option(const struct verb *verb, const char *name)
{
	struct nearest n;

	nearest_init(&n, name);
	for (const struct option_row *r = options_rows; r->name; r++) {
		if (r->verbs & verb->bit)
			nearest_try(&n, r->name);
	}
	return nearest_result(&n);
}
