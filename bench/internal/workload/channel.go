package workload

import (
	"sync"

	"github.com/hugebus/hugebus/bench/internal/link"
	"github.com/hugebus/hugebus/bench/internal/report"
	"github.com/hugebus/hugebus/bench/internal/worker"
)

// Roles of a Go channel between two goroutines of one process, which do both sides.
const (
	RoleChannelPing   = "channel/ping"
	RoleChannelStream = "channel/stream"
)

// channelRoom is how many payloads a channel holds.
const channelRoom = 1024

// channelLink is one end of two channels of payloads. Send copies, as a publish does, into a
// buffer that is free again when the channel has come around.
type channelLink struct {
	out  chan<- []byte
	in   <-chan []byte
	room [][]byte
	next int
}

// channelPair makes both ends.
func channelPair(size int) (front, back link.Link) {
	there, home := make(chan []byte, channelRoom), make(chan []byte, channelRoom)
	return newChannelLink(there, home, size), newChannelLink(home, there, size)
}

func newChannelLink(out chan<- []byte, in <-chan []byte, size int) *channelLink {
	// Those in the channel, the one being written, and the one being read.
	room := make([][]byte, channelRoom+2)
	backing := make([]byte, size*len(room))
	for i := range room {
		room[i] = backing[i*size : (i+1)*size]
	}
	return &channelLink{out: out, in: in, room: room}
}

func (c *channelLink) Send(payload []byte) error {
	b := c.room[c.next]
	c.next++
	if c.next == len(c.room) {
		c.next = 0
	}
	copy(b, payload)
	c.out <- b
	return nil
}

func (c *channelLink) Flush() error { return nil }

func (c *channelLink) Receive(handle func([]byte) error) error { return handle(<-c.in) }

func (c *channelLink) Close() error { return nil }

// inProcess runs both sides of a workload over channels. result picks the side whose result counts.
func inProcess(front, back func(link.Link, PeerParams) (any, error), result func(front, back any) any) worker.Role {
	return worker.Application(func(t *worker.Task) (any, error) {
		var p PeerParams
		if err := t.Decode(&p); err != nil {
			return nil, err
		}
		if err := t.Await(); err != nil {
			return nil, err
		}
		a, b := channelPair(p.Size)
		var ofFront, ofBack any
		failed := make(chan error, 2)
		var both sync.WaitGroup
		both.Go(func() {
			got, err := front(a, p)
			ofFront = got
			failed <- err
		})
		both.Go(func() {
			got, err := back(b, p)
			ofBack = got
			failed <- err
		})
		// The first error ends it, and with it the process: the other side waits for ever.
		for range 2 {
			if err := <-failed; err != nil {
				return nil, err
			}
		}
		both.Wait()
		return result(ofFront, ofBack), nil
	})
}

func channelRoles() map[string]worker.Role {
	return map[string]worker.Role{
		RoleChannelPing:   inProcess(peerPing, peerEcho, func(times, _ any) any { return times }),
		RoleChannelStream: inProcess(peerPublish, peerConsume, func(_, rate any) any { return rate.(report.Rate) }),
	}
}
