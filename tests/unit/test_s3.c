/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_s3.c - what the backend of S3 makes of the answers of a service: a stand-in that holds one
 * object and says what the test wants (tests/store_services.sh asks a real server)
 */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "http_stand_in.h"
#include "store/backend.h"

/* The object "a/one", and how the service behaves. */
struct service {
	char bytes[64];
	size_t n;
	bool there;
	int fails, status; /* the next answers, that number of them, have this status */
	const char *text;  /* the body of these */
	unsigned requests;
};

static void put(struct service *s, const struct http_request *r, struct http_answer *a)
{
	if (s->there && r->if_absent) {
		a->status = 412;
		return;
	}
	s->there = true;
	s->n = r->bytes < sizeof s->bytes ? r->bytes : sizeof s->bytes;
	memcpy(s->bytes, r->body, s->n);
}

static void get(const struct service *s, const struct http_request *r, struct http_answer *a)
{
	if (!s->there) {
		a->status = 404;
		return;
	}
	a->body = s->bytes;
	a->bytes = s->n;
	if (!r->has_range)
		return;
	a->status = r->first < s->n ? 206 : 416;
	if (r->first >= s->n) {
		a->bytes = 0;
		return;
	}
	a->body = s->bytes + r->first;
	a->bytes = (r->last < s->n ? r->last + 1 : s->n) - r->first;
}

static void answer(void *opaque, const struct http_request *r, struct http_answer *a)
{
	struct service *s = opaque;
	s->requests++;
	if (s->fails) {
		s->fails--;
		*a = (struct http_answer){ .status = s->status,
			                   .body = s->text,
			                   .bytes = s->text ? strlen(s->text) : 0 };
	} else if (strcmp(r->path, "/bucket/here/a/one") != 0) {
		a->status = 404;
	} else if (strcmp(r->method, "PUT") == 0) {
		put(s, r, a);
	} else if (strcmp(r->method, "DELETE") == 0) {
		a->status = s->there ? 204 : 404;
		s->there = false;
	} else {
		get(s, r, a);
	}
}

struct s3_opened {
	struct service service;
	struct http_stand_in http;
	struct kvi_backend *b;
	kvarc_error error;
};

static void start(struct s3_opened *o)
{
	struct kvi_backend_options options = { .create = 1,
		                               .access_key = "key",
		                               .secret_key = "secret" };
	char url[128];
	*o = (struct s3_opened){ 0 };
	http_start(&o->http, answer, &o->service);
	snprintf(url, sizeof url, "s3://bucket/here?endpoint=http://127.0.0.1:%u", o->http.port);
	assert_int_equal(kvi_backend_open(&o->b, url, &options, &o->error), KVARC_OK);
}

static void stop(struct s3_opened *o)
{
	kvi_backend_close(&o->b);
	http_stop(&o->http);
}

static kvarc_ret put_text(struct s3_opened *o, const char *text)
{
	kvarc_source source = { .memory = text, .size = strlen(text) };
	return o->b->calls->put(o->b, "a/one", &source, &o->error);
}

static bool is_built(void)
{
#ifdef HAVE_LIBCURL
	return true;
#else
	return false;
#endif
}

/* A key is given once: the second put says so, and nothing is replaced. */
static void test_taken(void **state)
{
	struct s3_opened o;
	char text[16];
	size_t n;
	(void)state;
	if (!is_built())
		skip();
	start(&o);
	assert_int_equal(put_text(&o, "first"), KVARC_OK);
	assert_int_equal(put_text(&o, "second"), KVARC_END);
	assert_int_equal(o.b->calls->get(o.b, "a/one", 0, text, sizeof text, &n, &o.error),
	                 KVARC_OK);
	assert_int_equal(n, 5);
	assert_memory_equal(text, "first", 5);
	/* another put is under way: it is not known which one wins */
	o.service = (struct service){ .fails = 1, .status = 409 };
	assert_int_equal(put_text(&o, "third"), KVARC_IO);
	assert_non_null(strstr(o.error.text, "try again"));
	/* a put may have been carried out, so it is not sent again */
	o.service = (struct service){ .fails = 1, .status = 500 };
	assert_int_equal(put_text(&o, "fourth"), KVARC_IO);
	assert_int_equal(o.service.requests, 1);
	stop(&o);
}

static void test_ranges(void **state)
{
	struct kvi_object object;
	struct s3_opened o;
	char text[16];
	size_t n;
	(void)state;
	if (!is_built())
		skip();
	start(&o);
	assert_int_equal(o.b->calls->get(o.b, "a/one", 0, text, 4, &n, NULL), KVARC_END);
	assert_int_equal(o.b->calls->stat(o.b, "a/one", &object, NULL), KVARC_END);
	assert_int_equal(put_text(&o, "0123456789"), KVARC_OK);
	assert_int_equal(o.b->calls->stat(o.b, "a/one", &object, NULL), KVARC_OK);
	assert_int_equal(object.bytes, 10);
	assert_int_equal(o.b->calls->get(o.b, "a/one", 3, text, 4, &n, NULL), KVARC_OK);
	assert_int_equal(n, 4);
	assert_memory_equal(text, "3456", 4);
	assert_int_equal(o.b->calls->get(o.b, "a/one", 8, text, 4, &n, NULL), KVARC_OK);
	assert_int_equal(n, 2);
	assert_int_equal(o.b->calls->get(o.b, "a/one", 10, text, 4, &n, NULL), KVARC_OK);
	assert_int_equal(n, 0);
	stop(&o);
}

/* What a service answers in place of an object is a failure with its words. */
static void test_failures(void **state)
{
	struct s3_opened o;
	char text[16];
	size_t n;
	(void)state;
	if (!is_built())
		skip();
	start(&o);
	assert_int_equal(put_text(&o, "0123456789"), KVARC_OK);
	/* all of it, where a part was asked for */
	o.service.fails = 1;
	o.service.status = 200;
	o.service.text = "0123456789";
	assert_int_equal(o.b->calls->get(o.b, "a/one", 3, text, sizeof text, &n, &o.error),
	                 KVARC_IO);
	o.service.fails = 1;
	o.service.status = 403;
	o.service.text = "<Error><Code>AccessDenied</Code></Error>";
	assert_int_equal(o.b->calls->get(o.b, "a/one", 0, text, sizeof text, &n, &o.error),
	                 KVARC_IO);
	assert_non_null(strstr(o.error.text, "403 AccessDenied"));
	/* a read that fails twice is sent three times */
	o.service.fails = 2;
	o.service.status = 503;
	o.service.requests = 0;
	assert_int_equal(o.b->calls->get(o.b, "a/one", 0, text, sizeof text, &n, &o.error),
	                 KVARC_OK);
	assert_int_equal(n, 10);
	assert_int_equal(o.service.requests, 3);
	stop(&o);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_taken),
		cmocka_unit_test(test_ranges),
		cmocka_unit_test(test_failures),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
