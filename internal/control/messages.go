package control

import "time"

// Descriptor order of an attach reply.
const (
	FileCtl            = iota // ctl segment; read-only for subscribers and members
	FileCursors               // cursors segment; always read-write
	FileData                  // data segment; read-only for subscribers and members
	FileSubscriberBell        // eventfd that wakes subscribers and members
	FilePublisherBell         // eventfd that wakes publishers
)

// A Kind says what an attachment is.
type Kind string

// The kinds of attachments.
const (
	KindPublisher  Kind = "publisher"
	KindSubscriber Kind = "subscriber"
	KindMember     Kind = "member"
)

// Publishes reports whether attachments of this kind map frames for writing.
func (k Kind) Publishes() bool { return k == KindPublisher }

// Policies of a subscriber.
const (
	PolicyReliable = "reliable"
	PolicyLossy    = "lossy"
	PolicyEvict    = "evict"
)

// Where a new group starts to read.
const (
	FromLatest   = "latest"
	FromEarliest = "earliest"
	FromPosition = "position"
)

// A CreateRequest makes a topic. Options that are left out take the broker's defaults.
type CreateRequest struct {
	Name    string       `json:"name"`
	Options TopicOptions `json:"options"`
}

// A TopicReply answers create and show. Next is not empty when a topic has more
// attachments than fit one message: show it again with After set to Next.
type TopicReply struct {
	Topic TopicInfo `json:"topic"`
	Next  string    `json:"next,omitempty"`
}

// A ListRequest asks for the topics whose names come after After, in byte order.
type ListRequest struct {
	After string `json:"after,omitempty"`
	// Limit bounds the topics of one reply; 0 means as many as fit.
	Limit int `json:"limit,omitempty"`
}

// A ListReply holds one page; More says that there is another.
type ListReply struct {
	Topics []TopicInfo `json:"topics"`
	More   bool        `json:"more,omitempty"`
}

// A ShowRequest asks for one topic with its attachments.
type ShowRequest struct {
	Name string `json:"name"`
	// Rates asks for rates, which takes the broker some 200 ms of watching.
	Rates bool `json:"rates,omitempty"`
	// After is Next of the page before.
	After string `json:"after,omitempty"`
}

// A RemoveRequest removes a topic. What is attached is told so by an event.
type RemoveRequest struct {
	Name string `json:"name"`
}

// A StartPoint says where a new group begins.
type StartPoint struct {
	From     string `json:"from"`
	Position uint64 `json:"position,omitempty"`
}

// An AttachRequest asks for a slot of a topic, and for its memory.
type AttachRequest struct {
	Topic string `json:"topic"`
	Kind  Kind   `json:"kind"`
	// Name is what figures and logs call the attachment; empty: the client's name.
	Name string `json:"name,omitempty"`
	// Group is the group's name, for members only.
	Group string `json:"group,omitempty"`
	// Policy, EvictLag (bytes) and EvictAfter (ns) are for subscribers only.
	Policy     string        `json:"policy,omitempty"`
	EvictLag   int64         `json:"evict_lag,omitempty"`
	EvictAfter time.Duration `json:"evict_after_ns,omitempty"`
	// Start is where a group begins that does not exist yet; for members only. A
	// subscriber chooses its own start in the memory.
	Start *StartPoint `json:"start,omitempty"`
	// LaneOnly says that this client has the topic's memory mapped in this direction
	// already, and only wants another slot: no descriptors come with the reply. If TopicID
	// is not that of the mapping, the topic was made anew: detach and attach again.
	LaneOnly bool `json:"lane_only,omitempty"`
}

// An AttachReply names what was given. The five descriptors come with it, or none if
// LaneOnly was asked for.
type AttachReply struct {
	Attachment uint64 `json:"attachment"`
	TopicID    string `json:"topic_id"`
	// Slot is the publisher or subscriber slot; a member's is that of its own words.
	Slot int `json:"slot"`
	// Group and Member are numbers for members.
	Group  int `json:"group,omitempty"`
	Member int `json:"member,omitempty"`
	// MaxRedeliveries is the topic's, for members: what was refused more often is for
	// the dead-letter topic; negative: never.
	MaxRedeliveries int `json:"max_redeliveries,omitempty"`
}

// A ReattachRequest, on a new connection and before anything is attached there, takes over
// what the client held on an earlier one, perhaps from a broker that is gone. What the
// requests do not list is given back.
type ReattachRequest struct {
	// Secret is that of the earlier connection's hello. It goes on to be the client's.
	Secret string `json:"secret"`
	// Attachments are those that the client still uses, at most MaxReattach in one request.
	Attachments []uint64 `json:"attachments"`
	// More says that another request with further attachments follows.
	More bool `json:"more,omitempty"`
}

// MaxReattach is how many attachments one ReattachRequest may list.
const MaxReattach = 256

// A ReattachReply lists those attachments of the request that the client has still. The
// slots of the others may belong to somebody else: do not touch them any more.
type ReattachReply struct {
	// Known is false where nobody knows the secret: nothing is left then, and the secret
	// of this connection's own hello counts.
	Known       bool     `json:"known"`
	Attachments []uint64 `json:"attachments"`
}

// A StopRequest ends the broker, for its own user and root. Everything that is kept beyond
// a broker's death goes with it.
type StopRequest struct{}

// A DetachRequest gives a slot back. The client has stopped to use it before.
type DetachRequest struct {
	Attachment uint64 `json:"attachment"`
	// Revoked says that this answers EventRevoke.
	Revoked bool `json:"revoked,omitempty"`
}

// A NoteRequest says something about an attachment, for who looks at the topic, until the next note. An empty one takes it back.
type NoteRequest struct {
	Attachment uint64 `json:"attachment"`
	Text       string `json:"text"` // see CheckNote
}

// A DeadLetterRequest asks to move frames of a group that were redelivered too often
// into the topic's dead-letter topic.
type DeadLetterRequest struct {
	Topic string `json:"topic"`
	Group string `json:"group"`
}

// A DeadLetterReply says how many frames moved, and where.
type DeadLetterReply struct {
	Moved int    `json:"moved"`
	Topic string `json:"topic,omitempty"`
}

// A TopicRemoved is the body of EventTopicRemoved.
type TopicRemoved struct {
	Topic   string `json:"topic"`
	TopicID string `json:"topic_id"`
	Reason  string `json:"reason"`
}

// An Expelled is the body of EventExpelled: what stands in the slot of an attachment was impossible, because
// its client or another subscriber of the topic has written nonsense. It reads no further, and detaches.
type Expelled struct {
	Attachment uint64 `json:"attachment"`
	Topic      string `json:"topic"`
	Reason     string `json:"reason"`
}

// A Shutdown is the body of EventShutdown.
type Shutdown struct {
	Message string `json:"message"`
}

// Empty is the body of requests and replies that say nothing more.
type Empty struct{}
