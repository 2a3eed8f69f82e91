package pump

import (
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
)

// stopWhileReading checks that a stop ends Lines while it waits for f, with the line before published.
func stopWhileReading(t *testing.T, f *os.File, write func(text string)) {
	t.Helper()
	in := Interruptible(f)
	p := newTopic(100)
	p.got = make(chan int, 1)
	stop, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		_, err := Lines(stop, t.Context(), in, p)
		done <- err
	}()
	write("whole\ntorn")
	<-p.got
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	equal(t, p.frames, []string{"whole"})
	if err := in.Close(); err != nil {
		t.Error(err)
	}
}

func TestAPipeCanBeInterrupted(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	stopWhileReading(t, r, func(text string) {
		if _, err := io.WriteString(w, text); err != nil {
			t.Error(err)
		}
	})
}

func TestASocketCanBeInterrupted(t *testing.T) {
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	far, err := net.Dial("unix", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	near, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	f, err := near.(*net.UnixConn).File()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	_ = near.Close()
	stopWhileReading(t, f, func(text string) {
		if _, err := io.WriteString(far, text); err != nil {
			t.Error(err)
		}
	})
	_ = far.Close() // ends the goroutine that reads the socket
}

func TestFilesThatNeverBlockAreReadAsTheyAre(t *testing.T) {
	name := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(name, []byte("a\nb\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string][]string{name: {"a", "b"}, os.DevNull: nil} {
		f, err := os.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		p := newTopic(100)
		in := Interruptible(f)
		if _, err := Lines(t.Context(), t.Context(), in, p); err != nil {
			t.Error(err)
		}
		equal(t, p.frames, want)
		_ = in.Close()
		_ = f.Close()
	}
}

// A file that was read in part goes on from there, as `(read line; hugebus pub x) < file` expects.
func TestAFileGoesOnFromItsOffset(t *testing.T) {
	name := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(name, []byte("first\nsecond\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Seek(6, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	p := newTopic(100)
	if _, err := Lines(t.Context(), t.Context(), Interruptible(f), p); err != nil {
		t.Error(err)
	}
	equal(t, p.frames, []string{"second"})
}
