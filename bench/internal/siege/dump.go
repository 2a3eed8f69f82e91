package siege

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"golang.org/x/sys/unix"
)

// Files of a dump.
const (
	scheduleFile = "schedule.jsonl"
	settingsFile = "settings.json"
)

// settings are what a dump says about its run.
type settings struct {
	Seed       uint64
	Duration   time.Duration
	Failpoints bool
}

// LoadDump reads seed, duration and schedule of a dump.
func LoadDump(dir string) (Options, error) {
	var s settings
	text, err := os.ReadFile(filepath.Join(dir, settingsFile))
	if err == nil {
		err = json.Unmarshal(text, &s)
	}
	if err != nil {
		return Options{}, fmt.Errorf("siege: %s is not a dump: %w", dir, err)
	}
	f, err := os.Open(filepath.Join(dir, scheduleFile))
	if err != nil {
		return Options{}, fmt.Errorf("siege: %w", err)
	}
	defer closeAll(f)
	o := Options{Seed: s.Seed, Duration: s.Duration, Failpoints: s.Failpoints}
	if o.Replay, err = ReadSchedule(f); err == nil && o.Replay == nil {
		o.Replay = Schedule{}
	}
	return o, err
}

// dump stops everybody, and writes down what there is to know about a violation. It returns the directory.
func (d *director) dump(violation error) (string, error) {
	if err := os.MkdirAll(d.o.Dump, 0o755); err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp(d.o.Dump, fmt.Sprintf("chaos-seed%d-", d.o.Seed))
	if err != nil {
		return "", err
	}
	for _, b := range d.crew.all {
		if b.p != nil && b.kind != kindBroker {
			b.p.signal(unix.SIGSTOP)
		}
	}
	write := func(name string, fill func(io.Writer) error) error {
		f, err := os.Create(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		return errors.Join(fill(f), f.Close())
	}
	errs := []error{
		write("violation.txt", func(w io.Writer) error {
			_, err := fmt.Fprintf(w, "seed %d, after %v of %v\n%v\n", d.o.Seed, time.Since(d.began), d.o.Duration, violation)
			return err
		}),
		write(scheduleFile, d.schedule.Write),
		write(settingsFile, func(w io.Writer) error {
			return json.NewEncoder(w).Encode(settings{Seed: d.o.Seed, Duration: d.o.Duration, Failpoints: d.o.Failpoints})
		}),
		d.memory(dir),
	}
	for _, a := range d.arenas {
		errs = append(errs, write("ledger-"+a.name+".txt", a.ledger.Dump))
		if d.bus == nil {
			continue
		}
		if info, err := d.topic(context.Background(), a); err == nil {
			errs = append(errs, write("topic-"+a.name+".json", func(w io.Writer) error {
				e := json.NewEncoder(w)
				e.SetIndent("", "  ")
				return e.Encode(info)
			}))
		}
	}
	d.stacks()
	for name := range d.logs {
		errs = append(errs, copyFile(d.logs[name].Name(), filepath.Join(dir, filepath.Base(d.logs[name].Name()))))
	}
	return dir, errors.Join(errs...)
}

// memfd is the name of a memfd among a process's descriptors.
var memfd = regexp.MustCompile(`^/memfd:([^ ]+)`)

// memory copies the topics' memory: by way of the anchors, each of which has one topic's.
func (d *director) memory(dir string) error {
	var errs []error
	for _, b := range d.crew.all {
		if b.kind != kindAnchor || b.p == nil {
			continue
		}
		fds := fmt.Sprintf("/proc/%d/fd", b.p.pid())
		entries, err := os.ReadDir(fds)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		for _, e := range entries {
			to, err := os.Readlink(filepath.Join(fds, e.Name()))
			if m := memfd.FindStringSubmatch(to); err == nil && m != nil {
				errs = append(errs, copyFile(filepath.Join(fds, e.Name()), filepath.Join(dir, b.arena.name+"."+m[1]+".bin")))
			}
		}
	}
	return errors.Join(errs...)
}

// stacks has all workers write down what their goroutines do, and waits a moment for it.
func (d *director) stacks() {
	waiting := 0
	for _, b := range d.crew.all {
		if b.p != nil && b.kind != kindBroker {
			waiting++
			b.p.signal(unix.SIGQUIT)
			b.p.signal(unix.SIGCONT)
		}
	}
	for limit := time.After(5 * time.Second); waiting > 0; {
		select {
		case e := <-d.events:
			if e.died != nil && e.berth.p == e.p {
				e.berth.p = nil
				if e.berth.kind != kindBroker {
					waiting--
				}
			}
		case <-limit:
			return
		}
	}
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer closeAll(in)
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
