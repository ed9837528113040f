/* SPDX-License-Identifier: BSD-3-Clause */
/* named_axes.c - the axes of a named tensor by letters */
#include "named_axes.h"

#include <string.h>

#include "import_internal.h"

/* Where a letter stands, n: nowhere. */
static size_t index_of(const char *letters, size_t n, char letter)
{
	const char *p = memchr(letters, letter, n);
	return p ? (size_t)(p - letters) : n;
}

bool kvi_axes_of_state(const char *letters)
{
	return !strcmp(letters, "s");
}

bool kvi_axes_known(const char *letters)
{
	size_t n = strlen(letters);
	if (kvi_axes_of_state(letters))
		return true;
	if (n < 2 || n > KVI_NAMED_AXES_MAX)
		return false;
	char last = letters[n - 1];
	size_t tokens = index_of(letters, n, 't');
	if ((last != 'c' && last != 'p' && last != 'm') || tokens == n ||
	    (last != 'c' && memchr(letters, '2', n)))
		return false;
	for (size_t i = 0; i + 1 < n; i++) {
		if (!strchr("b2th1", letters[i]) || (letters[i] == 'b' && i > 0))
			return false;
		if (letters[i] != '1' && memchr(letters + i + 1, letters[i], n - i - 1))
			return false;
	}
	return true;
}

static bool fits(const struct kvi_axes *axes)
{
	return axes->batch && axes->tokens && axes->heads && axes->channels &&
	       axes->tokens <= UINT32_MAX && axes->heads <= 65535 && axes->channels <= 65535 &&
	       axes->heads * axes->channels <= KVI_IMPORT_WIDTH_MAX;
}

/* The file has that many elements: products of its axes do not overflow. */
static bool take_axis(struct kvi_axes *axes, char letter, uint64_t size, uint64_t stride)
{
	switch (letter) {
	case 'b':
		axes->batch = size;
		return true;
	case '2':
		axes->parts = 2;
		axes->part_stride = stride;
		return size == 2;
	case 't':
		axes->tokens = size;
		axes->token_stride = stride;
		return true;
	case 'h':
		axes->heads = size;
		axes->head_stride = stride;
		return true;
	case 'p':
		axes->parts = 2;
		axes->channels = axes->part_stride = size / 2;
		return size % 2 == 0;
	case 'm':
		axes->is_latent = true;
		axes->channels = size;
		return true;
	case 'c':
		axes->channels = size;
		return true;
	default:
		return size == 1;
	}
}

/* Rows of a matrix for each head, of a convolution the last inputs. */
static bool take_state(const struct kvi_named *named, struct kvi_axes *axes)
{
	if (named->n_axes < 2)
		return false;
	const uint64_t channels = named->shape[named->n_axes - 1];
	*axes = (struct kvi_axes){ .batch = 1, .parts = 1, .tokens = 1, .heads = 1 };
	axes->is_state = true;
	axes->channels = axes->token_stride = axes->head_stride = channels;
	for (size_t i = 0; i + 1 < named->n_axes; i++)
		axes->tokens *= named->shape[i];
	axes->is_conv = named->n_axes <= 3 && named->shape[named->n_axes - 2] < channels;
	return fits(axes);
}

bool kvi_axes_take(const struct kvi_named *named, const char *letters, struct kvi_axes *axes)
{
	size_t n = strlen(letters);
	uint64_t stride = 1;
	if (kvi_axes_of_state(letters))
		return take_state(named, axes);
	if (n != named->n_axes || !kvi_axes_known(letters))
		return false;
	*axes = (struct kvi_axes){ .batch = 1, .parts = 1, .heads = 1 };
	for (size_t i = n; i-- > 0;) {
		if (!named->shape[i] || !take_axis(axes, letters[i], named->shape[i], stride))
			return false;
		stride *= named->shape[i];
	}
	size_t tokens = index_of(letters, n, 't'), heads = index_of(letters, n, 'h');
	size_t part = index_of(letters, n, '2');
	axes->heads_first = heads < tokens;
	axes->parts_apart = part < tokens && (heads == n || part < heads);
	if (heads == n || axes->heads == 1)
		axes->head_stride = axes->channels;
	return fits(axes);
}
