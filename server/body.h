/* SPDX-License-Identifier: Apache-2.0 */
/* body.h - fields of a JSON body, and errors in the form of the OpenAI API. */
#ifndef SERVER_BODY_H
#define SERVER_BODY_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Why a request is not answered. */
typedef struct failure {
    int status;       /* of HTTP; 0: nothing is wrong */
    const char *code; /* "model_not_found"; or NULL */
    char param[48];   /* the field; or "" */
    char message[320];
} failure;

/* Write a failure; returns false. `param` and `code` may be NULL. */
bool fail(failure *f, int status, const char *param, const char *code,
          const char *format, ...) __attribute__((format(printf, 5, 6)));
/* {"error": {"message", "type", "param", "code"}} for free(); NULL if out of
 * memory. */
char *failure_json(const failure *f);

/* Parse a body, which must be an object. Numbers of values and depth are
 * limited, so that a small body cannot make a large tree. NULL after a failure;
 * else for json_decref(). */
json_t *body_parse(const char *text, size_t length, failure *f);

/* Read a field. One that is missing or null leaves *out unchanged, and *has,
 * which may be NULL, becomes whether it is there. False after a failure. */
bool field_size(const json_t *body, const char *name, size_t min, size_t max,
                size_t *out, bool *has, failure *f);
bool field_real(const json_t *body, const char *name, double min, double max,
                float *out, bool *has, failure *f);
bool field_bool(const json_t *body, const char *name, bool *out, failure *f);
bool field_string(const json_t *body, const char *name, const char **out,
                  failure *f);
/* A field that is neither missing nor null; else NULL. */
json_t *field(const json_t *body, const char *name);

/* Token ids of an array, for free(): ids below `vocab`. NULL after a failure.
 */
uint32_t *ids_read(const json_t *list, const char *name, size_t vocab,
                   size_t *count, failure *f);

#endif
