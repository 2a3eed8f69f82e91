/* iceoryx: a publisher and a subscriber each way, polling; a full queue holds the publisher back. */
#include "carrier.h"
#include "iceoryx_binding_c/chunk.h"
#include "iceoryx_binding_c/log.h"
#include "iceoryx_binding_c/publisher.h"
#include "iceoryx_binding_c/runtime.h"
#include "iceoryx_binding_c/subscriber.h"
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static iox_pub_storage_t pub_room;
static iox_sub_storage_t sub_room;
static iox_pub_t pub;
static iox_sub_t sub;
static const void *in;
static size_t fixed;

void carrier_open(const char *name, int front, size_t size) {
	char app[100];
	const char *base = strrchr(name, '/');
	base = base ? base + 1 : name;
	fixed = size;
	snprintf(app, sizeof app, "bench-%d", (int)getpid());
	iox_set_loglevel(Iceoryx_LogLevel_Off);
	iox_runtime_init(app);

	iox_pub_options_t po;
	iox_pub_options_init(&po);
	po.historyCapacity = 0;
	po.subscriberTooSlowPolicy = ConsumerTooSlowPolicy_WAIT_FOR_CONSUMER;
	pub = iox_pub_init(&pub_room, "bench", base, front ? "there" : "back", &po);

	iox_sub_options_t so;
	iox_sub_options_init(&so);
	/* Its daemon has 200 chunks of this size by default, and 30 of 1 MiB. */
	so.queueCapacity = size <= 16384 ? 256 : size <= 131072 ? 64 : 4;
	so.historyRequest = 0;
	so.queueFullPolicy = QueueFullPolicy_BLOCK_PRODUCER;
	sub = iox_sub_init(&sub_room, "bench", base, front ? "back" : "there", &so);

	while (iox_sub_get_subscription_state(sub) != SubscribeState_SUBSCRIBED || !iox_pub_has_subscribers(pub))
		usleep(1000);
}

void carrier_send(const void *payload, size_t size) {
	void *chunk;
	if (iox_pub_loan_chunk(pub, &chunk, (uint32_t)size) != AllocationResult_SUCCESS)
		fail("iceoryx", "no chunk of that size to be had");
	memcpy(chunk, payload, size);
	iox_pub_publish_chunk(pub, chunk);
}

size_t carrier_receive(const void **payload) {
	enum iox_ChunkReceiveResult got;
	while ((got = iox_sub_take_chunk(sub, &in)) == ChunkReceiveResult_NO_CHUNK_AVAILABLE)
		;
	if (got != ChunkReceiveResult_SUCCESS)
		fail("iceoryx", "no chunk to be taken");
	*payload = in;
	return fixed;
}

void carrier_release(void) { iox_sub_release_chunk(sub, in); }

static void give_up(int number) {
	(void)number;
	_exit(0);
}

void carrier_close(void) {
	/* Its farewell to the daemon gets lost now and then, and then it waits for ever. */
	signal(SIGALRM, give_up);
	alarm(1);
	iox_pub_deinit(pub);
	iox_sub_deinit(sub);
	iox_runtime_shutdown();
}
