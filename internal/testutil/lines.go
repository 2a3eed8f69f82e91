package testutil

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
)

// lines collects what a child writes, so that it never waits for the test to read.
type lines struct {
	file *os.File
	done chan struct{} // closed when there is no more to read

	mu    sync.Mutex
	text  []string
	taken int
	more  chan struct{} // closed, and replaced, when a line is added
}

func readLines(f *os.File) *lines {
	l := &lines{file: f, done: make(chan struct{}), more: make(chan struct{})}
	go func() {
		defer close(l.done)
		r := bufio.NewReader(f)
		for {
			line, err := r.ReadString('\n')
			if line != "" {
				l.mu.Lock()
				l.text = append(l.text, strings.TrimSuffix(line, "\n"))
				close(l.more)
				l.more = make(chan struct{})
				l.mu.Unlock()
			}
			if err != nil {
				return
			}
		}
	}()
	return l
}

// next returns the next line that was not taken yet.
func (l *lines) next(limit time.Duration) (string, error) {
	hang := time.NewTimer(limit)
	defer hang.Stop()
	for ended := false; ; {
		l.mu.Lock()
		if l.taken < len(l.text) {
			l.taken++
			line := l.text[l.taken-1]
			l.mu.Unlock()
			return line, nil
		}
		more := l.more
		l.mu.Unlock()
		if ended {
			return "", io.ErrUnexpectedEOF
		}
		select {
		case <-more:
		case <-l.done:
			ended = true // and look once more: the last line may have come in between
		case <-hang.C:
			return "", fmt.Errorf("nothing within %v", limit)
		}
	}
}

// all returns everything so far.
func (l *lines) all() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.text) == 0 {
		return ""
	}
	return strings.Join(l.text, "\n") + "\n"
}

// finish waits for the end of the text, and no longer than a moment for a grandchild that holds on to the other end.
func (l *lines) finish() {
	select {
	case <-l.done:
	case <-time.After(5 * time.Second):
	}
	_ = l.file.Close()
	<-l.done
}
