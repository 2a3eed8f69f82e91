package door

import (
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hugebus/hugebus/internal/testutil"
)

// shake lets a client and a server with the given settings shake hands, and returns the serial number of the server's
// certificate, the client's name, and both errors.
func shake(t *testing.T, s *Secure, c *tls.Config) (serial int64, name string, server, client error) {
	t.Helper()
	near, far := net.Pipe()
	defer near.Close()
	defer far.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		conn := tls.Client(far, c)
		if client = conn.Handshake(); client == nil {
			serial = conn.ConnectionState().PeerCertificates[0].SerialNumber.Int64()
			// A server that does not like the client's certificate says so after the client's part is done.
			_, client = conn.Read(make([]byte, 1))
		}
	}()
	conn, server := s.Server(t.Context(), near, time.Minute)
	if server == nil {
		name = Identity(conn)
		_, server = conn.Write([]byte{1})
	} else {
		_ = near.Close()
	}
	<-done
	return serial, name, server, client
}

func TestTLSFilesAreReadAgainWhenTheyChange(t *testing.T) {
	ca, dir := testutil.NewAuthority(t), t.TempDir()
	files := SecureFiles{Cert: filepath.Join(dir, "c"), Key: filepath.Join(dir, "k")}
	ca.Issue(t, "server", 2, files.Cert, files.Key)
	var log strings.Builder
	s, err := NewSecure(files, slog.New(slog.NewTextHandler(&log, nil)))
	check(t, err)
	c := &tls.Config{RootCAs: ca.Pool, ServerName: "localhost"}
	if serial, _, server, client := shake(t, s, c); serial != 2 || server != nil || client != nil {
		t.Fatalf("serial %d, %v, %v", serial, server, client)
	}
	ca.Issue(t, "server", 3, files.Cert, files.Key)
	if serial, _, _, _ := shake(t, s, c); serial != 2 {
		t.Errorf("the files are looked at for each connection")
	}
	s.checked = time.Time{}
	if serial, _, _, _ := shake(t, s, c); serial != 3 {
		t.Errorf("serial %d after the change", serial)
	}
	check(t, os.WriteFile(files.Cert, []byte("rubbish"), 0o600))
	s.checked = time.Time{}
	if serial, _, _, _ := shake(t, s, c); serial != 3 || !strings.Contains(log.String(), "the old ones stay") {
		t.Errorf("serial %d after rubbish, log %s", serial, &log)
	}
	c.MaxVersion = tls.VersionTLS12
	if _, _, server, client := shake(t, s, c); server == nil || client == nil {
		t.Errorf("TLS 1.2: %v, %v", server, client)
	}
}

func TestClientCertificates(t *testing.T) {
	ca, other, dir := testutil.NewAuthority(t), testutil.NewAuthority(t), t.TempDir()
	files := SecureFiles{Cert: filepath.Join(dir, "c"), Key: filepath.Join(dir, "k"), ClientCA: ca.File}
	ca.Issue(t, "server", 2, files.Cert, files.Key)
	s, err := NewSecure(files, slog.New(slog.DiscardHandler))
	check(t, err)
	alice := ca.Issue(t, "alice", 3, filepath.Join(dir, "ac"), filepath.Join(dir, "ak"))
	mallory := other.Issue(t, "alice", 4, filepath.Join(dir, "mc"), filepath.Join(dir, "mk"))
	c := &tls.Config{RootCAs: ca.Pool, ServerName: "localhost", Certificates: []tls.Certificate{alice}}
	if _, name, server, client := shake(t, s, c); name != "alice" || server != nil || client != nil {
		t.Errorf("alice: %q, %v, %v", name, server, client)
	}
	c.Certificates[0] = mallory
	if _, _, server, client := shake(t, s, c); server == nil || client == nil {
		t.Errorf("a stranger's certificate: %v, %v", server, client)
	}
	c.Certificates = nil
	if _, _, server, client := shake(t, s, c); server == nil || client == nil {
		t.Errorf("no certificate: %v, %v", server, client)
	}
}

func TestTLSGarbageAndSilence(t *testing.T) {
	ca, dir := testutil.NewAuthority(t), t.TempDir()
	files := SecureFiles{Cert: filepath.Join(dir, "c"), Key: filepath.Join(dir, "k")}
	ca.Issue(t, "server", 2, files.Cert, files.Key)
	s, err := NewSecure(files, slog.New(slog.DiscardHandler))
	check(t, err)
	near, far := net.Pipe()
	go func(far net.Conn) { _, _ = io.Copy(io.Discard, far) }(far)
	go func(far net.Conn) { _, _ = far.Write([]byte(strings.Repeat("GET / HTTP/1.1\r\n", 10))) }(far)
	if _, err := s.Server(t.Context(), near, time.Minute); err == nil || !strings.Contains(err.Error(), "TLS handshake") {
		t.Errorf("garbage: %v", err)
	}
	_ = near.Close()
	near, far = net.Pipe()
	defer far.Close()
	defer near.Close()
	if _, err := s.Server(t.Context(), near, 10*time.Millisecond); err == nil || !strings.Contains(err.Error(), "--handshake-timeout 10ms") {
		t.Errorf("silence: %v", err)
	}
	for _, bad := range []SecureFiles{{}, {Cert: "x"}, {Cert: "x", Key: "y"}, {Cert: files.Cert, Key: files.Key, ClientCA: files.Key}, {Cert: files.Cert, Key: files.Key, ClientCA: "z"}} {
		if _, err := NewSecure(bad, slog.Default()); err == nil || !strings.Contains(err.Error(), "--tls-") {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}
