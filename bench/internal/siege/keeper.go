package siege

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hugebus/hugebus/internal/keeper"
)

// keeperName is what the schedule calls the keeper process, which the broker starts and which has no berth.
const keeperName = "keeper"

// kindKeeper counts it.
const kindKeeper = "keeper"

// keeperLife is how long a keeper lives at least. When it was killed the broker is spared until the next one has everything: when
// both die before, the topics are gone (docs/keeper.md).
const keeperLife = 10 * time.Second

// keeperPid is the keeper's process, or 0. Its lock file says which it is.
func (d *director) keeperPid() int {
	var pid int
	text, err := os.ReadFile(d.crew.socket + keeper.SocketSuffix + ".lock")
	if err != nil {
		return 0
	}
	if _, err := fmt.Sscan(string(text), &pid); err != nil || pid <= 0 {
		return 0
	}
	command, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil || !strings.Contains(string(command), d.crew.socket) {
		return 0 // another process by now
	}
	return pid
}

// mayKillKeeper reports whether the broker will live until the next keeper has everything.
func (d *director) mayKillKeeper() bool {
	b := d.broker
	return b.alive() && b.ready && len(b.armed) == 0 && time.Since(b.since) > time.Second && !d.keeperKilled.After(d.refilled) && time.Since(d.keeperKilled) > keeperLife
}

// signalKeeper kills it, stops it for a while, or has it go on.
func (d *director) signalKeeper(what string) {
	pid := d.keeperPid()
	if pid == 0 {
		return
	}
	p, err := os.FindProcess(pid)
	if err != nil || p.Signal(map[string]os.Signal{doKill: unix.SIGKILL, doStop: unix.SIGSTOP, doCont: unix.SIGCONT}[what]) != nil {
		return
	}
	d.note(Action{Who: keeperName, Do: what})
	switch what {
	case doKill:
		d.result.ByKind.add(kindKeeper, diedAnywhere)
		d.result.Kills++
		d.keeperKilled = time.Now()
	case doStop:
		d.result.ByKind.add(kindKeeper, stopAnywhere)
		d.later(d.chance.standstill(), Action{Who: keeperName, Do: doCont})
	}
}

// endKeeper ends the keeper process, whose broker has ended.
func (d *director) endKeeper(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, d.o.Watchdog)
	defer cancel()
	d.signalKeeper(doCont)
	if err := keeper.Shutdown(ctx, d.crew.socket+keeper.SocketSuffix); err != nil {
		return fmt.Errorf("the keeper does not end: %w", err)
	}
	return nil
}
