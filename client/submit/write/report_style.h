// SPDX-License-Identifier: Apache-2.0
// Style sheet of the report page, and the script of its grid and table.
#ifndef CPATTN_CLIENT_SUBMIT_WRITE_REPORT_STYLE_H
#define CPATTN_CLIENT_SUBMIT_WRITE_REPORT_STYLE_H

extern const char report_style[];  // CSS
extern const char report_script[]; // uses `cases`, which is defined before it

#endif
