package examples_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coder/websocket"
)

// browserPatience only catches hangs.
const browserPatience = time.Minute

// A chromium is a headless browser that is driven by the DevTools protocol (https://chromedevtools.github.io/devtools-protocol/).
// Of that four calls are enough, and a library for all of it takes longer to build than everything else here.
type chromium struct{ address string }

func launchChromium(t *testing.T, program string) *chromium {
	t.Helper()
	profile := t.TempDir()
	// A tab in the background answers as one in front does, and /dev/shm may be small.
	cmd := exec.Command(program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-renderer-backgrounding",
		"--disable-background-timer-throttling", "--remote-debugging-port=0", "--user-data-dir="+profile, "--no-first-run", "about:blank")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // it starts others, which end with it
	if err := cmd.Start(); err != nil {
		t.Skipf("chromium does not run here: %v", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // it may have ended
		<-ended
		// Its children write a little longer.
		for range 100 {
			if os.RemoveAll(profile) == nil {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
	})
	for began := time.Now(); time.Since(began) < browserPatience; time.Sleep(10 * time.Millisecond) {
		select {
		case err := <-ended:
			ended <- err
			t.Skipf("chromium does not run here: %v", err)
		default:
		}
		text, err := os.ReadFile(filepath.Join(profile, "DevToolsActivePort"))
		if port, _, ok := strings.Cut(string(text), "\n"); err == nil && ok {
			return &chromium{"127.0.0.1:" + port}
		}
	}
	t.Fatalf("chromium does not listen after %v", browserPatience)
	return nil
}

// A tab is a page that is open.
type tab struct {
	conn *websocket.Conn
	last int // number of the last call
}

func (c *chromium) open(t *testing.T, address string) *tab {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), browserPatience)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPut, "http://"+c.address+"/json/new?"+url.QueryEscape(address), nil)
	if err != nil {
		t.Fatal(err)
	}
	own := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := own.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	var target struct {
		Socket string `json:"webSocketDebuggerUrl"`
	}
	if err := json.NewDecoder(answer.Body).Decode(&target); err != nil || target.Socket == "" {
		t.Fatalf("%s: a tab for %s: %v", answer.Status, address, err)
	}
	conn, _, err := websocket.Dial(ctx, target.Socket, nil)
	if err != nil {
		t.Fatal(err)
	}
	conn.SetReadLimit(1 << 20)
	t.Cleanup(func() { conn.CloseNow() })
	return &tab{conn: conn}
}

// call evaluates an expression in the page.
func (p *tab) call(ctx context.Context, expression string) (string, error) {
	p.last++
	request, err := json.Marshal(map[string]any{
		"id": p.last, "method": "Runtime.evaluate", "params": map[string]any{"expression": expression, "returnByValue": true},
	})
	if err == nil {
		err = p.conn.Write(ctx, websocket.MessageText, request)
	}
	for err == nil {
		var text []byte
		if _, text, err = p.conn.Read(ctx); err != nil {
			break
		}
		var reply struct {
			ID     int
			Error  *struct{ Message string }
			Result struct {
				Result           struct{ Value any }
				ExceptionDetails *struct{ Text string }
			}
		}
		switch err = json.Unmarshal(text, &reply); {
		case err != nil || reply.ID != p.last: // an event
		case reply.Error != nil:
			return "", errors.New(reply.Error.Message)
		case reply.Result.ExceptionDetails != nil:
			return "", errors.New(reply.Result.ExceptionDetails.Text)
		default:
			return fmt.Sprint(reply.Result.Result.Value), nil
		}
	}
	return "", err
}

func (p *tab) eval(t *testing.T, expression string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), browserPatience)
	defer cancel()
	value, err := p.call(ctx, expression)
	if err != nil {
		t.Fatalf("%s: %v", expression, err)
	}
	return value
}

// until waits until an expression is true. While the page loads it may fail.
func (p *tab) until(t *testing.T, expression string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), browserPatience)
	defer cancel()
	for {
		value, err := p.call(ctx, expression)
		if err == nil && value == "true" {
			return
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			t.Fatalf("%s is %q, %v, after %v", expression, value, err, browserPatience)
		}
	}
}
