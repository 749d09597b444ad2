/* SPDX-License-Identifier: Apache-2.0 */
/* grammar.h - a small grammar of English and German, for the demo.
 *
 *   grammar_words.c    nouns, verbs, adjectives, adverbs in both languages
 *   grammar_english.c  a clause in English
 *   grammar_german.c   the same clause in German
 *   grammar.c          clauses at random
 *
 * A clause says who does what to whom, and how; each language then has its own
 * idea of how to put it. German inflects articles, pronouns and adjectives by
 * gender and case, splits verbs, and sends "nicht", infinitives and particles
 * to places of their own. "You" is always one friend: du. */
#ifndef GRAMMAR_H
#define GRAMMAR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- words ------------------------------------------------------------- */

typedef enum gender { MASCULINE, FEMININE, NEUTER } gender;
typedef enum casus { NOMINATIVE, ACCUSATIVE, DATIVE } casus;

/* What a noun names, and which of them a verb or an adjective goes with. */
enum {
    HUMAN = 1,
    ANIMAL = 2,
    THING = 4,
    TEXT = 8, /* a thing that is read */
    FOOD = 16,
    PLACE = 32, /* a thing that stays where it is */
    ALIVE = HUMAN | ANIMAL,
    THINGS = THING | TEXT | FOOD, /* that can be carried */
    ANYTHING = ALIVE | THINGS | PLACE
};

typedef struct noun {
    const char *english, *german;
    gender gender;
    unsigned kind;
    const char *oblique; /* accusative and dative, where they differ */
} noun;

typedef struct adjective {
    const char *english, *german;
    unsigned goes; /* with these nouns; 0: only as "he is ..." */
    unsigned says; /* of these it is said: "he is ..." */
} adjective;

/* Persons by number: I, you, he, she, we, they; and "it", which is an object
 * here. */
typedef struct pronoun {
    const char *english, *english_object;
    const char *german[3]; /* by case */
    int form;              /* of the verb: FORM_... */
} pronoun;

enum { FORM_ICH, FORM_DU, FORM_ER, FORM_WIR };

typedef enum governs {
    NOTHING,      /* I sleep */
    AN_OBJECT,    /* I see him: accusative */
    A_PARTNER,    /* I help him: dative */
    BOTH_OBJECTS, /* I give him the book */
    A_QUALITY     /* I am old */
} governs;

typedef struct verb {
    const char *english, *third; /* see, sees */
    const char *with;            /* "for" of "look for", or "" */
    const char *infinitive, *forms[4];
    const char *particle; /* "zu" of "zuhören", or "" */
    governs governs;
    unsigned subject, object;
    bool state; /* is not wanted, nor can it be done */
} verb;

typedef struct adverb {
    const char *english, *german;
    bool middle; /* "I often sing", not "I sing often" */
    bool late;   /* behind "nicht" */
    bool never;  /* a negation itself */
    char asks;   /* what it answers: 'n' when, 'e' where, or 0 */
} adverb;

typedef enum determiner { THE, A, THIS, MY, YOUR, HIS, HER, OUR } determiner;
enum { DETERMINERS = OUR + 1, IT = 6 };
typedef enum modal { NO_MODAL, CAN, MUST, WANT } modal;
enum { MODALS = WANT + 1 };

extern const noun nouns[];
extern const adjective adjectives[];
extern const pronoun pronouns[];
extern const verb verbs_of_grammar[];
extern const adverb adverbs[];
extern const char *const names[];
extern const size_t noun_count, adjective_count, pronoun_count, verb_count,
    adverb_count, name_count;

/* ---- clauses ----------------------------------------------------------- */

typedef struct phrase {
    enum { ABSENT, PRONOUN, NAME, NOUN } kind;
    size_t word;
    determiner determiner;
    const adjective *adjective; /* or NULL */
} phrase;

typedef enum mood {
    STATEMENT,
    QUESTION, /* Do you see him? */
    WHO,      /* Who sees him? */
    WHAT,     /* What do you see? */
    WHOM,     /* Whom do you see, help? */
    WHERE,
    WHEN,
    WHY
} mood;

typedef struct clause {
    mood mood;
    modal modal;
    bool negated, contracted; /* "do not", "don't" */
    phrase subject, object, partner;
    const verb *verb;
    const adjective *quality;
    const adverb *adverb; /* or NULL */
    bool stop;            /* ends in a full stop */
} clause;

enum { SENTENCE_MAX = 192 };

/* A sentence as it grows: words with spaces between them. */
typedef struct sentence {
    char text[SENTENCE_MAX];
    size_t length;
} sentence;

void sentence_add(sentence *s, const char *word);
/* A capital at the beginning, a mark at the end. */
void sentence_end(sentence *s, const clause *c);

void english_write(sentence *s, const clause *c);
void german_write(sentence *s, const clause *c);

/* ---- pairs ------------------------------------------------------------- */

typedef struct pair {
    char *english, *german;
} pair;

typedef struct pairs {
    pair *at;
    size_t count;
} pairs;

/* So many pairs, all different in both languages; 0, or -1 without memory. The
 * first is "I love you". */
int pairs_draw(pairs *p, size_t count, uint64_t seed);
void pairs_release(pairs *p);

#endif
