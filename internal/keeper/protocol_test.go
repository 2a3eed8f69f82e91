package keeper

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hugebus/hugebus/internal/control"
	"github.com/hugebus/hugebus/internal/sys"
)

// rawConn speaks to a keeper in packets of a test's own making.
type rawConn struct {
	t testing.TB
	*link
}

func rawDial(t testing.TB, socket string) rawConn {
	t.Helper()
	c, err := net.Dial("unixpacket", socket)
	if err != nil {
		t.Fatal(err)
	}
	l := newLink(c.(*net.UnixConn))
	t.Cleanup(func() { l.Close() })
	if err := l.SetReadDeadline(time.Now().Add(time.Minute)); err != nil { // a hang
		t.Fatal(err)
	}
	return rawConn{t: t, link: l}
}

// ask sends a packet with n descriptors and returns the answer.
func (c rawConn) ask(packet string, n int) control.Message {
	c.t.Helper()
	fds := make([]int, n)
	for i := range fds {
		fds[i] = int(os.Stderr.Fd())
	}
	if _, _, err := c.socket.WriteMsgUnix([]byte(packet), sys.Rights(fds), nil); err != nil {
		c.t.Fatal(err)
	}
	p, err := c.Receive()
	if err != nil {
		c.t.Fatalf("after %.80s: %v", packet, err)
	}
	p.Discard()
	m, err := control.DecodeMessage(p.Data)
	if err != nil {
		c.t.Fatal(err)
	}
	return m
}

// ended fails the test unless the keeper has closed the connection.
func (c rawConn) ended(what string) {
	c.t.Helper()
	if _, err := c.Receive(); err != io.EOF {
		c.t.Errorf("%s: the connection is not closed: %v", what, err)
	}
}

const leaseHello = `{"id":1,"op":"hello","body":{"protocol":1,"lease":true}}`

// refusals are packets with descriptors, and what comes back.
var refusals = []struct {
	packet string
	files  int
	code   control.Code
	want   string
}{
	{`nonsense`, 2, control.CodeMalformed, "malformed request: not JSON at byte"},
	{`{"id":2,"op":"put","body":{"key":"k"},"more":1}`, 2, control.CodeMalformed, `unknown field "more"`},
	{`{"id":2,"op":"put","body":{"key":"k","colour":1}}`, 2, control.CodeMalformed, `malformed body of put`},
	{`{"id":2,"op":"put","body":{"key":7}}`, 2, control.CodeMalformed, "key cannot be a JSON number"},
	{`{"id":2,"op":"put","body":{"key":"k","data":"not base64!"}}`, 2, control.CodeMalformed, "malformed body of put"},
	{`{"op":"put","body":{"key":"k"}}`, 2, control.CodeMalformed, "id is missing or 0"},
	{`{"id":2,"op":"steal"}`, 2, control.CodeUnknownOp, `does not know the operation "steal"`},
	{`{"id":2,"op":"put","body":{"key":""}}`, 2, control.CodeInvalid, "key of 0 bytes"},
	{`{"id":2,"op":"put","body":{"key":"a:b"}}`, 5, control.CodeInvalid, "without a colon"},
	{`{"id":2,"op":"put","body":{"key":"k","files":65}}`, 5, control.CodeInvalid, "65 descriptors are not from 0 to 64"},
	{`{"id":2,"op":"put","body":{"key":"k","files":-1}}`, 5, control.CodeInvalid, "-1 descriptors are not from 0 to 64"},
	{`{"id":2,"op":"put","body":{"key":"k","files":3}}`, 2, control.CodeDescriptors, "k has 3 descriptors, but 2 came"},
	{`{"id":2,"op":"put","body":{"key":"k","files":0}}`, 2, control.CodeDescriptors, "k has 0 descriptors, but 2 came"},
	{`{"id":2,"op":"put","body":{"key":"k","blob":true}}`, 0, control.CodeInvalid, "the memfd with data is missing"},
	{`{"id":2,"op":"put","body":{"key":"k","blob":true}}`, 2, control.CodeInvalid, "k: data is not in a memfd"},
	{`{"id":2,"op":"put","body":{"key":"k","blob":true,"data":"eA=="}}`, 2, control.CodeInvalid, "data is there twice"},
	{`{"id":2,"op":"put","body":{"key":"k"}}`, 6, control.CodeDescriptors, "6 descriptors with one message are above the limit of 5"},
	{`{"id":2,"op":"put","body":{"key":"k"}}`, 100, control.CodeDescriptors, "descriptors are missing"},
	{strings.Repeat("x", control.MaxMessage+1), 3, control.CodeTooLarge, "message is above the limit of 65536 bytes"},
	{`{"id":2,"op":"stage","body":{}}`, 5, control.CodeInvalid, "set is missing or 0"},
	{`{"id":2,"op":"update","body":{"key":"k"}}`, 1, control.CodeInvalid, "1 descriptors where none belong"},
	{`{"id":2,"op":"update","body":{"key":"k"}}`, 2, control.CodeDescriptors, "update came with 2 descriptors, above the limit of 1"},
	{`{"id":2,"op":"update","body":{"key":"k","blob":true}}`, 1, control.CodeInvalid, "k: data is not in a memfd"},
	{`{"id":2,"op":"update","body":{"key":"other"}}`, 0, control.CodeNotFound, "no entry other"},
	{`{"id":2,"op":"delete","body":{"key":""}}`, 0, control.CodeInvalid, "key of 0 bytes"},
	{`{"id":2,"op":"delete","body":{"key":"k"}}`, 1, control.CodeDescriptors, "above the limit of 0"},
	{`{"id":2,"op":"load","body":{}}`, 1, control.CodeDescriptors, "above the limit of 0"},
	{`{"id":2,"op":"files","body":{"key":"other"}}`, 0, control.CodeNotFound, "no entry other"},
	{`{"id":2,"op":"files","body":{"key":"k","from":1}}`, 0, control.CodeInvalid, "k has 1 descriptors, none from 1 on"},
	{`{"id":2,"op":"files","body":{"key":"k","from":-1}}`, 0, control.CodeInvalid, "from is -1, below 0"},
	{leaseHello, 0, control.CodeMalformed, "hello came twice"},
	{`{"id":2,"op":"shutdown","body":{"now":true}}`, 0, control.CodeMalformed, "malformed body of shutdown"},
}

// TestRefusals has every request that is refused: by its words, at what cost in descriptors, and with the connection and
// the entries as they were.
func TestRefusals(t *testing.T) {
	o := options(t, newSocket(t))
	r := start(t, o)
	mustPut(t, r, "k", "v", textFile(t, "f"))
	r.Close()
	c := rawDial(t, o.Socket)
	if m := c.ask(leaseHello, 0); m.Error != nil || m.ID != 1 {
		t.Fatalf("hello: %+v", m)
	}
	before := openFiles(t, r.pid)
	for _, q := range refusals {
		m := c.ask(q.packet, q.files)
		if m.Error == nil || m.Error.Code != q.code || !strings.Contains(m.Error.Message, q.want) {
			t.Errorf("%.80s with %d descriptors: %+v, want %s %q", q.packet, q.files, m.Error, q.code, q.want)
		}
		if after := openFiles(t, r.pid); !slices.Equal(before, after) {
			t.Fatalf("%.80s with %d descriptors: the keeper has %d descriptors open, %d before", q.packet, q.files, len(after), len(before))
		}
	}
	c.Close()
	if got := load(t, start(t, o)); !equal(got, state{}.with("k", "v", "f")) {
		t.Errorf("it has %v", got)
	}
}

// TestStaging has the ways in which what was staged does not become an entry.
func TestStaging(t *testing.T) {
	o := options(t, newSocket(t))
	r := start(t, o)
	r.Close()
	c := rawDial(t, o.Socket)
	c.ask(leaseHello, 0)
	before := openFiles(t, r.pid)
	stage := func(set, files int) *control.Error {
		return c.ask(fmt.Sprintf(`{"id":2,"op":"stage","body":{"set":%d}}`, set), files).Error
	}
	put := func(set, files, n int) *control.Error {
		return c.ask(fmt.Sprintf(`{"id":3,"op":"put","body":{"key":"k","set":%d,"files":%d}}`, set, n), files).Error
	}
	for name, err := range map[string]*control.Error{
		"another set":  errors2(stage(1, 5), put(2, 2, 7)),
		"no set":       errors2(stage(3, 5), put(0, 2, 7)),
		"two sets":     errors2(stage(4, 5), errors2(stage(5, 5), put(5, 0, 10))),
		"too few":      errors2(stage(6, 5), put(6, 2, 8)),
		"a second put": errors2(errors2(stage(7, 5), put(7, 1, 6)), put(7, 1, 6)),
	} {
		if err == nil || err.Code != control.CodeDescriptors {
			t.Errorf("%s: %v", name, err)
		}
	}
	c.ask(`{"id":4,"op":"delete","body":{"key":"k"}}`, 0)
	for i := range MaxFiles/packetFiles + 1 {
		err := stage(8, packetFiles)
		if last := i == MaxFiles/packetFiles; last != (err != nil) || last && !strings.Contains(err.Message, "65 descriptors are above the limit of 64") {
			t.Errorf("stage %d: %v", i, err)
		}
	}
	if after := openFiles(t, r.pid); !slices.Equal(before, after) {
		t.Errorf("the keeper has %d descriptors open, %d before", len(after), len(before))
	}
}

// errors2 is the second of two errors, if the first is none.
func errors2(first, second *control.Error) *control.Error {
	if first != nil {
		return control.Errorf(control.CodeInternal, "first: %v", first)
	}
	return second
}

func TestHello(t *testing.T) {
	o := options(t, newSocket(t))
	r := start(t, o)
	for _, q := range []struct {
		packet string
		code   control.Code
		want   string
	}{
		{`{"id":1,"op":"load","body":{}}`, control.CodeMalformed, "the first message must be hello"},
		{`{"id":1,"op":"hello","body":[]}`, control.CodeMalformed, "malformed hello"},
		{`{"id":1,"op":"hello","body":{"protocol":2,"software":"hugebus v9","news":[1,2]}}`, control.CodeVersion,
			"the broker (hugebus v9) speaks keeper protocol 2, the running keeper"},
		{leaseHello, control.CodeBusy, fmt.Sprint("serves another broker already (uid ", os.Getuid())},
	} {
		c := rawDial(t, o.Socket)
		m := c.ask(q.packet, 0)
		if m.Error == nil || m.Error.Code != q.code || !strings.Contains(m.Error.Message, q.want) {
			t.Errorf("%s: %+v, want %s %q", q.packet, m.Error, q.code, q.want)
		}
		c.ended(q.packet)
	}
	// Without the lease nothing but shutdown is served.
	c := rawDial(t, o.Socket)
	if m := c.ask(`{"id":1,"op":"hello","body":{"protocol":1,"news":true}}`, 0); m.Error != nil {
		t.Errorf("hello with news: %v", m.Error)
	}
	for _, op := range []string{`"put","body":{"key":"k"}`, `"load","body":{}`, `"delete","body":{"key":"k"}`} {
		if m := c.ask(`{"id":2,"op":`+op+`}`, 0); m.Error == nil || m.Error.Code != control.CodeRefused {
			t.Errorf("%s: %+v", op, m)
		}
	}
	mustPut(t, r, "k", "")
}

func TestBrokerOfAnotherRelease(t *testing.T) {
	bad := control.Errorf(control.CodeVersion, "versions differ")
	if err := sentinel(bad); !errors.Is(err, ErrVersion) || !strings.Contains(err.Error(), "versions differ") {
		t.Errorf("%v", err)
	}
	if err := sentinel(control.Errorf(control.CodeInternal, "x")); errors.Is(err, ErrFull) || err.Error() != "x" {
		t.Errorf("%v", err)
	}
}

func TestManyConnections(t *testing.T) {
	o := options(t, newSocket(t))
	r := start(t, o)
	mustPut(t, r, "k", "v")
	var silent []rawConn
	for range maxSessions - 1 {
		c := rawDial(t, o.Socket)
		c.ask(`{"id":1,"op":"hello","body":{"protocol":1}}`, 0)
		silent = append(silent, c)
	}
	_, err := Start(t.Context(), o)
	if !errors.Is(err, ErrFull) || !strings.Contains(err.Error(), "32 connections are the keeper's limit") {
		t.Errorf("one more: %v", err)
	}
	for _, c := range silent {
		c.Close()
	}
	mustPut(t, r, "k", "w")
}

// liar is a keeper that answers as it likes.
func liar(t *testing.T, answers ...string) Options {
	t.Helper()
	socket := newSocket(t)
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: socket, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		c, err := l.AcceptUnix()
		if err != nil {
			return
		}
		k := newLink(c)
		defer k.Close()
		for _, a := range append([]string{`{"id":1,"body":{"protocol":1,"pid":1}}`}, answers...) {
			p, err := k.Receive()
			if err != nil {
				return
			}
			p.Discard()
			if _, _, err := c.WriteMsgUnix([]byte(a), sys.Rights([]int{int(os.Stderr.Fd())}), nil); err != nil {
				return
			}
		}
		_, _ = k.Receive()
	}()
	t.Cleanup(func() { l.Close(); <-done })
	return Options{Socket: socket, Exec: []string{"/nonexistent"}}
}

// TestKeeperThatLies has answers that no keeper gives. None may hang, leak or panic.
func TestKeeperThatLies(t *testing.T) {
	for name, answers := range map[string][]string{
		"another id":       {`{"id":77}`},
		"no JSON":          {`nonsense`},
		"no body":          {`{"id":2}`},
		"wrong body":       {`{"id":2,"body":[]}`},
		"end that is none": {`{"id":2,"body":{"key":""}}`},
		"same key":         {`{"id":2,"body":{"key":"a","files":1}}`, `{"id":3,"body":{"key":"a","files":1}}`},
		"many descriptors": {`{"id":2,"body":{"key":"a","files":100000}}`},
		"negative":         {`{"id":2,"body":{"key":"a","files":-1}}`},
		"too many":         {`{"id":2,"body":{"key":"a","files":0}}`},
		"too few":          {`{"id":2,"body":{"key":"a","files":3}}`, `{"id":3,"body":{}}`, `{"id":4,"error":{"code":"invalid","message":"no more"}}`},
		"no memfd":         {`{"id":2,"body":{"key":"a","blob":true}}`},
	} {
		t.Run(name, func(t *testing.T) {
			r := start2(t, liar(t, answers...))
			entries, err := r.Load(t.Context())
			closeEntries(entries)
			if err == nil {
				t.Errorf("%d entries of a liar", len(entries))
			}
		})
	}
}

// FuzzParse has packets of any kind: parse must refuse them with words that fit a reply, or return what holds.
func FuzzParse(f *testing.F) {
	for _, op := range []control.Op{opHello, opStage, opPut, opUpdate, opDelete, opLoad, opFiles, opShutdown} {
		body, _ := newBody(op)
		raw, err := json.Marshal(body)
		if err != nil {
			f.Fatal(err)
		}
		packet, err := json.Marshal(control.Request{ID: 1, Op: op, Body: raw})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(packet, uint8(0))
	}
	f.Add([]byte(`{"id":1,"op":"put","body":{"key":"k","data":"eA==","files":2,"set":3}}`), uint8(2))
	f.Add([]byte(`{"id":1,"op":"put","body":{"key":"k","blob":true,"files":1}}`), uint8(2))
	f.Fuzz(func(t *testing.T, packet []byte, descriptors uint8) {
		files := int(descriptors)
		id, body, bad := parse(packet, files)
		if bad != nil {
			if _, err := message(id, nil, bad); err != nil || body != nil || bad.Message == "" {
				t.Fatalf("%v, %v, %v", bad, body, err)
			}
			return
		}
		switch b := body.(type) {
		case *putRequest:
			if checkKey(b.Key) != nil || b.Files < 0 || b.Files > MaxFiles || files > packetFiles || b.Blob && (files == 0 || len(b.Data) > 0) {
				t.Fatalf("%+v with %d descriptors", b, files)
			}
		case *updateRequest:
			if checkKey(b.Key) != nil || files > 1 || b.Blob != (files == 1) {
				t.Fatalf("%+v with %d descriptors", b, files)
			}
		}
	})
}

// FuzzSession has a whole life of packets, in lines, against the keeper's table: its counts must stay what it holds.
func FuzzSession(f *testing.F) {
	f.Add([]byte(leaseHello + "\n" + `{"id":2,"op":"put","body":{"key":"k","data":"eA==","files":1}}` + "\n" + `{"id":3,"op":"update","body":{"key":"k"}}`))
	f.Add([]byte(leaseHello + "\n" + `{"id":2,"op":"stage","body":{"set":1}}` + "\n" + `{"id":3,"op":"put","body":{"key":"k","files":2,"set":1}}` + "\n" + `{"id":3,"op":"delete","body":{"key":"k"}}`))
	f.Add([]byte(leaseHello + "\n" + `{"id":2,"op":"put","body":{"key":"k","files":1}}` + "\n" + `{"id":3,"op":"load","body":{}}` + "\n" + `{"id":3,"op":"files","body":{"key":"k"}}`))
	f.Fuzz(fuzzSession)
}
