package keeper

import (
	"encoding/json"
	"fmt"

	"github.com/hugebus/hugebus/internal/control"
)

// protocolVersion counts incompatible changes of the messages below. A keeper outlives upgrades of the broker, so it
// should never have to change.
const protocolVersion = 1

// inlineData is the most bytes of data that go into a packet itself. In base64 they and the longest key stay below
// control.MaxMessage. More goes in a sealed memfd.
const inlineData = 32 << 10

// packetFiles is the most descriptors of one packet. An entry with more is put together from several, see opStage.
const packetFiles = control.MaxDescriptors

// The operations of a keeper. Each request gets one reply, in order.
const (
	// opHello opens a connection, and asks for the lease.
	opHello control.Op = "hello"
	// opStage hands over the first descriptors of an entry that has more than one packet carries. They are dropped
	// unless a put of the same set follows.
	opStage control.Op = "stage"
	// opPut makes or replaces an entry: this is the moment.
	opPut control.Op = "put"
	// opUpdate replaces an entry's data.
	opUpdate control.Op = "update"
	// opDelete takes an entry away.
	opDelete control.Op = "delete"
	// opLoad asks for the entry after a key.
	opLoad control.Op = "load"
	// opFiles asks for further descriptors of the entry that load named.
	opFiles control.Op = "files"
	// opShutdown ends the keeper with all that it has.
	opShutdown control.Op = "shutdown"
)

type helloRequest struct {
	Protocol int    `json:"protocol"`
	Software string `json:"software"`
	// Lease asks for the lease; without it only shutdown may follow.
	Lease bool `json:"lease,omitempty"`
}

type helloReply struct {
	Protocol int    `json:"protocol"`
	Software string `json:"software"`
	PID      int    `json:"pid"`
	// Holder is the process that holds the lease, where that is why the request is refused.
	Holder int `json:"holder,omitempty"`
}

type stageRequest struct {
	// Set is chosen by the client, and another for every entry.
	Set uint64 `json:"set"`
}

type putRequest struct {
	Key string `json:"key"`
	content
	// Set names what was staged before, or is 0.
	Set uint64 `json:"set,omitempty"`
	// Files is how many descriptors the entry has, those staged before included.
	Files int `json:"files"`
}

type updateRequest struct {
	Key string `json:"key"`
	content
}

// content is data in the message, or in a memfd that is the last of the message's descriptors.
type content struct {
	Data []byte `json:"data,omitempty"`
	Blob bool   `json:"blob,omitempty"`
}

type deleteRequest struct {
	Key string `json:"key"`
}

type loadRequest struct {
	After string `json:"after"`
}

// loadReply is an entry, or End. The first descriptors come with it, the memfd with data before all others.
type loadReply struct {
	End bool   `json:"end,omitempty"`
	Key string `json:"key,omitempty"`
	content
	Files int `json:"files,omitempty"`
}

type filesRequest struct {
	Key string `json:"key"`
	// From is how many descriptors have been received, the memfd with data included.
	From int `json:"from"`
}

// parse takes a packet that came with some descriptors apart. Whatever is wrong with it is an error for the
// sender; the id is the request's where one could be read.
func parse(packet []byte, files int) (id uint64, body any, bad *control.Error) {
	r, err := control.DecodeRequest(packet)
	if err != nil {
		return r.ID, nil, asError(err)
	}
	body, most := newBody(r.Op)
	if body == nil {
		return r.ID, nil, control.Errorf(control.CodeUnknownOp, "the keeper does not know the operation %.32q", string(r.Op))
	}
	if r.Op == opHello {
		// Leniently: another release may say more, and is to be told which versions there are.
		if err := json.Unmarshal(r.Body, body); err != nil {
			return r.ID, nil, control.Errorf(control.CodeMalformed, "malformed hello: %v", err)
		}
	} else if err := control.DecodeBody(r, body); err != nil {
		return r.ID, nil, asError(err)
	}
	if files > most {
		return r.ID, nil, control.Errorf(control.CodeDescriptors, "%s came with %d descriptors, above the limit of %d", r.Op, files, most)
	}
	if err := checkBody(body, files); err != nil {
		return r.ID, nil, control.Errorf(control.CodeInvalid, "%s: %v", r.Op, err)
	}
	return r.ID, body, nil
}

// newBody is an empty body for an operation, and the most descriptors that come with it.
func newBody(op control.Op) (body any, files int) {
	switch op {
	case opHello:
		return new(helloRequest), 0
	case opStage:
		return new(stageRequest), packetFiles
	case opPut:
		return new(putRequest), packetFiles
	case opUpdate:
		return new(updateRequest), 1
	case opDelete:
		return new(deleteRequest), 0
	case opLoad:
		return new(loadRequest), 0
	case opFiles:
		return new(filesRequest), 0
	case opShutdown:
		return new(control.Empty), 0
	}
	return nil, 0
}

func checkBody(body any, files int) error {
	switch b := body.(type) {
	case *stageRequest:
		if b.Set == 0 {
			return fmt.Errorf("set is missing or 0")
		}
	case *putRequest:
		if err := checkKey(b.Key); err != nil {
			return err
		}
		if b.Files < 0 || b.Files > MaxFiles {
			return fmt.Errorf("%d descriptors are not from 0 to %d", b.Files, MaxFiles)
		}
		return b.check(files)
	case *updateRequest:
		if err := checkKey(b.Key); err != nil {
			return err
		}
		if files != 0 && !b.Blob {
			return fmt.Errorf("%d descriptors where none belong", files)
		}
		return b.check(files)
	case *deleteRequest:
		return checkKey(b.Key)
	case *filesRequest:
		if b.From < 0 {
			return fmt.Errorf("from is %d, below 0", b.From)
		}
		return checkKey(b.Key)
	}
	return nil
}

// check tells whether content fits the descriptors that came with it.
func (c content) check(files int) error {
	switch {
	case c.Blob && files == 0:
		return fmt.Errorf("the memfd with data is missing")
	case c.Blob && len(c.Data) != 0:
		return fmt.Errorf("data is there twice: in the message and in a memfd")
	}
	return nil
}

// asError makes an error that goes to the other side of any.
func asError(err error) *control.Error {
	if e, ok := err.(*control.Error); ok {
		return e
	}
	return control.Errorf(control.CodeInternal, "%v", err)
}
