/* SPDX-License-Identifier: Apache-2.0 */
/* grammar.h - a small grammar of English and German, for the demo.
 *
 *   grammar_words.c    nouns, verbs, adjectives, adverbs in both languages
 *   grammar_english.c  a clause in English
 *   grammar_german.c   the same clause in German
 *   grammar.c          clauses at random
 *
 * A clause says who does what to whom, and how; each language renders it by its
 * own rules. German inflects articles, pronouns and adjectives by gender and
 * case, splits verbs, and has its own word order for "nicht", infinitives and
 * particles. "You" is always "du". */
#ifndef GRAMMAR_H
#define GRAMMAR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- words ------------------------------------------------------------- */

typedef enum gender { MASCULINE, FEMININE, NEUTER } gender;
typedef enum casus { NOMINATIVE, ACCUSATIVE, DATIVE } casus;

/* Classes of nouns; verbs and adjectives say which ones they go with. */
enum {
    HUMAN = 1,
    ANIMAL = 2,
    THING = 4,
    TEXT = 8, /* a thing to read */
    FOOD = 16,
    PLACE = 32, /* a thing that cannot be carried */
    ALIVE = HUMAN | ANIMAL,
    THINGS = THING | TEXT | FOOD, /* that can be carried */
    ANYTHING = ALIVE | THINGS | PLACE
};

typedef struct noun {
    const char *english, *german;
    gender gender;
    unsigned kind;
    const char *oblique; /* accusative and dative, if they differ */
} noun;

typedef struct adjective {
    const char *english, *german;
    unsigned attributive; /* before these nouns; 0: only "he is ..." */
    unsigned predicative; /* "he is ...", for these nouns */
} adjective;

/* I, you, he, she, we, they; and "it", only as an object. */
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
    bool state; /* takes no modal verb */
} verb;

typedef struct adverb {
    const char *english, *german;
    bool middle; /* "I often sing", not "I sing often" */
    bool late;   /* after "nicht" */
    bool never;  /* is a negation */
    char asks;   /* the question it answers: 'n' when, 'e' where, or 0 */
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

/* A sentence under construction: words separated by spaces. */
typedef struct sentence {
    char text[SENTENCE_MAX];
    size_t length;
} sentence;

void sentence_add(sentence *s, const char *word);
/* Capitalize, and add the final punctuation. */
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

/* Draw `count` pairs, all different in both languages; -1 if out of memory. The
 * first is "I love you". */
int pairs_draw(pairs *p, size_t count, uint64_t seed);
void pairs_release(pairs *p);

#endif
