// SPDX-License-Identifier: Apache-2.0
// Converts figures to the public struct.
#ifndef CPATTN_CLIENT_FIGURES_H
#define CPATTN_CLIENT_FIGURES_H

#include "client/cpattn.h"
#include "common/report.h"

// The result's `tensor` may point into *f.
struct cpattn_figures figures_public(const struct figures *f);

#endif
