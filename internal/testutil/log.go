package testutil

import (
	"strings"
	"sync"
)

// A Log keeps what is written to it. It is safe for concurrent use.
type Log struct {
	mu sync.Mutex
	b  strings.Builder
}

// Write adds to the log.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// String is all that was written so far.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
