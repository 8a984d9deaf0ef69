// SPDX-License-Identifier: Apache-2.0
#include "plan/support.h"
#include "client/submit/show/support.h"
#include "client/submit/show/table.h"

static void print_fields(FILE *out)
{
    struct table *table = table_create(out, "FIELD ACCEPTED USUAL MEANING");
    struct cp_case usual;
    case_init(&usual);
    for (const struct case_field *field = case_fields(); field->name; field++) {
        char accepted[CASE_ACCEPTED_MAX], value[CASE_VALUE_MAX];
        case_accepted(field, accepted, sizeof(accepted));
        case_get(&usual, field, value, sizeof(value));
        table_row(table);
        table_cell(table, PAINT_PLAIN, "%s", field->name);
        table_cell(table, PAINT_PLAIN, "%s", accepted);
        table_cell(table, PAINT_PLAIN, "%s", value[0] ? value : "-");
        table_cell(table, PAINT_PLAIN, "%s", field->help);
    }
    table_print(table, "  ");
    table_destroy(table);
}

void support_print(FILE *out)
{
    fputs(
        "A case has these fields, and each combination of their values is computed and verified:\n",
        out);
    print_fields(out);
    fputs("\nbut for what is refused:\n", out);
    for (const struct support_rule *rule = support_rules(); rule->what; rule++)
        fprintf(out, "  %s (%s)\n    %s\n", rule->what, rule->example, rule->why);
}
