// SPDX-License-Identifier: Apache-2.0
#include "common/option_names.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define CANDIDATES_MAX 6 // options that a message names

// The result of a search by name: options with this name or prefix, and the option with the nearest
// name.
struct search {
    const char *name;
    size_t length;
    const struct argp_option *exact, *prefix;
    int prefixes;                           // options of different keys that begin with the name
    const char *candidates[CANDIDATES_MAX]; // names of the first of these options
    struct nearest nearest;
};

static void search_options(struct search *search, const struct argp_option *options)
{
    const struct argp_option *original = options;
    for (const struct argp_option *o = options; o && (o->name || o->key || o->doc); o++) {
        if (!(o->flags & OPTION_ALIAS))
            original = o;
        if (!o->name)
            continue;
        if (!(o->flags & OPTION_HIDDEN))
            nearest_offer(&search->nearest, o->name);
        if (strncmp(o->name, search->name, search->length) != 0)
            continue;
        if (!o->name[search->length])
            search->exact = original;
        if (search->prefix && search->prefix->key == original->key)
            continue;
        if (search->prefixes < CANDIDATES_MAX)
            search->candidates[search->prefixes] = o->name;
        search->prefixes++;
        search->prefix = original;
    }
}

static void search_all(struct search *search, const struct argp *argp)
{
    static const struct argp_option built_in[] = {
        {.name = "help", .key = '?'}, {.name = "usage", .key = -3}, {.name = NULL}};
    static const struct argp_option version[] = {{.name = "version", .key = 'V'}, {.name = NULL}};
    search_options(search, argp->options);
    for (const struct argp_child *child = argp->children; child && child->argp; child++)
        search_options(search, child->argp->options);
    search_options(search, built_in);
    if (argp_program_version || argp_program_version_hook)
        search_options(search, version);
}

// Returns the option that other programs call by this name, else the option with the nearest name.
static const char *name_meant(const struct search *search, const struct option_names *names)
{
    struct nearest other = {.word = search->name};
    if (names->offer_others)
        names->offer_others(&other);
    if (!other.name)
        return search->nearest.name;
    struct search again = {.name = other.name, .length = strlen(other.name)};
    nearest_init(&again.nearest, again.name);
    search_all(&again, names->argp);
    return again.exact ? again.exact->name : search->nearest.name;
}

static enum status refuse_unknown(const struct search *search, const struct option_names *names,
                                  struct error *error)
{
    char hint[NEAREST_WORD_MAX + 32] = "";
    const char *meant = name_meant(search, names);
    if (meant)
        snprintf(hint, sizeof(hint), " (did you mean --%s?)", meant);
    return error_set(error, STATUS_INVALID_ARGUMENT,
                     "unknown option '--%s'%s; %s --help lists them", search->name, hint,
                     names->command);
}

static enum status refuse_ambiguous(const struct search *search, const char *command,
                                    struct error *error)
{
    char names[CANDIDATES_MAX * 32];
    size_t used = 0;
    int shown = search->prefixes < CANDIDATES_MAX ? search->prefixes : CANDIDATES_MAX;
    for (int i = 0; i < shown && used < sizeof(names); i++) {
        const char *joint = i == 0 ? "" : i + 1 == search->prefixes ? " or " : ", ";
        used += (size_t)snprintf(names + used, sizeof(names) - used, "%s--%s", joint,
                                 search->candidates[i]);
    }
    if (search->prefixes > shown)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "option '--%s' could be %s and %d more; %s --help lists them",
                         search->name, names, search->prefixes - shown, command);
    return error_set(error, STATUS_INVALID_ARGUMENT, "option '--%s' could be %s", search->name,
                     names);
}

// Looks up the option that `word` names: the part before "=", which may be abbreviated.
static enum status find_option(const struct option_names *names, const char *word,
                               const struct argp_option **found, struct error *error)
{
    char name[64];
    snprintf(name, sizeof(name), "%.*s", (int)strcspn(word, "="), word);
    struct search search = {.name = name, .length = strlen(name)};
    nearest_init(&search.nearest, name);
    search_all(&search, names->argp);
    *found = search.exact ? search.exact : search.prefix;
    if (!*found)
        return refuse_unknown(&search, names, error);
    if (search.exact || search.prefixes == 1)
        return STATUS_OK;
    return refuse_ambiguous(&search, names->command, error);
}

// Returns the option of this letter, or NULL. An alias stands for the option before it.
static const struct argp_option *letter_among(const struct argp_option *options, int letter)
{
    const struct argp_option *original = options;
    for (const struct argp_option *o = options; o && (o->name || o->key || o->doc); o++) {
        if (!(o->flags & OPTION_ALIAS))
            original = o;
        if (o->key == letter)
            return original;
    }
    return NULL;
}

static const struct argp_option *letter_find(const struct argp *argp, int letter)
{
    static const struct argp_option built_in[] = {
        {.name = "help", .key = '?'}, {.name = "version", .key = 'V'}, {.name = NULL}};
    const struct argp_option *found = letter_among(argp->options, letter);
    for (const struct argp_child *child = argp->children; child && child->argp && !found; child++)
        found = letter_among(child->argp->options, letter);
    if (!found && (letter == '?' || argp_program_version || argp_program_version_hook))
        found = letter_among(built_in, letter);
    return found;
}

// Looks up the options of `word`, one for each letter. *value: the last one needs the next argument
// as its value.
static enum status check_letters(const struct option_names *names, const char *word, bool *value,
                                 struct error *error)
{
    *value = false;
    for (const char *letter = word + 1; *letter; letter++) {
        const struct argp_option *found = letter_find(names->argp, (unsigned char)*letter);
        if (!found && (*letter < '!' || *letter > '~'))
            return error_set(error, STATUS_INVALID_ARGUMENT,
                             "an option has the byte 0x%02x; %s --help lists them",
                             (unsigned char)*letter, names->command);
        if (!found)
            return error_set(error, STATUS_INVALID_ARGUMENT,
                             "unknown option '-%c'; %s --help lists them", *letter, names->command);
        if (!found->arg)
            continue;
        *value = !letter[1]; // what follows the letter is its value
        break;
    }
    return STATUS_OK;
}

// Refuses a long option with one hyphen. getopt would read "-tls-ca" as the options -t, -l, -s and
// so on.
static enum status check_hyphens(const struct option_names *names, const char *word,
                                 struct error *error)
{
    char name[64];
    snprintf(name, sizeof(name), "%.*s", (int)strcspn(word + 1, "="), word + 1);
    struct search search = {.name = name, .length = strlen(name)};
    nearest_init(&search.nearest, name);
    if (search.length > 1)
        search_all(&search, names->argp);
    if (!search.exact)
        return STATUS_OK;
    return error_set(error, STATUS_INVALID_ARGUMENT,
                     "unknown option '-%s' (did you mean --%s?); %s --help lists them", name, name,
                     names->command);
}

// Looks up a long option. *value: it needs the next argument as its value.
static enum status check_long(const struct option_names *names, const char *word, bool *value,
                              struct error *error)
{
    const struct argp_option *found;
    const char *equals = strchr(word, '=');
    enum status status = find_option(names, word + 2, &found, error);
    if (status != STATUS_OK)
        return status;
    *value = found->arg && !equals;
    if (found->arg || !equals)
        return STATUS_OK;
    return error_set(error, STATUS_INVALID_ARGUMENT, "option '%.*s' takes no value; see %s --help",
                     (int)(equals - word), word, names->command);
}

enum status option_names_check(const struct option_names *names, int argc, char **argv,
                               struct error *error)
{
    static char help[] = "--help";
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
        enum status status = STATUS_OK;
        bool value = false;
        if (strcmp(argv[i], "-h") == 0)
            argv[i] = help;
        if (strncmp(argv[i], "--", 2) == 0)
            status = check_long(names, argv[i], &value, error);
        else if (argv[i][0] == '-')
            status = check_hyphens(names, argv[i], error);
        if (status == STATUS_OK && argv[i][0] == '-' && argv[i][1] != '-')
            status = check_letters(names, argv[i], &value, error);
        if (status != STATUS_OK)
            return status;
        if (value && ++i == argc) // the value may look like an option
            return error_set(error, STATUS_INVALID_ARGUMENT,
                             "option '%s' needs a value; see %s --help", argv[i - 1],
                             names->command);
    }
    return STATUS_OK;
}
