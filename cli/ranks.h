/* SPDX-License-Identifier: Apache-2.0 */
/* ranks.h - the program as one of several ranks.
 *
 * Rank 0 speaks: the other ranks print nothing but the error that ends them,
 * with their number and host. With --ranks the first process starts the ranks
 * and watches them, as mpirun does, and is none of them: when one dies, it ends
 * the others, and it prints one sentence for all. */
#ifndef RANKS_H
#define RANKS_H

#include "device_options.h"

/* Become a rank: of `count` on this machine, or if that is 0, as the
 * environment says. Call it before there are threads. Where it returns true
 * there is nothing left to do but to return *code: this process has watched the
 * ranks to their end, or a message has been printed. */
bool ranks_begin(const char *verb, size_t count, int *code);
/* Leave the others, which end, too, if this one has failed. Returns the exit
 * status. */
int ranks_end(int failed);

/* NULL: this process is on its own. */
bauta_ranks *ranks_get(void);
/* Whether this process speaks and writes files. */
bool ranks_first(void);
size_t ranks_count(void);
/* The context of this rank. Ranks of one machine share its cores and, if the
 * device is "cuda" without a number, take its GPUs in turn. CLI_FAILED after a
 * message. */
int ranks_context(bauta_context **out, const char *verb,
                  const device_options *device);

/* A part of the texts of a file. */
typedef struct text_part {
    size_t rank, count; /* part `rank` of `count` */
} text_part;

/* Start `count` processes that work on parts of the texts of a file. Where it
 * returns true, they have ended and what they printed is on stdout and stderr,
 * in order: return *code. In each of them, and if there is only one, it returns
 * false, and text_input_open() opens the part. */
bool ranks_split(const char *verb, size_t count, const char *file, int *code);
text_part ranks_part(void);

/* Whether an error is that of another rank, which is or will be reported. */
bool ranks_reported(const bauta_error *err);

#endif
