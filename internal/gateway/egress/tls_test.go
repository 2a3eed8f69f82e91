package egress

import (
	"crypto/tls"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hugebus/hugebus/internal/gateway/door"
	"github.com/hugebus/hugebus/internal/testutil"
)

func TestTLS(t *testing.T) {
	ca, dir := testutil.NewAuthority(t), t.TempDir()
	files := door.SecureFiles{Cert: filepath.Join(dir, "c"), Key: filepath.Join(dir, "k")}
	ca.Issue(t, "server", 2, files.Cert, files.Key)
	const lag, size, frames = 256 << 10, 1000, 3000
	r := start(t, func(c *Config) {
		var err error
		c.Secure, err = door.NewSecure(files, c.Logger)
		check(t, err)
		c.MaxLag = lag
		c.Socket.SendBuffer = 8 << 10
		c.DrainTimeout = time.Minute
	})
	config := &tls.Config{RootCAs: ca.Pool, ServerName: "localhost"}
	dial := func() *tls.Conn {
		c := tls.Client(r.connect(), config)
		check(t, c.Handshake())
		return c
	}
	quick, slow := dial(), dial()
	garbage := r.connect()
	_, err := io.WriteString(garbage, strings.Repeat("x", 100))
	check(t, err)
	testutil.Eventually(t, "garbage is refused", func() bool { return r.Stats().Ends[handshake] == 1 })
	r.settle()
	reader := readerOf(quick)
	sizes := make([]int, frames)
	for n := range frames {
		sizes[n] = size
		r.feed.publish(numbered(n, size))
		if n%10 == 9 {
			reader.wantNumbers(t, n-9, n+1, size)
		}
	}
	if s := r.Stats(); s.Skips == 0 || s.Queued > 2*lag {
		t.Errorf("a client that does not read: %+v", s)
	}
	r.cancel()
	if err := readAll(readerOf(slow), sizes); err != nil {
		t.Error(err)
	}
	check(t, r.stop())
}
