/* SPDX-License-Identifier: Apache-2.0 */
/* json_output.h - results as JSON on stdout. */
#ifndef JSON_OUTPUT_H
#define JSON_OUTPUT_H

#include <bauta.h>

#include <jansson.h>

/* From here on the program exits with a message if jansson cannot allocate:
 * version 2.14 aborts or loses members then. */
void json_exit_on_oom(void);

/* A string; each byte that is not UTF-8 becomes U+FFFD. */
json_t *json_text(const char *text, size_t length);
json_t *json_ids(const uint32_t *ids, size_t count);
/* A number, or null if it is not finite. */
json_t *json_number(double number);
json_t *json_floats(const float *numbers, size_t count);
/* What bauta_mask_json() and bauta_model_describe() write, parsed; NULL if out
 * of memory. */
json_t *json_mask(const bauta_mask *mask);
json_t *json_model(const bauta_model *model);

/* Print on one line, with nine digits, which give every float back. Takes over
 * `object`. Returns CLI_OK, or CLI_FAILED after a message; NULL is a failure.
 */
int json_line(const char *verb, json_t *object);
/* The same, indented and with all digits. */
int json_indented(const char *verb, json_t *object);

#endif
