/* What carries payloads between two processes: one side is the front, which sends first or publishes. */
#include <stddef.h>

/* carrier_open opens this side; name is the link's own. It returns when the other side is connected. */
void carrier_open(const char *name, int front, size_t size);
/* carrier_send sends one payload; it waits for room. */
void carrier_send(const void *payload, size_t size);
/* carrier_receive waits for a payload, which is valid until carrier_release, and returns its size. */
size_t carrier_receive(const void **payload);
void carrier_release(void);
/* carrier_close lets what was sent arrive first. */
void carrier_close(void);
/* fail says what went wrong, and exits. */
void fail(const char *what, const char *why);
