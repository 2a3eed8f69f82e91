/*
 * The workloads of bench over a library for C: MODE is ping, echo, publish or consume.
 *
 *   helper MODE NAME SIZE COUNT NANOSECONDS WARM
 *
 * It says "ready" when it is connected, and begins with the first byte of its input. Its output then is a
 * number of times as 64-bit words and those (ping), or a number of frames and the time in ns (consume).
 */
#include "carrier.h"
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#define MIN_PAYLOAD 8
#define SAMPLE_EVERY 1024
#define END_BIT (UINT64_C(1) << 63)

void fail(const char *what, const char *why) {
	fprintf(stderr, "bench: %s: %s\n", what, why);
	exit(1);
}

static int64_t now(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static uint64_t next(uint64_t x) {
	x ^= x << 13;
	x ^= x >> 7;
	return x ^ x << 17;
}

/* fill writes the body that belongs to a number: that of a sample, or 0 for all others. */
static void fill(unsigned char *payload, size_t size, uint64_t number) {
	uint64_t x = number * UINT64_C(0x9E3779B97F4A7C15) | 1;
	for (size_t i = MIN_PAYLOAD; i < size;) {
		x = next(x);
		size_t n = size - i >= 8 ? 8 : 1;
		memcpy(payload + i, &x, n);
		i += n;
	}
}

static struct {
	size_t size;
	int64_t count, ns;
	uint64_t warm;
	unsigned char *out, *expected;
	uint64_t sent, got;
} w;

static void send_next(uint64_t mark) {
	uint64_t seq = w.sent++, number = seq | mark;
	if (seq % SAMPLE_EVERY == 0)
		fill(w.out, w.size, seq);
	memcpy(w.out, &number, 8);
	carrier_send(w.out, w.size);
	if (seq % SAMPLE_EVERY == 0)
		fill(w.out, w.size, 0);
}

/* receive_next checks one payload and returns its number, with END_BIT. */
static uint64_t receive_next(void) {
	const void *payload;
	uint64_t number;
	size_t size = carrier_receive(&payload);
	if (size != w.size)
		fail("receive", "a payload of another size");
	memcpy(&number, payload, 8);
	uint64_t seq = number & ~END_BIT;
	if (seq != w.got)
		fail("receive", "a payload is missing or twice");
	w.got++;
	if (seq % SAMPLE_EVERY == 0) {
		fill(w.expected, w.size, seq);
		if (memcmp((const char *)payload + MIN_PAYLOAD, w.expected + MIN_PAYLOAD, w.size - MIN_PAYLOAD))
			fail("receive", "a payload arrived changed");
	}
	carrier_release();
	return number;
}

static void put(int64_t v) {
	if (fwrite(&v, 8, 1, stdout) != 1)
		fail("write", "the result");
}

static void ping(void) {
	size_t room = 1 << 20, n = 0;
	int64_t *times = malloc(room * sizeof *times);
	for (uint64_t i = 0; i < w.warm; i++) {
		send_next(0);
		receive_next();
	}
	int64_t start = now();
	for (int64_t i = 0; (w.count == 0 || i < w.count) && n < room; i++) {
		int64_t before = now();
		send_next(0);
		receive_next();
		int64_t after = now();
		times[n++] = after - before;
		if (w.ns && after - start > w.ns)
			break;
	}
	send_next(END_BIT);
	receive_next();
	put((int64_t)n);
	for (size_t i = 0; i < n; i++)
		put(times[i]);
}

static void echo(void) {
	for (uint64_t number = 0; !(number & END_BIT);) {
		const void *payload;
		size_t size = carrier_receive(&payload);
		if (size != w.size)
			fail("receive", "a payload of another size");
		memcpy(&number, payload, 8);
		carrier_send(payload, size);
		carrier_release();
	}
}

static void publish(void) {
	while (w.sent <= w.warm)
		send_next(0);
	int64_t start = now();
	for (uint64_t first = w.sent;; send_next(0)) {
		if (w.count && (int64_t)(w.sent - first) + 1 >= w.count)
			break;
		if (w.ns && w.sent % 64 == 0 && now() - start > w.ns)
			break;
	}
	send_next(END_BIT);
}

static void consume(void) {
	int64_t start = 0;
	for (;;) {
		uint64_t number = receive_next();
		if ((number & ~END_BIT) == w.warm)
			start = now();
		if (number & END_BIT)
			break;
	}
	int64_t took = now() - start;
	put((int64_t)(w.got - 1 - w.warm));
	put(took);
}

int main(int argc, char **argv) {
	/* A helper whose worker was killed would spin for ever. */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (argc != 7)
		fail("arguments", "MODE NAME SIZE COUNT NANOSECONDS WARM");
	const char *mode = argv[1];
	w.size = strtoull(argv[3], NULL, 10);
	w.count = strtoll(argv[4], NULL, 10);
	w.ns = strtoll(argv[5], NULL, 10);
	w.warm = strtoull(argv[6], NULL, 10);
	w.out = malloc(w.size);
	w.expected = malloc(w.size);
	fill(w.out, w.size, 0);
	int front = !strcmp(mode, "ping") || !strcmp(mode, "publish");
	carrier_open(argv[2], front, w.size);
	puts("ready");
	fflush(stdout);
	char go;
	if (read(0, &go, 1) != 1)
		fail("start", "the parent is gone");
	if (!strcmp(mode, "ping"))
		ping();
	else if (!strcmp(mode, "echo"))
		echo();
	else if (!strcmp(mode, "publish"))
		publish();
	else
		consume();
	if (fflush(stdout))
		fail("write", "the result");
	carrier_close();
	return 0;
}
