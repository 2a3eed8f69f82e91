package crowd

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/hugebus/hugebus/bench/internal/report"
	"github.com/hugebus/hugebus/bench/internal/worker"
	"github.com/hugebus/hugebus/bench/internal/workload"
)

const roleSend = "crowd/send"

// Sent is what a sender did.
type Sent struct {
	report.Rate
	Writes int64         `json:"writes"`
	Late   time.Duration `json:"late"` // how long after its time the last frame was written
	Cut    bool          `json:"cut"`  // it fell so far behind that it did not send all
}

const (
	header = 4        // bytes of len32 before a payload
	maxOut = 64 << 10 // bytes of one write
	napFor = 50 * time.Microsecond
)

// A sender is one process with many connections. All of them send at one rate, each a little after the one before, so that
// frame n of all is frame n/len(conns) of connection n%len(conns), and is due at start + n*step.
type sender struct {
	Shape
	now   func() time.Duration
	conns []net.Conn
	sent  []uint64
	out   []byte // for frames of one write
	start time.Duration
	step  float64 // ns
	writes,
	frames int64
	late time.Duration
}

// send is the process of an open loop.
func send(t *worker.Task) (_ any, err error) {
	s := &sender{}
	if err := t.Decode(&s.Shape); err != nil {
		return nil, err
	}
	if s.now, err = workload.HostClock(); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	if err := s.connect(); err != nil {
		return nil, err
	}
	if err := t.Await(); err != nil {
		return nil, err
	}
	s.start = s.now() + 10*time.Millisecond
	s.step = float64(time.Second) / (s.Rate * float64(s.Connections))
	each := uint64(s.Rate * s.Duration.Seconds())
	cut, err := s.run(each)
	if err != nil {
		return nil, err
	}
	took := s.now() - s.start
	if err := s.end(); err != nil {
		return nil, err
	}
	return Sent{Rate: report.Rate{Frames: s.frames, Nanoseconds: int64(took)}, Writes: s.writes, Late: s.late, Cut: cut}, nil
}

func (s *sender) connect() error {
	if err := CheckFiles(s.Connections); err != nil {
		return err
	}
	address, err := lookUp(s.Dir)
	if err != nil {
		return err
	}
	for i := range s.Connections {
		c, err := net.DialTimeout("tcp", address, patience)
		if err != nil {
			return fmt.Errorf("connection %d of %d: %w", i+1, s.Connections, err)
		}
		s.conns = append(s.conns, c)
	}
	s.sent = make([]uint64, len(s.conns))
	s.out = make([]byte, max(maxOut/(header+s.Size), 1)*(header+s.Size))
	for at := 0; at < len(s.out); at += header + s.Size {
		binary.BigEndian.PutUint32(s.out[at:], uint32(s.Size))
		fill(s.out[at+header : at+header+s.Size])
	}
	return nil
}

// run sends each connection's frames when they are due, all that are due for a connection with one write. A connection that the
// gateway holds back holds the others back as well: what is late is late by its stamp. It returns true if it gave up
// because it was more than two durations behind.
func (s *sender) run(each uint64) (cut bool, err error) {
	n := len(s.conns)
	for left := n; left > 0; {
		now := s.now()
		if now-s.start > 3*s.Duration {
			return true, nil
		}
		due := uint64(max(float64(now-s.start)/s.step+1, 0)) // frames of all connections
		if now < s.start {
			due = 0
		}
		wrote := false
		for i := range n {
			mine := min((due+uint64(n-1-i))/uint64(n), each)
			if s.sent[i] >= mine {
				continue
			}
			wrote = true
			if err := s.write(i, mine); err != nil {
				return false, err
			}
			if s.sent[i] == each {
				left--
			}
		}
		if !wrote {
			time.Sleep(napFor)
		}
	}
	return false, nil
}

// write sends frames of one connection up to a number.
func (s *sender) write(i int, until uint64) error {
	for s.sent[i] < until {
		at := 0
		due := time.Duration(0)
		for ; s.sent[i] < until && at < len(s.out); s.sent[i]++ {
			seq := s.sent[i]
			due = s.start + time.Duration(float64(seq*uint64(len(s.conns))+uint64(i))*s.step)
			seal(s.out[at+header:at+header+s.Size], frame{due: due, seq: seq, conn: uint32(i)})
			at += header + s.Size
			s.frames++
		}
		if _, err := s.conns[i].Write(s.out[:at]); err != nil {
			return fmt.Errorf("connection %d: %w", i, err)
		}
		s.late = s.now() - due
		s.writes++
	}
	return nil
}

// end sends the last frame of each connection.
func (s *sender) end() error {
	for i, c := range s.conns {
		b := s.out[:header+s.Size]
		seal(b[header:], frame{seq: s.sent[i], conn: uint32(i), end: true})
		if _, err := c.Write(b); err != nil {
			return fmt.Errorf("connection %d: %w", i, err)
		}
	}
	return nil
}

func (s *sender) close() error {
	var all []error
	for _, c := range s.conns {
		all = append(all, c.Close())
	}
	return errors.Join(all...)
}
