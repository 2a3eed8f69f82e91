package client_test

import "golang.org/x/sys/unix"

// What stops a process and lets it go on.
const (
	stopSignal = unix.SIGSTOP
	contSignal = unix.SIGCONT
)
