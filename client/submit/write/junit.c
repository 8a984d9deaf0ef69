// SPDX-License-Identifier: Apache-2.0
#include "client/submit/write/junit.h"

#include <mxml.h>

// The document is built in memory and then written. `failed`: memory was short.
struct report {
    mxml_node_t *at; // the element that is open
    bool failed;
};

static void element_start(struct report *r, const char *name)
{
    mxml_node_t *node = mxmlNewElement(r->at, name);
    if (node)
        r->at = node;
    else
        r->failed = true;
}

static void element_end(struct report *r)
{
    if (!r->failed)
        r->at = mxmlGetParent(r->at);
}

static void attribute(struct report *r, const char *name, const char *value)
{
    mxmlElementSetAttr(r->at, name, value);
    if (!mxmlElementGetAttr(r->at, name))
        r->failed = true;
}

static void attribute_count(struct report *r, const char *name, int count)
{
    char text[16];
    snprintf(text, sizeof(text), "%d", count);
    attribute(r, name, text);
}

static void attribute_seconds(struct report *r, uint64_t ns)
{
    char text[32];
    snprintf(text, sizeof(text), "%.6f", (double)ns / 1e9);
    attribute(r, "time", text);
}

static void cause(struct report *r, const char *name, const char *type, const struct outcome *o)
{
    element_start(r, name);
    if (type)
        attribute(r, "type", type);
    char message[2 * OUTCOME_SENTENCE_MAX];
    snprintf(message, sizeof(message), "%s%s%s", o->sentence ? o->sentence : outcome_name(o->kind),
             o->diagnosis ? "; diagnosis: " : "", o->diagnosis ? o->diagnosis : "");
    attribute(r, "message", message);
    if (o->detail && !mxmlNewOpaque(r->at, o->detail))
        r->failed = true;
    element_end(r);
}

// Marks a case that passed after another try, with the elements that Maven Surefire uses.
static void flaky(struct report *r, const struct outcome *o)
{
    element_start(r, o->was_wrong ? "flakyFailure" : "flakyError");
    attribute(r, "message", o->first);
    element_end(r);
}

static void properties(struct report *r, const struct junit_suite *suite)
{
    if (suite->property_count == 0)
        return;
    element_start(r, "properties");
    for (int i = 0; i < suite->property_count; i++) {
        element_start(r, "property");
        attribute(r, "name", suite->properties[i].name);
        attribute(r, "value", suite->properties[i].value);
        element_end(r);
    }
    element_end(r);
}

static void testcase(struct report *r, const struct junit_suite *suite, int index)
{
    const struct outcome *o = &suite->outcomes[index];
    element_start(r, "testcase");
    attribute(r, "classname", suite->file);
    attribute(r, "name", suite->list->cases[index].id);
    attribute_seconds(r, o->run_ns);
    switch (o->kind) {
    case OUTCOME_FAIL:
        cause(r, "failure", "verdict", o);
        break;
    case OUTCOME_ERROR:
        cause(r, "error", status_name(o->status), o);
        break;
    case OUTCOME_EXCLUDED:
    case OUTCOME_NOT_RUN:
    case OUTCOME_UNVERIFIED:
        cause(r, "skipped", NULL, o);
        break;
    case OUTCOME_PASS:
    case OUTCOME_KINDS:
        break;
    }
    if (o->first)
        flaky(r, o);
    element_end(r);
}

static void testsuite(struct report *r, const struct junit_suite *suite)
{
    int counts[OUTCOME_KINDS] = {0};
    for (int i = 0; i < suite->list->count; i++)
        counts[suite->outcomes[i].kind]++;
    element_start(r, "testsuite");
    attribute(r, "name", suite->name);
    attribute_count(r, "tests", suite->list->count);
    attribute_count(r, "failures", counts[OUTCOME_FAIL]);
    attribute_count(r, "errors", counts[OUTCOME_ERROR]);
    attribute_count(r, "skipped",
                    counts[OUTCOME_EXCLUDED] + counts[OUTCOME_NOT_RUN] +
                        counts[OUTCOME_UNVERIFIED]);
    attribute_seconds(r, suite->elapsed_ns);
    if (suite->host)
        attribute(r, "hostname", suite->host);
    properties(r, suite);
    for (int i = 0; i < suite->list->count; i++)
        testcase(r, suite, i);
    element_end(r);
}

// Puts each element on a line of its own. Leaves text as it is.
static const char *space_at(mxml_node_t *node, int where)
{
    static const char *const lines[] = {NULL, "\n", "\n ", "\n  ", "\n   ", "\n    "};
    size_t depth = 0;
    mxml_node_t *child = mxmlGetFirstChild(node);
    if (where == MXML_WS_AFTER_OPEN || where == MXML_WS_AFTER_CLOSE)
        return NULL;
    if (where == MXML_WS_BEFORE_CLOSE && (!child || mxmlGetType(child) != MXML_ELEMENT))
        return NULL;
    while ((node = mxmlGetParent(node)) && depth + 1 < sizeof(lines) / sizeof(*lines))
        depth++;
    return lines[depth];
}

bool junit_write(FILE *out, const struct junit_suite *suite)
{
    mxml_node_t *document = mxmlNewXML("1.0");
    struct report report = {document, !document};
    if (document) {
        element_start(&report, "testsuites");
        testsuite(&report, suite);
        mxmlSetWrapMargin(0);
        if (mxmlSaveFile(document, out, space_at) != 0)
            report.failed = true;
        mxmlDelete(document);
    }
    return !report.failed && fflush(out) == 0 && !ferror(out);
}
