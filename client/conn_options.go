package client

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/hugebus/hugebus/internal/control"
)

// DefaultSocket is where Dial looks for the broker when nobody says otherwise:
// /run/hugebus/control.sock for root; $XDG_RUNTIME_DIR/hugebus/control.sock for others, or
// else a directory of the user's own below the temporary one.
func DefaultSocket() string { return control.DefaultSocket() }

// Options say how to reach the broker. The zero value is good.
type Options struct {
	// Socket is the path of the broker's control socket; empty: $HUGEBUS_SOCKET, or else
	// DefaultSocket.
	Socket string
	// Name is what the broker's lists, figures and logs call this client; empty: the
	// program's name. At most 128 bytes, printable.
	Name string
	// Logger hears of what no call returns, such as the broker's end; nil: slog.Default.
	Logger *slog.Logger
	// WaitForBroker is how long calls that need a broker wait for one that is away, if their
	// context has no deadline: 0 not at all (ErrBrokerUnavailable), negative for as long as the
	// context says. A context with a deadline bounds the wait in every case. Dial waits only for a
	// broker whose socket is there: systemd, or a keeper, holds it.
	WaitForBroker time.Duration
}

func (o Options) withDefaults() Options {
	if o.Socket == "" {
		o.Socket = os.Getenv("HUGEBUS_SOCKET")
	}
	if o.Socket == "" {
		o.Socket = control.DefaultSocket()
	}
	if o.Name == "" {
		o.Name = filepath.Base(os.Args[0])
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return o
}

// TopicOptions say how to make a topic; what is left at zero takes the broker's default.
type TopicOptions = control.TopicOptions

// TopicInfo describes a topic. Topics leaves its Publishers, Subscribers and Groups out.
type TopicInfo = control.TopicInfo

// AttachmentInfo describes one publisher, subscriber or group member of a topic.
type AttachmentInfo = control.AttachmentInfo

// GroupInfo describes one group of a topic.
type GroupInfo = control.GroupInfo

// ErrBrokerUnavailable means that no broker answers. What is attached already goes on
// working; new topics and attachments need one.
var ErrBrokerUnavailable = errors.New("client: broker unavailable (start one with `hugebus broker`)")

// Errors that the broker answers with. The error that is returned says more: who, what,
// which limit, and what to do; errors.Is compares it with these.
var (
	// ErrTopicExists means that a topic of that name is there already.
	ErrTopicExists error = &control.Error{Code: control.CodeExists}
	// ErrNotFound means that there is no such topic, or group.
	ErrNotFound error = &control.Error{Code: control.CodeNotFound}
	// ErrRefused means that no access rule of the broker grants it.
	ErrRefused error = &control.Error{Code: control.CodeRefused}
	// ErrQuota means that a quota is used up.
	ErrQuota error = &control.Error{Code: control.CodeQuota}
	// ErrNoSlot means that every slot of that kind is taken.
	ErrNoSlot error = &control.Error{Code: control.CodeNoSlot}
	// ErrInvalid means that a name or an option cannot be.
	ErrInvalid error = &control.Error{Code: control.CodeInvalid}
	// ErrNoMemory means that the memory for a topic could not be had.
	ErrNoMemory error = &control.Error{Code: control.CodeMemory}
	// ErrVersion means that client and broker are of releases that do not fit.
	ErrVersion error = &control.Error{Code: control.CodeVersion}
	// ErrBusy means that it is not possible just now; the same may succeed later.
	ErrBusy error = &control.Error{Code: control.CodeBusy}
)
