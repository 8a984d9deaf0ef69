// SPDX-License-Identifier: Apache-2.0
#include "client/figures.h"

_Static_assert((int)CPATTN_RULE_ELEMENT == (int)RULE_ELEMENT, "rules agree");
_Static_assert((int)CPATTN_RULE_RMSE == (int)RULE_RMSE, "rules agree");
_Static_assert((int)CPATTN_RULE_ROW == (int)RULE_ROW, "rules agree");
_Static_assert((int)CPATTN_RULE_NONFINITE == (int)RULE_NONFINITE, "rules agree");
_Static_assert((int)CPATTN_RULE_PADDING == (int)RULE_PADDING, "rules agree");
_Static_assert((int)CPATTN_RULE_SLOPE == (int)RULE_SLOPE, "rules agree");
_Static_assert((int)CPATTN_RULE_ZERO == (int)RULE_ZERO, "rules agree");
_Static_assert((int)CPATTN_REMARK_LONG_SUM == (int)REMARK_LONG_SUM, "remarks agree");
_Static_assert((int)CPATTN_REMARK_ZEROS_PASS == (int)REMARK_ZEROS_PASS, "remarks agree");
_Static_assert(CPATTN_CHUNK_PADDING == CHUNK_PADDING, "chunks agree");

static struct cpattn_element element_public(const struct element *e)
{
    return (struct cpattn_element){
        .sequence = e->sequence, .head = e->head, .dim = e->dim, .position = e->position};
}

struct cpattn_figures figures_public(const struct figures *f)
{
    return (struct cpattn_figures){
        .tensor = figures_name(f),
        .chunk = f->chunk,
        .broken = (uint32_t)f->broken,
        .elements = f->elements,
        .mismatches = f->mismatches,
        .nonfinite = f->nonfinite,
        .rmse_rel = f->rmse_rel,
        .rmse_limit = f->rmse_limit,
        .max_abs = f->max_abs,
        .worst_element = f->worst_element,
        .worst_row_rel = f->worst_row_rel,
        .worst_row_limit = f->worst_row_limit,
        .worst_row = element_public(&f->worst_row),
        .first_bad = element_public(&f->first_bad),
        .first_bad_got = f->first_bad_got,
        .first_bad_expected = f->first_bad_expected,
        .twin_rel = f->twin_rel,
        .slope = f->slope,
        .slope_limit = f->slope_limit,
        .judged = f->judged,
        .te_mismatches = f->te_mismatches,
        .remark = (enum cpattn_remark)f->remark,
    };
}
