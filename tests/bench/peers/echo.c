// The transport's floor: a responder in C on libmosquitto that sends the first bytes of a request back.
// echo port topic qos reply_bytes
#include <mosquitto.h>
#include <mqtt_protocol.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/socket.h>

static int qos, reply_bytes;
static const char *topic;

static void acknowledge_at_once(struct mosquitto *client) {
    int one = 1;
    setsockopt(mosquitto_socket(client), IPPROTO_TCP, TCP_QUICKACK, &one, sizeof one);
}

static void on_message(struct mosquitto *client, void *data, const struct mosquitto_message *message,
                       const mosquitto_property *list) {
    (void)data;
    char *reply_topic = NULL;
    void *correlation = NULL;
    uint16_t length = 0;
    mosquitto_property *back = NULL;
    acknowledge_at_once(client);
    mosquitto_property_read_string(list, MQTT_PROP_RESPONSE_TOPIC, &reply_topic, false);
    mosquitto_property_read_binary(list, MQTT_PROP_CORRELATION_DATA, &correlation, &length, false);
    if (correlation)
        mosquitto_property_add_binary(&back, MQTT_PROP_CORRELATION_DATA, correlation, length);
    int size = message->payloadlen < reply_bytes ? message->payloadlen : reply_bytes;
    if (reply_topic)
        mosquitto_publish_v5(client, NULL, reply_topic, size, message->payload, qos, false, back);
    mosquitto_property_free_all(&back);
    free(reply_topic);
    free(correlation);
}

static void on_publish(struct mosquitto *client, void *data, int id) {
    (void)data, (void)id;
    acknowledge_at_once(client);
}

static void on_connect(struct mosquitto *client, void *data, int code) {
    (void)data, (void)code;
    mosquitto_subscribe(client, NULL, topic, qos);
}

int main(int count, char **given) {
    if (count != 5)
        return 2;
    topic = given[2], qos = atoi(given[3]), reply_bytes = atoi(given[4]);
    mosquitto_lib_init();
    struct mosquitto *client = mosquitto_new(NULL, true, NULL);
    mosquitto_int_option(client, MOSQ_OPT_PROTOCOL_VERSION, MQTT_PROTOCOL_V5);
    mosquitto_int_option(client, MOSQ_OPT_TCP_NODELAY, 1);
    mosquitto_connect_callback_set(client, on_connect);
    mosquitto_message_v5_callback_set(client, on_message);
    mosquitto_publish_callback_set(client, on_publish);
    if (mosquitto_connect(client, "127.0.0.1", atoi(given[1]), 60))
        return 1;
    return mosquitto_loop_forever(client, 1000, 1);
}
