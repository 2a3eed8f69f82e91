package siege

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"time"

	"github.com/hugebus/hugebus/broker"
	"github.com/hugebus/hugebus/internal/chaos"
)

// Roles of the processes of a siege.
const (
	roleReader    = "reader"
	roleJoiner    = "joiner"
	rolePublisher = "publisher"
	roleIngress   = "ingress"
	roleEgress    = "egress"
	roleBroker    = "broker"
)

// groupLinger is how long a group outlives the death of its members: longer than they need to be there again, on a machine that
// is busy.
const groupLinger = 5 * time.Second

// stuckClaim is how long a publisher may hold a claim: shorter than many are stopped.
const stuckClaim = 150 * time.Millisecond

// A brokerSpec describes the broker's process.
type brokerSpec struct {
	Socket string
	Keeper []string // program and first arguments of a keeper process
}

// BrokerWorker are arguments that make Worker a broker on a socket, without a keeper.
func BrokerWorker(socket string) []string {
	return []string{roleBroker, fmt.Sprintf(`{"Socket":%q}`, socket)}
}

// Worker is the whole of a process that Run has started: a role, its specification, and descriptor 3. The end of ctx, by SIGTERM, ends
// it in good order, and so does what comes on standard input; that input's end is the death of the parent, and ends it at once.
func Worker(ctx context.Context, role, spec string) error {
	signal.Ignore(os.Interrupt) // which a terminal sends to all; the parent has heard it
	r, w := io.Pipe()
	go func() {
		_, _ = io.Copy(w, os.Stdin)
		os.Exit(4)
	}()
	if role == roleBroker {
		var s brokerSpec
		if err := json.Unmarshal([]byte(spec), &s); err != nil {
			return err
		}
		go func() { _, _ = io.Copy(io.Discard, r) }()
		return serveBroker(ctx, s)
	}
	control := chaos.NewControl(context.Background(), r)
	context.AfterFunc(ctx, control.Quit)
	return work(role, spec, control)
}

func work(role, spec string, control *chaos.Control) error {
	switch role {
	case roleReader:
		return with(spec, func(s chaos.ReaderSpec) error { return chaos.Read(s, control, given(), os.Stdout) })
	case roleJoiner:
		return with(spec, func(s chaos.JoinerSpec) error { return chaos.Join(s, control, given(), os.Stdout) })
	case roleIngress:
		return with(spec, func(s chaos.IngressSpec) error { return chaos.Ingress(s, control, os.Stdout) })
	case roleEgress:
		return with(spec, func(s chaos.EgressSpec) error { return chaos.Egress(s, control, os.Stdout) })
	case rolePublisher:
		return with(spec, func(s chaos.PublisherSpec) error {
			p, err := chaos.OpenProgress(given())
			if err != nil {
				return err
			}
			return chaos.Publish(s, control, p, os.Stdout)
		})
	}
	return fmt.Errorf("siege: no role %q", role)
}

func with[S any](text string, run func(S) error) error {
	var s S
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return fmt.Errorf("siege: %w", err)
	}
	return run(s)
}

// given is the descriptor that came with the process.
func given() *os.File { return os.NewFile(3, "file of the siege") }

func serveBroker(ctx context.Context, s brokerSpec) error {
	c := broker.Config{
		Socket: s.Socket, SocketMode: 0o600, GroupLinger: groupLinger, StuckClaim: stuckClaim, Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	}
	if len(s.Keeper) > 0 {
		c.Keeper = broker.KeeperConfig{Mode: broker.KeepInProcess, Exec: s.Keeper, LogFile: s.Socket + ".keeper.log"}
	}
	b, err := broker.New(c)
	if err != nil {
		return err
	}
	fmt.Println("ready")
	return b.Serve(ctx)
}
