// SPDX-License-Identifier: Apache-2.0
// How the page of a report looks, and the script of its grid and its table.
#ifndef CPATTN_CLIENT_SUBMIT_WRITE_REPORT_STYLE_H
#define CPATTN_CLIENT_SUBMIT_WRITE_REPORT_STYLE_H

extern const char report_style[];  // CSS
extern const char report_script[]; // works on `cases`, which stands before it

#endif
