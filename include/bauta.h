/* SPDX-License-Identifier: Apache-2.0 */
/* bauta.h - masked attention and Transformers, exact and fast, for C and C++.
 *
 *     softmax(Q K^T * scale + M) V
 *
 * where the mask M selects which keys each query may see. This file includes
 * the whole public interface. Each part also compiles alone:
 *
 *   bauta/core.h       errors, memory, contexts, masks, attention, KV caches
 *   bauta/model.h      Transformers from Hugging Face folders
 *   bauta/text.h       tokenizers, tokenizer training, text files
 *   bauta/train.h      corpora, training, checkpoints
 *   bauta/generate.h   sampling, beam search, continuous batching
 *   bauta/gpu.h        attention on NVIDIA GPUs
 *   bauta/extras.h     scores, pictures, audits
 *   bauta/series.h     time series: tables, forecasts, baselines, charts
 *
 * Conventions:
 *
 * - A call that can fail returns a bauta_status and takes a bauta_error, which
 *   may be NULL. The library never prints, exits or aborts.
 * - Objects returned by bauta_X_create() or bauta_X_load() are released with
 *   bauta_X_free(), which accepts NULL. On failure the returned object is NULL.
 * - Masks, plans, models and tokenizers are immutable while in use, so threads
 *   may share them. A context serves one call at a time.
 * - A struct whose first field is `size` starts from its BAUTA_..._INIT value.
 *   Such structs grow at the end: a program compiled against an older header
 *   works with a newer library, which uses the default of each field that the
 *   program does not know. A program compiled against a newer header works
 *   with an older library as long as the fields that the library does not know
 *   are 0; otherwise the call fails with BAUTA_ERR_ARGUMENT. Of a struct that
 *   a call fills, bytes beyond `size` and fields that the library does not
 *   know are left unchanged. Structs without `size` never change.
 * - An array of sized structs is read with the `size` of its first element as
 *   its stride.
 * - In options, 0 or NULL selects the default given in the comment.
 * - Sizes count elements, not bytes, and numbers are float32, except where a
 *   comment says otherwise. */
#ifndef BAUTA_H
#define BAUTA_H

#include "bauta/core.h"
#include "bauta/extras.h"
#include "bauta/generate.h"
#include "bauta/gpu.h"
#include "bauta/model.h"
#include "bauta/series.h"
#include "bauta/text.h"
#include "bauta/train.h"

#endif
