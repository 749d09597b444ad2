/* SPDX-License-Identifier: Apache-2.0 */
/* rename.h - included before every file of the slow generator: the library's
 * sources under other names, over the decode session without a KV cache. */
#ifndef BT_TEST_SLOW_RENAME_H
#define BT_TEST_SLOW_RENAME_H

#define bt_decode_session_create slow_session_create
#define bt_decode_session_free slow_session_free
#define bt_decode_session_cost slow_session_cost
#define bt_decode_session_used slow_session_used
#define bt_decode_session_limit slow_session_limit
#define bt_decode_session_encode slow_session_encode
#define bt_decode_session_append slow_session_append
#define bt_cross_kv_release slow_cross_kv_release
#define bt_sequence_create slow_sequence_create
#define bt_sequence_fork slow_sequence_fork
#define bt_sequence_free slow_sequence_free
#define bt_sequence_set_window slow_sequence_set_window
#define bt_sequence_tokens slow_sequence_tokens
#define bt_sequence_truncate slow_sequence_truncate

#define bt_request_read slow_request_read
#define bt_request_create slow_request_create
#define bt_request_free slow_request_free
#define bt_request_stop_matcher slow_request_stop_matcher
#define bt_request_start slow_request_start
#define bt_request_open_beams slow_request_open_beams
#define bt_request_ends slow_request_ends
#define bt_request_history slow_request_history
#define bt_request_apply slow_request_apply
#define bt_generate_options_check slow_generate_options_check
#define bt_generator_schedule slow_generator_schedule
#define bt_generator_can_start slow_generator_can_start
#define bt_generator_cache_prefix slow_generator_cache_prefix
#define bt_generator_evict_prefix slow_generator_evict_prefix

#define bauta_generator_create slow_generator_create
#define bauta_generator_free slow_generator_free
#define bauta_generator_add slow_generator_add
#define bauta_generator_step slow_generator_step
#define bauta_generator_take slow_generator_take
#define bauta_generator_bytes slow_generator_bytes
#define bauta_generate slow_generate

#endif
