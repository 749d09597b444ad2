/* SPDX-License-Identifier: Apache-2.0 */
/* test_grammar.c - the demo's sentences: the German of clauses that cover
 * every form, checked by hand, and sets of pairs. */
#include "../lab/grammar.h"
#include "testing.h"

#include <string.h>

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* ---- words by their English --------------------------------------------- */

static const verb *verb_of(const char *english)
{
    for (size_t i = 0; i < verb_count; i++)
        if (strcmp(verbs_of_grammar[i].english, english) == 0)
            return &verbs_of_grammar[i];
    fail_msg("there is no verb %s", english);
    return NULL;
}

static const adjective *adjective_of(const char *english)
{
    for (size_t i = 0; i < adjective_count; i++)
        if (strcmp(adjectives[i].english, english) == 0)
            return &adjectives[i];
    fail_msg("there is no adjective %s", english);
    return NULL;
}

static const adverb *adverb_of(const char *english)
{
    for (size_t i = 0; i < adverb_count; i++)
        if (strcmp(adverbs[i].english, english) == 0)
            return &adverbs[i];
    fail_msg("there is no adverb %s", english);
    return NULL;
}

static size_t noun_of(const char *english)
{
    for (size_t i = 0; i < noun_count; i++)
        if (strcmp(nouns[i].english, english) == 0)
            return i;
    fail_msg("there is no noun %s", english);
    return 0;
}

/* A phrase from its words: "the old man", "I", "Anna"; "" is none. */
static phrase phrase_of(const char *text)
{
    static const char *const determiners[] = { "the",  "a",   "this", "my",
                                               "your", "his", "her",  "our" };
    char words[64], *at[3] = { NULL };
    size_t count = 0;
    snprintf(words, sizeof(words), "%s", text);
    for (char *w = strtok(words, " "); w && count < 3; w = strtok(NULL, " "))
        at[count++] = w;
    if (count == 0)
        return (phrase){ .kind = ABSENT };
    for (size_t i = 0; count == 1 && i < pronoun_count; i++)
        if (strcmp(pronouns[i].english, at[0]) == 0)
            return (phrase){ .kind = PRONOUN, .word = i };
    for (size_t i = 0; count == 1 && i < name_count; i++)
        if (strcmp(names[i], at[0]) == 0)
            return (phrase){ .kind = NAME, .word = i };
    phrase p = { .kind = NOUN, .word = noun_of(at[count - 1]) };
    for (size_t i = 0; i < DETERMINERS; i++)
        if (strcmp(determiners[i], at[0]) == 0)
            p.determiner = (determiner)i;
    if (count == 3)
        p.adjective = adjective_of(at[1]);
    return p;
}

/* ---- clauses ------------------------------------------------------------- */

enum { SAYS, NOT, DONT }; /* plain, "do not", "don't" */

static const struct {
    mood mood;
    modal modal;
    int negated;
    const char *subject, *verb, *object, *partner, *rest; /* adverb, quality */
    const char *english, *german;
} known[] = {
    { STATEMENT, NO_MODAL, SAYS, "I", "love", "you", "", "", "I love you",
      "Ich liebe dich" },
    { STATEMENT, NO_MODAL, NOT, "I", "love", "you", "", "", "I do not love you",
      "Ich liebe dich nicht" },
    { STATEMENT, NO_MODAL, DONT, "she", "love", "he", "", "",
      "She doesn't love him", "Sie liebt ihn nicht" },
    { QUESTION, NO_MODAL, SAYS, "you", "love", "I", "", "", "Do you love me?",
      "Liebst du mich?" },
    { QUESTION, NO_MODAL, DONT, "you", "love", "I", "", "",
      "Don't you love me?", "Liebst du mich nicht?" },
    { WHY, NO_MODAL, DONT, "they", "love", "we", "", "",
      "Why don't they love us?", "Warum lieben sie uns nicht?" },
    { STATEMENT, NO_MODAL, SAYS, "the man", "see", "the dog", "", "",
      "The man sees the dog", "Der Mann sieht den Hund" },
    { STATEMENT, NO_MODAL, SAYS, "the woman", "see", "a dog", "", "",
      "The woman sees a dog", "Die Frau sieht einen Hund" },
    { STATEMENT, NO_MODAL, SAYS, "the child", "see", "a cat", "", "",
      "The child sees a cat", "Das Kind sieht eine Katze" },
    { STATEMENT, NO_MODAL, SAYS, "I", "see", "a horse", "", "", "I see a horse",
      "Ich sehe ein Pferd" },
    { STATEMENT, NO_MODAL, NOT, "I", "see", "a dog", "", "",
      "I do not see a dog", "Ich sehe keinen Hund" },
    { STATEMENT, NO_MODAL, DONT, "we", "have", "a cat", "", "",
      "We don't have a cat", "Wir haben keine Katze" },
    { STATEMENT, NO_MODAL, NOT, "he", "have", "a new car", "", "today",
      "He does not have a new car today", "Er hat heute kein neues Auto" },
    { STATEMENT, NO_MODAL, SAYS, "a old man", "eat", "a apple", "", "",
      "An old man eats an apple", "Ein alter Mann isst einen Apfel" },
    { STATEMENT, NO_MODAL, SAYS, "a young woman", "read", "a good book", "", "",
      "A young woman reads a good book",
      "Eine junge Frau liest ein gutes Buch" },
    { STATEMENT, NO_MODAL, SAYS, "the small child", "find", "the red key", "",
      "", "The small child finds the red key",
      "Das kleine Kind findet den roten Schlüssel" },
    { STATEMENT, NO_MODAL, SAYS, "this boy", "know", "this girl", "", "",
      "This boy knows this girl", "Dieser Junge kennt dieses Mädchen" },
    { STATEMENT, NO_MODAL, SAYS, "you", "look", "the boy", "", "",
      "You look for the boy", "Du suchst den Jungen" },
    { STATEMENT, NO_MODAL, SAYS, "he", "help", "", "the old woman", "",
      "He helps the old woman", "Er hilft der alten Frau" },
    { STATEMENT, NO_MODAL, SAYS, "you", "help", "", "our young king", "",
      "You help our young king", "Du hilfst unserem jungen König" },
    { STATEMENT, NO_MODAL, SAYS, "I", "follow", "", "a bear", "",
      "I follow a bear", "Ich folge einem Bären" },
    { STATEMENT, NO_MODAL, NOT, "I", "thank", "", "a king", "",
      "I do not thank a king", "Ich danke keinem König" },
    { STATEMENT, NO_MODAL, SAYS, "we", "trust", "", "they", "", "We trust them",
      "Wir vertrauen ihnen" },
    { STATEMENT, NO_MODAL, SAYS, "Anna", "listen", "", "my mother", "",
      "Anna listens to my mother", "Anna hört meiner Mutter zu" },
    { STATEMENT, NO_MODAL, DONT, "you", "listen", "", "I", "today",
      "You don't listen to me today", "Du hörst mir heute nicht zu" },
    { STATEMENT, CAN, NOT, "I", "listen", "", "she", "",
      "I cannot listen to her", "Ich kann ihr nicht zuhören" },
    { STATEMENT, NO_MODAL, SAYS, "the book", "belong", "", "he", "",
      "The book belongs to him", "Das Buch gehört ihm" },
    { WHOM, NO_MODAL, SAYS, "the mask", "belong", "", "", "",
      "Whom does the mask belong to?", "Wem gehört die Maske?" },
    { STATEMENT, NO_MODAL, SAYS, "I", "give", "the book", "the man", "",
      "I give the man the book", "Ich gebe dem Mann das Buch" },
    { STATEMENT, NO_MODAL, SAYS, "she", "give", "it", "I", "",
      "She gives it to me", "Sie gibt es mir" },
    { STATEMENT, NO_MODAL, SAYS, "you", "give", "a flower", "your sister",
      "every day", "You give your sister a flower every day",
      "Du gibst deiner Schwester jeden Tag eine Blume" },
    { STATEMENT, NO_MODAL, DONT, "Paul", "show", "a picture", "we", "",
      "Paul doesn't show us a picture", "Paul zeigt uns kein Bild" },
    { WHAT, NO_MODAL, SAYS, "you", "bring", "", "the child", "",
      "What do you bring the child?", "Was bringst du dem Kind?" },
    { WHOM, CAN, SAYS, "you", "see", "", "", "here", "Whom can you see here?",
      "Wen kannst du hier sehen?" },
    { WHO, NO_MODAL, SAYS, "", "answer", "", "they", "", "Who answers them?",
      "Wer antwortet ihnen?" },
    { WHERE, NO_MODAL, SAYS, "you", "sleep", "", "", "", "Where do you sleep?",
      "Wo schläfst du?" },
    { WHEN, MUST, SAYS, "we", "work", "", "", "", "When must we work?",
      "Wann müssen wir arbeiten?" },
    { STATEMENT, WANT, SAYS, "she", "visit", "her brother", "", "",
      "She wants to visit her brother", "Sie will ihren Bruder besuchen" },
    { STATEMENT, WANT, NOT, "he", "dance", "", "", "today",
      "He does not want to dance today", "Er will heute nicht tanzen" },
    { QUESTION, CAN, DONT, "you", "help", "", "I", "", "Can't you help me?",
      "Kannst du mir nicht helfen?" },
    { STATEMENT, NO_MODAL, SAYS, "I", "sing", "", "", "often", "I often sing",
      "Ich singe oft" },
    { STATEMENT, NO_MODAL, NOT, "they", "wait", "", "", "always",
      "They do not always wait", "Sie warten nicht immer" },
    { STATEMENT, NO_MODAL, SAYS, "the queen", "forget", "he", "", "never",
      "The queen never forgets him", "Die Königin vergisst ihn nie" },
    { STATEMENT, NO_MODAL, NOT, "I", "be", "", "", "tired", "I am not tired",
      "Ich bin nicht müde" },
    { QUESTION, NO_MODAL, DONT, "he", "be", "", "", "happy", "Isn't he happy?",
      "Ist er nicht glücklich?" },
};

static void rest_set(clause *c, const char *rest)
{
    if (c->verb->governs == A_QUALITY)
        c->quality = adjective_of(rest);
    else if (*rest)
        c->adverb = adverb_of(rest);
}

static void german_forms_are_correct(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(known); i++) {
        sentence english, german;
        clause c = { .mood = known[i].mood,
                     .modal = known[i].modal,
                     .negated = known[i].negated != SAYS,
                     .contracted = known[i].negated == DONT,
                     .subject = phrase_of(known[i].subject),
                     .object = phrase_of(known[i].object),
                     .partner = phrase_of(known[i].partner),
                     .verb = verb_of(known[i].verb) };
        rest_set(&c, known[i].rest);
        english_write(&english, &c);
        german_write(&german, &c);
        assert_string_equal(english.text, known[i].english);
        assert_string_equal(german.text, known[i].german);
    }
}

/* ---- pairs --------------------------------------------------------------- */

static int by_german(const void *a, const void *b)
{
    const pair *x = a, *y = b;
    return strcmp(x->german, y->german);
}

static int by_english(const void *a, const void *b)
{
    const pair *x = a, *y = b;
    return strcmp(x->english, y->english);
}

static void pairs_are_unique(void **state)
{
    (void)state;
    pairs p;
    assert_int_equal(pairs_draw(&p, 20000, test_seed()), 0);
    assert_int_equal(p.count, 20000);
    assert_string_equal(p.at[0].english, "I love you");
    assert_string_equal(p.at[0].german, "Ich liebe dich");
    qsort(p.at, p.count, sizeof(*p.at), by_german);
    for (size_t i = 1; i < p.count; i++) {
        assert_true(strcmp(p.at[i - 1].german, p.at[i].german) != 0);
        // Not even if only the full stop differs.
        size_t length = strlen(p.at[i - 1].german);
        assert_false(strncmp(p.at[i].german, p.at[i - 1].german, length) == 0 &&
                     strcmp(p.at[i].german + length, ".") == 0);
    }
    qsort(p.at, p.count, sizeof(*p.at), by_english);
    for (size_t i = 1; i < p.count; i++)
        assert_true(strcmp(p.at[i - 1].english, p.at[i].english) != 0);
    pairs_release(&p);
}

static void a_seed_gives_the_same_pairs(void **state)
{
    (void)state;
    pairs a, b, c;
    size_t differ = 0;
    assert_int_equal(pairs_draw(&a, 500, 7), 0);
    assert_int_equal(pairs_draw(&b, 500, 7), 0);
    assert_int_equal(pairs_draw(&c, 500, 8), 0);
    for (size_t i = 0; i < 500; i++) {
        assert_string_equal(a.at[i].english, b.at[i].english);
        differ += strcmp(a.at[i].english, c.at[i].english) != 0;
    }
    assert_true(differ > 400);
    pairs_release(&a);
    pairs_release(&b);
    pairs_release(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(german_forms_are_correct),
        cmocka_unit_test(pairs_are_unique),
        cmocka_unit_test(a_seed_gives_the_same_pairs),
    };
    return cmocka_run_group_tests_name("grammar", tests, NULL, NULL);
}
