/* SPDX-License-Identifier: Apache-2.0 */
/* grammar_english.c - a clause in English. */
#include "grammar.h"

#include <stdio.h>
#include <string.h>

/* ---- phrases ----------------------------------------------------------- */

static const char *article(const char *next)
{
    return strchr("aeiou", next[0]) ? "an" : "a";
}

static void noun_write(sentence *s, const phrase *p)
{
    static const char *const words[DETERMINERS] = {
        [THE] = "the", [THIS] = "this", [MY] = "my",   [YOUR] = "your",
        [HIS] = "his", [HER] = "her",   [OUR] = "our",
    };
    const char *word = nouns[p->word].english;
    const char *next = p->adjective ? p->adjective->english : word;
    sentence_add(s, p->determiner == A ? article(next) : words[p->determiner]);
    if (p->adjective)
        sentence_add(s, p->adjective->english);
    sentence_add(s, word);
}

static void phrase_write(sentence *s, const phrase *p, bool object)
{
    if (p->kind == PRONOUN)
        sentence_add(s, object ? pronouns[p->word].english_object
                               : pronouns[p->word].english);
    else if (p->kind == NAME)
        sentence_add(s, names[p->word]);
    else if (p->kind == NOUN)
        noun_write(s, p);
}

/* ---- verbs ------------------------------------------------------------- */

static int form_of(const clause *c)
{
    const phrase *p = &c->subject;
    return c->mood == WHO || p->kind != PRONOUN ? FORM_ER
                                                : pronouns[p->word].form;
}

/* The auxiliary, before the subject of a question and before "not": do, can, or
 * a form of to be. NULL for a plain statement. */
static const char *auxiliary(const clause *c)
{
    static const char *const be[] = { "am", "are", "is", "are" };
    int form = form_of(c);
    if (c->verb->governs == A_QUALITY)
        return be[form];
    if (c->modal == CAN || c->modal == MUST)
        return c->modal == CAN ? "can" : "must";
    bool plain = c->mood == STATEMENT || c->mood == WHO;
    if (plain && !c->negated)
        return NULL;
    return form == FORM_ER ? "does" : "do";
}

static void auxiliary_write(sentence *s, const clause *c)
{
    char word[16];
    const char *helper = auxiliary(c);
    if (!helper)
        return;
    bool can = strcmp(helper, "can") == 0, am = strcmp(helper, "am") == 0;
    if (!c->negated) {
        sentence_add(s, helper);
    } else if (c->contracted && !am) {
        snprintf(word, sizeof(word), "%s't", can ? "can" : helper);
        if (!can)
            snprintf(word, sizeof(word), "%sn't", helper);
        sentence_add(s, word);
    } else if (can) {
        sentence_add(s, "cannot");
    } else {
        sentence_add(s, helper);
        sentence_add(s, "not");
    }
}

/* The verb after its auxiliary, or in its finite form. */
static void verb_write(sentence *s, const clause *c)
{
    bool finite = !auxiliary(c), third = form_of(c) == FORM_ER;
    if (c->verb->governs == A_QUALITY)
        return; // the auxiliary is the verb
    if (c->modal == WANT) {
        sentence_add(s, finite && third ? "wants" : "want");
        sentence_add(s, "to");
        finite = false;
    }
    sentence_add(s, finite && third ? c->verb->third : c->verb->english);
}

/* ---- the clause -------------------------------------------------------- */

static void objects_write(sentence *s, const clause *c)
{
    bool to = c->verb->governs == BOTH_OBJECTS &&
              c->object.kind == PRONOUN; // "it to him"
    if (c->verb->with[0])
        sentence_add(s, c->verb->with);
    if (!to)
        phrase_write(s, &c->partner, true);
    phrase_write(s, &c->object, true);
    if (to && c->partner.kind != ABSENT) {
        sentence_add(s, "to");
        phrase_write(s, &c->partner, true);
    }
    if (c->quality)
        sentence_add(s, c->quality->english);
}

static const char *opening(mood of)
{
    switch (of) {
    case WHO:
        return "who";
    case WHAT:
        return "what";
    case WHOM:
        return "whom";
    case WHERE:
        return "where";
    case WHEN:
        return "when";
    case WHY:
        return "why";
    default:
        return NULL;
    }
}

void english_write(sentence *s, const clause *c)
{
    const adverb *a = c->adverb;
    *s = (sentence){ .length = 0 };
    if (opening(c->mood))
        sentence_add(s, opening(c->mood));
    if (c->mood == STATEMENT)
        phrase_write(s, &c->subject, false);
    auxiliary_write(s, c);
    if (c->mood != STATEMENT && c->mood != WHO)
        phrase_write(s, &c->subject, false);
    if (a && a->middle)
        sentence_add(s, a->english);
    verb_write(s, c);
    objects_write(s, c);
    if (a && !a->middle)
        sentence_add(s, a->english);
    sentence_end(s, c);
}
