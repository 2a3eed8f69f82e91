package keeper

import (
	"bytes"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
)

// fuzzSession carries packets out as session.answer does, each with one descriptor if it may have one.
func fuzzSession(t *testing.T, life []byte) {
	file := textFile(t, "fuzz")
	defer file.Close()
	one, other, err := socketPair()
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	s := &server{
		log: slog.New(slog.DiscardHandler), table: newTable(Limits{Entries: 3, Bytes: 200, Descriptors: 5}),
		sessions: make(map[*session]struct{}), stopped: true, // it has no socket to close
	}
	ss := &session{server: s, link: newLink(one), ended: make(chan struct{})}
	for packet := range bytes.SplitSeq(life, []byte("\n")) {
		var files []*os.File
		id, body, bad := parse(packet, 1)
		if bad == nil {
			files = []*os.File{dupFile(t, file)}
		} else if id, body, bad = parse(packet, 0); bad != nil {
			continue
		}
		r, err := ss.handle(t.Context(), body, files)
		if err != nil {
			bad = asError(err)
		}
		if _, err := message(id, r.body, bad); err != nil {
			t.Fatal(err)
		}
		if len(r.fds) > packetFiles {
			t.Fatalf("%d descriptors in one reply", len(r.fds))
		}
		checkTable(t, s.table)
	}
	ss.unstage()
	closeFDs(s.table.clear())
	one.Close()
	other.Close()
	open := slices.DeleteFunc(openFiles(t, os.Getpid()), func(target string) bool { return !strings.HasPrefix(target, "/memfd:test-fuzz") })
	if len(open) != 1 {
		t.Fatalf("%d descriptors are open, not 1", len(open))
	}
}

func socketPair() (one, other *net.UnixConn, err error) {
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: "", Net: "unixpacket"}) // the kernel picks a name
	if err != nil {
		return nil, nil, err
	}
	defer l.Close()
	if other, err = net.DialUnix("unixpacket", nil, l.Addr().(*net.UnixAddr)); err != nil {
		return nil, nil, err
	}
	one, err = l.AcceptUnix()
	return one, other, err
}

// checkTable counts what a table holds.
func checkTable(t *testing.T, tb *table) {
	t.Helper()
	var size int64
	var fds []int
	for key, it := range tb.items {
		size += int64(len(key)) + it.size
		fds = append(fds, it.fds()...)
	}
	slices.Sort(fds)
	if len(tb.keys) != len(tb.items) || !slices.IsSorted(tb.keys) || size != tb.bytes || len(fds) != tb.descriptors || len(slices.Compact(fds)) != tb.descriptors {
		t.Fatalf("%d keys, %d items; %d bytes counted, %d held; %d descriptors counted, %v held", len(tb.keys), len(tb.items), tb.bytes, size, tb.descriptors, fds)
	}
	if l := tb.limits; len(tb.items) > l.Entries || tb.bytes > l.Bytes || tb.descriptors > l.Descriptors {
		t.Fatalf("%d entries, %d bytes, %d descriptors above the limits %+v", len(tb.items), tb.bytes, tb.descriptors, l)
	}
}
