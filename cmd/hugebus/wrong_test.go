package main

import (
	"net"
	"os"
	"path/filepath"
	"strings"
)

func init() {
	scenarios["WrongInput"] = wrongInput
	scenarios["WrongInputToABroker"] = wrongInputToABroker
	scenarios["ASecondBrokerIsRefused"] = secondBroker
	scenarios["Configuration"] = configuration
	scenarios["HelpForNewcomers"] = help
}

// mistake is a command line, how it must end, and what its one line of standard error must say.
type mistake struct {
	args string // separated by blanks; an argument with a blank has _ for it
	code int
	says []string
}

func (w *world) mistakes(all []mistake) {
	w.Helper()
	for _, m := range all {
		args := strings.Fields(m.args)
		for i := range args {
			args[i] = strings.ReplaceAll(args[i], "_", " ")
		}
		r := w.run("", args...)
		last := r.err[strings.LastIndex(strings.TrimSuffix(r.err, "\n"), "\n")+1:]
		if r.code != m.code || r.out != "" || !strings.HasPrefix(last, "hugebus: ") {
			w.Errorf("%s: exit status %d, output %q, error %q", m.args, r.code, r.out, r.err)
		}
		for _, s := range m.says {
			if !strings.Contains(last, s) {
				w.Errorf("%s: %q does not say %q", m.args, last, s)
			}
		}
	}
}

func wrongInput(w *world) {
	long := strings.Repeat("x", 300)
	w.mistakes([]mistake{
		{"nope", 2, []string{`unknown command "nope"`, "hugebus --help"}},
		{"topik ls", 2, []string{"did you mean topic?"}},
		{"topic lss", 2, []string{`unknown command "lss"`, "topic --help"}},
		{"--nope", 2, []string{"--nope"}},
		{"topic ls extra", 2, []string{`unexpected argument "extra"`}},
		{"topic create", 2, []string{"name of a topic is missing"}},
		{"topic create a b", 2, []string{`"b" is one too many`}},
		{"topic create a/b", 2, []string{`"a/b"`, "'/' at byte 1", "A-Z a-z 0-9"}},
		{"topic create a_b", 2, []string{`"a b"`, "' ' at byte 1"}},
		{"topic create " + long, 2, []string{"300 bytes", "limit of 128"}},
		{"topic create .a", 2, []string{"starts with a dot"}},
		{"topic create a --capacity much", 2, []string{`--capacity: size "much"`, "16MiB"}},
		{"topic create a --capacity 0", 2, []string{"--capacity", "default"}},
		{"topic create a --capacity -1", 2, []string{"--capacity"}},
		{"topic create a --max-payload 1.5", 2, []string{"--max-payload", "whole number"}},
		{"topic create a --pages 3MiB", 2, []string{"--pages", `"3MiB"`, "2MiB"}},
		{"topic create a --publishers many", 2, []string{"--publishers", "many"}},
		{"pub a/b", 2, []string{`"a/b"`}},
		{"pub a --count 5", 2, []string{"--count", "--size"}},
		{"pub a --rate 5", 2, []string{"--rate", "--size"}},
		{"pub a --size x", 2, []string{"--size", `"x"`}},
		{"pub a --size 5 --rate -1", 2, []string{"--rate -1"}},
		{"pub a --wait doze", 2, []string{`"doze"`, "adaptive, spin, yield or sleep"}},
		{"sub a --format xml", 2, []string{`unknown format "xml"`, "line, hex, json or raw"}},
		{"sub a --from noon", 2, []string{`"noon"`, "latest, earliest or a position"}},
		{"sub a --from 65", 2, []string{`"65"`, "multiple of 64"}},
		{"sub a --wait doze", 2, []string{`"doze"`}},
		{"sub a --lossy --group g", 2, []string{"--lossy", "--group", "leave one of them out"}},
		{"sub a --evict-after 1s --group g", 2, []string{"--evict-after", "--group"}},
		{"sub a --evict-after 1s --lossy", 2, []string{"--evict-after", "--lossy"}},
		{"sub a --evict-after 0s", 2, []string{"--evict-after 0s", "above 0"}},
		{"sub a --evict-after soon", 2, []string{"soon"}},
		{"sub a --group g/h", 2, []string{`"g/h"`}},
		{"sub a --policy best", 2, []string{"--policy"}},
	})
	wrongInputOfDaemons(w, long)
}

func wrongInputOfDaemons(w *world, long string) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.Fatal(err)
	}
	defer taken.Close()
	w.mistakes([]mistake{
		{"ingress --topic a", 2, []string{"--listen is missing", "HOST:PORT"}},
		{"ingress --listen :0", 2, []string{"--topic is missing"}},
		{"gateway", 2, []string{"--listen is missing"}},
		{"gateway --listen :0 --resp-topic a/b", 2, []string{"--resp-topic", `"a/b"`}},
		{"gateway --listen :0 --max-lag x", 2, []string{"--max-lag"}},
		{"gateway --listen :0 --access /none/there", 1, []string{"--access", "/none/there"}},
		{"egress --topic a", 2, []string{"--listen is missing", "unix:///PATH"}},
		{"egress --listen :0", 2, []string{"--topic is missing"}},
		{"egress --listen :0 --topic a/b", 2, []string{"--topic", `"a/b"`}},
		{"egress --listen :0 --topic a --codec xml", 2, []string{`unknown codec "xml"`}},
		{"egress --listen :0 --topic a --slow down", 2, []string{`--slow "down"`, "skip or close"}},
		{"egress --listen :0 --topic a --from 64", 2, []string{`--from "64"`}},
		{"egress --listen :0 --topic a --history 1KiB", 2, []string{"--history", "--from earliest"}},
		{"egress --listen :0 --topic a --backlog -1", 2, []string{"--backlog is -1"}},
		{"egress --listen :0 --topic a --recv-buffer 4GiB", 2, []string{"--recv-buffer is 4294967296", "2147483647"}},
		{"egress --listen :0 --topic a --incoming-cpu -5", 2, []string{"--incoming-cpu is -5"}},
		{"egress --listen udp://127.0.0.1:0 --topic a", 2, []string{"udp://127.0.0.1:0", "datagrams are no connections"}},
		{"egress --listen :0 --topic a --reuse-port --incoming-cpu 100000", 2, []string{"--incoming-cpu is 100000", "0 to "}},
		{"egress --listen :0 --topic a --tls-cert c", 2, []string{"--tls-key"}},
		{"gateway --listen :0 --tls-key c", 2, []string{"--tls-cert"}},
		{"ingress --listen :0 --topic a --tls-client-ca c", 2, []string{"--tls-cert"}},
		{"ingress --listen nonsense --topic a", 2, []string{"nonsense", "HOST:PORT"}},
		{"ingress --listen 127.0.0.1:70000 --topic a", 2, []string{`port "70000"`, "65535"}},
		{"egress --listen http://127.0.0.1:80 --topic a", 2, []string{"http://", "unix:///PATH"}},
		{"gateway --listen unix://", 2, []string{"path is missing"}},
		{"egress --topic a --listen unix:///" + long, 2, []string{"301 bytes", "limit of 107"}},
		{"egress --topic a --listen unix:///x --fast-open 5", 2, []string{"--fast-open does nothing for unix://"}},
		{"ingress --topic a --listen udp://:0 --max-conns 5", 2, []string{"--max-conns does nothing for udp://"}},
		{"ingress --topic a --listen udp://:0 --codec line", 2, []string{"codec line with datagrams"}},
		{"ingress --topic a --listen udp://:0 --tls-cert c --tls-key k", 1, []string{"--tls-cert c"}},
		{"egress --listen :0 --topic a --incoming-cpu 0", 2, []string{"--reuse-port"}},
		{"ingress --listen :0 --topic a --lanes -1", 2, []string{"-1 lanes", "--lanes"}},
		{"ingress --listen :0 --topic a --acceptors 5000", 2, []string{"5000 acceptors", "--acceptors"}},
		{"ingress --listen :0 --topic a --idle-timeout -1s", 2, []string{"--idle-timeout is -1s", "0 for never"}},
		{"egress --listen :0 --topic a --writers 5000", 2, []string{"5000 writers", "--writers"}},
		{"egress --listen :0 --topic a --linger -1s", 2, []string{"--linger is -1s"}},
		{"gateway --listen :0 --max-channels -1", 2, []string{"--max-channels is -1: give at least 1"}},
		{"gateway --listen :0 --max-topics -7", 2, []string{"--max-topics is -7: give at least 1"}},
		{"gateway --listen :0 --idle-timeout -2s", 2, []string{"--idle-timeout is -2s"}},
		{"ingress --listen :0 --topic a/b", 2, []string{"--topic", `"a/b"`}},
		{"ingress --listen :0 --topic a --codec xml", 2, []string{`unknown codec "xml"`, "len32, line"}},
		{"ingress --listen :0 --topic a --max-frame x", 2, []string{"--max-frame"}},
		{"broker --metrics nowhere", 1, []string{"metrics", "HOST:PORT"}},
		{"broker --config " + w.dir + "/none.yaml", 1, []string{"none.yaml"}},
		{"broker --metrics " + taken.Addr().String(), 1, []string{taken.Addr().String(), "--metrics"}},
		{"broker --socket " + w.dir + "/none/h.sock", 1, []string{"/none is not there", "mkdir -p"}},
		{"broker --socket " + w.dir + "/" + long, 1, []string{"limit of 107"}},
		{"topic ls --socket " + w.dir + "/" + long, 2, []string{"limit of 107"}},
		{"topic ls --socket " + w.dir + "/none/h.sock", 1, []string{"/none is not there", "hugebus broker"}},
		{"topic ls", 1, []string{"no such socket", "hugebus broker"}},
		{"demo --frames 5", 2, []string{"5 frames", "100 to"}},
		{"demo --capacity 3MiB", 2, []string{"3MiB is not a power of two"}},
		{"demo --capacity 4KiB", 2, []string{"4KiB is too small", "32KiB"}},
		{"demo --pages 3MiB", 2, []string{"--pages"}},
	})
}

func wrongInputToABroker(w *world) {
	w.broker()
	w.ok("topic", "create", "a", "--capacity", "4KiB")
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.Fatal(err)
	}
	defer taken.Close()
	all := []mistake{
		{"topic create a", 1, []string{`"a"`, "exists already"}},
		{"topic create b --capacity 1000000", 1, []string{"1000000 is not a power of two", "1048576 (1MiB)", "524288"}},
		{"topic create b --capacity 64TiB", 1, []string{"70368744177664 is not from 4096 (4KiB) to "}},
		{"topic create b --capacity 1TiB", 1, []string{"needs 1TiB", "available"}},
		{"topic create b --capacity 2GiB --pages 1GiB", 1, []string{"1GiB", `use pages "auto"`}},
		{"topic create b --max-payload 1GiB", 1, []string{"1073741824"}},
		{"topic create b --numa-node 99", 1, []string{"node 99"}},
		{"topic create b --exclusive --publishers 2", 1, []string{"exclusive", "1 publisher"}},
		{"topic show b", 1, []string{`"b"`}},
		{"topic rm b", 1, []string{`"b"`}},
		{"pub a --size 1MiB --count 1", 1, []string{"size 1048576 is above the topic's maximum of 1008", "--capacity 8MiB"}},
		{"ingress --listen " + taken.Addr().String() + " --topic a", 1, []string{taken.Addr().String(), "in use", "0 takes a free one"}},
		{"ingress --listen unix://" + w.dir + "/none/sock --topic a", 1, []string{"/none", "mkdir -p"}},
		{"ingress --listen 127.0.0.1:0 --topic a --max-frame 1MiB", 1, []string{"1048576", "1008", "--max-frame"}},
		{"ingress --listen 127.0.0.1:0 --topic a --metrics " + taken.Addr().String(), 1, []string{"--metrics"}},
	}
	if _, err := os.Stat("/sys/kernel/mm/hugepages/hugepages-1048576kB"); err != nil {
		all[4].says = []string{"1GiB"} // no such pages at all, which has a message of its own
	}
	w.mistakes(all)
	// Nothing of all that has stayed.
	if got := w.ok("topic", "ls"); strings.Count(got, "\n") != 2 {
		w.Errorf("topics: %s", got)
	}
}

func secondBroker(w *world) {
	first := w.broker()
	r := w.run("", "broker")
	if r.code != 1 || !strings.Contains(r.err, "another broker (pid ") || !strings.Contains(r.err, "--socket") {
		w.Errorf("the second: %+v", r)
	}
	w.ok("topic", "ls")
	first.terminate()
	if _, err := os.Stat(w.socket); err == nil {
		w.Error("the socket is still there")
	}
	// A broker that was killed leaves its socket behind, and the next one takes it over.
	killed := w.broker()
	if err := killed.cmd.Process.Kill(); err != nil {
		w.Fatal(err)
	}
	killed.wait()
	if _, err := os.Stat(w.socket); err != nil {
		w.Errorf("kill -9 removes no socket: %v", err)
	}
	next := w.broker()
	w.ok("topic", "ls")
	next.terminate()
}

func configuration(w *world) {
	file := filepath.Join(w.dir, "broker.yaml")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			w.Fatal(err)
		}
	}
	write("topics:\n  - name: orders\n    capactiy: 1MiB\n")
	w.mistakes([]mistake{{"broker --config " + file, 1, []string{file + ":3:", "capactiy"}}})
	write("socket: " + w.dir + "/elsewhere.sock\nlog:\n  format: json\ntopics:\n  - name: orders\n    capacity: 1MiB\n")
	b := w.broker("--config", file, "--metrics", "127.0.0.1:0") // $HUGEBUS_SOCKET wins over the file
	if got := w.ok("topic", "ls"); !strings.Contains(got, "orders") {
		w.Errorf("topics: %s", got)
	}
	if !strings.HasPrefix(b.err.String(), `{"time":`) {
		w.Errorf("log: %s", b.err)
	}
	checkFigures(w, b.err.String(), `"metrics":"`, "hugebus_")
	b.terminate()
}

func help(w *world) {
	for _, c := range []string{"", "broker", "topic", "topic create", "topic ls", "topic show", "topic rm", "pub", "sub", "ingress", "egress", "gateway", "doctor", "demo", "shutdown"} {
		got := w.ok(append(strings.Fields(c), "--help")...)
		for _, want := range []string{"Usage:", "--socket"} {
			if !strings.Contains(got, want) {
				w.Errorf("help of %q has no %q", c, want)
			}
		}
		if c != "" && c != "topic" && !strings.Contains(got, "Examples:") {
			w.Errorf("help of %q has no examples", c)
		}
		if strings.Contains(got, childCommand) {
			w.Errorf("help of %q shows what is not for people", c)
		}
	}
	if got := w.ok(); !strings.Contains(got, "Exit status: 0 done") || !strings.Contains(got, "hugebus demo") {
		w.Errorf("help: %s", got)
	}
	if got := w.ok("--version"); !strings.HasPrefix(got, "hugebus ") {
		w.Errorf("version: %q", got)
	}
}
