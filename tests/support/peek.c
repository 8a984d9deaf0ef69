// SPDX-License-Identifier: Apache-2.0
// Extracts values from the output of the command, for script tests. Reads stdin.
//     peek json PATH    each line must be a JSON object; prints the value at PATH, such as
//                       "ranks.1.fate"; "-": there is none
//     peek xml XPATH    the input must be well-formed XML; prints the value of the expression
// Exits with 1 and a reason if the input is not valid.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>
#include <libxml/parser.h>
#include <libxml/xpath.h>

static const json_t *step(const json_t *value, const char *word)
{
    if (json_is_array(value))
        return json_array_get(value, (size_t)strtoul(word, NULL, 10));
    return json_object_get(value, word);
}

static const json_t *walk(const json_t *value, const char *path)
{
    char copy[256], *rest = copy, *word;
    snprintf(copy, sizeof(copy), "%s", path);
    while (value && (word = strsep(&rest, ".")))
        value = step(value, word);
    return value;
}

static void print_value(const json_t *value)
{
    if (!value) {
        puts("-");
    } else if (json_is_string(value)) {
        puts(json_string_value(value));
    } else {
        json_dumpf(value, stdout, JSON_ENCODE_ANY | JSON_COMPACT);
        putchar('\n');
    }
}

static int peek_json(const char *path)
{
    char *line = NULL;
    size_t size = 0;
    json_error_t error;
    int status = 0;
    while (!status && getline(&line, &size, stdin) > 0) {
        json_t *object = json_loads(line, JSON_REJECT_DUPLICATES, &error);
        if (json_is_object(object))
            print_value(walk(object, path));
        else
            status = 1;
        if (status)
            printf("no JSON object: %s\n", object ? "another value" : error.text);
        json_decref(object);
    }
    free(line);
    return status;
}

static void print_xpath(xmlDocPtr document, const char *expression)
{
    xmlXPathContextPtr context = xmlXPathNewContext(document);
    xmlXPathObjectPtr object = xmlXPathEvalExpression(BAD_CAST expression, context);
    xmlChar *text = object ? xmlXPathCastToString(object) : NULL;
    puts(text ? (const char *)text : "-");
    xmlFree(text);
    xmlXPathFreeObject(object);
    xmlXPathFreeContext(context);
}

static int peek_xml(const char *expression)
{
    xmlDocPtr document = xmlReadFd(0, NULL, NULL, XML_PARSE_NONET);
    if (!document) {
        puts("no XML");
        return 1;
    }
    print_xpath(document, expression);
    xmlFreeDoc(document);
    xmlCleanupParser();
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "json") == 0)
        return peek_json(argv[2]);
    if (argc == 3 && strcmp(argv[1], "xml") == 0)
        return peek_xml(argv[2]);
    fputs("usage: peek json PATH | peek xml XPATH\n", stderr);
    return 2;
}
