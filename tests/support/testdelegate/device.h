/* The device that the test delegate plays: its options, and which failure it plays when.
 *
 * Options (all values are text):
 *   ops=ADD,MUL       what it takes (both by default); also the custom ops "edged-test-add" and "edged-test-mul", which
 *                     no CPU can run: a model compiled for this accelerator alone
 *   max_nodes=N       takes the first N nodes that it could take
 *   fail=MODE         create, prepare, kernel_init, kernel_prepare: that step refuses;
 *                     invoke, hang, segfault, abort, exit, nan, wrong: each invoke does so; burst: nan, 3 times only;
 *                     unplugged: create and invoke refuse, as without a device
 *   after=N           the failure starts at the N-th invoke of this process (0 and 1: at once)
 *   count=N           it is played N times, then no more (0: for good)
 *   when=FILE         it is played only while this file exists: a test can unplug a device and plug it in again
 *   where=PLACE       create or open: hang, segfault, abort, exit come there instead of in an invoke
 *   slow_first_ms=N   the first invoke of each interpreter takes that much longer; slow_ms=N: every invoke
 *   compile_ms=N      opening takes that much longer, unless the compiled form is in the cache
 *   cache=DIR         keeps the compiled form in DIR/compiled.bin; like real ones it is used as found, unverified
 *   log=FILE          appends a line for each event
 */
#ifndef EDGED_TESTDELEGATE_DEVICE_H
#define EDGED_TESTDELEGATE_DEVICE_H

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tflite_abi.h"

#define AT_OPENING "create prepare kernel_init kernel_prepare"
#define CRASHES "hang segfault abort exit"
#define AT_INVOKE CRASHES " invoke unplugged nan burst wrong"

enum { BURST = 3, EXIT_CODE = 3 };

typedef struct {
    Delegate delegate;
    char ops[32], fail[32], where[32], when[512], log[512], cache[512];
    long after, count, max_nodes, slow_first_ms, slow_ms, compile_ms;
    int32_t *compiled; /* what is added to each node's result, by node number; zeros, unless the cache was damaged */
} Device;

/* Of the process, not of one delegate: it outlives an interpreter that is opened anew. */
static atomic_long invokes, played;

static void logged(const Device *device, const char *event, long value) {
    int file = device->log[0] ? open(device->log, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644) : -1;
    if (file < 0) return;
    dprintf(file, value < 0 ? "%s\n" : "%s %ld\n", event, value); /* one write: lines of two processes do not mix */
    close(file);
}

static void wait_ms(long ms) {
    struct timespec left = {ms / 1000, ms % 1000 * 1000000};
    while (ms > 0 && nanosleep(&left, &left) != 0 && errno == EINTR) continue;
}

/* Whether this is a time at which the failure shows. */
static bool playing(const Device *device) { return !device->when[0] || access(device->when, F_OK) == 0; }

static bool fails(const Device *device, const char *mode) {
    return !strcmp(device->fail, mode) && playing(device);
}

static void crash(const Device *device) {
    volatile int *volatile nowhere = NULL; /* volatile: the compiler must neither see through it nor leave it out */
    if (!strcmp(device->fail, "segfault")) *nowhere = 1;
    if (!strcmp(device->fail, "abort")) abort();
    if (!strcmp(device->fail, "exit")) _exit(EXIT_CODE);
    while (!strcmp(device->fail, "hang")) pause();
}

static void crash_at(const Device *device, const char *place) {
    if (!strcmp(device->where, place) && playing(device)) crash(device);
}

/* A word of the space-separated list, or nothing at all. */
static bool among(const char *word, const char *list) {
    char padded[40], all[160];
    snprintf(padded, sizeof padded, " %s ", word);
    snprintf(all, sizeof all, " %s ", list);
    return !word[0] || strstr(all, padded);
}

/* Whether this invoke is one that fails; `number` is its number in this process, from 1. */
static bool due(const Device *device, long number) {
    if (!device->fail[0] || device->where[0] || !among(device->fail, AT_INVOKE)) return false;
    if (number < device->after || !playing(device)) return false;
    return !device->count || atomic_fetch_add(&played, 1) < device->count;
}

static bool texted(char *field, size_t size, const char *value) {
    return snprintf(field, size, "%s", value) < (int)size;
}

static bool numbered(long *field, const char *value) {
    char *end;
    *field = strtol(value, &end, 10);
    return *value && !*end && *field >= 0;
}

static bool set(Device *device, const char *key, const char *value) {
    const struct { const char *key; char *field; size_t size; } texts[] = {
        {"ops", device->ops, sizeof device->ops},       {"fail", device->fail, sizeof device->fail},
        {"where", device->where, sizeof device->where}, {"when", device->when, sizeof device->when},
        {"log", device->log, sizeof device->log},       {"cache", device->cache, sizeof device->cache}};
    const struct { const char *key; long *field; } numbers[] = {
        {"after", &device->after},         {"count", &device->count},
        {"max_nodes", &device->max_nodes}, {"slow_first_ms", &device->slow_first_ms},
        {"slow_ms", &device->slow_ms},     {"compile_ms", &device->compile_ms}};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (!strcmp(key, texts[i].key)) return texted(texts[i].field, texts[i].size, value);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (!strcmp(key, numbers[i].key)) return numbered(numbers[i].field, value);
    return false;
}

/* What does not exist is refused: a test that asks for it must not pass. */
static const char *refusal(const Device *device) {
    if (!among(device->fail, AT_OPENING " " AT_INVOKE)) return "testdelegate: unknown value of fail";
    if (!among(device->where, "create open")) return "testdelegate: unknown value of where";
    if (device->where[0] && !among(device->fail, CRASHES)) return "testdelegate: where is for crashes and a hang";
    bool absent = fails(device, "create") || fails(device, "unplugged");
    return absent ? "testdelegate: no such device" : NULL;
}

#endif
