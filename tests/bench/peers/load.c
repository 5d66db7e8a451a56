// A requester in C on libmosquitto: what a daemon is measured with, so that the requester's own cost stays out of it.
//
// load port=1883 request=TOPIC reply=TOPIC [name=value ...] prints one JSON object. MQTT 5; each request carries Response
// Topic, Correlation Data and one user property; answers are matched by Correlation Data. With v5=0 it speaks 3.1.1 to a
// responder that has one reply topic, and answers are matched in order.
//
//   size=64 | file=PATH   payload              qos=0          of requests and of the subscription
//   window=1              closed loop: so many in flight
//   rate=100 poisson=0    open loop: latency counts from the intended time of sending; seed=1
//   warm=20               answers before the clock starts
//   seconds=2 least=0     how long, and at least so many answers (a closed loop gives up after `longest` seconds)
//   drain=3               seconds to wait for the last answers
//   dump=PATH             intended time and latency of each request (ns, two int64 each; -1: no answer, -2: an error)
//
// Error replies (the user property status, other than ok) are counted and stand in no percentile.
#define _GNU_SOURCE
#include <math.h>
#include <mosquitto.h>
#include <mqtt_protocol.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define MOST 4000000
#define S 1000000000LL
#define NONE -1
#define FAILED -2

static char **words;
static int word_count;

static const char *text(const char *name, const char *otherwise) {
    size_t length = strlen(name);
    for (int i = 1; i < word_count; i++)
        if (!strncmp(words[i], name, length) && words[i][length] == '=')
            return words[i] + length + 1;
    return otherwise;
}

static double number(const char *name, double otherwise) {
    const char *found = text(name, NULL);
    return found ? atof(found) : otherwise;
}

static int64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * S + t.tv_nsec;
}

static const char *request_topic, *reply_topic;
static int qos, v5, window, warm;
static double seconds, longest;
static long least;
static char *payload;
static int size;
static int64_t *intended, *latency;
static volatile long sent, answered, errors, bad;
static volatile int subscribed, stopping, open_loop;
static volatile int64_t clock_start, last_answer;
static uint64_t first_id; // another one each run: a device answers a correlation that it knows from memory

static void acknowledge_at_once(struct mosquitto *client) {
    int one = 1;
    setsockopt(mosquitto_socket(client), IPPROTO_TCP, TCP_QUICKACK, &one, sizeof one);
}

static void send_one(struct mosquitto *client, int64_t when) {
    long id = sent;
    uint64_t correlation = first_id + id;
    if (id >= MOST)
        return;
    latency[id] = NONE;
    intended[id] = when ? when : now();
    sent = id + 1;
    mosquitto_property *list = NULL;
    if (v5) {
        mosquitto_property_add_string(&list, MQTT_PROP_RESPONSE_TOPIC, reply_topic);
        mosquitto_property_add_binary(&list, MQTT_PROP_CORRELATION_DATA, &correlation, sizeof correlation);
        mosquitto_property_add_string_pair(&list, MQTT_PROP_USER_PROPERTY, "model", "m1");
    }
    if (mosquitto_publish_v5(client, NULL, request_topic, size, payload, qos, false, list))
        bad++;
    mosquitto_property_free_all(&list);
}

// Returns the request that this answers, -1 when it answers none, or one that was answered before.
static int64_t matched(const mosquitto_property *list) {
    static int64_t in_order;
    int64_t id = -1;
    if (!v5)
        return in_order < sent ? in_order++ : -1;
    void *data = NULL;
    uint16_t length = 0;
    mosquitto_property_read_binary(list, MQTT_PROP_CORRELATION_DATA, &data, &length, false);
    uint64_t correlation = 0;
    if (data && length == sizeof correlation)
        memcpy(&correlation, data, sizeof correlation);
    free(data);
    id = (int64_t)(correlation - first_id);
    return id >= 0 && id < sent && latency[id] == NONE ? id : -1;
}

static int is_error(const mosquitto_property *list) {
    char *name = NULL, *value = NULL;
    int wrong = 0;
    const mosquitto_property *at = mosquitto_property_read_string_pair(list, MQTT_PROP_USER_PROPERTY, &name, &value, false);
    while (at) {
        wrong |= name && value && !strcmp(name, "status") && strcmp(value, "ok");
        free(name), free(value);
        name = value = NULL;
        at = mosquitto_property_read_string_pair(at, MQTT_PROP_USER_PROPERTY, &name, &value, true);
    }
    return wrong;
}

static void next_of_closed_loop(struct mosquitto *client, int64_t at) {
    double elapsed = clock_start ? (at - clock_start) / (double)S : 0;
    if (clock_start && ((elapsed >= seconds && answered - warm >= least) || elapsed >= longest))
        stopping = 1;
    if (!stopping)
        send_one(client, 0);
}

static void on_message(struct mosquitto *client, void *data, const struct mosquitto_message *message,
                       const mosquitto_property *list) {
    (void)data, (void)message;
    int64_t at = now(), id = matched(list);
    acknowledge_at_once(client);
    if (id < 0) {
        bad++;
        return;
    }
    int wrong = is_error(list);
    errors += wrong;
    latency[id] = wrong ? FAILED : at - intended[id];
    last_answer = at;
    if (++answered == warm)
        clock_start = at;
    if (!open_loop)
        next_of_closed_loop(client, at);
}

static void on_publish(struct mosquitto *client, void *data, int id) {
    (void)data, (void)id;
    acknowledge_at_once(client);
}

static void on_connect(struct mosquitto *client, void *data, int code) {
    (void)data;
    if (code)
        fprintf(stderr, "not accepted: %d\n", code);
    mosquitto_subscribe(client, NULL, reply_topic, qos);
}

static void on_subscribe(struct mosquitto *client, void *data, int id, int count, const int *granted) {
    (void)data, (void)id, (void)count, (void)granted;
    subscribed = 1;
    for (int i = 0; !open_loop && i < window; i++)
        send_one(client, 0);
}

static void sleep_until(int64_t at) {
    struct timespec t = {at / S, at % S};
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
}

static void run_closed(struct mosquitto *client) {
    int64_t give_up = now() + (int64_t)((longest + number("drain", 3) + 2) * S);
    while (!(stopping && answered >= sent) && now() < give_up && !mosquitto_loop(client, 100, 1))
        ;
}

static int run_open(struct mosquitto *client, double rate) {
    mosquitto_loop_start(client);
    for (int64_t end = now() + 5 * S; !subscribed && now() < end;)
        usleep(1000);
    if (!subscribed)
        return 1;
    for (int i = 0; i < warm; i++) {
        send_one(client, 0);
        for (int64_t end = now() + 2 * S; answered <= i && now() < end;)
            usleep(200);
    }
    srand48((long)number("seed", 1));
    int poisson = (int)number("poisson", 0);
    clock_start = now();
    int64_t at = clock_start, end = clock_start + (int64_t)(seconds * S);
    while ((at += (int64_t)((poisson ? -log(1 - drand48()) : 1) / rate * S)) < end) {
        if (at > now())
            sleep_until(at);
        send_one(client, at);
    }
    for (int64_t until = now() + (int64_t)(number("drain", 3) * S); answered < sent && now() < until;)
        usleep(1000);
    mosquitto_disconnect(client);
    mosquitto_loop_stop(client, true);
    return 0;
}

static int by_size(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

static double quantile_us(const int64_t *sorted, long count, double share) {
    long at = (long)(count * share);
    return sorted[at < count ? at : count - 1] / 1000.0;
}

static void dump(const char *path) {
    FILE *file = fopen(path, "wb");
    if (!file)
        return;
    for (long i = warm; i < sent; i++) {
        fwrite(&intended[i], sizeof *intended, 1, file);
        fwrite(&latency[i], sizeof *latency, 1, file);
    }
    fclose(file);
}

static int report(void) {
    long count = 0;
    int64_t *sorted = malloc(sizeof *sorted * (sent + 1));
    for (long i = warm; i < sent; i++)
        if (latency[i] >= 0)
            sorted[count++] = latency[i];
    if (text("dump", NULL))
        dump(text("dump", NULL));
    if (!count) {
        printf("{\"error\": \"no answers\", \"sent\": %ld, \"answered\": %ld}\n", sent, answered);
        return 2;
    }
    qsort(sorted, count, sizeof *sorted, by_size);
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    double cpu_us = (used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1e6 + used.ru_utime.tv_usec + used.ru_stime.tv_usec;
    double elapsed = (last_answer - clock_start) / (double)S;
    printf("{\"count\": %ld, \"sent\": %ld, \"answered\": %ld, \"errors\": %ld, \"bad\": %ld, \"missing\": %ld, \"p50_us\": %.1f, "
           "\"p90_us\": %.1f, \"p99_us\": %.1f, \"p999_us\": %.1f, \"max_us\": %.1f, \"per_s\": %.1f, \"cpu_us\": %.1f}\n",
           count, sent, answered, errors, bad, sent - answered, quantile_us(sorted, count, .5), quantile_us(sorted, count, .9),
           quantile_us(sorted, count, .99), quantile_us(sorted, count, .999), sorted[count - 1] / 1000.0,
           (answered - warm) / elapsed, cpu_us / answered);
    free(sorted);
    return 0;
}

static int read_payload(void) {
    const char *path = text("file", NULL);
    size = (int)number("size", 64);
    FILE *file = path ? fopen(path, "rb") : NULL;
    if (path && !file)
        return 1;
    if (file) {
        fseek(file, 0, SEEK_END);
        size = (int)ftell(file);
        rewind(file);
    }
    payload = calloc(1, size + 1);
    int whole = !file || fread(payload, 1, size, file) == (size_t)size;
    if (file)
        fclose(file);
    return !whole;
}

int main(int count, char **given) {
    words = given, word_count = count;
    request_topic = text("request", "bench/request"), reply_topic = text("reply", "bench/reply");
    qos = (int)number("qos", 0), v5 = (int)number("v5", 1), window = (int)number("window", 1), warm = (int)number("warm", 20);
    seconds = number("seconds", 2), longest = number("longest", 3 * seconds), least = (long)number("least", 0);
    double rate = number("rate", 0);
    open_loop = rate > 0;
    if (read_payload())
        return fprintf(stderr, "the payload cannot be read\n"), 3;
    first_id = (uint64_t)now();
    intended = calloc(MOST, sizeof *intended), latency = calloc(MOST, sizeof *latency);
    mosquitto_lib_init();
    struct mosquitto *client = mosquitto_new(NULL, true, NULL);
    mosquitto_int_option(client, MOSQ_OPT_PROTOCOL_VERSION, v5 ? MQTT_PROTOCOL_V5 : MQTT_PROTOCOL_V311);
    mosquitto_int_option(client, MOSQ_OPT_TCP_NODELAY, 1);
    mosquitto_max_inflight_messages_set(client, 1000);
    mosquitto_connect_callback_set(client, on_connect);
    mosquitto_message_v5_callback_set(client, on_message);
    mosquitto_subscribe_callback_set(client, on_subscribe);
    mosquitto_publish_callback_set(client, on_publish);
    if (mosquitto_connect(client, "127.0.0.1", (int)number("port", 1883), 60))
        return fprintf(stderr, "no connection\n"), 1;
    if (!open_loop)
        run_closed(client);
    else if (run_open(client, rate))
        return fprintf(stderr, "no subscription\n"), 2;
    return report();
}
