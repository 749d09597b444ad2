/* SPDX-License-Identifier: Apache-2.0 */
/* test_template.c - post-processing templates add special tokens as Hugging
 * Face's library does, and malformed ones are refused. */
#include "allocation_faults.h"
#include "base/error.h"
#include "testing.h"
#include "text/post_processor.h"

#include <string.h>

#define SPECIAL(id, type) \
    "{\"SpecialToken\":{\"id\":\"" id "\",\"type_id\":" type "}}"
#define TEXT(id, type) "{\"Sequence\":{\"id\":\"" id "\",\"type_id\":" type "}}"
#define TEMPLATE(single, pair)                                                 \
    "{\"type\":\"TemplateProcessing\",\"single\":[" single "],\"pair\":[" pair \
    "],\"special_tokens\":{"                                                   \
    "\"C\":{\"id\":\"C\",\"ids\":[2,4],\"tokens\":[\"C\",\"x\"]},"             \
    "\"S\":{\"id\":\"S\",\"ids\":[3],\"tokens\":[\"S\"]},"                     \
    "\"far\":{\"id\":\"far\",\"ids\":[6],\"tokens\":[\"far\"]}}}"
#define MIXED                                                            \
    TEMPLATE(SPECIAL("C", "0") "," TEXT("A", "0") "," SPECIAL("S", "0"), \
             SPECIAL("C", "7") "," TEXT("B", "2") "," SPECIAL(           \
                 "S", "1") "," TEXT("A", "5") "," SPECIAL("S", "1"))
#define BERT \
    "{\"type\":\"BertProcessing\",\"sep\":[\"[S]\",3],\"cls\":[\"[C]\",2]}"
#define ROBERTA                                                                \
    "{\"type\":\"RobertaProcessing\",\"sep\":[\"[S]\",3],\"cls\":[\"[C]\",2]," \
    "\"trim_offsets\":true,\"add_prefix_space\":false}"
#define BYTELEVEL                                                         \
    "{\"type\":\"ByteLevel\",\"add_prefix_space\":true,\"trim_offsets\":" \
    "true,\"use_regex\":true}"
#define SEQUENCE(list) "{\"type\":\"Sequence\",\"processors\":[" list "]}"

/* A list as text: "2:0 A:0" is token 2 and the first text, both of type 0. */
static void template_text(char *out, const bt_template *t)
{
    out[0] = '\0';
    for (size_t i = 0; i < t->count; i++) {
        const bt_template_item *item = t->items + i;
        out += sprintf(out, i ? " " : "");
        if (item->id >= BT_TEMPLATE_B)
            out += sprintf(out, "%c", item->id == BT_TEMPLATE_A ? 'A' : 'B');
        else
            out += sprintf(out, "%u", item->id);
        out += sprintf(out, ":%u", item->type);
    }
}

static void check_lists(bt_template *single, bt_template *pair,
                        const char *want_single, const char *want_pair)
{
    char text[1024];
    template_text(text, single);
    assert_string_equal(text, want_single);
    template_text(text, pair);
    assert_string_equal(text, want_pair);
    bt_template_release(single);
    bt_template_release(pair);
}

/* Values of tokenizers 0.23.3, in a vocabulary of 6. */
static const struct {
    const char *json, *single, *pair;
} cases[] = {
    { "null", "A:0", "A:0 B:1" },
    { MIXED, "2:0 4:0 A:0 3:0", "2:7 4:7 B:2 3:1 A:5 3:1" },
    { TEMPLATE(TEXT("A", "0") "," TEXT("A", "1"), ""), "A:0 A:1", "" },
    { BERT, "2:0 A:0 3:0", "2:0 A:0 3:0 B:1 3:1" },
    { ROBERTA, "2:0 A:0 3:0", "2:0 A:0 3:0 3:0 B:0 3:0" },
    { BYTELEVEL, "A:0", "A:0 B:1" },
    { SEQUENCE(""), "A:0", "A:0 B:1" },
    { SEQUENCE(BYTELEVEL "," MIXED), "2:0 4:0 A:0 3:0",
      "2:7 4:7 B:2 3:1 A:5 3:1" },
    { SEQUENCE(SEQUENCE(ROBERTA) "," BYTELEVEL), "2:0 A:0 3:0",
      "2:0 A:0 3:0 3:0 B:0 3:0" },
};

static void special_tokens_are_added_as_in_hugging_face(void **state)
{
    (void)state;
    for (size_t i = 0; i < BT_LEN(cases); i++) {
        json_t *json = json_loads(cases[i].json, JSON_DECODE_ANY, NULL);
        bt_template single, pair;
        bauta_error err;
        if (bt_template_parse(&single, &pair, json, 6, "some.json", &err))
            fail_msg("%s: %s", cases[i].json, err.message);
        check_lists(&single, &pair, cases[i].single, cases[i].pair);
        json_decref(json);
    }
}

static void special_tokens_can_be_added_by_hand(void **state)
{
    (void)state;
    const uint32_t before[] = { 7, 8 }, after = 9;
    bt_template single, pair;
    assert_int_equal(
        bt_template_wrap(&single, &pair, before, 2, &after, 1, NULL), 0);
    check_lists(&single, &pair, "7:0 8:0 A:0 9:0", "7:0 8:0 A:0 9:0 B:1 9:1");
    assert_int_equal(bt_template_wrap(&single, &pair, NULL, 0, NULL, 0, NULL),
                     0);
    check_lists(&single, &pair, "A:0", "A:0 B:1");
}

static const struct {
    const char *json, *message;
} malformed[] = {
    { "1", "a post-processor has no \"type\"" },
    { "{}", "a post-processor has no \"type\"" },
    { "{\"type\":\"Bert\"}", "an unknown type: Bert" },
    { "{\"type\":\"Sequence\"}", "a Sequence has no list of processors" },
    { SEQUENCE(BERT "," MIXED),
      "a second step adds special tokens: TemplateProcessing" },
    { "{\"type\":\"TemplateProcessing\"}", "a list is missing: single" },
    { "{\"type\":\"TemplateProcessing\",\"single\":[]}",
      "a list is missing: pair" },
    { TEMPLATE("\"$A\"", ""),
      "an entry is neither SpecialToken nor Sequence: single" },
    { TEMPLATE("", "{\"Sequence\":{\"id\":\"A\"}}"),
      "a number is missing: type_id" },
    { TEMPLATE(TEXT("A", "-1"), ""), "a number is missing: type_id" },
    { TEMPLATE(TEXT("A", "4294967296"), ""), "a number is missing: type_id" },
    { TEMPLATE(TEXT("C", "0"), ""), "a Sequence is neither A nor B: C" },
    { TEMPLATE("{\"Sequence\":1}", ""), "a Sequence is neither A nor B" },
    { TEMPLATE(TEXT("B", "0"), ""), "\"single\" has a second text" },
    { TEMPLATE("{\"SpecialToken\":{}}", ""), "a special token has no id" },
    { TEMPLATE(SPECIAL("X", "0"), ""), "special_tokens lack X" },
    { TEMPLATE(SPECIAL("far", "0"), ""), "id 6 is not in a vocabulary of 6" },
    { "{\"type\":\"BertProcessing\"}", "a token is missing: cls" },
    { "{\"type\":\"BertProcessing\",\"cls\":[\"a\",1],\"sep\":[\"a\"]}",
      "a token is missing: sep" },
    { "{\"type\":\"RobertaProcessing\",\"cls\":[\"a\",\"b\"]}",
      "an id is not a number" },
    { "{\"type\":\"RobertaProcessing\",\"cls\":[\"a\",-1]}",
      "id -1 is not in a vocabulary of 6" },
};

static void check_refused(json_t *json, const char *message)
{
    bt_template single, pair;
    bauta_error err;
    assert_non_null(json);
    assert_int_equal(
        bt_template_parse(&single, &pair, json, 6, "some.json", &err),
        BAUTA_ERR_FORMAT);
    assert_null(single.items);
    assert_null(pair.items);
    if (!strstr(err.message, message) || !strstr(err.message, "some.json: "))
        fail_msg("\"%s\" should say \"%s\"", err.message, message);
    json_decref(json);
}

static void malformed_input_is_an_error(void **state)
{
    (void)state;
    for (size_t i = 0; i < BT_LEN(malformed); i++)
        check_refused(json_loads(malformed[i].json, JSON_DECODE_ANY, NULL),
                      malformed[i].message);
    json_t *deep = json_pack("{s:s}", "type", "ByteLevel");
    for (int i = 0; i < 17; i++)
        deep =
            json_pack("{s:s, s:[o]}", "type", "Sequence", "processors", deep);
    check_refused(deep, "more than 16 deep");
    json_t *many = json_loads(MIXED, 0, NULL);
    json_t *list = json_object_get(many, "single");
    for (int i = 0; i < 1024; i++)
        json_array_append(list, json_array_get(list, 1));
    check_refused(many, "more than 1024 tokens and texts");
}

static void each_allocation_may_fail(void **state)
{
    (void)state;
    faults_begin();
    for (size_t i = 0; i < BT_LEN(cases); i++) {
        json_t *json = json_loads(cases[i].json, JSON_DECODE_ANY, NULL);
        for (size_t k = 0;; k++) {
            bt_template single, pair;
            bauta_error err;
            faults_arm(k);
            bauta_status status =
                bt_template_parse(&single, &pair, json, 6, "x", &err);
            bool failed = faults_disarm();
            assert_int_equal(status, failed ? BAUTA_ERR_NOMEM : BAUTA_OK);
            if (failed)
                assert_int_equal(faults_live(), 0);
            bt_template_release(&single);
            bt_template_release(&pair);
            if (!failed)
                break;
        }
        json_decref(json);
    }
    assert_int_equal(faults_end(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(special_tokens_are_added_as_in_hugging_face),
        cmocka_unit_test(special_tokens_can_be_added_by_hand),
        cmocka_unit_test(malformed_input_is_an_error),
        cmocka_unit_test(each_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
