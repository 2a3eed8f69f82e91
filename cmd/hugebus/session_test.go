package main

import (
	"fmt"
	"io"
	"net"
	"strings"

	"github.com/hugebus/hugebus/client"
)

func init() {
	scenarios["TheShellSession"] = theShellSession
	scenarios["LinesGoThroughAsTheyAre"] = linesGoThrough
	scenarios["TopicsAreListedShownAndRemoved"] = topics
	scenarios["GeneratedFrames"] = generatedFrames
	scenarios["WhereToBegin"] = whereToBegin
	scenarios["Completion"] = completion
	scenarios["ACommandWaitsForABrokerThatStarts"] = brokerThatStarts
}

// theShellSession is the one that the README and the issue show.
func theShellSession(w *world) {
	w.broker()
	if out := w.ok("topic", "create", "orders", "--capacity", "16MiB"); !strings.HasPrefix(out, "topic orders: 16MiB on ") {
		w.Errorf("create printed %q", out)
	}
	sub, out := w.into("out", "sub", "orders", "--count", "100000", "--format", "line")
	in, address := w.ingress("--topic", "orders", "--codec", "line")
	w.reading("orders", 1)
	conn, err := net.Dial("tcp", address)
	if err != nil {
		w.Fatal(err)
	}
	sent := numbers(100_000)
	if _, err := io.WriteString(conn, sent); err != nil {
		w.Fatal(err)
	}
	if err := conn.Close(); err != nil {
		w.Fatal(err)
	}
	sub.succeed()
	if got := w.read(out); got != sent {
		w.Errorf("%d bytes arrived, not the %d that were sent", len(got), len(sent))
	}
	in.terminate()
	if !strings.Contains(in.err.String(), "published to orders: 100000 frames, 488895 bytes from 1 connections") {
		w.Errorf("the ingress says %q", in.err)
	}
}

func linesGoThrough(w *world) {
	w.broker()
	w.ok("topic", "create", "lines", "--capacity", "8MiB")
	text := "first\n\n\nlast of the short\r\n" + strings.Repeat("x", 1<<20) + "\n\x00\xff\n" + strings.Repeat("é", 1<<19-8) + "\nend\n"
	count := fmt.Sprint(strings.Count(text, "\n"))
	sub, out := w.into("out", "sub", "lines", "--from", "earliest", "--count", count)
	raw, rawOut := w.into("raw", "sub", "lines", "--from", "earliest", "--count", count, "--format", "raw")
	w.reading("lines", 2)
	r := w.run(text, "pub", "lines")
	if r.code != 0 || r.out != "" || !strings.HasPrefix(r.err, "published to lines: "+count+" frames, ") {
		w.Errorf("pub: %+v", r)
	}
	sub.succeed()
	raw.succeed()
	if w.read(out) != text {
		w.Error("the lines have changed")
	}
	if w.read(rawOut) != strings.ReplaceAll(text, "\n", "") {
		w.Error("the raw payloads have changed")
	}
	// The last line needs no newline, and a line that is too long is named.
	w.ok("topic", "create", "small", "--capacity", "4KiB")
	r = w.run("one\ntwo\n"+strings.Repeat("y", 1009)+"\nfour", "pub", "small", "--quiet")
	if r.code != 1 || !strings.Contains(r.err, "line 3 has 1009 bytes, above the topic's maximum of 1008: split it, or create the topic with --capacity 8KiB") {
		w.Errorf("a line that is too long: %+v", r)
	}
	if r := w.run("three", "pub", "small", "-q"); r.code != 0 || r.err != "" {
		w.Errorf("quiet pub: %+v", r)
	}
	if got := w.ok("sub", "small", "--from", "earliest", "--count", "3"); got != "one\ntwo\nthree\n" {
		w.Errorf("got %q", got)
	}
}

func topics(w *world) {
	w.broker()
	if got := w.ok("topic", "ls"); !strings.Contains(got, "no topics: make one with `hugebus topic create NAME`") {
		w.Errorf("ls of nothing: %q", got)
	}
	var all []client.TopicInfo
	if w.decode(&all, "topic", "ls", "--json"); all == nil || len(all) != 0 {
		w.Errorf("ls of nothing as JSON: %#v", all)
	}
	var made client.TopicInfo
	w.decode(&made, "topic", "create", "orders", "--capacity", "1MiB", "--pages", "4kib", "--max-payload", "5000",
		"--publishers", "3", "--subscribers", "4", "--groups", "2", "--exclusive=false", "--max-redeliveries", "-1", "--json")
	if made.Capacity != 1<<20 || made.Pages != "4KiB" || made.MaxPayload != 5000 || made.PublisherSlots != 3 ||
		made.SubscriberSlots != 4 || made.GroupSlots != 2 || made.MaxRedeliveries != -1 || made.Exclusive || len(made.ID) != 32 {
		w.Errorf("made %+v", made)
	}
	w.ok("topic", "create", "alone", "--exclusive", "--capacity", "64KiB")
	// An ingress takes one lane of a topic that has one.
	in, _ := w.ingress("--topic", "alone")
	in.terminate()
	if w.decode(&all, "topic", "ls", "--json"); len(all) != 2 || all[0].Name != "alone" || !all[0].Exclusive || all[1].ID != made.ID {
		w.Errorf("ls: %+v", all)
	}
	if got := w.ok("topic", "ls"); !strings.Contains(got, "NAME") || !strings.Contains(got, "orders  1MiB") || !strings.Contains(got, "0/3") {
		w.Errorf("ls: %s", got)
	}

	attachAndShow(w)
	var removed map[string]string
	if w.decode(&removed, "topic", "rm", "alone", "--json"); removed["removed"] != "alone" {
		w.Errorf("rm: %v", removed)
	}
}

// attachAndShow attaches everything that can be attached to topic orders, looks at it, and removes the topic.
func attachAndShow(w *world) {
	sub, _ := w.into("out", "sub", "orders")
	evict, _ := w.into("evict", "sub", "orders", "--evict-after", "1h")
	member, _ := w.into("member", "sub", "orders", "--group", "workers")
	pub := w.command("pub", "orders")
	stdin, err := pub.StdinPipe()
	if err != nil {
		w.Fatal(err)
	}
	publisher := w.start(pub)
	w.reading("orders", 3)
	if _, err := io.WriteString(stdin, "hello\n"); err != nil {
		w.Fatal(err)
	}
	w.attached("orders", "a frame that all have read", func(t client.TopicInfo) bool {
		for _, s := range t.Subscribers {
			if s.Frames != 1 {
				return false
			}
		}
		return t.PublisherCount == 1 && len(t.Groups) == 1 && t.Groups[0].LagBytes == 0 && t.Tail == 64
	})
	checkShow(w, sub, evict, member, publisher)
	member.terminate()
	_ = stdin.Close()
	publisher.succeed()

	if got := w.ok("topic", "rm", "orders"); got != "topic orders is removed\n" {
		w.Errorf("rm printed %q", got)
	}
	for _, p := range []*process{sub, evict} {
		if code := p.wait(); code != 1 || !strings.Contains(p.err.String(), "the topic was removed") {
			w.Errorf("a subscriber of a topic that was removed: status %d, %s", code, p.err)
		}
	}
	if r := w.run("", "topic", "show", "orders"); r.code != 1 || !strings.Contains(r.err, `"orders"`) {
		w.Errorf("show of a topic that is gone: %+v", r)
	}
}

func checkShow(w *world, sub, evict, member, publisher *process) {
	w.Helper()
	t, _ := w.show("orders")
	pid := func(p *process) int32 { return int32(p.cmd.Process.Pid) }
	if len(t.Publishers) != 1 || t.Publishers[0].PID != pid(publisher) || t.Publishers[0].Frames != 1 {
		w.Errorf("publishers %+v", t.Publishers)
	}
	if len(t.Subscribers) != 2 || len(t.Groups[0].Members) != 1 || t.Groups[0].Name != "workers" || t.Groups[0].Members[0].PID != pid(member) {
		w.Fatalf("subscribers %+v, groups %+v", t.Subscribers, t.Groups)
	}
	policies := map[int32]string{}
	for _, s := range t.Subscribers {
		policies[s.PID] = s.Policy
		if s.Position != 64 || s.LagBytes != 0 {
			w.Errorf("subscriber %+v", s)
		}
	}
	if policies[pid(sub)] != "reliable" || policies[pid(evict)] != "evict" {
		w.Errorf("policies %v", policies)
	}
	page := w.ok("topic", "show", "orders")
	for _, want := range []string{
		"capacity     1MiB", "pages        4KiB", "max payload  5000 bytes", "publishers\n  SLOT  NAME", "hugebus pub", "subscribers\n",
		"POLICY", "reliable", "evict", "group workers: position 64, 0 bytes behind", "hugebus sub", fmt.Sprint(pid(sub)), "FRAMES/S",
	} {
		if !strings.Contains(page, want) {
			w.Errorf("show does not say %q:\n%s", want, page)
		}
	}
}

func generatedFrames(w *world) {
	w.broker()
	w.ok("topic", "create", "made", "--capacity", "64KiB")
	sub, out := w.into("out", "sub", "made", "--count", "10000")
	w.reading("made", 1)
	r := w.run("", "pub", "made", "--size", "16B", "--count", "9998")
	if r.code != 0 || !strings.HasPrefix(r.err, "published to made: 9998 frames, 159968 bytes in ") {
		w.Errorf("pub: %+v", r)
	}
	if r := w.run("", "pub", "made", "--size", "0", "--count", "2", "--rate", "1000", "--wait", "sleep"); r.code != 0 {
		w.Errorf("pub: %+v", r)
	}
	sub.succeed()
	var want strings.Builder
	for i := 1; i <= 9998; i++ {
		text := fmt.Sprint(i)
		fmt.Fprintln(&want, text+strings.Repeat(".", 16-len(text)))
	}
	if got := w.read(out); got != want.String()+"\n\n" {
		w.Errorf("got %d bytes that begin %.40q", len(got), got)
	}
}

func whereToBegin(w *world) {
	w.broker()
	w.ok("topic", "create", "t", "--capacity", "64KiB")
	if r := w.run("a\nb\nc\n", "pub", "t"); r.code != 0 {
		w.Fatalf("%+v", r)
	}
	for from, want := range map[string]string{"earliest": "a\nb\nc\n", "64": "b\nc\n", "128": "c\n"} {
		count := fmt.Sprint(strings.Count(want, "\n"))
		if got := w.ok("sub", "t", "--from", from, "--count", count); got != want {
			w.Errorf("from %s: %q", from, got)
		}
	}
	if got := w.ok("sub", "t", "--group", "g", "--from", "64", "--count", "2", "--format", "json"); got !=
		`{"position":64,"source":0,"payload":"b"}`+"\n"+`{"position":128,"source":0,"payload":"c"}`+"\n" {
		w.Errorf("a group: %q", got)
	}
	if got := w.ok("sub", "t", "--from", "earliest", "--count", "3", "--format", "hex"); got != "61\n62\n63\n" {
		w.Errorf("hex: %q", got)
	}
}

func completion(w *world) {
	w.broker()
	w.ok("topic", "create", "orders", "--capacity", "4KiB")
	w.ok("topic", "create", "ticks", "--capacity", "4KiB")
	for _, line := range [][]string{{"sub"}, {"pub"}, {"topic", "show"}, {"topic", "rm"}, {"ingress", "--topic"}} {
		got := w.ok(append(append([]string{"__complete"}, line...), "")...)
		if !strings.HasPrefix(got, "orders\nticks\n:") {
			w.Errorf("%q completes %q", line, got)
		}
	}
	for flag, want := range map[string]string{
		"sub --format": "line\nhex\njson\nraw\n", "sub --wait": "adaptive\nspin\nyield\nsleep\n", "sub --from": "latest\nearliest\n",
		"ingress --codec": "len32\nline\n", "topic create --pages": "auto\n1GiB\n2MiB\nthp\n4KiB\n",
	} {
		if got := w.ok(append(append([]string{"__complete"}, strings.Fields(flag)...), "")...); !strings.HasPrefix(got, want) {
			w.Errorf("%s completes %q", flag, got)
		}
	}
	if got := w.ok("completion", "bash"); !strings.Contains(got, "__start_hugebus") {
		w.Error("no completion for bash")
	}
	// Without a broker there is nothing to offer, and no error in the user's shell.
	if r := w.run("", "__complete", "--socket", w.dir+"/none", "sub", ""); r.code != 0 || strings.Contains(r.out, "orders") {
		w.Errorf("without a broker: %+v", r)
	}
}

// brokerThatStarts is what a script does that starts a broker in the background and goes on.
func brokerThatStarts(w *world) {
	create := w.start(w.command("topic", "create", "t", "--capacity", "4KiB"))
	w.broker()
	if code := create.wait(); code != 0 {
		// The command waits for two seconds only, and a busy machine may take longer to start a broker.
		w.Logf("the command came too early for this machine: %s", create.err)
		w.ok("topic", "create", "t", "--capacity", "4KiB")
	}
}
