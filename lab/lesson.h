/* SPDX-License-Identifier: Apache-2.0 */
/* lesson.h - the page of bauta lab, lesson.html, which the build turns into a
 * string. */
#ifndef LESSON_H
#define LESSON_H

extern const char lesson_text[];

#endif
