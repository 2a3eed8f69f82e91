package control

import (
	"errors"
	"strings"
	"testing"
)

// greet runs both ends of a hello, and returns what each side ended with.
func greet(t *testing.T, mine, broker Hello) (clientErr, brokerErr error) {
	t.Helper()
	client, server := pair(t)
	done := make(chan error, 1)
	go func() {
		_, id, err := server.AwaitHello(broker)
		var refused *Error
		if errors.As(err, &refused) {
			if serr := server.RefuseHello(id, broker, refused); serr != nil {
				err = serr
			}
		} else if err == nil {
			err = server.AcceptHello(id, broker)
		}
		done <- err
	}()
	_, clientErr = client.SayHello(mine)
	return clientErr, <-done
}

func TestHelloOfEqualVersions(t *testing.T) {
	c, b := greet(t, NewHello(1), NewHello(1))
	if c != nil || b != nil {
		t.Fatalf("client: %v; broker: %v", c, b)
	}
}

func TestHelloMismatchReadsTheSameOnBothSides(t *testing.T) {
	hello := func(protocol, layout int, software string) Hello {
		return Hello{Protocol: protocol, Layout: layout, Software: software}
	}
	cases := []struct {
		client, broker Hello
		remedy         string
	}{
		{hello(1, 1, "old"), hello(2, 1, "new"), "upgrade the client"},
		{hello(1, 1, "old"), hello(1, 2, "new"), "upgrade the client"},
		{hello(3, 1, "new"), hello(2, 1, "old"), "upgrade the broker"},
		{hello(2, 1, "one"), hello(1, 2, "two"), "same release of hugebus for both"},
		{hello(0, 0, ""), hello(1, 1, "new"), "upgrade the client"},
	}
	for _, c := range cases {
		ce, be := greet(t, c.client, c.broker)
		wantCode(t, ce, CodeVersion)
		wantCode(t, be, CodeVersion)
		if ce.Error() != be.Error() {
			t.Errorf("client reads %q, broker %q", ce, be)
		}
		for _, want := range []string{c.remedy, c.client.Software, c.broker.Software, "protocol " + itoa(c.client.Protocol), "protocol " + itoa(c.broker.Protocol), "layout " + itoa(c.broker.Layout)} {
			if !strings.Contains(ce.Error(), want) {
				t.Errorf("%q does not say %q", ce, want)
			}
		}
	}
}

func TestHelloOfANewerReleaseIsStillUnderstood(t *testing.T) {
	packet := `{"id":9,"op":"hello","flavour":"mint","body":{"protocol":99,"layout":1,"software":"future","wish":[1]}}`
	_, id, err := decodeHello([]byte(packet), NewHello(1))
	wantCode(t, err, CodeVersion)
	if id != 9 || !strings.Contains(err.Error(), "protocol 99") {
		t.Errorf("id %d, %v", id, err)
	}
}

func TestHelloMustComeFirstAndBeWellFormed(t *testing.T) {
	cases := []struct {
		packet string
		code   Code
		want   string
	}{
		{`{"id":1,"op":"list"}`, CodeMalformed, `the first message must be hello, not "list"`},
		{`GET / HTTP/1.1`, CodeMalformed, "not JSON"},
		{`{"id":1,"op":"hello"}`, CodeMalformed, "empty"},
		{`{"id":1,"op":"hello","body":{"protocol":"one"}}`, CodeMalformed, "protocol cannot be a JSON string"},
		{`{"id":1,"op":"hello","body":{"protocol":1,"layout":1,"name":"a\u0007"}}`, CodeInvalid, "printable"},
	}
	for _, c := range cases {
		_, _, err := decodeHello([]byte(c.packet), NewHello(1))
		wantCode(t, err, c.code)
		if !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %q does not say %q", c.packet, err, c.want)
		}
	}
}

func TestHelloWithDescriptorsIsRefused(t *testing.T) {
	client, server := pair(t)
	f := tempFile(t)
	body, err := marshal(NewHello(1))
	if err != nil {
		t.Fatal(err)
	}
	before := openFDs()
	if err := client.Send(Request{ID: 1, Op: OpHello, Body: body}, f); err != nil {
		t.Fatal(err)
	}
	_, _, err = server.AwaitHello(NewHello(1))
	wantCode(t, err, CodeDescriptors)
	if after := openFDs(); after != before {
		t.Errorf("%d descriptors open, %d before", after, before)
	}
}

func TestHelloWithoutAnAnswer(t *testing.T) {
	client, server := pair(t)
	server.Close()
	if _, err := client.SayHello(NewHello(1)); err == nil {
		t.Fatal("hello to nobody succeeded")
	}
}
