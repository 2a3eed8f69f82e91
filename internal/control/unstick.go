package control

import "time"

// An UnstickRequest asks to take claims away from publishers that live and have held them for
// longer than the broker's bound. It is for administrators of the topic.
type UnstickRequest struct {
	Name string `json:"name"`
	// Publisher is the slot, and PID the process, of the publishers that are meant; without
	// either, all of them.
	Publisher *int  `json:"publisher,omitempty"`
	PID       int32 `json:"pid,omitempty"`
}

// What has become of a claim that was to be taken away.
const (
	// UnstickRevoked: its publisher has given it up, and it is padding now.
	UnstickRevoked = "revoked"
	// UnstickEnded: its publisher had finished it before it was asked.
	UnstickEnded = "ended"
	// UnstickWaiting: its process has not answered. It will give the claim up when it goes on; nothing
	// is done before, because it may be about to write to it.
	UnstickWaiting = "waiting"
)

// An UnstickReply says what has become of each claim.
type UnstickReply struct {
	Claims []UnstuckClaim `json:"claims"`
}

// An UnstuckClaim is one claim, and whose it was.
type UnstuckClaim struct {
	Slot     int           `json:"slot"`
	Name     string        `json:"name"`
	UID      uint32        `json:"uid"`
	PID      int32         `json:"pid"`
	Command  string        `json:"command,omitempty"`
	Position uint64        `json:"position"`
	Age      time.Duration `json:"age_ns"`
	// Outcome is UnstickRevoked, UnstickEnded or UnstickWaiting.
	Outcome string `json:"outcome"`
	// SkippedBytes are those that became padding.
	SkippedBytes int64 `json:"skipped_bytes,omitempty"`
	// Remedy says what to do about one that waits.
	Remedy string `json:"remedy,omitempty"`
}

// A Revoke is the body of EventRevoke: the client is to give up a claim that its publisher
// holds at Position, to see to it that nothing in its process writes there any more, and then to
// detach the publisher, saying so.
type Revoke struct {
	Attachment uint64 `json:"attachment"`
	Topic      string `json:"topic"`
	Position   uint64 `json:"position"`
}
