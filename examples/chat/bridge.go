package main

import (
	"bufio"
	"context"
	"encoding/json"
	"net"
	"net/http"
	"time"

	"github.com/coder/websocket"
)

// A message is what one says.
type message struct {
	Name string `json:"name"`
	Text string `json:"text"`
}

const (
	maxName, maxText = 64, 1000 // bytes; the page allows as many characters as can be in these
	maxFrame         = 4096     // bytes that a browser may send at once
	writeTimeout     = 10 * time.Second
)

// bridge joins a browser to a room until either goes. The library refuses pages of other sites.
func bridge(ctx context.Context, rooms map[string]*room) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		room := rooms[r.PathValue("name")]
		if room == nil {
			http.Error(w, "no such room", http.StatusNotFound)
			return
		}
		socket, err := websocket.Accept(w, r, nil)
		if err != nil {
			return // it has answered
		}
		defer socket.CloseNow()
		socket.SetReadLimit(maxFrame)
		ctx, leave := context.WithCancel(ctx)
		defer leave()
		room.enter(ctx, socket, leave)
	})
}

// enter sends what is said in the room to the browser, and says what comes from there.
func (r *room) enter(ctx context.Context, socket *websocket.Conn, leave func()) {
	ears, err := net.Dial("tcp", r.out.Addr().String())
	if err != nil {
		_ = socket.Close(websocket.StatusTryAgainLater, "the room is closed") // the browser may be gone
		return
	}
	defer context.AfterFunc(ctx, func() { _ = ears.Close() })() // ends the scan below
	go func() {
		defer leave()
		for {
			_, text, err := socket.Read(ctx)
			if err != nil || r.hear(ctx, text) != nil {
				return
			}
		}
	}()
	for lines := bufio.NewScanner(ears); lines.Scan(); {
		sending, cancel := context.WithTimeout(ctx, writeTimeout)
		err := socket.Write(sending, websocket.MessageText, lines.Bytes())
		cancel()
		if err != nil {
			break
		}
	}
	_ = ears.Close() // perhaps a second time
	_ = socket.Close(websocket.StatusGoingAway, "")
}

// hear publishes what a browser sent, if it is a message. JSON has no newlines, so a message is a line.
func (r *room) hear(ctx context.Context, text []byte) error {
	var m message
	if err := json.Unmarshal(text, &m); err != nil {
		return err
	}
	if m.Name == "" || m.Text == "" || len(m.Name) > maxName || len(m.Text) > maxText {
		return nil // the page sends none of these
	}
	line, err := json.Marshal(m)
	if err != nil {
		return err
	}
	r.say.Lock()
	defer r.say.Unlock()
	return r.lane.Publish(ctx, line)
}
