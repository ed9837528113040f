/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * standalone.c - replays inputs without a fuzzer, for `make check`
 *
 * replay_TARGET [-w FOLDER] [FILE or FOLDER...]
 *
 * Without arguments: the corpora of TARGET in $srcdir.
 * Every input runs as it is, and then with some of its allocations failing
 * ($FUZZ_FAILURES of them), one alone and one with all after it, in turns. A
 * file whose name ends like a cache or an archive is bare: parameters and tail
 * are added, in several ways. $FUZZ_STEP: of the many archives of a folder every
 * Nth alone runs. -w writes the inputs to a folder and runs none.
 */
#include "config.h"

#include <dirent.h>
#include <sys/stat.h>

#include "fuzz_common.h"

/* Targets whose input is an archive share these. */
static const char *const archive_targets[] = { "decode",  "index",  "range_read",
	                                       "salvage", "unpack", "sealed",
	                                       "append", "encrypted",
	                                       "repair" };
static const char *const archive_folders[] = { "fuzz/corpus/archive", "spec/vectors" };
static const char *const bare_ends[] = { ".kva", ".kvp", ".slot", ".safetensors", ".gguf",
	                                 ".npy", ".npz", ".tar",  ".zip" };
#define COUNT(a) (sizeof(a) / sizeof(a)[0])

static const uint8_t modes[] = { 0, 0xff, 1, 2, 4, 8, 0x10, 0x20, 0x40, 0x80 };
static unsigned files, runs, failures = 24, step = 1;
enum { MANY = 100 };
static const char *write_to;

static void write_input(const uint8_t *p, size_t n)
{
	char name[4096];
	snprintf(name, sizeof name, "%s/%s%u", write_to, "seed-", runs);
	FILE *f = fopen(name, "wb");
	FUZZ_CHECK(f && fwrite(p, 1, n, f) == n);
	FUZZ_CHECK(fclose(f) == 0);
}

static void replay_bytes(const uint8_t *p, size_t n, bool fail)
{
	runs++;
	if (write_to) {
		write_input(p, n);
		return;
	}
	LLVMFuzzerTestOneInput(p, n);
	if (n < FUZZ_TAIL || !fail)
		return;
	uint8_t mode = p[n - FUZZ_TAIL];
	/* steps grow, so that long runs are sampled to their end */
	for (unsigned at = 1, i = 0; i < failures; i++) {
		runs++;
		if (!fuzz_run(p, n - FUZZ_TAIL, mode, KVARC_ISA_ALL, at, i & 1))
			break;
		at += 1 + at / 8;
	}
}

/* The buffer has space for parameters and tail behind the n bytes. Of the many files that
 * are bad at one offset three modes are enough. */
static void replay_bare(uint8_t *p, size_t n, bool all)
{
	for (size_t m = 0; m < (all ? sizeof modes : 3); m++) {
		memset(p + n, modes[m], fuzz_parameters);
		uint8_t *tail = p + n + fuzz_parameters;
		tail[0] = modes[m];
		tail[1] = (uint8_t)m;
		tail[2] = tail[3] = 0;
		replay_bytes(p, n + fuzz_parameters + FUZZ_TAIL, all && m == 0);
	}
}

static bool is_bare(const char *path)
{
	const char *dot = strrchr(path, '.');
	for (size_t i = 0; dot && i < COUNT(bare_ends); i++)
		if (strcmp(dot, bare_ends[i]) == 0)
			return true;
	return false;
}

static void replay_file(const char *path)
{
	FILE *f = fopen(path, "rb");
	struct fuzz_file in = { 0 };
	kvarc_sink sink = fuzz_file_sink(&in);
	uint8_t buf[8192];
	size_t n;
	if (!f) {
		fprintf(stderr, "%s: cannot open\n", path);
		exit(1);
	}
	while ((n = fread(buf, 1, sizeof buf, f)) > 0)
		FUZZ_CHECK(sink.write(sink.opaque, buf, n, in.n) == 0);
	fclose(f);
	files++;
	size_t bytes = in.n;
	FUZZ_CHECK(sink.write(sink.opaque, "", 1, bytes + 64) == 0);
	if (is_bare(path))
		replay_bare(in.p, bytes, !strstr(path, "/bad-") && !strstr(path, "/unsupported-"));
	else
		replay_bytes(in.p, bytes, true);
	fuzz_file_free(&in);
}

static void replay(const char *path)
{
	struct stat st;
	if (stat(path, &st) != 0 || !S_ISDIR(st.st_mode)) {
		replay_file(path);
		return;
	}
	struct dirent **list;
	int n = scandir(path, &list, NULL, alphasort);
	for (int i = 0; i < n; i++) {
		char name[4096];
		bool wanted = list[i]->d_name[0] != '.' && (n <= MANY || (unsigned)i % step == 0);
		snprintf(name, sizeof name, "%s/%s", path, list[i]->d_name);
		/* notes and generators stand beside the vectors */
		if (wanted && (!strstr(path, "spec/vectors") || is_bare(name)))
			replay(name);
		free(list[i]);
	}
	if (n >= 0)
		free(list);
}

static void replay_folder(const char *srcdir, const char *folder, const char *target)
{
	struct stat st;
	char path[4096];
	snprintf(path, sizeof path, "%s/%s%s", srcdir, folder, target);
	if (stat(path, &st) == 0)
		replay(path);
}

static void replay_default(const char *program)
{
	const char *target = strstr(program, "replay_");
	const char *srcdir = getenv("srcdir");
	target = target ? target + strlen("replay_") : program;
	srcdir = srcdir ? srcdir : ".";
	replay_folder(srcdir, "fuzz/corpus/", target);
	if (!strcmp(target, "salvage_slot"))
		replay_folder(srcdir, "fuzz/corpus/slot_import", "");
	for (size_t i = 0; i < COUNT(archive_targets); i++)
		for (size_t k = 0;
		     k < COUNT(archive_folders) && !strcmp(archive_targets[i], target); k++)
			replay_folder(srcdir, archive_folders[k], "");
}

int main(int argc, char **argv)
{
	const char *env = getenv("FUZZ_FAILURES"), *every = getenv("FUZZ_STEP");
	const char *slash = strrchr(argv[0], '/');
	int first = 1;
	if (env)
		failures = (unsigned)strtoul(env, NULL, 10);
	if (every && strtoul(every, NULL, 10))
		step = (unsigned)strtoul(every, NULL, 10);
	if (argc > 2 && strcmp(argv[1], "-w") == 0) {
		write_to = argv[2];
		first = 3;
	}
	for (int i = first; i < argc; i++)
		replay(argv[i]);
	if (first >= argc)
		replay_default(slash ? slash + 1 : argv[0]);
	printf("%u inputs, %u runs\n", files, runs);
	return files ? 0 : 1;
}
