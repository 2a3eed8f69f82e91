package door

import (
	"fmt"
	"net"
	"net/netip"
	"sync"
)

// A LimitError says that there are as many connections as there may be. It names the flag.
type LimitError struct {
	Flag  string
	Limit int
	Per   string // the address, if the limit is one for each
}

// Error names the limit and the flag that raises it.
func (e *LimitError) Error() string {
	if e.Per != "" {
		return fmt.Sprintf("%d connections from %s are open, and that is the limit: raise %s", e.Limit, e.Per, e.Flag)
	}
	return fmt.Sprintf("%d connections are open, and that is the limit: raise %s", e.Limit, e.Flag)
}

// Limits counts connections, in all and by address. The zero value has no limits. It is safe for concurrent use.
type Limits struct {
	MaxConns   int // 0 or less: no limit
	MaxPerAddr int // connections from one address; 0 or less: no limit. Unix sockets have no addresses

	mu   sync.Mutex
	open int
	by   map[netip.Addr]int
}

// Enter counts a connection, or returns a *LimitError.
func (l *Limits) Enter(remote net.Addr) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.MaxConns > 0 && l.open >= l.MaxConns {
		return &LimitError{Flag: "--max-conns", Limit: l.MaxConns}
	}
	if addr, ok := ipOf(remote); ok && l.MaxPerAddr > 0 {
		if l.by[addr] >= l.MaxPerAddr {
			return &LimitError{Flag: "--max-conns-per-addr", Limit: l.MaxPerAddr, Per: addr.String()}
		}
		if l.by == nil {
			l.by = make(map[netip.Addr]int)
		}
		l.by[addr]++
	}
	l.open++
	return nil
}

// Leave counts a connection out that Enter has counted in.
func (l *Limits) Leave(remote net.Addr) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open--
	if addr, ok := ipOf(remote); ok && l.MaxPerAddr > 0 {
		if l.by[addr]--; l.by[addr] <= 0 {
			delete(l.by, addr)
		}
	}
}

// Open is how many connections there are.
func (l *Limits) Open() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.open
}

func ipOf(a net.Addr) (netip.Addr, bool) {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.Addr{}, false
	}
	return tcp.AddrPort().Addr().Unmap().WithZone(""), true
}
