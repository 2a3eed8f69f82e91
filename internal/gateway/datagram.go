package gateway

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/net/ipv4"
	"golang.org/x/sys/unix"

	"github.com/hugebus/hugebus/internal/gateway/door"
	"github.com/hugebus/hugebus/internal/sys"
)

const (
	// maxDatagram is the largest payload of UDP over IPv4 (65,535 less the headers); IPv6 has hardly more.
	maxDatagram = 65527

	// minDatagrams and maxDatagrams bound how many datagrams one call receives; see Config.BufferSize.
	minDatagrams, maxDatagrams = 16, 512

	// leastQueued is less than what the kernel counts for the smallest datagram in a socket's queue, in bytes of its
	// receive buffer.
	leastQueued = 512
)

// datagrams is the entrance for datagrams: a socket, and the lane that what it receives goes to. A datagram is a frame.
// What waits stays in the socket's own queue; when that is full, because the topic is, the kernel drops what comes, and
// counts it. One goroutine runs it; drops may be looked at by others.
type datagrams struct {
	in       *Ingress
	conn     *net.UDPConn
	raw      syscall.RawConn
	batch    *ipv4.PacketConn // for sockets of IPv6 too: it receives the same way
	lane     Lane
	messages []ipv4.Message
	frames   [][]byte // empty, with room for all messages
	count    traffic
	dropped  drops
}

func newDatagrams(ctx context.Context, in *Ingress, lane Lane, address string, s door.Settings) (*datagrams, error) {
	conn, err := door.ListenPacket(ctx, address, s)
	if err != nil {
		return nil, err
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	if got, err := door.RecvBufferOf(conn); err == nil && got < s.RecvBuffer {
		in.cfg.Logger.Warn("the receive buffer is smaller than --recv-buffer says", "asked", s.RecvBuffer, "got", got,
			"remedy", "raise the host's limit (sysctl net.core.rmem_max)")
	}
	d := &datagrams{in: in, conn: conn, raw: raw, batch: ipv4.NewPacketConn(conn), lane: lane}
	size := max(min(in.maxFrame, maxDatagram), 1)
	n := min(max(in.cfg.BufferSize/size, minDatagrams), maxDatagrams, in.cfg.BatchFrames)
	d.frames = make([][]byte, 0, n)
	payloads, control := make([]byte, n*size), make([]byte, n*sys.DropsSpace())
	for i := range n {
		d.messages = append(d.messages, ipv4.Message{
			Buffers: [][]byte{payloads[i*size : (i+1)*size]}, OOB: control[i*sys.DropsSpace() : (i+1)*sys.DropsSpace()],
		})
	}
	return d, nil
}

func (d *datagrams) addr() net.Addr { return d.conn.LocalAddr() }

func (d *datagrams) close() error { return d.conn.Close() }

// wake makes a call that waits for datagrams return.
func (d *datagrams) wake() { d.setDeadline(time.Unix(1, 0)) }

func (d *datagrams) setDeadline(t time.Time) {
	if err := d.conn.SetReadDeadline(t); err != nil {
		d.in.debug("setting a deadline failed", slog.Any("error", err))
	}
}

// run receives and publishes until the ingress stops, then publishes what the socket's queue holds.
func (d *datagrams) run() {
	retry := d.in.retry(receiveFailed)
	for !d.in.stopping.Load() {
		err := d.receive(0)
		switch {
		case err == nil:
			retry.Passed()
		case d.in.stopping.Load(), errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, unix.EINTR):
		default:
			retry.Failed(receiveFailed.String(), "receiving datagrams failed, trying again", err)
		}
	}
	<-d.in.stopSignal // or wake would wake what follows
	d.setDeadline(time.Time{})
	d.drain()
	d.ask()
	d.tell()
	if err := d.conn.Close(); err != nil {
		d.in.debug("closing the socket failed", slog.Any("error", err))
	}
}

// drain takes what is in the queue: not more than that can hold, or senders that go on would keep the ingress from stopping.
func (d *datagrams) drain() {
	size, err := door.RecvBufferOf(d.conn)
	if err != nil {
		d.in.debug("asking for the receive buffer failed", slog.Any("error", err))
	}
	before := d.count.datagrams.Load()
	most := uint64(2*size/leastQueued + len(d.messages))
	for d.count.datagrams.Load()-before < most && d.receive(unix.MSG_DONTWAIT) == nil {
	}
}

// receive receives once, waiting for a datagram unless flags say otherwise, and publishes what came. After Abort it throws
// away, and counts, what it receives.
func (d *datagrams) receive(flags int) error {
	n, err := d.batch.ReadBatch(d.messages, flags|unix.MSG_TRUNC)
	d.count.reads.Add(1)
	if err != nil {
		return err
	}
	d.count.datagrams.Add(uint64(n))
	if n > 0 {
		if dropped, ok := sys.ParseDrops(d.messages[n-1].OOB[:d.messages[n-1].NN]); ok && d.dropped.saw(dropped) {
			d.tell()
		}
	}
	frames, received := d.frames, 0
	for i := range d.messages[:n] {
		m := &d.messages[i]
		received += m.N
		if m.N > len(m.Buffers[0]) || m.Flags&unix.MSG_TRUNC != 0 {
			d.refuse(m)
			continue
		}
		frames = append(frames, m.Buffers[0][:m.N])
	}
	d.count.received.Add(uint64(received))
	if d.in.hard.Err() != nil {
		d.in.givenUp.Add(uint64(len(frames)))
		return nil
	}
	if _, err := d.in.publish(d.lane, &d.count, frames); err != nil && d.in.hard.Err() == nil {
		d.in.failPublishing(err)
	}
	return nil
}

// refuse counts a datagram that is no frame.
func (d *datagrams) refuse(m *ipv4.Message) {
	d.in.ends[frameTooLarge].Add(1)
	d.in.warnings.Warn(frameTooLarge.String(), "datagram thrown away", slog.String("peer", m.Addr.String()), slog.Int("bytes", m.N),
		slog.Int("limit", len(m.Buffers[0])), slog.String("remedy", "send smaller ones, or raise --max-frame and the topic's limit"))
}

// ask asks the kernel how many datagrams it has dropped. Those behind which none came are not told of otherwise.
func (d *datagrams) ask() {
	_ = d.raw.Control(func(fd uintptr) { // an error: the socket is closed, and what it told before is what there is
		if n, err := sys.Drops(int(fd)); err == nil {
			d.dropped.saw(n)
		}
	})
}

// tell logs drops that were not logged yet.
func (d *datagrams) tell() {
	if n, all := d.dropped.untold(); n > 0 {
		d.in.warnings.Warn("datagrams_dropped", "the kernel dropped datagrams, as the socket's receive buffer was full", slog.Uint64("datagrams", n),
			slog.Uint64("in_all", all), slog.String("remedy", "make the topic's subscribers faster or its capacity larger, or raise --recv-buffer for bursts"))
	}
}

// drops follows a count of the kernel's, of 32 bits that wrap, which comes late by one way and in time by another.
type drops struct {
	all  atomic.Uint64
	told uint64 // of all; run's own
}

// saw takes a value of the kernel's count, and says whether it was news.
func (d *drops) saw(count uint32) bool {
	for {
		all := d.all.Load()
		more := int32(count - uint32(all))
		if more <= 0 {
			return false
		}
		if d.all.CompareAndSwap(all, all+uint64(more)) {
			return true
		}
	}
}

// untold returns how many drops there were since it was last called, and how many in all.
func (d *drops) untold() (n, all uint64) {
	all = d.all.Load()
	n, d.told = all-d.told, all
	return n, all
}
