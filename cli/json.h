/* SPDX-License-Identifier: Apache-2.0 */
/* json.h - results as JSON, an object a line. */
#ifndef JSON_H
#define JSON_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

/* From here on the program ends with a sentence where memory runs out under
 * jansson: 2.14 aborts or loses members then. */
void json_guard(void);

/* A text as a string; each byte of it that is not UTF-8 becomes U+FFFD. */
json_t *json_text(const char *text, size_t length);
json_t *json_ids(const uint32_t *ids, size_t count);
/* As many digits as a float has; what is not finite becomes null. */
json_t *json_floats(const float *numbers, size_t count);
/* A number, or null where JSON has none for it. */
json_t *json_number(double number);
/* Print it on stdout and let go of it. Returns CLI_OK, or CLI_FAILED after a
 * sentence, which is what a NULL gets, too. */
int json_line(const char *verb, json_t *object);

#endif
