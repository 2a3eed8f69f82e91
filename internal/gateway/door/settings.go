package door

import (
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/hugebus/hugebus/internal/sys"
)

// Settings are of the listening socket and its connections. Zero is the kernel's own choice, but where it says otherwise.
type Settings struct {
	RecvBuffer  int           // bytes (SO_RCVBUF): fixes it, where the kernel would let it grow and shrink by itself
	SendBuffer  int           // bytes (SO_SNDBUF)
	Delay       bool          // let the kernel hold small writes back for one round trip (no TCP_NODELAY)
	QuickAck    bool          // acknowledge each segment at once (TCP_QUICKACK), until the kernel decides otherwise
	BusyPoll    time.Duration // how long a read polls the device before it sleeps (SO_BUSY_POLL)
	ReusePort   bool          // other processes may listen on the same port, and share its connections (SO_REUSEPORT)
	Backlog     int           // connections that wait to be accepted; 0: net.core.somaxconn
	KeepAlive   time.Duration // idle time after which the peer is probed; 0: 15 s, negative: never
	FastOpen    int           // queue of TCP_FASTOPEN: clients that come again send data with their first packet; 0: off
	IncomingCPU int           // 1 + the processor whose connections this listener gets (SO_INCOMING_CPU); 0: any
}

// Check tells what is wrong with the settings. The kernel takes their values as numbers of 32 bits.
func (s Settings) Check() error {
	for _, v := range []struct {
		what  string
		value int
	}{
		{"--recv-buffer", s.RecvBuffer}, {"--send-buffer", s.SendBuffer}, {"--backlog", s.Backlog}, {"--fast-open", s.FastOpen},
	} {
		switch {
		case v.value < 0:
			return fmt.Errorf("%s is %d: give a positive number, or 0 for the kernel's choice", v.what, v.value)
		case v.value > math.MaxInt32:
			return fmt.Errorf("%s is %d: give at most %d, or 0 for the kernel's choice", v.what, v.value, math.MaxInt32)
		}
	}
	const longest = time.Duration(math.MaxInt32) * time.Microsecond
	switch {
	case s.BusyPoll < 0:
		return fmt.Errorf("--busy-poll is %v: give a positive duration, or 0 for the kernel's choice", s.BusyPoll)
	case s.BusyPoll > longest:
		return fmt.Errorf("--busy-poll is %v: give at most %v, or 0 for the kernel's choice", s.BusyPoll, longest)
	case s.BusyPoll > 0 && s.BusyPoll < time.Microsecond:
		return fmt.Errorf("--busy-poll is %v: give at least 1µs, or 0 for the kernel's choice", s.BusyPoll)
	case s.IncomingCPU < 0:
		return fmt.Errorf("--incoming-cpu is %d: give the number of a processor, from 0 on", s.IncomingCPU-1)
	}
	if last := lastCPU(); s.IncomingCPU-1 > last {
		return fmt.Errorf("--incoming-cpu is %d: the processors of this host are 0 to %d", s.IncomingCPU-1, last)
	}
	return nil
}

// lastCPU is the highest number that a processor of this host can have: what the kernel says ("0-3"), or what it could say at most.
func lastCPU() int {
	text, err := os.ReadFile("/sys/devices/system/cpu/possible")
	if err == nil {
		list := strings.TrimSpace(string(text))
		if n, err := strconv.Atoi(list[strings.LastIndexAny(list, "-,")+1:]); err == nil {
			return n
		}
	}
	return 1<<13 - 1 // CONFIG_NR_CPUS is no larger
}

// option is one socket option that is to be set.
type option struct {
	flag  string // names it in an error
	name  sys.SocketOption
	value int
}

// forAll are the options that sockets of every kind take, before they are bound.
func (s Settings) forAll() []option {
	var set []option
	add := func(flag string, name sys.SocketOption, value int) {
		if value != 0 {
			set = append(set, option{flag, name, value})
		}
	}
	add("--recv-buffer", sys.RecvBuffer, s.RecvBuffer)
	add("--send-buffer", sys.SendBuffer, s.SendBuffer)
	add("--busy-poll", sys.BusyPoll, int(s.BusyPoll.Microseconds()))
	if s.ReusePort {
		add("--reuse-port", sys.ReusePort, 1)
	}
	if s.IncomingCPU > 0 {
		set = append(set, option{"--incoming-cpu", sys.IncomingCPU, s.IncomingCPU - 1})
	}
	return set
}

// control sets what connections inherit from their listener, before it listens.
func (s Settings) control(_, _ string, c syscall.RawConn) error {
	options := s.forAll()
	if s.QuickAck {
		options = append(options, option{"--quick-ack", sys.QuickAck, 1})
	}
	return apply(c, options)
}

func apply(c syscall.RawConn, options []option) error {
	var errs []error
	err := c.Control(func(fd uintptr) {
		for _, o := range options {
			if err := sys.SetSocketOption(int(fd), o.name, o.value); err != nil {
				errs = append(errs, fmt.Errorf("%s %d: %w", o.flag, o.value, err))
			}
		}
	})
	return errors.Join(append(errs, err)...)
}

// afterListen sets what only a listening socket takes.
func (s Settings) afterListen(l net.Listener) error {
	tcp, ok := l.(*net.TCPListener)
	if !ok {
		return nil
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return err
	}
	var options []option
	if s.FastOpen > 0 {
		options = append(options, option{"--fast-open", sys.FastOpen, s.FastOpen})
	}
	if err := apply(raw, options); err != nil || s.Backlog == 0 {
		return err
	}
	var listenErr error
	err = raw.Control(func(fd uintptr) { listenErr = sys.SetBacklog(int(fd), s.Backlog) })
	return errors.Join(err, listenErr)
}

// keepAlive is as package net takes it; the zero value there is 15 s of idling and probes 15 s apart.
func (s Settings) keepAlive() net.KeepAliveConfig {
	if s.KeepAlive == 0 {
		return net.KeepAliveConfig{Enable: true}
	}
	return net.KeepAliveConfig{Enable: s.KeepAlive > 0, Idle: s.KeepAlive, Interval: s.KeepAlive}
}

// Dress sets up an accepted connection: what it does not inherit.
func (s Settings) Dress(c net.Conn) error {
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		return nil
	}
	var errs []error
	if s.Delay { // package net sets TCP_NODELAY by itself
		errs = append(errs, tcp.SetNoDelay(false))
	}
	if s.QuickAck {
		raw, err := tcp.SyscallConn()
		if err == nil {
			err = apply(raw, []option{{"--quick-ack", sys.QuickAck, 1}})
		}
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil && !errors.Is(err, os.ErrClosed) {
		return fmt.Errorf("socket settings: %w", err)
	}
	return nil
}
