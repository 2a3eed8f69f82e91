package ring

import "time"

// A ClaimWatch finds publishers that live and hold a claim, or an intent to make one, for
// long: readers come to a stop in front of it, and publishers a lap later. It has no timer of its own and changes nothing;
// whoever wants to know calls Check now and then. It is for one goroutine at a time.
type ClaimWatch struct {
	r    *Ring
	seen []heldSince // by slot
}

type heldSince struct {
	word uint64 // of the intent: positions only grow, so the same word is the same claim
	at   time.Time
}

// A HeldClaim is a claim that a publisher did not finish yet.
type HeldClaim struct {
	Slot     int
	Position Position // where it begins
	Bytes    uint64   // of the claim, as its publisher says
	Stage    Stage
	// For is how long it has been seen; it is held for longer, by up to the time between two
	// looks.
	For time.Duration
}

// A Stage is how far a publisher has come that does not go on.
type Stage int

const (
	// StageIntent: nobody has claimed the position. Other publishers go on, for a lap.
	StageIntent Stage = iota
	// StageClaim: the position is claimed, by this publisher, or by another whose intent
	// names it too. Readers stop in front of it, and publishers go on for a lap.
	StageClaim
	// StageCommitted: the frame is there. Publishers go on for a lap.
	StageCommitted
)

// String is intent, claim or committed.
func (s Stage) String() string {
	switch s {
	case StageIntent:
		return "intent"
	case StageClaim:
		return "claim"
	}
	return "committed"
}

// NewClaimWatch watches r's publishers.
func NewClaimWatch(r *Ring) *ClaimWatch {
	return &ClaimWatch{r: r, seen: make([]heldSince, len(r.publishers))}
}

// Check looks at every publisher, and returns the claims that were there at all looks since
// bound ago. now must be monotonic.
func (w *ClaimWatch) Check(now time.Time, bound time.Duration) (held []HeldClaim) {
	for i := range w.seen {
		p, was := &w.r.publishers[i], &w.seen[i]
		word := p.intent.Load()
		at, ok := intentAt(word)
		if !ok || p.state.Load() != pubActive || !w.r.active.has(i) {
			*was = heldSince{}
			continue
		}
		if was.word != word {
			*was = heldSince{word: word, at: now}
			continue
		}
		if age := now.Sub(was.at); age >= bound {
			held = append(held, HeldClaim{Slot: i, Position: at, Bytes: p.bytes.Load(), Stage: w.r.stage(at), For: age})
		}
	}
	return held
}

// Forget begins anew with publisher slot i: it has another publisher.
func (w *ClaimWatch) Forget(i int) {
	if i >= 0 && i < len(w.seen) {
		w.seen[i] = heldSince{}
	}
}

// stage is how far the claim at position at has come.
func (r *Ring) stage(at Position) Stage {
	switch {
	case !r.claimed(at):
		return StageIntent
	case r.settled(at):
		return StageCommitted
	}
	return StageClaim
}
