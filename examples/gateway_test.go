package examples_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hugebus/hugebus/internal/testutil"
)

// connect connects to an address, for lines.
func connect(t *testing.T, address string) (net.Conn, *bufio.Reader) {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil { // only catches hangs
		t.Fatal(err)
	}
	return c, bufio.NewReader(c)
}

func readLine(t *testing.T, r *bufio.Reader) string {
	t.Helper()
	line, err := r.ReadString('\n')
	if err != nil {
		t.Fatalf("%v after %q", err, line)
	}
	return strings.TrimSuffix(line, "\n")
}

// after returns what follows prefix in the example's next line.
func after(t *testing.T, p *testutil.Proc, prefix string) string {
	t.Helper()
	line := p.Line()
	rest, ok := strings.CutPrefix(line, prefix)
	if !ok {
		t.Fatalf("line %q, want %q and more", line, prefix)
	}
	return rest
}

func TestPush(t *testing.T) {
	p := start(t, "push")
	address := after(t, p, "listening on ")
	price := make(map[int]string) // by number, as the first who got it says
	for client := range 20 {
		_, r := connect(t, address)
		first := 0
		for i := range 5 {
			line := readLine(t, r)
			var n int
			if _, err := fmt.Sscanf(line, "%d ", &n); err != nil {
				t.Fatalf("client %d got %q", client, line)
			}
			if i == 0 {
				first = n
			}
			if n != first+i {
				t.Errorf("client %d got price %d instead of %d", client, n, first+i)
			}
			if price[n] == "" {
				price[n] = line
			}
			if price[n] != line {
				t.Errorf("client %d got %q, another one %q", client, line, price[n])
			}
		}
	}
	p.Signal(syscall.SIGTERM)
	p.Succeed()
}

func TestPipeline(t *testing.T) {
	p := start(t, "pipeline")
	in, out := after(t, p, "words to "), after(t, p, "results from ")
	var want, got []string
	for i := range 3 {
		c, _ := connect(t, in)
		for j := range 100 {
			word := strings.Repeat("x", i) + fmt.Sprint(j)
			if _, err := io.WriteString(c, word+"\n"); err != nil {
				t.Fatal(err)
			}
			want = append(want, fmt.Sprintf("%s has %d bytes", word, len(word)))
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
	_, r := connect(t, out) // late: what was published before comes first
	for range want {
		result, worker, ok := strings.Cut(readLine(t, r), ", says worker ")
		if !ok || len(worker) != 1 {
			t.Fatalf("result %q by %q", result, worker)
		}
		got = append(got, result)
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("results %q\nwant %q", got, want)
	}
	p.Signal(syscall.SIGTERM)
	p.Succeed()
}
