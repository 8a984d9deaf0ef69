// SPDX-License-Identifier: Apache-2.0
// Choices about a host's hardware and ranks, shared by daemon and agent. Each parser reads the
// whole text; it returns false and leaves the output unchanged if the text is invalid.
#ifndef CPATTN_DAEMON_SETTINGS_CHOICES_H
#define CPATTN_DAEMON_SETTINGS_CHOICES_H

#include <stdbool.h>
#include <stdint.h>

enum backend_choice { BACKEND_AUTO, BACKEND_CPU, BACKEND_CUDA };
enum filter_choice { FILTER_AUTO, FILTER_ON, FILTER_OFF };

// Value of the setting `devices`: "4" or "0,2-3".
struct device_choice {
    int count;      // 1..DEVICES_MAX; 0: as many as there are
    uint64_t named; // bit i: GPU i, and count is the number of bits; 0: no GPU is named
};

// Index of the text among the names; -1: none.
int choice_find(const char *text, const char *const *names, int count);

bool backend_parse(const char *text, enum backend_choice *choice);   // auto, cpu, cuda
bool filter_parse(const char *text, enum filter_choice *choice);     // auto, on, off
bool devices_parse(const char *text, struct device_choice *devices); // "2-2" names the one GPU 2
bool rank_memory_parse(const char *text, int64_t *bytes);            // at least 256 MiB

#define DEVICES_TEXT_MAX 192

// Writes the choice as devices_parse() reads it; "" if its count is 0.
void devices_write(const struct device_choice *devices, char text[DEVICES_TEXT_MAX]);

#endif
