package keeper

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hugebus/hugebus/internal/control"
	"github.com/hugebus/hugebus/internal/sys"
)

// FuzzReplies is the other side of FuzzSession: a keeper that answers a broker with anything. Each line answers one request: how
// many descriptors come with it (a byte; from 0x80 on the first one is a memfd with data), and the packet, in which # is the
// request's number. The broker gets what holds, or an error; no descriptor is left, and Close ends.
func FuzzReplies(f *testing.F) {
	const hello = "0" + `{"id":#,"body":{"protocol":1,"software":"x","pid":1}}`
	entry := func(descriptors string, body string) string { return descriptors + `{"id":#,"body":` + body + `}` }
	for _, life := range [][]string{
		{hello, entry("2", `{"key":"k","files":2,"data":"eA=="}`), entry("0", `{"end":true}`), entry("0", `{}`), entry("0", `{}`), entry("0", `{}`), entry("0", `{}`)},
		{hello, entry("5", `{"key":"k","files":7}`), entry("2", `{}`), entry("0", `{"key":"k","files":0}`)},
		{hello, entry("\xb1", `{"key":"k","files":0,"blob":true}`), entry("0", `{"end":true}`)},
		{hello, entry("1", `{"key":"k","files":0,"blob":true}`)},
		{hello, entry("1", `{"key":"a:b","files":1}`)},
		{hello, entry("0", `{"key":"k","files":64}`), entry("0", `{}`)},
		{hello, entry("4", `{"end":true}`)},
		{hello, entry("0", `{"key":"k","files":-1}`)},
		{hello, "3" + `{"id":#,"error":{"code":"quota","message":"full"}}`, "0" + `{"error":{"code":"internal","message":"no"}}`},
		{"0" + `{"id":#,"error":{"code":"busy","message":"held"},"body":{"holder":7}}`},
		{"5" + `{"id":99,"body":{}}`}, {"0null"}, {"0{"}, {"0" + `{"event":"x"}`}, {""},
	} {
		f.Add([]byte(strings.Join(life, "\n")))
	}
	f.Fuzz(fuzzReplies)
}

func fuzzReplies(t *testing.T, life []byte) {
	if len(life) > control.MaxMessage {
		return
	}
	file := textFile(t, "fuzz")
	defer file.Close()
	sealed, err := newBlob("test-fuzz-data", []byte("data"))
	if err != nil {
		t.Fatal(err)
	}
	defer sealed.Close()
	mine, theirs, err := socketPair()
	if err != nil {
		t.Fatal(err)
	}
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		answerAll(newLink(theirs), bytes.Split(life, []byte("\n")), file, sealed)
	}()
	r := &remote{link: newLink(mine), lost: make(chan struct{}), ended: make(chan struct{}), turn: make(chan struct{}, 1)}
	go r.read()
	useAll(t, r, file)
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	<-answered
	open := slices.DeleteFunc(openFiles(t, os.Getpid()), func(target string) bool { return !strings.HasPrefix(target, "/memfd:test-fuzz") })
	if len(open) != 2 {
		t.Fatalf("%d descriptors are open, not 2: %v", len(open), open)
	}
}

// answerAll is the keeper. It ends with its lines, or with the broker.
func answerAll(l *link, lines [][]byte, file, sealed *os.File) {
	defer l.Close()
	for _, line := range lines {
		p, err := l.Receive()
		if err != nil {
			return
		}
		p.Discard()
		var request struct {
			ID uint64 `json:"id"`
		}
		if json.Unmarshal(p.Data, &request) != nil || len(line) < 2 {
			return
		}
		var files []*os.File
		for len(files) < int(line[0]-'0')%8%(packetFiles+1) {
			files = append(files, file)
		}
		if line[0] >= 0x80 && len(files) > 0 {
			files[0] = sealed
		}
		fds, err := dupAll(files)
		if err != nil {
			return
		}
		packet := bytes.ReplaceAll(line[1:], []byte("#"), strconv.AppendUint(nil, request.ID, 10))
		_, _, err = l.socket.WriteMsgUnix(packet, sys.Rights(fds), nil)
		closeFDs(fds)
		if err != nil {
			return
		}
	}
}

// useAll is a broker that asks for everything. Any of it may be refused.
func useAll(t *testing.T, r *remote, file *os.File) {
	ctx, stop := context.WithTimeout(t.Context(), time.Minute) // no keeper of these is silent
	defer stop()
	_ = r.hello(ctx, true)
	entries, err := r.Load(ctx)
	if err != nil && entries != nil {
		t.Fatalf("%d entries and %v", len(entries), err)
	}
	for i, e := range entries {
		if checkKey(e.Key) != nil || len(e.Files) > MaxFiles || i > 0 && e.Key <= entries[i-1].Key {
			t.Errorf("entry %q with %d descriptors", e.Key, len(e.Files))
		}
	}
	closeEntries(entries)
	files := slices.Repeat([]*os.File{file}, packetFiles+1)
	for _, do := range []func() error{
		func() error { return r.Put(ctx, "k", []byte("x"), files) },
		func() error { return r.Update(ctx, "k", []byte("y")) },
		func() error { return r.Delete(ctx, "k") },
	} {
		_ = do()
	}
	if ctx.Err() != nil {
		t.Fatal("the broker waits for an answer that it has had")
	}
}
