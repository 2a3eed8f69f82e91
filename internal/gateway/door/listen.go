package door

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Schemes of addresses. An address without one is TCP.
const (
	schemeTCP  = "tcp://"
	schemeUnix = "unix://"
	schemeUDP  = "udp://"
)

// unixMode is what the file of a Unix socket gets: connecting is for its owner, as who may reach a topic is decided by
// user. The folder's rights, or chmod, open it to others.
const unixMode = 0o600

// Split tells the network (tcp, unix or udp) and the address within it: HOST:PORT or a path.
func Split(address string) (network, rest string) {
	for _, scheme := range []string{schemeTCP, schemeUnix, schemeUDP} {
		if rest, ok := strings.CutPrefix(address, scheme); ok {
			return strings.TrimSuffix(scheme, "://"), rest
		}
	}
	return "tcp", address
}

// longestPath is how many bytes the path of a Unix socket may have.
const longestPath = len(unix.RawSockaddrUnix{}.Path) - 1

// CheckAddress says what is wrong with an address as it stands, whatever this host has.
func CheckAddress(address string) error {
	network, rest := Split(address)
	const forms = "give HOST:PORT, as in 127.0.0.1:7070 (port 0 takes a free one), unix:///PATH, or udp://HOST:PORT where datagrams are taken"
	if scheme, _, ok := strings.Cut(rest, "://"); ok {
		return fmt.Errorf("listen on %s: nothing is known by %s://: %s", address, scheme, forms)
	}
	if network == "unix" {
		switch {
		case rest == "":
			return fmt.Errorf("listen on %s: the path is missing: give one, as in unix:///run/app/in.sock", address)
		case len(rest) > longestPath:
			return fmt.Errorf("listen on %s: a path of %d bytes is above the limit of %d for sockets: take a shorter one", address, len(rest), longestPath)
		}
		return nil
	}
	_, port, err := net.SplitHostPort(rest)
	if err != nil {
		return fmt.Errorf("listen on %s: %w: %s", address, err, forms)
	}
	if _, err := net.LookupPort(network, port); err != nil {
		return fmt.Errorf("listen on %s: port %q is none: give a number from 0 (a free one) to 65535", address, port)
	}
	return nil
}

// CheckStream is CheckAddress where connections are wanted.
func CheckStream(address string) error {
	if network, _ := Split(address); network == "udp" {
		return fmt.Errorf("listen on %s: datagrams are no connections: use tcp:// or unix://", address)
	}
	return CheckAddress(address)
}

// Listen listens for connections on HOST:PORT, tcp://HOST:PORT or unix:///PATH. A socket file that a killed process left is
// removed first; one that somebody listens on is an error.
func Listen(ctx context.Context, address string, s Settings) (net.Listener, error) {
	if err := CheckStream(address); err != nil {
		return nil, err
	}
	network, rest := Split(address)
	if network == "unix" {
		return listenUnix(ctx, rest)
	}
	lc := net.ListenConfig{Control: s.control, KeepAliveConfig: s.keepAlive()}
	if s.KeepAlive < 0 {
		lc.KeepAlive = -1 // or package net would have its default
	}
	l, err := lc.Listen(ctx, "tcp", rest)
	if err != nil {
		return nil, listenError(address, err)
	}
	if err := s.afterListen(l); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

func listenUnix(ctx context.Context, path string) (net.Listener, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "unix", path)
	if errors.Is(err, unix.EADDRINUSE) && abandoned(path) {
		if err = os.Remove(path); err == nil {
			l, err = lc.Listen(ctx, "unix", path)
		}
	}
	if err != nil {
		return nil, listenError(schemeUnix+path, err)
	}
	if err := os.Chmod(path, unixMode); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// abandoned says whether a path is a socket that nobody listens on.
func abandoned(path string) bool {
	if info, err := os.Lstat(path); err != nil || info.Mode().Type() != fs.ModeSocket {
		return false
	}
	c, err := net.DialTimeout("unix", path, time.Second)
	if err == nil {
		_ = c.Close() // it was only to see whether somebody is there
		return false
	}
	return errors.Is(err, unix.ECONNREFUSED)
}

// listenError says what can be done about the usual mistakes.
func listenError(address string, err error) error {
	network, rest := Split(address)
	remedy := ""
	switch {
	case errors.Is(err, unix.EADDRINUSE) && network == "unix":
		remedy = ": somebody listens there, or it is no socket: stop that, or take another path"
	case errors.Is(err, unix.EADDRINUSE):
		_, port, _ := net.SplitHostPort(rest)
		kind := map[string]string{"tcp": "t", "udp": "u"}[network]
		remedy = fmt.Sprintf(`: see who has it by "ss -l%snp sport = :%s" and stop that, or take another port (0 takes a free one)`, kind, port)
	case errors.Is(err, unix.EADDRNOTAVAIL):
		remedy = `: no network interface of this host has that address ("ip addr" lists them; 0.0.0.0 or [::] means all)`
	case errors.Is(err, fs.ErrNotExist) && network == "unix":
		remedy = fmt.Sprintf(`: make its folder (mkdir -p "%s"), or take another path`, filepath.Dir(rest))
	case errors.Is(err, unix.EACCES) && network == "unix":
		remedy = ": take a folder that this user may write to"
	case errors.Is(err, unix.EACCES):
		remedy = ": ports below net.ipv4.ip_unprivileged_port_start need root or CAP_NET_BIND_SERVICE: take a higher one"
	}
	return fmt.Errorf("listen on %s: %w%s", address, err, remedy)
}

// AcceptRemedy says what an operator can do about an error of accept.
func AcceptRemedy(err error) string {
	switch {
	case errors.Is(err, unix.EMFILE):
		return "raise the process's limit of open files (ulimit -n, LimitNOFILE=), or lower --max-conns below it"
	case errors.Is(err, unix.ENFILE):
		return "raise the host's limit of open files (sysctl fs.file-max)"
	case errors.Is(err, unix.ENOBUFS), errors.Is(err, unix.ENOMEM):
		return "the kernel is out of socket memory (sysctl net.ipv4.tcp_mem)"
	}
	return "none is needed if it passes"
}

// Pause waits for d, but not beyond stop.
func Pause(stop <-chan struct{}, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-stop:
	}
}
