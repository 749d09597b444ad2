/* SPDX-License-Identifier: Apache-2.0 */
/* grammar.c - random clauses, and sets of distinct sentence pairs. */
#include "grammar.h"

#include "random.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* ---- sentences --------------------------------------------------------- */

void sentence_add(sentence *s, const char *word)
{
    size_t size = strlen(word), space = s->length > 0;
    if (s->length + space + size + 2 > sizeof(s->text))
        return; // no clause is that long
    if (space)
        s->text[s->length++] = ' ';
    memcpy(s->text + s->length, word, size + 1);
    s->length += size;
}

void sentence_end(sentence *s, const clause *c)
{
    s->text[0] = (char)toupper((unsigned char)s->text[0]);
    if (c->mood != STATEMENT)
        s->text[s->length++] = '?';
    else if (c->stop)
        s->text[s->length++] = '.';
    s->text[s->length] = '\0';
}

/* ---- random numbers ---------------------------------------------------- */

/* True `percent` times in a hundred. */
static bool chance(uint64_t *r, size_t percent)
{
    return random_below(r, 100) < percent;
}

/* ---- phrases ----------------------------------------------------------- */

static const adjective *adjective_draw(uint64_t *r, unsigned kind,
                                       bool predicative)
{
    for (;;) {
        const adjective *a = &adjectives[random_below(r, adjective_count)];
        if ((predicative ? a->predicative : a->attributive) & kind)
            return a;
    }
}

static phrase noun_draw(uint64_t *r, unsigned kinds)
{
    phrase p = { .kind = NOUN };
    do
        p.word = random_below(r, noun_count);
    while (!(nouns[p.word].kind & kinds));
    size_t which = random_below(r, 10);
    p.determiner = which < 4 ? THE
                   : which < 6
                       ? A
                       : (determiner)(THIS + random_below(r, OUR - THIS + 1));
    if (chance(r, 35))
        p.adjective = adjective_draw(r, nouns[p.word].kind, false);
    return p;
}

/* Persons are mostly drawn as pronouns. */
static phrase phrase_draw(uint64_t *r, unsigned kinds, bool object)
{
    size_t which = random_below(r, 100);
    if (kinds & HUMAN && which < 45)
        return (phrase){ .kind = PRONOUN, .word = random_below(r, 6) };
    if (kinds & HUMAN && which < 55)
        return (phrase){ .kind = NAME, .word = random_below(r, name_count) };
    if (object && kinds & THINGS && which < 62)
        return (phrase){ .kind = PRONOUN, .word = IT };
    return noun_draw(r, kinds);
}

static bool first_person(const phrase *p)
{
    return p->kind == PRONOUN && (p->word == 0 || p->word == 4);
}

/* Whether both could be the same person; there are no reflexive pronouns. */
static bool same(const phrase *a, const phrase *b)
{
    if (first_person(a) && first_person(b))
        return true;
    return a->kind == b->kind && a->word == b->word &&
           !(a->kind == PRONOUN && a->word != 1);
}

/* ---- clauses ----------------------------------------------------------- */

/* "What" asks for things, "whom" for persons. */
static bool question_fits(const clause *c)
{
    const verb *v = c->verb;
    if (c->mood == WHAT)
        return v->governs == BOTH_OBJECTS ||
               (v->governs == AN_OBJECT && v->object & THINGS);
    if (c->mood == WHOM)
        return v->governs == A_PARTNER ||
               (v->governs == AN_OBJECT && v->object & HUMAN);
    if (c->mood == WHO)
        return v->subject & HUMAN;
    if (c->mood == WHERE || c->mood == WHEN)
        return !v->state;
    return true;
}

static mood mood_draw(uint64_t *r)
{
    size_t which = random_below(r, 100);
    return which < 58   ? STATEMENT
           : which < 78 ? QUESTION
                        : (mood)(WHO + random_below(r, WHY - WHO + 1));
}

static void objects_draw(clause *c, uint64_t *r)
{
    governs g = c->verb->governs;
    if (g == AN_OBJECT && c->mood != WHAT && c->mood != WHOM)
        c->object = phrase_draw(r, c->verb->object, true);
    if (g == A_PARTNER && c->mood != WHOM)
        c->partner = phrase_draw(r, c->verb->object, true);
    if (g == BOTH_OBJECTS) {
        c->partner = phrase_draw(r, HUMAN, true);
        if (c->mood != WHAT)
            c->object = phrase_draw(r, c->verb->object, true);
    }
}

/* Clauses that are unidiomatic, or ambiguous in one of the languages. */
static bool unidiomatic(const clause *c)
{
    const adverb *a = c->adverb;
    const phrase *o = &c->object, *p = &c->partner;
    bool new_object = o->kind == NOUN && o->determiner == A;
    bool new_partner = p->kind == NOUN && p->determiner == A;
    bool am = c->subject.kind == PRONOUN && c->subject.word == 0 &&
              c->verb->governs == A_QUALITY;
    bool plain = c->mood == STATEMENT || c->mood == QUESTION;
    if (c->mood != WHO && (same(&c->subject, o) || same(&c->subject, p)))
        return true;
    if (o->kind != ABSENT && same(o, p))
        return true;
    if (c->negated && c->modal == MUST)
        return true;
    if (c->negated && !plain && c->mood != WHY)
        return true;
    if (c->negated && c->mood != STATEMENT && (am || !c->contracted))
        return true;
    if (c->negated && new_partner && o->kind != ABSENT)
        return true;
    if (c->subject.kind == NOUN && c->subject.determiner == A &&
        (c->negated || c->mood != STATEMENT))
        return true;
    // "Liest das Kind es?" is unidiomatic.
    if (c->mood != STATEMENT && c->subject.kind != PRONOUN &&
        o->kind == PRONOUN && o->word == IT)
        return true;
    if (!a)
        return false;
    if (a->never && (c->negated || c->modal == MUST))
        return true;
    if (a->late && c->negated && (new_object || new_partner))
        return true;
    if (c->verb->state && !a->middle && (a->late || a->asks == 'e'))
        return true;
    return (a->asks == 'n' && c->mood == WHEN) ||
           (a->asks == 'e' && c->mood == WHERE);
}

static clause clause_draw(uint64_t *r)
{
    clause c;
    do {
        c = (clause){ .mood = mood_draw(r),
                      .verb = &verbs_of_grammar[random_below(r, verb_count)],
                      .negated = chance(r, 25),
                      .contracted = chance(r, 50),
                      .stop = chance(r, 25) };
        if (!c.verb->state && chance(r, 25))
            c.modal = (modal)(CAN + random_below(r, 3));
        if (chance(r, 30))
            c.adverb = &adverbs[random_below(r, adverb_count)];
        c.subject = phrase_draw(r, c.verb->subject, false);
        if (c.mood == WHO)
            c.subject = (phrase){ .kind = ABSENT };
        if (c.verb->governs == A_QUALITY) {
            c.quality = adjective_draw(
                r, c.subject.kind == NOUN ? nouns[c.subject.word].kind : HUMAN,
                true);
            c.subject.adjective = NULL; // "the old man is old"
        }
        objects_draw(&c, r);
    } while (!question_fits(&c) || unidiomatic(&c));
    return c;
}

/* ---- sets of pairs ----------------------------------------------------- */

/* Sentences drawn so far, by their German without the full stop. */
typedef struct seen {
    const char **slots;
    size_t size; /* a power of two */
} seen;

static size_t bare(const char *text)
{
    size_t length = strlen(text);
    return length && text[length - 1] == '.' ? length - 1 : length;
}

/* Add a sentence; whether it is new. */
static bool seen_add(seen *s, const char *text)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    size_t length = bare(text);
    for (size_t i = 0; i < length; i++)
        hash = (hash ^ (unsigned char)text[i]) * UINT64_C(0x100000001b3);
    size_t at = (size_t)hash & (s->size - 1);
    for (; s->slots[at]; at = (at + 1) & (s->size - 1))
        if (bare(s->slots[at]) == length &&
            memcmp(s->slots[at], text, length) == 0)
            return false;
    s->slots[at] = text;
    return true;
}

static int pair_add(pairs *p, seen *s, const clause *c)
{
    sentence english, german;
    english_write(&english, c);
    german_write(&german, c);
    pair one = { strdup(english.text), strdup(german.text) };
    if (!one.english || !one.german) {
        free(one.english);
        free(one.german);
        return -1;
    }
    if (seen_add(s, one.german)) {
        p->at[p->count++] = one;
    } else {
        free(one.english);
        free(one.german);
    }
    return 0;
}

int pairs_draw(pairs *p, size_t count, uint64_t seed)
{
    const clause love = { .subject = { .kind = PRONOUN, .word = 0 },
                          .object = { .kind = PRONOUN, .word = 1 },
                          .verb = &verbs_of_grammar[0] };
    seen s = { .size = 16 };
    while (s.size < 2 * count)
        s.size *= 2;
    s.slots = calloc(s.size, sizeof(*s.slots));
    *p = (pairs){ .at = calloc(count + 1, sizeof(*p->at)) };
    int failed = s.slots && p->at ? pair_add(p, &s, &love) : -1;
    while (!failed && p->count < count) {
        clause c = clause_draw(&seed);
        failed = pair_add(p, &s, &c);
    }
    free(s.slots);
    return failed;
}

void pairs_release(pairs *p)
{
    for (size_t i = 0; i < p->count; i++) {
        free(p->at[i].english);
        free(p->at[i].german);
    }
    free(p->at);
    *p = (pairs){ 0 };
}
