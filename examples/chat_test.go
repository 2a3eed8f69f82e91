package examples_test

import (
	"context"
	"net/http"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/hugebus/hugebus/internal/testutil"
)

// startChat starts the chat with two rooms, and returns the lobby's TCP address, and the web server's.
func startChat(t *testing.T) (p *testutil.Proc, lobby, web string) {
	t.Helper()
	p = start(t, "chat", "127.0.0.1:0", "lobby", "garden")
	lobby = after(t, p, "lobby on ")
	after(t, p, "garden on ")
	return p, lobby, after(t, p, "chat on http://")
}

// browser is a WebSocket as a page opens it.
func browser(ctx context.Context, t *testing.T, web, room string) *websocket.Conn {
	t.Helper()
	c, _, err := websocket.Dial(ctx, "ws://"+web+"/room/"+room, &websocket.DialOptions{HTTPHeader: http.Header{"Origin": {"http://" + web}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.CloseNow() })
	return c
}

func say(ctx context.Context, t *testing.T, c *websocket.Conn, text string) {
	t.Helper()
	if err := c.Write(ctx, websocket.MessageText, []byte(text)); err != nil {
		t.Fatal(err)
	}
}

func hear(ctx context.Context, t *testing.T, c *websocket.Conn, want string) {
	t.Helper()
	_, got, err := c.Read(ctx)
	if err != nil || string(got) != want {
		t.Fatalf("heard %q, %v, want %q", got, err, want)
	}
}

func TestChatBridge(t *testing.T) {
	p, lobby, web := startChat(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	ann, bob, gardener := browser(ctx, t, web, "lobby"), browser(ctx, t, web, "lobby"), browser(ctx, t, web, "garden")
	_, plain := connect(t, lobby)

	const hello, hi, bees = `{"name":"ann","text":"hello <b>there</b>\n"}`, `{"name":"bob","text":"hi"}`, `{"name":"gus","text":"bees!"}`
	const escaped = `{"name":"ann","text":"hello \u003cb\u003ethere\u003c/b\u003e\n"}`
	say(ctx, t, ann, hello)
	for _, c := range []*websocket.Conn{ann, bob} {
		hear(ctx, t, c, escaped)
	}
	say(ctx, t, bob, `{"name":"","text":"nobody"}`)
	say(ctx, t, bob, `{"name":"bob","text":"`+strings.Repeat("x", 1001)+`"}`)
	say(ctx, t, bob, hi)
	for _, c := range []*websocket.Conn{ann, bob} {
		hear(ctx, t, c, hi) // what has no name or is too long was not said
	}
	say(ctx, t, gardener, bees)
	hear(ctx, t, gardener, bees) // and of the lobby nothing
	for _, want := range []string{escaped, hi} {
		if got := readLine(t, plain); got != want {
			t.Errorf("over TCP came %q, want %q", got, want)
		}
	}
	late := browser(ctx, t, web, "lobby")
	hear(ctx, t, late, escaped)
	hear(ctx, t, late, hi)

	say(ctx, t, ann, "no message")
	if _, _, err := ann.Read(ctx); err == nil {
		t.Error("who sends nonsense stays in the room")
	}
	say(ctx, t, bob, hi)
	hear(ctx, t, late, hi) // others stay
	foreign := &websocket.DialOptions{HTTPHeader: http.Header{"Origin": {"http://elsewhere.example"}}}
	if _, _, err := websocket.Dial(ctx, "ws://"+web+"/room/lobby", foreign); err == nil {
		t.Error("the page of another site is let in")
	}
	if _, _, err := websocket.Dial(ctx, "ws://"+web+"/room/attic", nil); err == nil {
		t.Error("there is a room that nobody made")
	}
	p.Signal(syscall.SIGTERM)
	p.Succeed()
}

func TestChatInABrowser(t *testing.T) {
	program, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("chromium is not installed: that two tabs talk is not tested")
	}
	p, _, web := startChat(t)
	c := launchChromium(t, program)
	ann, bob := c.open(t, "http://"+web+"/?name=ann"), c.open(t, "http://"+web+"/?room=lobby&name=bob")
	for _, tab := range []*tab{ann, bob} {
		tab.until(t, `!document.querySelector("button").disabled`)
	}
	talk := func(from *tab, text, shown string) {
		from.eval(t, `document.forms.say.elements.text.value = '`+text+`'; document.querySelector("button").click(); true`)
		for _, tab := range []*tab{ann, bob} {
			tab.until(t, `[...document.querySelectorAll("#said li")].some(li => li.innerText.replace(/\s+/g, " ").trim() === '`+shown+`')`)
		}
	}
	talk(ann, "Is anybody here?", "ann Is anybody here?")
	talk(bob, "<i>Me</i>", "bob <i>Me</i>")
	for _, tab := range []*tab{ann, bob} {
		if n := tab.eval(t, `document.querySelectorAll("#said li").length`); n != "2" {
			t.Errorf("the page shows %s messages, want 2", n)
		}
		if n := tab.eval(t, `document.querySelectorAll("#said i").length`); n != "0" {
			t.Error("what is said becomes HTML")
		}
	}
	p.Signal(syscall.SIGTERM)
	p.Succeed()
	ann.until(t, `document.querySelector("button").disabled`)
}
