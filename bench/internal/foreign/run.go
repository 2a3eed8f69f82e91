package foreign

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"

	"github.com/hugebus/hugebus/bench/internal/report"
	"github.com/hugebus/hugebus/bench/internal/worker"
)

// Params are what both sides of a round are told.
type Params struct {
	// Program is what Build returned.
	Program string `json:"program"`
	// Name is that of the link, a path in a folder of its own.
	Name        string `json:"name"`
	Size        int    `json:"size"`
	Count       int64  `json:"count"`
	Nanoseconds int64  `json:"ns"`
	Warm        uint64 `json:"warm"`
	// Pinned keeps both processes on the workers' cores.
	Pinned bool `json:"pinned"`
}

// The roles of the four sides. The result of ping is a histogram, that of consume a report.Rate.
const (
	RolePing    = "foreign/ping"
	RoleEcho    = "foreign/echo"
	RolePublish = "foreign/publish"
	RoleConsume = "foreign/consume"
)

// Roles are what workers must be able to do.
func Roles() map[string]worker.Role {
	return map[string]worker.Role{
		RolePing:    func(t *worker.Task) (any, error) { return run(t, "ping", readTimes) },
		RoleEcho:    func(t *worker.Task) (any, error) { return run(t, "echo", nil) },
		RolePublish: func(t *worker.Task) (any, error) { return run(t, "publish", nil) },
		RoleConsume: func(t *worker.Task) (any, error) { return run(t, "consume", readRate) },
	}
}

// run runs one helper, on this worker's core if it spins: one that waits in the kernel, with a
// thread of its library beside it, runs where the kernel puts it.
func run(t *worker.Task, mode string, result func(io.Reader) (any, error)) (_ any, err error) {
	var p Params
	if err := t.Decode(&p); err != nil {
		return nil, err
	}
	cmd := exec.Command(p.Program, mode, p.Name, strconv.Itoa(p.Size),
		strconv.FormatInt(p.Count, 10), strconv.FormatInt(p.Nanoseconds, 10), strconv.FormatUint(p.Warm, 10))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("foreign: pipe: %w", err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("foreign: pipe: %w", err), in.Close())
	}
	if err := start(cmd, p.Pinned); err != nil {
		return nil, fmt.Errorf("foreign: start %s: %w", p.Program, err)
	}
	defer func() {
		_ = in.Close()
		err = errors.Join(err, cmd.Wait())
	}()
	r := bufio.NewReaderSize(out, 1<<20)
	if line, err := r.ReadString('\n'); err != nil {
		return nil, fmt.Errorf("foreign: %s did not get ready: it said %q", mode, line)
	}
	if err := t.Await(); err != nil {
		return nil, err
	}
	if _, err := in.Write([]byte{'g'}); err != nil {
		return nil, fmt.Errorf("foreign: start %s: %w", mode, err)
	}
	if result == nil {
		return nil, nil
	}
	return result(r)
}

// start starts cmd from this thread, which is tied to a core, or from another.
func start(cmd *exec.Cmd, pinned bool) error {
	if pinned {
		return cmd.Start()
	}
	started := make(chan error)
	go func() { started <- cmd.Start() }()
	return <-started
}

func readTimes(r io.Reader) (any, error) {
	var n int64
	if err := binary.Read(r, binary.LittleEndian, &n); err != nil {
		return nil, fmt.Errorf("foreign: read the number of times: %w", err)
	}
	h := report.NewHistogram()
	var word [8]byte
	for range n {
		if _, err := io.ReadFull(r, word[:]); err != nil {
			return nil, fmt.Errorf("foreign: read %d times: %w", n, err)
		}
		h.Record(int64(binary.LittleEndian.Uint64(word[:])))
	}
	return h, nil
}

func readRate(r io.Reader) (any, error) {
	var words [2]int64
	if err := binary.Read(r, binary.LittleEndian, &words); err != nil {
		return nil, fmt.Errorf("foreign: read the rate: %w", err)
	}
	return report.Rate{Frames: words[0], Nanoseconds: words[1]}, nil
}
