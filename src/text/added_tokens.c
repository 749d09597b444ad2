/* SPDX-License-Identifier: Apache-2.0 */
/* added_tokens.c - finding added tokens; see added_tokens.h.
 *
 * At each position the longest token that begins there is wanted. The automaton
 * of Aho and Corasick (1975) finds the longest token that ends at a position.
 * So it is built over the reversed tokens and reads the text from its end,
 * which gives the positions where tokens begin; those are then taken from left
 * to right, skipping the ones that overlap an earlier match. Time is linear
 * whatever the tokens are. */
#include "text/added_tokens.h"

#include "base/array.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/utf8.h"
#include "text/unicode.h"

#include <string.h>

enum { NONE = UINT32_MAX, NODES_MAX = 1 << 28 };

typedef struct automaton_node {
    uint32_t child, sibling; /* first child, and the parent's next one; or 0 */
    uint32_t fail;  /* the longest proper suffix that is a automaton_node */
    uint32_t token; /* the longest that ends here, or NONE */
    unsigned char byte;
} automaton_node;

typedef struct automaton {
    automaton_node *nodes; /* 0 is the root */
    size_t count, room;
    uint32_t first[256]; /* the root's children; 0 where there is none */
} automaton;

struct bt_added_tokens {
    bt_added_token *tokens; /* content is NULL, it is in the tries only; size
                               is that of the normalized content */
    size_t count;
    automaton tries[2]; /* by `normalized` */
};

/* ---- The automaton ------------------------------------------------------- */

static uint32_t child_of(const automaton *t, uint32_t at, unsigned char byte)
{
    if (at == 0)
        return t->first[byte];
    uint32_t child = t->nodes[at].child;
    while (child && t->nodes[child].byte != byte)
        child = t->nodes[child].sibling;
    return child;
}

static bauta_status node_add(automaton *t, uint32_t parent, unsigned char byte,
                             uint32_t *out, bauta_error *err)
{
    if (t->count >= NODES_MAX ||
        BT_ARRAY_RESERVE(t->nodes, t->room, t->count, 1))
        return bt_fail_memory(err, "added tokens",
                              t->count * sizeof(automaton_node));
    uint32_t at = (uint32_t)t->count++;
    t->nodes[at] = (automaton_node){ .token = NONE, .byte = byte };
    if (at > 0) {
        t->nodes[at].sibling = t->nodes[parent].child;
        t->nodes[parent].child = at;
    }
    if (at > 0 && parent == 0)
        t->first[byte] = at;
    *out = at;
    return BAUTA_OK;
}

/* Of two tokens with the same content, the first one is kept. */
static bauta_status trie_add(automaton *t, const char *content, size_t size,
                             uint32_t token, bauta_error *err)
{
    bauta_status status = BAUTA_OK;
    uint32_t at = 0;
    if (t->count == 0)
        status = node_add(t, 0, 0, &at, err);
    for (size_t i = size; !status && i > 0; i--) {
        unsigned char byte = (unsigned char)content[i - 1];
        uint32_t child = child_of(t, at, byte);
        if (!child)
            status = node_add(t, at, byte, &child, err);
        at = child;
    }
    if (!status && t->nodes[at].token == NONE)
        t->nodes[at].token = token;
    return status;
}

static uint32_t next_state(const automaton *t, uint32_t at, unsigned char byte)
{
    uint32_t next;
    while (!(next = child_of(t, at, byte)) && at)
        at = t->nodes[at].fail;
    return next;
}

/* Set the failure links in breadth-first order, so that the target of each link
 * is complete. */
static bauta_status set_failure_links(automaton *t, bauta_error *err)
{
    size_t head = 0, tail = 0;
    if (t->count == 0)
        return BAUTA_OK;
    uint32_t *queue = bt_alloc(t->count * sizeof(*queue));
    if (!queue)
        return bt_fail_memory(err, "added tokens", t->count * sizeof(*queue));
    for (queue[tail++] = 0; head < tail; head++) {
        uint32_t at = queue[head], child = t->nodes[at].child;
        for (; child; child = t->nodes[child].sibling) {
            automaton_node *n = &t->nodes[child];
            n->fail = at ? next_state(t, t->nodes[at].fail, n->byte) : 0;
            if (n->token == NONE)
                n->token = t->nodes[n->fail].token;
            queue[tail++] = child;
        }
    }
    bt_free(queue);
    return BAUTA_OK;
}

/* ---- Tokens -------------------------------------------------------------- */

static bauta_status add_token(bt_added_tokens *added, size_t i,
                              const char *content,
                              const bt_normalizer *normalizer, bauta_error *err)
{
    bt_added_token *token = &added->tokens[i];
    bt_aligned_text text;
    bauta_status status =
        bt_aligned_text_init(&text, content, token->size, 0, err);
    if (!status && token->normalized)
        status = bt_normalizer_run(normalizer, &text, err);
    token->content = NULL;
    token->size = text.size;
    if (!status && text.size)
        status = trie_add(&added->tries[token->normalized], text.bytes,
                          text.size, (uint32_t)i, err);
    bt_aligned_text_release(&text);
    return status;
}

/* Special tokens take precedence over others with the same content. */
static bauta_status add_tokens(bt_added_tokens *added,
                               const bt_added_token *tokens,
                               const bt_normalizer *normalizer,
                               bauta_error *err)
{
    bauta_status status = BAUTA_OK;
    for (int special = 1; special >= 0; special--)
        for (size_t i = 0; !status && i < added->count; i++)
            if (tokens[i].special == special)
                status =
                    add_token(added, i, tokens[i].content, normalizer, err);
    for (size_t pass = 0; !status && pass < 2; pass++)
        status = set_failure_links(&added->tries[pass], err);
    return status;
}

bauta_status bt_added_tokens_create(bt_added_tokens **out,
                                    const bt_added_token *tokens, size_t count,
                                    const bt_normalizer *normalizer,
                                    const char *path, bauta_error *err)
{
    (void)path; // no token can be malformed
    *out = NULL;
    bt_added_tokens *added = bt_alloc_zero(1, sizeof(*added));
    if (!added)
        return bt_fail_memory(err, "added tokens", sizeof(*added));
    bauta_status status = BAUTA_OK;
    added->tokens = bt_alloc_zero(count, sizeof(*tokens));
    if (added->tokens) {
        added->count = count;
        if (count)
            memcpy(added->tokens, tokens, count * sizeof(*tokens));
        status = add_tokens(added, tokens, normalizer, err);
    } else {
        status = bt_fail_memory(err, "added tokens", count * sizeof(*tokens));
    }
    if (status)
        bt_added_tokens_free(added);
    else
        *out = added;
    return status;
}

void bt_added_tokens_free(bt_added_tokens *added)
{
    if (!added)
        return;
    bt_free(added->tries[0].nodes);
    bt_free(added->tries[1].nodes);
    bt_free(added->tokens);
    bt_free(added);
}

bool bt_added_tokens_empty(const bt_added_tokens *added)
{
    return !added || added->count == 0;
}

static bool is_white_byte(unsigned char byte)
{
    return byte == ' ' || (byte >= '\t' && byte <= '\r');
}

/* Whether a token has white space after another character. The tokens are
 * reversed, so the child of a node is the byte before it. */
static bool has_inner_white_space(const automaton *t)
{
    for (size_t i = 1; i < t->count; i++)
        for (uint32_t child = t->nodes[i].child; child;
             child = t->nodes[child].sibling)
            if (is_white_byte(t->nodes[i].byte) &&
                !is_white_byte(t->nodes[child].byte))
                return true;
    return false;
}

bool bt_added_tokens_local(const bt_added_tokens *added)
{
    for (size_t i = 0; added && i < added->count; i++)
        if (added->tokens[i].rstrip || added->tokens[i].single_word)
            return false;
    return !added || (!has_inner_white_space(&added->tries[0]) &&
                      !has_inner_white_space(&added->tries[1]));
}

/* ---- Finding ------------------------------------------------------------- */

/* A token that begins at `lo`. */
typedef struct token_match {
    uint32_t lo, token;
} token_match;

typedef struct token_finder {
    const bt_added_tokens *added;
    bool literal;
    const char *text;
    size_t lo, hi;        /* the range */
    size_t done;          /* splits cover the range up to here */
    token_match *matches; /* candidates, from right to left */
    size_t count, room;
    bt_splits *out;
    bauta_error *err;
} token_finder;

/* The end, at most `hi`, of the last byte that some token ends with; f->lo if
 * there is none. Most bytes of a text are skipped here. */
static size_t last_byte_end(const token_finder *f, const automaton *t,
                            size_t hi)
{
    while (hi > f->lo && !t->first[(unsigned char)f->text[hi - 1]])
        hi--;
    return hi;
}

static bauta_status find_matches(token_finder *f, const automaton *t)
{
    uint32_t at = 0;
    for (size_t i = t->count ? f->hi : f->lo; i > f->lo; i--) {
        if (at == 0 && (i = last_byte_end(f, t, i)) == f->lo)
            break;
        at = next_state(t, at, (unsigned char)f->text[i - 1]);
        uint32_t token = t->nodes[at].token;
        if (token == NONE)
            continue;
        if (BT_ARRAY_RESERVE(f->matches, f->room, f->count, 1))
            return bt_fail_memory(f->err, "added tokens",
                                  f->count * sizeof(token_match));
        f->matches[f->count++] = (token_match){ (uint32_t)(i - 1), token };
    }
    return BAUTA_OK;
}

/* The character that ends at `at` > f->lo, and where it begins. */
static uint32_t char_before(const token_finder *f, size_t at, size_t *lo)
{
    size_t length;
    *lo = bt_utf8_char_start(f->text, f->lo, at);
    return bt_utf8_decode(f->text + *lo, at - *lo, &length);
}

static bool is_whole_word(const token_finder *f, size_t lo, size_t hi)
{
    size_t unused;
    return (lo == f->lo ||
            !bt_is_word_character(char_before(f, lo, &unused))) &&
           (hi == f->hi || !bt_is_word_character(bt_utf8_decode(
                               f->text + hi, f->hi - hi, &unused)));
}

static bauta_status add_split(token_finder *f, size_t lo, size_t hi,
                              uint32_t id)
{
    bt_split split = { (uint32_t)lo, (uint32_t)hi, id, lo == 0 };
    return bt_splits_add(f->out, split, f->err);
}

/* Add the text before a token at [lo, hi), and the token with the white space
 * that it includes, unless an earlier token included it. */
static bauta_status add_match(token_finder *f, const bt_added_token *token,
                              size_t lo, size_t hi)
{
    size_t before, length;
    while (token->lstrip && lo > f->done &&
           bt_is_space(char_before(f, lo, &before)))
        lo = before;
    while (token->rstrip && hi < f->hi &&
           bt_is_space(bt_utf8_decode(f->text + hi, f->hi - hi, &length)))
        hi += length;
    lo = lo > f->done ? lo : f->done;
    hi = hi > lo ? hi : lo;
    bauta_status status = add_split(f, f->done, lo, BT_NO_TOKEN);
    if (!status)
        status = add_split(f, lo, hi, token->id);
    f->done = hi;
    return status;
}

static bauta_status use_matches(token_finder *f)
{
    bauta_status status = BAUTA_OK;
    size_t end = f->lo; // of the last match, used or not
    for (size_t i = f->count; !status && i > 0; i--) {
        const token_match *p = &f->matches[i - 1];
        const bt_added_token *token = &f->added->tokens[p->token];
        if (p->lo < end)
            continue;
        end = p->lo + token->size;
        if ((f->literal && token->special) ||
            (token->single_word && !is_whole_word(f, p->lo, end)))
            continue;
        status = add_match(f, token, p->lo, end);
    }
    return status ? status : add_split(f, f->done, f->hi, BT_NO_TOKEN);
}

bool bt_added_tokens_any(const bt_added_tokens *added, bool normalized)
{
    return added && added->tries[normalized].count > 0;
}

bauta_status bt_added_tokens_split(const bt_added_tokens *added,
                                   bool normalized, bool literal,
                                   const char *text, size_t lo, size_t hi,
                                   bt_splits *out, bauta_error *err)
{
    token_finder f = { .added = added,
                       .literal = literal,
                       .text = text,
                       .lo = lo,
                       .hi = hi,
                       .done = lo,
                       .out = out,
                       .err = err };
    bauta_status status = BAUTA_OK;
    if (added)
        status = find_matches(&f, &added->tries[normalized]);
    if (!status)
        status = use_matches(&f);
    bt_free(f.matches);
    return status;
}
