package keeper

import (
	"fmt"
	"net"
	"os"
	"strings"
	"sync"

	"github.com/coreos/go-systemd/v22/activation"
)

// ListenerName is the name by which systemd hands over the broker's listening socket: that of the socket unit, which is
// its default (FileDescriptorName= in systemd.socket(5)).
const ListenerName = "hugebus.socket"

// Inherited is what systemd handed to this process when it started it ($LISTEN_FDS in sd_listen_fds(3)).
type Inherited struct {
	sockets []*os.File // not the store's
	stored  []*os.File // the store's; Systemd takes them
	unknown []*os.File // the store's, and of another release
}

// Inherit takes over what systemd handed to this process. A second call, and one without systemd, finds nothing. It
// changes the environment, so that no child takes the descriptors for its own.
func Inherit() *Inherited {
	inherit.Lock()
	defer inherit.Unlock()
	return sortInherited(activation.Files(true))
}

var inherit sync.Mutex // the environment is one for the process

// sortInherited tells the store's files from others by their names.
func sortInherited(files []*os.File) *Inherited {
	in := &Inherited{}
	for _, f := range files {
		_, ok := parseName(f.Name())
		switch {
		case ok:
			in.stored = append(in.stored, f)
		case strings.HasPrefix(f.Name(), entryPrefix), strings.HasPrefix(f.Name(), filePrefix):
			in.unknown = append(in.unknown, f)
		default:
			in.sockets = append(in.sockets, f)
		}
	}
	return in
}

// Listener returns the broker's listening socket if systemd handed it over, or nil. It is the caller's.
func (in *Inherited) Listener() (*net.UnixListener, error) {
	for i, f := range in.sockets {
		if f.Name() != ListenerName {
			continue
		}
		l, err := net.FileListener(f)
		if err != nil {
			return nil, fmt.Errorf("keeper: %s from systemd is not a listening socket: %w", f.Name(), err)
		}
		u, ok := l.(*net.UnixListener)
		if !ok || u.Addr().Network() != "unixpacket" {
			_ = l.Close() // it is not used
			return nil, fmt.Errorf("keeper: %s from systemd listens on %s %s: ListenSequentialPacket= is needed",
				f.Name(), l.Addr().Network(), l.Addr())
		}
		in.sockets = append(in.sockets[:i], in.sockets[i+1:]...)
		_ = f.Close() // the listener has a duplicate
		return u, nil
	}
	return nil, nil
}

// Close closes what nobody has taken.
func (in *Inherited) Close() {
	closeFiles(in.sockets)
	closeFiles(in.stored)
	closeFiles(in.unknown)
	in.sockets, in.stored, in.unknown = nil, nil, nil
}
