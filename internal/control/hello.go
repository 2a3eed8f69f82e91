package control

import (
	"fmt"
	"os"
)

// A Hello is the first message in both directions. It is read leniently, so that
// releases of any age can still tell each other why they do not fit.
type Hello struct {
	// Protocol is the version of the messages, Layout that of the shared memory.
	Protocol int `json:"protocol"`
	Layout   int `json:"layout"`
	// Software names the release, for error messages.
	Software string `json:"software"`
	// Name is what the client calls itself; the broker leaves it out.
	Name string `json:"name,omitempty"`
	// PID and Epoch are the broker's; clients leave them out.
	PID   int    `json:"pid,omitempty"`
	Epoch uint64 `json:"epoch,omitempty"`
	// Secret is the broker's too: what this client shows to another connection, or another
	// broker, to get its attachments back. It is a new one for each connection.
	Secret string `json:"secret,omitempty"`
}

// NewHello is the hello of this build for a memory layout.
func NewHello(layout int) Hello {
	return Hello{Protocol: ProtocolVersion, Layout: layout, Software: Software()}
}

// CheckVersions is nil if client and broker can talk to each other, or else an error
// of code version that reads the same on both sides.
func CheckVersions(client, broker Hello) *Error {
	if client.Protocol == broker.Protocol && client.Layout == broker.Layout {
		return nil
	}
	return Errorf(CodeVersion, "versions differ: the client (%.64s) speaks protocol %d and layout %d, the broker (%.64s) protocol %d and layout %d: %s",
		client.Software, client.Protocol, client.Layout, broker.Software, broker.Protocol, broker.Layout, versionRemedy(client, broker))
}

func versionRemedy(client, broker Hello) string {
	p, l := client.Protocol-broker.Protocol, client.Layout-broker.Layout
	switch {
	case p <= 0 && l <= 0:
		return "upgrade the client to the broker's release"
	case p >= 0 && l >= 0:
		return "upgrade the broker to the client's release, then restart it"
	}
	return "install the same release of hugebus for both"
}

// SayHello opens a connection from the client's side, and returns the broker's hello.
func (c *Conn) SayHello(mine Hello) (Hello, error) {
	body, err := marshal(mine)
	if err != nil {
		return Hello{}, err
	}
	if err := c.Send(Request{ID: 1, Op: OpHello, Body: body}); err != nil {
		return Hello{}, fmt.Errorf("send hello: %w", err)
	}
	p, err := c.Receive()
	if err != nil {
		return Hello{}, fmt.Errorf("wait for the broker's hello: %w", err)
	}
	closeAll(p.Files)
	m, err := DecodeMessage(p.Data)
	if err != nil {
		return Hello{}, err
	}
	var theirs Hello
	if len(m.Body) != 0 {
		if err := m.Decode(&theirs); err != nil {
			return Hello{}, err
		}
		if bad := CheckVersions(mine, theirs); bad != nil {
			return theirs, bad
		}
	}
	if m.Error != nil {
		return theirs, m.Error
	}
	return theirs, nil
}

// AwaitHello reads a client's hello on the broker's side. The error is an *Error when the
// client deserves an answer; the answer is RefuseHello then, and AcceptHello otherwise.
func (c *Conn) AwaitHello(mine Hello) (theirs Hello, id uint64, err error) {
	p, err := c.Receive()
	if err != nil {
		return Hello{}, 0, err
	}
	if len(p.Files) != 0 {
		closeAll(p.Files)
		return Hello{}, 0, Errorf(CodeDescriptors, "hello came with %d descriptors: none belong there", len(p.Files))
	}
	return decodeHello(p.Data, mine)
}

func decodeHello(packet []byte, mine Hello) (theirs Hello, id uint64, err error) {
	// Not DecodeRequest: another version's hello may say things that this one does not know.
	var r Request
	if err := jsonLoose(packet, &r); err != nil {
		return Hello{}, 0, Errorf(CodeMalformed, "malformed hello: %v", err)
	}
	if r.Op != OpHello {
		return Hello{}, r.ID, Errorf(CodeMalformed, "the first message must be hello, not %.32q", string(r.Op))
	}
	if err := jsonLoose(r.Body, &theirs); err != nil {
		return Hello{}, r.ID, Errorf(CodeMalformed, "malformed hello: %v", err)
	}
	if bad := CheckVersions(theirs, mine); bad != nil {
		return theirs, r.ID, bad
	}
	if err := CheckLabel(theirs.Name); err != nil {
		return theirs, r.ID, Errorf(CodeInvalid, "%v", err)
	}
	return theirs, r.ID, nil
}

// AcceptHello answers a client's hello.
func (c *Conn) AcceptHello(id uint64, mine Hello) error {
	return c.answerHello(id, mine, nil)
}

// RefuseHello answers a client's hello with an error. It carries the broker's versions
// too: a client that does not know the error code can still compare them.
func (c *Conn) RefuseHello(id uint64, mine Hello, why *Error) error {
	return c.answerHello(id, mine, why)
}

func (c *Conn) answerHello(id uint64, mine Hello, why *Error) error {
	mine.PID = os.Getpid()
	body, err := marshal(mine)
	if err != nil {
		return err
	}
	return c.Send(Message{ID: id, Body: body, Error: why})
}
