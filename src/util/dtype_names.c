/* SPDX-License-Identifier: BSD-3-Clause */
/* dtype_names.c - sizes and names of dtypes, names of tensor kinds (spec 4) */
#include "kvarc.h"

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
	return dtype < sizeof dtypes / sizeof dtypes[0] ? dtypes[dtype].bytes : 0;
}

const char *kvarc_dtype_name(unsigned dtype)
{
	return dtype < sizeof dtypes / sizeof dtypes[0] ? dtypes[dtype].name : NULL;
}

const char *kvarc_kind_name(unsigned kind)
{
	return kind < sizeof kinds / sizeof kinds[0] ? kinds[kind] : NULL;
}
