/* A server in C on port 8080: it answers with the model's name, the container's id and the body.
 *
 *     cc -O2 -pthread -o serve serve.c
 *
 * One thread for each connection; requests have a Content-Length, as Sagehen's have. */

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#define PORT 8080
#define HEAD_BYTES 16384
#define MOST_BYTES (64L << 20)

static char model[256];
static char container[33];

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static void stop(int number) {
    _exit(number == SIGTERM ? 0 : 1);
}

static void read_line(const char *path, char *into, int size) {
    FILE *file = fopen(path, "r");
    if (file == NULL || fgets(into, size, file) == NULL) fail(path);
    fclose(file);
    into[strcspn(into, "\n")] = 0;
}

static int send_all(int client, const char *data, size_t size, int flags) {
    while (size > 0) {
        ssize_t sent = send(client, data, size, MSG_NOSIGNAL | flags);
        if (sent <= 0) return 0;
        data += sent;
        size -= sent;
    }
    return 1;
}

static int answer(int client, const char *head, const char *body, size_t size) {
    char text[512], first[1024];
    int is_ping = strncmp(head, "GET /ping ", 10) == 0;
    int is_call = strncmp(head, "POST /invocations ", 18) == 0;
    if (!is_call) size = 0;
    snprintf(text, sizeof text, "%s %s ", model, container);
    size_t length = is_call ? strlen(text) + size : 0;
    snprintf(first, sizeof first, "HTTP/1.1 %s\r\nContent-Type: text/plain\r\nContent-Length: %zu\r\n\r\n%s",
             is_ping || is_call ? "200 OK" : "404 Not Found", length, is_call ? text : "");
    /* In one packet: a second one would wait for the acknowledgement of the first, some 40 ms. */
    return send_all(client, first, strlen(first), size > 0 ? MSG_MORE : 0) && send_all(client, body, size, 0);
}

static void *serve(void *argument) {
    int client = (int)(long)argument;
    char head[HEAD_BYTES];
    size_t have = 0;
    for (;;) {
        char *end;
        head[have] = 0;
        while ((end = strstr(head, "\r\n\r\n")) == NULL) {
            ssize_t got = have < HEAD_BYTES - 1 ? recv(client, head + have, HEAD_BYTES - 1 - have, 0) : 0;
            if (got <= 0) goto done;
            have += got;
            head[have] = 0;
        }
        char *field = strcasestr(head, "\r\ncontent-length:");
        long size = field != NULL && field < end ? atol(field + 17) : 0;
        if (size < 0 || size > MOST_BYTES) goto done;
        char *body = malloc(size + 1);
        size_t in_head = have - (end + 4 - head), taken = in_head < (size_t)size ? in_head : (size_t)size;
        memcpy(body, end + 4, taken);
        while (taken < (size_t)size) {
            ssize_t got = recv(client, body + taken, size - taken, 0);
            if (got <= 0) break;
            taken += got;
        }
        int well = taken == (size_t)size && answer(client, head, body, size);
        free(body);
        if (!well) goto done;
        have = 0; /* no pipelining */
    }
done:
    close(client);
    return NULL;
}

int main(void) {
    unsigned char random[16];
    read_line("/opt/ml/model/name.txt", model, sizeof model);
    FILE *source = fopen("/dev/urandom", "r");
    if (source == NULL || fread(random, sizeof random, 1, source) != 1) fail("/dev/urandom");
    fclose(source);
    for (int n = 0; n < 16; n++) sprintf(container + 2 * n, "%02x", random[n]);

    signal(SIGTERM, stop); /* the first process of a container has no default action */
    int yes = 1, listener = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(PORT)};
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (bind(listener, (struct sockaddr *)&address, sizeof address) != 0) fail("bind to port 8080");
    if (listen(listener, 128) != 0) fail("listen");
    printf("Listening on port %d.\n", PORT);
    fflush(stdout);
    for (;;) {
        int client = accept(listener, NULL, NULL);
        pthread_t thread;
        if (client >= 0 && pthread_create(&thread, NULL, serve, (void *)(long)client) == 0) pthread_detach(thread);
    }
}
