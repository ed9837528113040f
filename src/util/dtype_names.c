/* SPDX-License-Identifier: BSD-3-Clause */
/* dtype_names.c - sizes and names of dtypes, names of tensor kinds (spec 4) */
#include "kvarc.h"

/* Names of numbers up to 255 that no version has given a name. */
#define TEN(tens)                                                                               \
	"unknown-" #tens "0", "unknown-" #tens "1", "unknown-" #tens "2", "unknown-" #tens "3", \
		"unknown-" #tens "4", "unknown-" #tens "5", "unknown-" #tens "6",               \
		"unknown-" #tens "7", "unknown-" #tens "8", "unknown-" #tens "9"
static const char *const unknown[] = {
	TEN(),   TEN(1),  TEN(2),  TEN(3),  TEN(4),  TEN(5),  TEN(6),  TEN(7),  TEN(8),
	TEN(9),  TEN(10), TEN(11), TEN(12), TEN(13), TEN(14), TEN(15), TEN(16), TEN(17),
	TEN(18), TEN(19), TEN(20), TEN(21), TEN(22), TEN(23), TEN(24), TEN(25),
};
#undef TEN

static const struct {
	const char *name;
	size_t bytes;
} dtypes[] = {
	[KVARC_BYTES] = { "bytes", 1 }, [KVARC_F32] = { "f32", 4 },   [KVARC_F16] = { "f16", 2 },
	[KVARC_BF16] = { "bf16", 2 },   [KVARC_E4M3] = { "e4m3", 1 }, [KVARC_E5M2] = { "e5m2", 1 },
	[KVARC_I8] = { "i8", 1 },       [KVARC_U8] = { "u8", 1 },
};

static const char *const kinds[] = {
	[KVARC_KEY] = "key",
	[KVARC_VALUE] = "value",
	[KVARC_KV_PACKED] = "key-value",
	[KVARC_MLA_LATENT] = "mla-latent",
	[KVARC_INDEXER_KEY] = "indexer-key",
	[KVARC_CONV_STATE] = "conv-state",
	[KVARC_RECURRENT_STATE] = "recurrent-state",
	[KVARC_CROSS_KEY] = "cross-key",
	[KVARC_CROSS_VALUE] = "cross-value",
	[KVARC_OPAQUE] = "opaque",
};

size_t kvarc_dtype_bytes(unsigned dtype)
{
	/* Sizes of numbers that have no name yet, by 64. */
	static const uint8_t sizes[] = { 1, 2, 4 };
	if (dtype < sizeof dtypes / sizeof dtypes[0])
		return dtypes[dtype].bytes;
	return dtype / 64 < sizeof sizes ? sizes[dtype / 64] : 0;
}

const char *kvarc_dtype_name(unsigned dtype)
{
	if (dtype < sizeof dtypes / sizeof dtypes[0])
		return dtypes[dtype].name;
	return dtype <= UINT8_MAX ? unknown[dtype] : NULL;
}

const char *kvarc_kind_name(unsigned kind)
{
	if (kind < sizeof kinds / sizeof kinds[0])
		return kinds[kind];
	return kind <= UINT8_MAX ? unknown[kind] : NULL;
}
