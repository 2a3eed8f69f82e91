package control

import (
	"encoding/json"
	"fmt"
	"runtime/debug"
	"strings"
)

const (
	// ProtocolVersion counts incompatible changes of the messages of this package.
	ProtocolVersion = 1

	// MaxMessage is the size in bytes that no message of the broker exceeds. What may be
	// longer is paged.
	MaxMessage = 64 << 10

	// MaxRequest is the same for clients. It is small because the broker keeps a buffer
	// of that size for every client.
	MaxRequest = 8 << 10

	// MaxDescriptors is the most descriptors that come with one message: three
	// segments and two doorbells.
	MaxDescriptors = 5
)

// An Op names what a request asks for.
type Op string

// The operations. Each has a request body and a reply body of its own.
const (
	OpHello      Op = "hello"
	OpPing       Op = "ping"
	OpCreate     Op = "create"
	OpList       Op = "list"
	OpShow       Op = "show"
	OpRemove     Op = "remove"
	OpAttach     Op = "attach"
	OpDetach     Op = "detach"
	OpDeadLetter Op = "deadletter"
	OpReattach   Op = "reattach"
	OpStop       Op = "stop"
	OpUnstick    Op = "unstick"
	OpNote       Op = "note"
)

// An EventKind names what the broker tells a client without having been asked.
type EventKind string

// The events.
const (
	// EventTopicRemoved says that a topic which the client is attached to was removed.
	// Its memory stays valid for who has it mapped.
	EventTopicRemoved EventKind = "topic_removed"
	// EventShutdown says that the broker stops. What is attached goes on without it.
	EventShutdown EventKind = "shutdown"
	// EventExpelled says that a subscriber or member does not hold publishers back any more.
	EventExpelled EventKind = "expelled"
	// EventRevoke asks to give up a claim that an operator takes away.
	EventRevoke EventKind = "revoke"
)

// A Request is what a client sends.
type Request struct {
	// ID is chosen by the client; the reply carries the same.
	ID   uint64          `json:"id"`
	Op   Op              `json:"op"`
	Body json.RawMessage `json:"body,omitempty"`
}

// A Message is what the broker sends: a reply (Event is empty) or an event (ID is 0).
type Message struct {
	ID    uint64          `json:"id,omitempty"`
	Event EventKind       `json:"event,omitempty"`
	Body  json.RawMessage `json:"body,omitempty"`
	Error *Error          `json:"error,omitempty"`
}

// A Code tells kinds of errors apart, for programs; the message is for people.
type Code string

// The error codes.
const (
	// CodeVersion: protocol or layout versions of the two sides differ.
	CodeVersion Code = "version"
	// CodeMalformed: not JSON, a wrong type, an unknown key, or a message out of turn.
	CodeMalformed Code = "malformed"
	// CodeTooLarge: a message above MaxRequest or MaxMessage.
	CodeTooLarge Code = "too_large"
	// CodeDescriptors: descriptors where none belong, or cut off on the way.
	CodeDescriptors Code = "descriptors"
	// CodeUnknownOp: an operation that the broker does not know.
	CodeUnknownOp Code = "unknown_op"
	// CodeInvalid: a value that cannot be, such as a capacity that is no power of two.
	CodeInvalid Code = "invalid"
	// CodeNotFound: no such topic, group or attachment.
	CodeNotFound Code = "not_found"
	// CodeExists: a topic of that name is there already.
	CodeExists Code = "exists"
	// CodeRefused: no access rule grants it.
	CodeRefused Code = "refused"
	// CodeQuota: a quota is used up.
	CodeQuota Code = "quota"
	// CodeNoSlot: every slot, group or member of that kind is taken.
	CodeNoSlot Code = "no_slot"
	// CodeMemory: the memory for a topic could not be had.
	CodeMemory Code = "memory"
	// CodeBusy: not possible at this moment; the same request may succeed later.
	CodeBusy Code = "busy"
	// CodeShutdown: the broker stops.
	CodeShutdown Code = "shutdown"
	// CodeInternal: the broker failed; its log says more.
	CodeInternal Code = "internal"
)

// An Error is a failure that the other side reported, or that is to be reported to it.
type Error struct {
	Code    Code   `json:"code"`
	Message string `json:"message"`
}

// Errorf is a new Error. A message that would not fit a packet is cut.
func Errorf(code Code, format string, args ...any) *Error {
	const longest = 4 << 10
	m := fmt.Sprintf(format, args...)
	if len(m) > longest {
		m = strings.ToValidUTF8(m[:longest], "") + "…"
	}
	return &Error{Code: code, Message: m}
}

// Error is the message, made for people.
func (e *Error) Error() string { return e.Message }

// Is reports whether target is an *Error of the same code without a message, which
// is how sentinel errors such as client.ErrTopicExists are made.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Message == "" && t.Code == e.Code
}

// Software names this build, for hello messages and logs.
func Software() string {
	version := "(devel)"
	if info, ok := debug.ReadBuildInfo(); ok {
		if info.Main.Version != "" {
			version = info.Main.Version
		}
		for _, m := range info.Deps {
			if m.Path == "github.com/hugebus/hugebus" {
				version = m.Version
			}
		}
	}
	return "hugebus " + version
}
