/* SPDX-License-Identifier: Apache-2.0 */
/* rename.h - included before every file of the slow generator: the same source
 * as the library's, over the stage without a cache, under other names. */
#ifndef BT_SLOW_RENAME_H
#define BT_SLOW_RENAME_H

#define bt_stage_create slow_stage_create
#define bt_stage_free slow_stage_free
#define bt_stage_cost slow_stage_cost
#define bt_stage_used slow_stage_used
#define bt_stage_bound slow_stage_bound
#define bt_stage_encode slow_stage_encode
#define bt_stage_feed slow_stage_feed
#define bt_memory_drop slow_memory_drop
#define bt_sequence_create slow_sequence_create
#define bt_sequence_fork slow_sequence_fork
#define bt_sequence_free slow_sequence_free
#define bt_sequence_slide slow_sequence_slide
#define bt_sequence_tokens slow_sequence_tokens
#define bt_sequence_truncate slow_sequence_truncate

#define bt_request_create slow_request_create
#define bt_request_free slow_request_free
#define bt_request_speech slow_request_speech
#define bt_request_start slow_request_start
#define bt_request_open slow_request_open
#define bt_request_ends slow_request_ends
#define bt_request_choose slow_request_choose
#define bt_request_apply slow_request_apply
#define bt_generate_options_check slow_generate_options_check
#define bt_generator_admit slow_generator_admit
#define bt_generator_desks slow_generator_desks
#define bt_generator_replace slow_generator_replace
#define bt_generator_keep slow_generator_keep
#define bt_generator_forget slow_generator_forget

#define bauta_generator_create slow_generator_create
#define bauta_generator_free slow_generator_free
#define bauta_generator_add slow_generator_add
#define bauta_generator_step slow_generator_step
#define bauta_generator_take slow_generator_take
#define bauta_generator_bytes slow_generator_bytes
#define bauta_generate slow_generate

#endif
