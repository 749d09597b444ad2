/* SPDX-License-Identifier: Apache-2.0 */
/* grammar_german.c - the same clause in German. */
#include "grammar.h"

#include <stdio.h>
#include <string.h>

/* ---- phrases ----------------------------------------------------------- */

/* Endings of "ein", "mein", "kein", by case and gender; "der" and "dieser" have
 * an ending everywhere. */
static const char *const ein_endings[3][3] = {
    [NOMINATIVE] = { "", "e", "" },
    [ACCUSATIVE] = { "en", "e", "" },
    [DATIVE] = { "em", "er", "em" },
};
static const char *const dies_endings[3][3] = {
    [NOMINATIVE] = { "er", "e", "es" },
    [ACCUSATIVE] = { "en", "e", "es" },
    [DATIVE] = { "em", "er", "em" },
};
static const char *const the[3][3] = {
    [NOMINATIVE] = { "der", "die", "das" },
    [ACCUSATIVE] = { "den", "die", "das" },
    [DATIVE] = { "dem", "der", "dem" },
};
/* Endings of adjectives: weak after "der" and "dieser", else mixed. */
static const char *const weak[3][3] = {
    [NOMINATIVE] = { "e", "e", "e" },
    [ACCUSATIVE] = { "en", "e", "e" },
    [DATIVE] = { "en", "en", "en" },
};
static const char *const mixed[3][3] = {
    [NOMINATIVE] = { "er", "e", "es" },
    [ACCUSATIVE] = { "en", "e", "es" },
    [DATIVE] = { "en", "en", "en" },
};

static void joined_add(sentence *s, const char *stem, const char *ending)
{
    char word[48];
    snprintf(word, sizeof(word), "%s%s", stem, ending);
    sentence_add(s, word);
}

static void noun_write(sentence *s, const phrase *p, casus in, bool no)
{
    static const char *const stems[DETERMINERS] = {
        [A] = "ein",    [THIS] = "dies", [MY] = "mein",   [YOUR] = "dein",
        [HIS] = "sein", [HER] = "ihr",   [OUR] = "unser",
    };
    const noun *n = &nouns[p->word];
    determiner d = p->determiner;
    bool strong = d == THE || d == THIS;
    if (d == THE)
        sentence_add(s, the[in][n->gender]);
    else
        joined_add(s, no && d == A ? "kein" : stems[d],
                   (strong ? dies_endings : ein_endings)[in][n->gender]);
    if (p->adjective)
        joined_add(s, p->adjective->german,
                   (strong ? weak : mixed)[in][n->gender]);
    sentence_add(s, in != NOMINATIVE && n->oblique ? n->oblique : n->german);
}

static void phrase_write(sentence *s, const phrase *p, casus in, bool no)
{
    if (p->kind == PRONOUN)
        sentence_add(s, pronouns[p->word].german[in]);
    else if (p->kind == NAME)
        sentence_add(s, names[p->word]);
    else if (p->kind == NOUN)
        noun_write(s, p, in, no);
}

static bool indefinite(const phrase *p)
{
    return p->kind == NOUN && p->determiner == A;
}

/* ---- verbs ------------------------------------------------------------- */

static const char *finite_of(const clause *c)
{
    static const char *const modals[MODALS][4] = {
        [CAN] = { "kann", "kannst", "kann", "können" },
        [MUST] = { "muss", "musst", "muss", "müssen" },
        [WANT] = { "will", "willst", "will", "wollen" },
    };
    const phrase *p = &c->subject;
    int form =
        c->mood == WHO || p->kind != PRONOUN ? FORM_ER : pronouns[p->word].form;
    return c->modal ? modals[c->modal][form] : c->verb->forms[form];
}

/* The end of the clause: the infinitive, or the particle of the verb. */
static void bracket_close(sentence *s, const clause *c)
{
    if (c->modal)
        sentence_add(s, c->verb->infinitive);
    else if (c->verb->particle[0])
        sentence_add(s, c->verb->particle);
}

/* ---- the middle -------------------------------------------------------- */

/* Objects, the adverb and "nicht" between the two parts of the verb. Definite
 * objects come before the adverb, indefinite ones after it; an indefinite
 * object is negated with "kein". An accusative pronoun comes first. */
static void middle_write(sentence *s, const clause *c)
{
    const phrase *first = &c->partner, *second = &c->object;
    casus one = DATIVE, two = ACCUSATIVE;
    if (c->object.kind == PRONOUN) {
        first = &c->object, second = &c->partner;
        one = ACCUSATIVE, two = DATIVE;
    }
    bool kein = c->negated && (indefinite(first) || indefinite(second));
    bool late = c->adverb && c->adverb->late;
    if (!indefinite(first))
        phrase_write(s, first, one, false);
    if (!indefinite(first) && !indefinite(second))
        phrase_write(s, second, two, false);
    if (c->negated && !kein && late)
        sentence_add(s, "nicht");
    if (c->adverb)
        sentence_add(s, c->adverb->german);
    if (c->negated && !kein && !late)
        sentence_add(s, "nicht");
    if (indefinite(first))
        phrase_write(s, first, one, kein);
    if (indefinite(first) || indefinite(second))
        phrase_write(s, second, two, kein);
    if (c->quality)
        sentence_add(s, c->quality->german);
}

/* ---- the clause -------------------------------------------------------- */

/* The position before the verb; empty in a yes-no question. */
static void front_write(sentence *s, const clause *c)
{
    static const char *const words[] = {
        [WHO] = "wer",   [WHAT] = "was",  [WHERE] = "wo",
        [WHEN] = "wann", [WHY] = "warum",
    };
    if (c->mood == STATEMENT)
        phrase_write(s, &c->subject, NOMINATIVE, false);
    else if (c->mood == WHOM)
        sentence_add(s, c->verb->governs == AN_OBJECT ? "wen" : "wem");
    else if (c->mood != QUESTION)
        sentence_add(s, words[c->mood]);
}

void german_write(sentence *s, const clause *c)
{
    *s = (sentence){ .length = 0 };
    front_write(s, c);
    sentence_add(s, finite_of(c));
    if (c->mood != STATEMENT && c->mood != WHO)
        phrase_write(s, &c->subject, NOMINATIVE, false);
    middle_write(s, c);
    bracket_close(s, c);
    sentence_end(s, c);
}
