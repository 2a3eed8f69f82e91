package main

import (
	"crypto/tls"
	"io"
	"net"
	"path/filepath"
	"strings"

	"github.com/hugebus/hugebus/client"
	"github.com/hugebus/hugebus/internal/testutil"
)

func init() {
	scenarios["IngressOverTLS"] = secureIngress
}

// secureIngress takes frames of a client with a certificate, refuses one without, and takes a new certificate without a restart.
func secureIngress(w *world) {
	w.broker()
	w.ok("topic", "create", "t", "--capacity", "64KiB")
	ca, cert, key := testutil.NewAuthority(w), filepath.Join(w.dir, "c"), filepath.Join(w.dir, "k")
	ca.Issue(w, "server", 2, cert, key)
	in, address := w.ingress("--topic", "t", "--codec", "line", "--tls-cert", cert, "--tls-key", key, "--tls-client-ca", ca.File,
		"--handshake-timeout", "1m")
	config := &tls.Config{RootCAs: ca.Pool, ServerName: "localhost"}
	if c, err := tls.Dial("tcp", address, config); err == nil {
		if _, err := c.Read(make([]byte, 1)); err == nil {
			w.Error("a client without a certificate may stay")
		}
		_ = c.Close()
	}
	config.Certificates = []tls.Certificate{ca.Issue(w, "alice", 3, filepath.Join(w.dir, "ac"), filepath.Join(w.dir, "ak"))}
	serial := func() int64 {
		c, err := tls.Dial("tcp", address, config)
		if err != nil {
			return 0 // one file is new, and the other is not
		}
		defer c.Close()
		if _, err := io.WriteString(c, "hello\n"); err != nil {
			w.Error(err)
		}
		return c.ConnectionState().PeerCertificates[0].SerialNumber.Int64()
	}
	if n := serial(); n != 2 {
		w.Errorf("the certificate's number is %d", n)
	}
	w.attached("t", "a frame", func(t client.TopicInfo) bool { return t.Tail == 64 })
	ca.Issue(w, "server", 4, cert, key)
	testutil.Eventually(w, "the new certificate is used", func() bool { return serial() == 4 })
	plain, err := net.Dial("tcp", address)
	if err != nil {
		w.Fatal(err)
	}
	defer plain.Close()
	if _, err := io.WriteString(plain, "hello\n"); err != nil {
		w.Fatal(err)
	}
	testutil.Eventually(w, "who does not speak TLS is refused", func() bool {
		return strings.Contains(in.err.String(), "first record does not look like a TLS handshake")
	})
	in.terminate()
	for _, want := range []string{"reason=handshake_failed", "TLS files were read again"} {
		if !strings.Contains(in.err.String(), want) {
			w.Errorf("no %q in %s", want, in.err)
		}
	}
	if r := w.run("", "ingress", "--listen", ":0", "--topic", "t", "--tls-cert", cert); r.code != 1 || !strings.Contains(r.err, "--tls-key") {
		w.Errorf("a certificate without its key: %d, %s", r.code, r.err)
	}
}
