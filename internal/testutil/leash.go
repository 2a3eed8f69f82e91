package testutil

import (
	"fmt"
	"io"
	"net"
	"os"
)

// leash is what HoldLeash listens on. Unreferenced, it would be collected, and closed.
var leash net.Listener

// HoldLeash has the outermost test process listen on an abstract socket, whose name processes below it find in the environment
// variable env. A process that is nobody's child, and ends only when told, holds on to it (FollowLeash), so that none of a test
// that crashes stays for ever. It ends the process if it cannot.
func HoldLeash(env string) {
	if leash != nil || os.Getenv(env) != "" {
		return // this process holds it already, or one above does
	}
	name := fmt.Sprintf("@hugebus-test-%d", os.Getpid())
	var err error
	if leash, err = net.Listen("unix", name); err == nil { // nobody accepts
		err = os.Setenv(env, name)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
}

// FollowLeash ends this process with status 4 when the one that holds the leash of this name has ended, and at once, with
// status 2, if it has already.
func FollowLeash(name string) {
	c, err := net.Dial("unix", name)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	go func() {
		_, _ = io.Copy(io.Discard, c)
		os.Exit(4)
	}()
}
