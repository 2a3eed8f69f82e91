package resp

import (
	"bytes"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/hugebus/hugebus/internal/testutil"
)

// tool returns a command that is bound to end, or skips the test.
func tool(t *testing.T, name string, args ...string) *exec.Cmd {
	t.Helper()
	file, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("SKIPPED: no %s here", name)
	}
	return exec.CommandContext(t.Context(), file, args...)
}

func (r *rig) hostPort() (host, port string) {
	host, port, err := net.SplitHostPort(r.Addr().String())
	check(r.t, err)
	return host, port
}

func TestRedisCLI(t *testing.T) {
	for name, flag := range map[string]string{"RESP2": "-2", "RESP3": "-3"} {
		t.Run(name, func(t *testing.T) {
			r := start(t, shared)
			host, port := r.hostPort()
			sub := tool(t, "redis-cli", "-h", host, "-p", port, flag, "psubscribe", "n*")
			var got testutil.Log
			sub.Stdout, sub.Stderr = &got, &got
			check(t, sub.Start())
			testutil.Eventually(t, "it has subscribed", func() bool { return r.Stats().Patterns == 1 })
			for _, tc := range []struct{ args, want string }{
				{"publish news hello", "1\n"}, {"publish other x", "0\n"}, {"ping", "PONG\n"}, {"pubsub numpat", "1\n"}, {"command count", "17\n"},
			} {
				out, err := tool(t, "redis-cli", append([]string{"-h", host, "-p", port, flag}, strings.Fields(tc.args)...)...).CombinedOutput()
				if err != nil || string(out) != tc.want {
					t.Errorf("%s: %q, %v; want %q", tc.args, out, err, tc.want)
				}
			}
			testutil.Eventually(t, "the message is shown", func() bool { return strings.Contains(got.String(), "hello") })
			check(t, sub.Process.Kill())
			_ = sub.Wait() // it was killed
			if !strings.Contains(got.String(), "pmessage\nn*\nnews\nhello\n") {
				t.Errorf("redis-cli shows %q", got.String())
			}
		})
	}
}

// TestRedisBenchmark runs it unchanged: it asks for the server's settings first, and measures then.
func TestRedisBenchmark(t *testing.T) {
	r := start(t, shared)
	host, port := r.hostPort()
	out, err := tool(t, "redis-benchmark", "-h", host, "-p", port, "-n", "20000", "-P", "64", "-c", "3", "PUBLISH", "ch", "xxx").CombinedOutput()
	if err != nil || !bytes.Contains(out, []byte("requests completed in")) || bytes.Contains(out, []byte("WARNING")) {
		t.Errorf("%v: %s", err, out)
	}
	if s := r.Stats(); s.Published < 20_000 || s.Published > 20_000+3*64 { // it fills its last pipelines
		t.Errorf("%d frames published", s.Published)
	}
}

// nodeScript subscribes, publishes from a second connection, and says what came.
const nodeScript = `
const { createClient } = require("redis");
(async () => {
  for (const RESP of [2, 3]) {
    const sub = createClient({ url: process.argv[1], RESP });
    const pub = createClient({ url: process.argv[1], RESP });
    for (const c of [sub, pub]) { c.on("error", (e) => { console.log(String(e)); process.exit(1); }); await c.connect(); }
    let left = 4;
    await new Promise(async (done) => {
      const got = (m, ch) => { console.log(RESP, ch, m); if (--left == 0) done(); };
      await sub.subscribe("room", got);
      await sub.pSubscribe("r*", got);
      console.log(RESP, "receivers", await pub.publish("room", "hello"));
      await Promise.all([pub.publish("room", "again"), pub.publish("other", "x")]);
    });
    console.log(RESP, JSON.stringify(await pub.pubSubChannels()), await pub.ping());
    await sub.unsubscribe("room"); await sub.pUnsubscribe("r*");
    await sub.quit(); await pub.quit();
  }
})();
`

// TestNodeRedis runs node's redis package unchanged. It needs both: `npm install redis`, and NODE_PATH naming that node_modules,
// or, as in CI, Debian's node-redis and NODE_PATH=/usr/share/nodejs.
func TestNodeRedis(t *testing.T) {
	if err := tool(t, "node", "-e", `require("redis")`).Run(); err != nil {
		t.Skip("SKIPPED: node has no redis package: npm install redis, and set NODE_PATH to that node_modules")
	}
	r := start(t, shared)
	cmd := tool(t, "node", "-e", nodeScript, "redis://"+r.Addr().String())
	cmd.Env = os.Environ()
	cmd.WaitDelay = 10 * time.Second
	out, err := cmd.CombinedOutput()
	want := ""
	for _, p := range []string{"2", "3"} {
		want += p + " receivers 2\n" + p + " room hello\n" + p + " room hello\n" + p + " room again\n" + p + " room again\n" + p + ` ["room"] PONG` + "\n"
	}
	if err != nil || sortedLines(string(out)) != sortedLines(want) {
		t.Errorf("%v: %s\nwant %s", err, out, want)
	}
}
