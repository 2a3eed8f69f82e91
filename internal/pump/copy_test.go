package pump

import (
	"bytes"
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/hugebus/hugebus/ring"
)

var errEnd = errors.New("the end")

func TestFormats(t *testing.T) {
	frames := []any{
		ring.Frame{Payload: []byte("<a>&é"), Position: 64, Source: 2},
		ring.Frame{Payload: nil, Position: 128, Redelivered: 3},
		ring.Frame{Payload: []byte{0xff, 0}, Position: 1 << 60},
	}
	for format, want := range map[Format]string{
		"":         "<a>&é\n\n\xff\x00\n",
		FormatLine: "<a>&é\n\n\xff\x00\n",
		FormatRaw:  "<a>&é\xff\x00",
		FormatHex:  "3c613e26c3a9\n\nff00\n",
		FormatJSON: `{"position":64,"source":2,"payload":"<a>&é"}` + "\n" +
			`{"position":128,"source":0,"redelivered":3,"payload":""}` + "\n" +
			`{"position":1152921504606846976,"source":0,"payload_base64":"/wA="}` + "\n",
	} {
		var out bytes.Buffer
		totals, err := Copy(t.Context(), &feed{frames: append([]any{}, frames...)}, Sink{W: &out, Format: format, Count: 3})
		if err != nil || out.String() != want || totals.Frames != 3 || totals.Bytes != 8 {
			t.Errorf("%q: %q, %+v, %v; want %q", format, out.String(), totals, err, want)
		}
	}
}

func TestParseFormat(t *testing.T) {
	for _, f := range Formats {
		if got, err := ParseFormat(string(f)); err != nil || got != f {
			t.Errorf("%q: %q, %v", f, got, err)
		}
	}
	if _, err := ParseFormat("xml"); err == nil || err.Error() != `unknown format "xml": use line, hex, json or raw` {
		t.Errorf("error %v", err)
	}
}

func TestCopyFlushesBeforeItWaits(t *testing.T) {
	var out bytes.Buffer
	src := &feed{frames: payloads("a", "b"), ended: errEnd}
	src.idle = func() {
		if out.String() != "a\nb\n" {
			t.Errorf("waits with %q written", out.String())
		}
	}
	if _, err := Copy(t.Context(), src, Sink{W: &out}); err != errEnd {
		t.Errorf("error %v", err)
	}
}

func TestCopyEndsAfterCountFrames(t *testing.T) {
	var out bytes.Buffer
	src := &feed{frames: payloads("a", "b", "c")}
	if _, err := Copy(t.Context(), src, Sink{W: &out, Count: 2}); err != nil || out.String() != "a\nb\n" || len(src.frames) != 1 {
		t.Errorf("%q, %d left, %v", out.String(), len(src.frames), err)
	}
}

func TestCopyStops(t *testing.T) {
	stop, cancel := context.WithCancel(t.Context())
	var out bytes.Buffer
	src := &feed{frames: payloads("a"), idle: cancel}
	if _, err := Copy(stop, src, Sink{W: &out}); err != nil || out.String() != "a\n" {
		t.Errorf("%q, %v", out.String(), err)
	}
}

func TestGapsAndEvictionAreReportedAndReadingGoesOn(t *testing.T) {
	var out bytes.Buffer
	var heard []string
	src := &feed{frames: append(payloads("a"), &ring.GapError{From: 64, To: 256}, ring.ErrEvicted,
		ring.Frame{Payload: []byte("b"), Position: 256})}
	sink := Sink{W: &out, Format: FormatJSON, Count: 2, Notice: func(s string) { heard = append(heard, s) }}
	if _, err := Copy(t.Context(), src, sink); err != nil {
		t.Fatal(err)
	}
	want := `{"position":0,"source":3,"payload":"a"}` + "\n" + `{"gap":{"from":64,"to":256,"bytes":192}}` + "\n" +
		`{"evicted":true}` + "\n" + `{"position":256,"source":0,"payload":"b"}` + "\n"
	if out.String() != want {
		t.Errorf("got %s, want %s", out.String(), want)
	}
	if len(heard) != 2 || !strings.Contains(heard[0], "192 bytes") || !strings.Contains(heard[1], "evicted") {
		t.Errorf("heard %q", heard)
	}
	out.Reset()
	src = &feed{frames: append([]any{&ring.GapError{From: 64, To: 256}, ring.ErrEvicted}, payloads("b")...)}
	if _, err := Copy(t.Context(), src, Sink{W: &out, Count: 1}); err != nil || out.String() != "b\n" {
		t.Errorf("as lines: %q, %v", out.String(), err)
	}
}

// ackWriter fails after some writes, and remembers what it took.
type ackWriter struct {
	left int
	took []string
}

func (w *ackWriter) Write(b []byte) (int, error) {
	if w.left == 0 {
		return 0, errFull
	}
	w.left--
	w.took = append(w.took, string(b))
	return len(b), nil
}

func TestAGroupsFrameIsAcknowledgedOnlyWhenItIsWritten(t *testing.T) {
	w := &ackWriter{left: 2}
	src := &feed{frames: payloads("a", "b", "c", "d")}
	totals, err := Copy(t.Context(), src, Sink{W: w, Acknowledge: true})
	if !errors.Is(err, errFull) || totals.Frames != 2 || !src.held || len(src.frames) != 2 {
		t.Errorf("%+v, %v; held %v, %d left", totals, err, src.held, len(src.frames))
	}
	equal(t, w.took, []string{"a\n", "b\n"})
	for _, limit := range src.asked {
		if limit != 1 {
			t.Errorf("took up to %d frames at once, which no other member can have then", limit)
		}
	}
}

func TestAClosedOutputEndsQuietly(t *testing.T) {
	for _, acknowledge := range []bool{false, true} {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		_ = r.Close()
		totals, err := Copy(t.Context(), &feed{frames: payloads("a", "b")}, Sink{W: w, Acknowledge: acknowledge})
		if err != nil || acknowledge && totals.Frames != 0 {
			t.Errorf("acknowledge %v: %+v, %v", acknowledge, totals, err)
		}
		_ = w.Close()
	}
}
