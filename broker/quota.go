package broker

import (
	"fmt"
	"sync"

	"github.com/hugebus/hugebus/internal/control"
	"github.com/hugebus/hugebus/shm"
)

// Limits bound topics, the memory of topics in bytes, and connected clients. 0 means the
// default, negative no bound.
type Limits struct {
	Topics  int
	Bytes   int64
	Clients int
}

// Quotas bound what all clients together, each user, and each client may take.
type Quotas struct {
	Limits
	// PerUser bounds each user, the broker's own too. Topics count for who created them.
	PerUser Limits
	// Attachments bounds the attachments of one client; 0 means DefaultAttachments.
	Attachments int
}

// Defaults of quotas. They are there to stop accidents and strangers: anybody may
// connect, if only to be refused, and each connection costs the broker a descriptor.
const (
	DefaultTopics         = 8192
	DefaultClients        = 8192
	DefaultClientsPerUser = 4096
	DefaultAttachments    = 1024
)

func (q Quotas) check() *ConfigError {
	if q.PerUser.Topics > 0 && q.Topics > 0 && q.PerUser.Topics > q.Topics {
		return wrong("quotas.per_user.topics", "%d for one user is above the %d for all", q.PerUser.Topics, q.Topics)
	}
	if q.PerUser.Clients > 0 && q.Clients > 0 && q.PerUser.Clients > q.Clients {
		return wrong("quotas.per_user.clients", "%d for one user is above the %d for all", q.PerUser.Clients, q.Clients)
	}
	if q.PerUser.Bytes > 0 && q.Bytes > 0 && q.PerUser.Bytes > q.Bytes {
		return wrong("quotas.per_user.bytes", "%d for one user is above the %d for all", q.PerUser.Bytes, q.Bytes)
	}
	return nil
}

func (q Quotas) withDefaults() Quotas {
	pick(&q.Topics, DefaultTopics)
	pick(&q.Clients, DefaultClients)
	pick(&q.PerUser.Clients, DefaultClientsPerUser)
	pick(&q.Attachments, DefaultAttachments)
	return q
}

// usage is what somebody has taken.
type usage struct {
	topics  int
	bytes   int64
	clients int
}

func (u usage) empty() bool { return u == usage{} }

// A ledger keeps account of quotas. It is safe for concurrent use.
type ledger struct {
	quotas Quotas

	mu      sync.Mutex
	all     usage
	users   map[uint32]*usage
	refused map[string]uint64 // by key, for figures
}

func newLedger(q Quotas) *ledger {
	return &ledger{quotas: q.withDefaults(), users: map[uint32]*usage{}, refused: map[string]uint64{}}
}

// takeTopic books a topic with its memory for uid, or says which quota is in the way.
func (l *ledger) takeTopic(uid uint32, bytes int64) error {
	return l.take(uid, usage{topics: 1, bytes: bytes})
}

// holdTopic books a topic that is there already, whatever the quotas say by now.
func (l *ledger) holdTopic(uid uint32, bytes int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.users[uid] == nil {
		l.users[uid] = &usage{}
	}
	for _, u := range []*usage{&l.all, l.users[uid]} {
		u.topics++
		u.bytes += bytes
	}
}

// takeClient books a connection for uid.
func (l *ledger) takeClient(uid uint32) error { return l.take(uid, usage{clients: 1}) }

func (l *ledger) take(uid uint32, more usage) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	mine := l.users[uid]
	if mine == nil {
		mine = &usage{}
	}
	whose := fmt.Sprintf(" of uid %d", uid)
	for _, check := range []struct {
		have       usage
		most       Limits
		key, whose string
	}{{l.all, l.quotas.Limits, "quotas.", ""}, {*mine, l.quotas.PerUser, "quotas.per_user.", whose}} {
		if key, err := exceeded(check.have, more, check.most, check.key, check.whose); err != nil {
			l.refused[key]++
			return err
		}
	}
	l.users[uid] = mine
	for _, u := range []*usage{&l.all, mine} {
		u.topics += more.topics
		u.bytes += more.bytes
		u.clients += more.clients
	}
	return nil
}

// exceeded says which limit would be passed, its value, and which key raises it.
func exceeded(have, more usage, most Limits, key, whose string) (string, error) {
	const remedy = "raise %s in the broker's configuration"
	switch {
	case more.topics > 0 && most.Topics > 0 && have.topics+more.topics > most.Topics:
		key += "topics"
		return key, control.Errorf(control.CodeQuota, "quota %s: %d topics%s are the limit: remove one, or "+remedy, key, most.Topics, whose, key)
	case more.bytes > 0 && most.Bytes > 0 && have.bytes+more.bytes > most.Bytes:
		key += "bytes"
		return key, control.Errorf(control.CodeQuota, "quota %s: %s more would make %s%s, above the limit of %s: remove a topic, choose a smaller --capacity, or "+remedy,
			key, shm.FormatSize(more.bytes), shm.FormatSize(have.bytes+more.bytes), whose, shm.FormatSize(most.Bytes), key)
	case more.clients > 0 && most.Clients > 0 && have.clients+more.clients > most.Clients:
		key += "clients"
		return key, control.Errorf(control.CodeQuota, "quota %s: %d clients%s are the limit: close one, or "+remedy, key, most.Clients, whose, key)
	}
	return "", nil
}

// checkAttachments says whether a client with n attachments may have another.
func (l *ledger) checkAttachments(n int) error {
	const key = "quotas.attachments_per_client"
	if most := l.quotas.Attachments; most < 0 || n < most {
		return nil
	}
	l.mu.Lock()
	l.refused[key]++
	l.mu.Unlock()
	return control.Errorf(control.CodeQuota, "quota %s: %d attachments of one client are the limit: detach one, or raise %s in the broker's configuration",
		key, l.quotas.Attachments, key)
}

func (l *ledger) giveTopic(uid uint32, bytes int64) { l.give(uid, usage{topics: 1, bytes: bytes}) }

func (l *ledger) giveClient(uid uint32) { l.give(uid, usage{clients: 1}) }

func (l *ledger) give(uid uint32, less usage) {
	l.mu.Lock()
	defer l.mu.Unlock()
	mine := l.users[uid]
	for _, u := range []*usage{&l.all, mine} {
		u.topics -= less.topics
		u.bytes -= less.bytes
		u.clients -= less.clients
	}
	if mine.empty() {
		delete(l.users, uid)
	}
}

// total is what all clients together have taken.
func (l *ledger) total() usage {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all
}

// refusals counts quota refusals by key.
func (l *ledger) refusals() map[string]uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make(map[string]uint64, len(l.refused))
	for k, n := range l.refused {
		out[k] = n
	}
	return out
}
