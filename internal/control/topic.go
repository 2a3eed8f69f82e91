package control

import "time"

// TopicOptions say how to make a topic. What is left at zero takes the broker's default.
type TopicOptions struct {
	// Capacity is the size of the ring in bytes, a power of two.
	Capacity int64 `json:"capacity,omitempty"`
	// Pages is auto, 1GiB, 2MiB, thp or 4KiB; any but auto is strict: it fails instead of
	// falling back.
	Pages string `json:"pages,omitempty"`
	// MaxPayload is the largest payload in bytes, at most about a quarter of Capacity.
	MaxPayload int64 `json:"max_payload,omitempty"`
	// Publishers, Subscribers and Groups are numbers of slots. Members of groups use
	// subscriber slots.
	Publishers  int `json:"publishers,omitempty"`
	Subscribers int `json:"subscribers,omitempty"`
	Groups      int `json:"groups,omitempty"`
	// Exclusive allows one publisher at a time, which then claims faster.
	Exclusive bool `json:"exclusive,omitempty"`
	// Lock keeps the memory from being swapped out (mlock).
	Lock bool `json:"lock,omitempty"`
	// NUMANode binds the memory to a node; nil: no preference.
	NUMANode *int `json:"numa_node,omitempty"`
	// MaxRedeliveries is how often a group's frame is handed out again before it goes to
	// the dead-letter topic; negative: for ever.
	MaxRedeliveries int `json:"max_redeliveries,omitempty"`
}

// A TopicInfo describes a topic as it is. Lists leave Publishers, Subscribers and
// Groups out and give their numbers only.
type TopicInfo struct {
	Name string `json:"name"`
	// ID is 32 hexadecimal digits.
	ID string `json:"id"`
	// Capacity, PageSize, CellSize, MaxPayload and MemoryBytes are in bytes. Pages is the
	// kind of page that was obtained.
	Capacity        int64     `json:"capacity"`
	Pages           string    `json:"pages"`
	PageSize        int64     `json:"page_size"`
	CellSize        int64     `json:"cell_size"`
	MaxPayload      int64     `json:"max_payload"`
	MemoryBytes     int64     `json:"memory_bytes"`
	Exclusive       bool      `json:"exclusive"`
	Locked          bool      `json:"locked"`
	MaxRedeliveries int       `json:"max_redeliveries"`
	OwnerUID        uint32    `json:"owner_uid"`
	Created         time.Time `json:"created"`
	// Tail is the position behind the last claim, Earliest the first one still held.
	Tail     uint64 `json:"tail"`
	Earliest uint64 `json:"earliest"`
	// Slots and counts of what is attached.
	PublisherSlots  int `json:"publisher_slots"`
	SubscriberSlots int `json:"subscriber_slots"`
	GroupSlots      int `json:"group_slots"`
	PublisherCount  int `json:"publisher_count"`
	SubscriberCount int `json:"subscriber_count"`
	GroupCount      int `json:"group_count"`
	// Repairs counts claims of dead publishers that were finished, RepairedBytes what
	// that skipped, DeadLetters the frames moved to the dead-letter topic, Violations the
	// impossible cursors that were seen.
	Repairs       uint64 `json:"repairs"`
	RepairedBytes uint64 `json:"repaired_bytes"`
	DeadLetters   uint64 `json:"dead_letters"`
	Violations    uint64 `json:"violations"`
	// Expulsions counts subscribers and members that were expelled for such values.
	Expulsions uint64 `json:"expulsions"`
	// StuckClaims counts publishers that live and hold a claim for longer than the broker's
	// bound now, RevokedClaims those that were taken away by an operator.
	StuckClaims   int    `json:"stuck_claims"`
	RevokedClaims uint64 `json:"revoked_claims"`
	// FramesPerSecond and BytesPerSecond are 0 unless rates were asked for. Bytes are
	// positions: headers and padding count.
	FramesPerSecond float64 `json:"frames_per_s"`
	BytesPerSecond  float64 `json:"bytes_per_s"`

	Publishers  []AttachmentInfo `json:"publishers,omitzero"`
	Subscribers []AttachmentInfo `json:"subscribers,omitzero"`
	Groups      []GroupInfo      `json:"groups,omitzero"`
}

// An AttachmentInfo describes one publisher, subscriber or group member.
type AttachmentInfo struct {
	// Attachment numbers it for as long as the broker lives.
	Attachment uint64 `json:"attachment"`
	Slot       int    `json:"slot"`
	// Name is what the client calls it, Command what the kernel calls the program.
	Name     string    `json:"name"`
	UID      uint32    `json:"uid"`
	PID      int32     `json:"pid"`
	Command  string    `json:"command,omitempty"`
	Attached time.Time `json:"attached"`
	// Policy is reliable, lossy or evict for subscribers, and empty for others.
	Policy string `json:"policy,omitempty"`
	// Joining says that a subscriber has a slot and has not come to its first position
	// yet: frames published now may be before it.
	Joining bool `json:"joining,omitempty"`
	// Position is the cursor of a subscriber, the start of what a member holds (or its
	// group's position), and the open claim of a publisher, whose size is ClaimedBytes.
	Position     uint64 `json:"position"`
	ClaimedBytes int64  `json:"claimed_bytes,omitempty"`
	// StuckFor is how long a publisher has held its claim, if that is above the broker's
	// bound; Stage is how far it has come then: intent, claim or committed.
	StuckFor time.Duration `json:"stuck_ns,omitempty"`
	Stage    string        `json:"stage,omitempty"`
	// LagBytes is how far a subscriber, or what a member holds, is behind tail.
	LagBytes int64 `json:"lag_bytes"`
	// Frames are those that were published, or handed out.
	Frames uint64 `json:"frames"`
	// FramesPerSecond is 0 unless rates were asked for; so is BytesPerSecond, which only
	// subscribers have.
	FramesPerSecond float64 `json:"frames_per_s"`
	BytesPerSecond  float64 `json:"bytes_per_s"`
	// Gaps and GapBytes count what a subscriber that does not gate has missed.
	Gaps     uint64 `json:"gaps,omitempty"`
	GapBytes uint64 `json:"gap_bytes,omitempty"`
	// Evicted says that the subscriber passed its bound and does not gate any more.
	Evicted bool `json:"evicted,omitempty"`
	// Expelled says why its slot does nothing any more: what its words in shared memory were.
	Expelled string `json:"expelled,omitempty"`
	// Note is what its client last said about it, such as who of an egress' clients is slow.
	Note string `json:"note,omitempty"`
}

// A GroupInfo describes a group and its members.
type GroupInfo struct {
	Name string `json:"name"`
	Slot int    `json:"slot"`
	// Position is where the next range will be claimed, LagBytes how far what is not yet
	// acknowledged is behind tail.
	Position uint64 `json:"position"`
	LagBytes int64  `json:"lag_bytes"`
	// UnfinishedRanges counts ranges that a member left and that wait for another, or that
	// one has taken over; Redelivered those that were taken over so far.
	UnfinishedRanges int    `json:"unfinished_ranges"`
	Redelivered      uint64 `json:"redelivered"`
	// Closes is when a group without members will be closed; zero while it has some.
	Closes  time.Time        `json:"closes,omitzero"`
	Members []AttachmentInfo `json:"members"`
}

// Merge adds the attachments of a later page of the same topic to t.
func (t *TopicInfo) Merge(page TopicInfo) {
	t.Publishers = append(t.Publishers, page.Publishers...)
	t.Subscribers = append(t.Subscribers, page.Subscribers...)
	for _, g := range page.Groups {
		if n := len(t.Groups); n > 0 && t.Groups[n-1].Name == g.Name {
			t.Groups[n-1].Members = append(t.Groups[n-1].Members, g.Members...)
			continue
		}
		t.Groups = append(t.Groups, g)
	}
}
