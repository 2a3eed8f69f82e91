package door

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"
)

// recheck is how often, at most, the files are looked at: as connections come, and not more often than this.
const recheck = time.Second

// SecureFiles names the files of TLS, in PEM.
type SecureFiles struct {
	Cert, Key string // the server's certificate with its chain, and its key
	ClientCA  string // who signs clients' certificates; if it is set, a client must have one
}

// Secure makes connections secure with TLS 1.3. When the files change, connections that come then get the new ones;
// files that cannot be used are logged, and the old ones stay. It is safe for concurrent use.
type Secure struct {
	files SecureFiles
	log   *slog.Logger

	mu      sync.Mutex
	config  *tls.Config
	seen    [3]fileState
	checked time.Time
}

// fileState tells one version of a file from another.
type fileState struct {
	modified time.Time
	size     int64
}

// Check says whether a file is missing.
func (f SecureFiles) Check() error {
	if f.Cert == "" || f.Key == "" {
		return errors.New("TLS needs a certificate and its key: give both --tls-cert and --tls-key")
	}
	return nil
}

// NewSecure reads the files.
func NewSecure(files SecureFiles, log *slog.Logger) (*Secure, error) {
	s := &Secure{files: files, log: log}
	if err := files.Check(); err != nil {
		return nil, err
	}
	s.seen = s.states()
	config, err := s.load()
	if err != nil {
		return nil, err
	}
	s.config, s.checked = config, time.Now()
	return s, nil
}

func (s *Secure) load() (*tls.Config, error) {
	cert, err := tls.LoadX509KeyPair(s.files.Cert, s.files.Key)
	if err != nil {
		return nil, fmt.Errorf("TLS: --tls-cert %s with --tls-key %s: %w", s.files.Cert, s.files.Key, err)
	}
	c := &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{cert}}
	if s.files.ClientCA == "" {
		return c, nil
	}
	pem, err := os.ReadFile(s.files.ClientCA)
	if err != nil {
		return nil, fmt.Errorf("TLS: --tls-client-ca: %w", err)
	}
	c.ClientCAs, c.ClientAuth = x509.NewCertPool(), tls.RequireAndVerifyClientCert
	if !c.ClientCAs.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("TLS: --tls-client-ca %s: there is no certificate in PEM in it", s.files.ClientCA)
	}
	return c, nil
}

func (s *Secure) states() (states [3]fileState) {
	for i, name := range []string{s.files.Cert, s.files.Key, s.files.ClientCA} {
		if info, err := os.Stat(name); err == nil {
			states[i] = fileState{info.ModTime(), info.Size()}
		}
	}
	return states
}

// current returns the configuration, read anew if files have changed.
func (s *Secure) current() *tls.Config {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.checked) < recheck {
		return s.config
	}
	s.checked = time.Now()
	states := s.states()
	if states == s.seen {
		return s.config
	}
	config, err := s.load()
	if err != nil {
		s.log.Warn("the new TLS files cannot be used, the old ones stay", "error", err)
		return s.config // seen stays, so that it is tried again: the other file may be about to be written
	}
	s.config, s.seen = config, states
	s.log.Info("TLS files were read again", "cert", s.files.Cert)
	return s.config
}

// Server does the handshake, in the given time, and returns the secure connection. It does not close conn on errors.
func (s *Secure) Server(ctx context.Context, conn net.Conn, timeout time.Duration) (*tls.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	secure := tls.Server(conn, s.current())
	if err := secure.HandshakeContext(ctx); err != nil {
		if errors.Is(err, context.DeadlineExceeded) {
			err = fmt.Errorf("not done within --handshake-timeout %v", timeout)
		}
		return nil, fmt.Errorf("TLS handshake: %w", err)
	}
	return secure, nil
}

// Identity is the name in the client's certificate, or "" without one.
func Identity(c *tls.Conn) string {
	if certs := c.ConnectionState().PeerCertificates; len(certs) > 0 {
		return certs[0].Subject.CommonName
	}
	return ""
}
