// SPDX-License-Identifier: Apache-2.0
// cpattn-submit: finds the subcommand and runs it.
#include <stdio.h>
#include <string.h>

#include "client/submit/commands/command.h"
#include "common/nearest.h"
#include "common/standard_fds.h"

static const struct command commands[] = {
    {"case", "run one case and show its figures", command_case},
    {"attend", "run attention on the tensors of a file", command_attend},
    {"dump", "write all tensors of a case to a file", command_dump},
    {"bench", "measure how fast a case is", command_bench},
    {"matrix", "run the cases of a matrix file", command_matrix},
    {"report", "make an HTML page from a matrix run", command_report},
    {"explain", "show the plan of a case, without a daemon", command_explain},
    {"describe", "show the daemon's devices, limits and accepted cases", command_describe},
    {"status", "show the state of the daemon", command_status},
    {"top", "show the daemon's state on the whole screen", command_top},
    {"watch", "show events at the daemon", command_watch},
    {"cancel", "cancel a request", command_cancel},
    {"drain", "take a device out of use", command_drain},
    {"enable", "use a device again", command_enable},
    {"unpoison", "run cases again that killed their pools", command_unpoison},
    {"reload", "make the daemon read its settings again", command_reload},
    {"version", "print the version", command_version},
};

#define COMMANDS (sizeof(commands) / sizeof(commands[0]))

static void print_help(FILE *out)
{
    fputs("Usage: cpattn-submit COMMAND [OPTION...]\n"
          "Submits cases of context-parallel attention to the cpattnd daemon of this machine.\n\n",
          out);
    for (size_t i = 0; i < COMMANDS; i++)
        fprintf(out, "  %-11s %s\n", commands[i].name, commands[i].summary);
    for (const struct job_kind *const *kind = job_kinds; *kind; kind++)
        if ((*kind)->fields)
            fprintf(out, "  %-11s %s\n", (*kind)->name, (*kind)->about);
    fputs("\n"
          "`cpattn-submit COMMAND --help` lists the options of a command.\n"
          "\n"
          "Examples:\n"
          "  cpattn-submit case --world-size 4 --seqlen 4096\n"
          "  cpattn-submit bench --world-size 4 --seqlen 16384\n"
          "  cpattn-submit matrix demonstration.yaml\n"
          "  cpattn-submit explain --world-size 4 --rank 1\n"
          "\n"
          "Exit status: 0 all passed, 1 a verdict is a fail, 64 the command line or a file "
          "is\n"
          "not valid, 64 plus the number of the status if something could not be run.\n",
          out);
}

static int unknown_command(const char *name)
{
    char hint[NEAREST_WORD_MAX + 32];
    struct nearest nearest;
    if (name[0] == '-') {
        command_complain("options follow the command: cpattn-submit COMMAND %.40s; cpattn-submit "
                         "--help lists the commands",
                         name);
        return COMMAND_USAGE;
    }
    nearest_init(&nearest, name);
    for (size_t i = 0; i < COMMANDS; i++)
        nearest_offer(&nearest, commands[i].name);
    for (const struct job_kind *const *kind = job_kinds; *kind; kind++)
        if ((*kind)->fields)
            nearest_offer(&nearest, (*kind)->name);
    command_complain("unknown command '%.40s'%s; cpattn-submit --help lists them", name,
                     nearest_hint(&nearest, hint, sizeof(hint)));
    return COMMAND_USAGE;
}

static bool asks_for_help(const char *word)
{
    return strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0 || strcmp(word, "-?") == 0 ||
           strcmp(word, "help") == 0;
}

static bool asks_for_version(const char *word)
{
    return strcmp(word, "--version") == 0 || strcmp(word, "-V") == 0;
}

// The exit status, or an error if output was lost.
static int finish(int exit_status)
{
    if (!command_output_complete() && exit_status == COMMAND_PASS)
        return command_exit(STATUS_DATA_LOSS);
    return exit_status;
}

// argv[0] is the name of the command.
static int dispatch(int argc, char **argv)
{
    const char *word = argv[0];
    char name[64];
    snprintf(name, sizeof(name), "cpattn-submit %s", word);
    argv[0] = name;
    for (size_t i = 0; i < COMMANDS; i++)
        if (strcmp(word, commands[i].name) == 0)
            return finish(commands[i].run(argc, argv));
    const struct job_kind *kind = job_kind_find(word);
    return kind && kind->fields ? finish(command_job(kind, argc, argv)) : unknown_command(word);
}

int main(int argc, char **argv)
{
    static char version[] = "version", help[] = "--help";
    standard_fds_fill();
    if (argc < 2) {
        print_help(stderr);
        return COMMAND_USAGE;
    }
    if (asks_for_help(argv[1]) && argc > 3) {
        command_complain("unexpected argument '%.80s': help is for one command", argv[3]);
        return COMMAND_USAGE;
    }
    if (asks_for_help(argv[1]) && argc > 2) // "help case" is "case --help"
        return dispatch(2, (char *[]){argv[2], help, NULL});
    if (asks_for_help(argv[1])) {
        print_help(stdout);
        return command_output_complete() ? COMMAND_PASS : command_exit(STATUS_DATA_LOSS);
    }
    if (asks_for_version(argv[1]))
        argv[1] = version;
    return dispatch(argc - 1, argv + 1);
}
