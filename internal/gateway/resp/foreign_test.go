package resp

import (
	"io"
	"strings"
	"testing"

	"github.com/hugebus/hugebus/internal/testutil"
)

// TestHTTPRequestsAreNotExecuted sends what a page can have a browser send: the body is a command.
func TestHTTPRequestsAreNotExecuted(t *testing.T) {
	r := start(t, nil)
	for _, head := range []string{
		"POST / HTTP/1.1\nHost: localhost\nContent-Length: 16\n\n", "post / HTTP/1.1\n\n", "GET / HTTP/1.1\nHost: localhost\n\n", "PUT /x HTTP/1.0\n\n",
		"X: y\nHost: localhost\n\n", "*1\n$4\nPOST\n",
	} {
		c := r.dial()
		c.send(head + "PUBLISH room x\nPUBLISH room y\n")
		got, _ := io.ReadAll(c.r) // the connection may be reset, as the rest of the request is never read
		if strings.Contains(string(got), ":0") {
			t.Errorf("%q: got %q", head, got)
		}
	}
	testutil.Eventually(t, "all are closed for it", func() bool { return r.Stats().Ends[crossProtocol] == 6 })
	if s := r.Stats(); s.Published != 0 || !strings.Contains(r.log.String(), "speaks HTTP") {
		t.Errorf("%+v", s)
	}
	c := r.dial()
	c.send("GET x\nPUBLISH POST HTTP/1.1\n")
	c.wantPrefix("-ERR unknown command 'GET'")
	c.want(":0\n")
}

func TestBytesThatAreNoCommandsCloseTheConnection(t *testing.T) {
	r := start(t, nil)
	for first, want := range map[string]string{
		"\x16\x03\x01\x02\x00": "-ERR Protocol error: this looks like TLS", "\x00": `-ERR Protocol error: no command begins with "\x00"`,
		"\xff\xfe": `-ERR Protocol error: no command begins with "\xff"`,
	} {
		c := r.dial()
		c.send(first)
		c.wantPrefix(want)
		if _, err := c.r.ReadByte(); err != io.EOF {
			t.Errorf("%q: %v", first, err)
		}
	}
	testutil.Eventually(t, "they are counted", func() bool { return r.Stats().Ends[protocolBroken] == 3 })
}
