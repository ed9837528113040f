/* SPDX-License-Identifier: BSD-3-Clause */
/* target_s3_list.c - fuzz target: an S3 service's answer to a list; what is taken stands in it */
#include "store/backend_s3.h"
#include "fuzz_common.h"

const size_t fuzz_parameters = 0;

static int stands_in(const uint8_t *data, size_t n, const char *text)
{
	size_t bytes = strlen(text);
	for (size_t i = 0; i + bytes <= n; i++) {
		if (memcmp(data + i, text, bytes) == 0)
			return 1;
	}
	return 0;
}

void fuzz_one(const uint8_t *data, size_t n, struct fuzz_env *env)
{
	struct kvi_s3_page page;
	struct kvi_s3_object object;
	size_t objects = 0;
	(void)env;
	if (kvi_s3_page_begin(&page, (const char *)data, n) != 0)
		return;
	FUZZ_CHECK(stands_in(data, n, page.next));
	while (kvi_s3_page_next(&page, &object) > 0) {
		FUZZ_CHECK(stands_in(data, n, object.key));
		FUZZ_CHECK(object.time >= 0);
		objects++;
	}
	FUZZ_CHECK(objects <= n / (sizeof "<Contents></Contents>" - 1));
}
