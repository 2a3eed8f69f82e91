/* ZeroMQ: a PAIR of sockets over a Unix socket (ipc://). NAME is a path. */
#include "carrier.h"
#include <stdio.h>
#include <string.h>
#include <zmq.h>

static void *context, *pair;
static zmq_msg_t in;

static void check(int bad, const char *what) {
	if (bad)
		fail(what, zmq_strerror(zmq_errno()));
}

void carrier_open(const char *name, int front, size_t size) {
	char address[512], hello = 'h';
	(void)size;
	snprintf(address, sizeof address, "ipc://%s", name);
	context = zmq_ctx_new();
	pair = zmq_socket(context, ZMQ_PAIR);
	check(!pair, "zmq_socket");
	check(front ? zmq_bind(pair, address) : zmq_connect(pair, address), "connect");
	/* One message each way, and both know that they are connected. */
	check(zmq_send(pair, &hello, 1, 0) != 1, "zmq_send");
	check(zmq_recv(pair, &hello, 1, 0) != 1, "zmq_recv");
}

void carrier_send(const void *payload, size_t size) {
	check(zmq_send(pair, payload, size, 0) != (int)size, "zmq_send");
}

size_t carrier_receive(const void **payload) {
	check(zmq_msg_init(&in), "zmq_msg_init");
	check(zmq_msg_recv(&in, pair, 0) < 0, "zmq_msg_recv");
	*payload = zmq_msg_data(&in);
	return zmq_msg_size(&in);
}

void carrier_release(void) { zmq_msg_close(&in); }

void carrier_close(void) {
	zmq_close(pair);
	zmq_ctx_term(context);
}
