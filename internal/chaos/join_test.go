package chaos

import (
	"testing"
	"time"
)

// joinerOf is what a reader says that joins before frame number from, reads up to number to, and leaves.
func joinerOf(order []Record, from, to int, may Missing) []Record {
	said := []Record{{Kind: KindJoin, Position: order[from].Position, Sequence: uint64(may)}}
	return append(append(said, order[from:to]...), Record{Kind: KindLeft})
}

// only are the frames among records.
func only(records []Record) (frames []Record) {
	for _, r := range records {
		if r.Kind == KindFrame {
			frames = append(frames, r)
		}
	}
	return frames
}

func TestJoinersMayGoBack(t *testing.T) {
	l := NewLedger(Config{MaxPayload: most, Keep: 1 << 30})
	order := history(20000)
	all := only(order)
	said := append(joinerOf(all, 15000, 15100, MissNothing), joinerOf(all, 10, 60, MissNothing)...)
	r, err := told(l, map[*Stream][]Record{l.Anchor("anchor"): order, l.Follow("joiner", false): said})
	if err != nil || r.Compared != 150 {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestJoinersViolations(t *testing.T) {
	all := only(history(100))
	gap := func(from, to int) Record {
		return Record{Kind: KindGap, Position: all[from].Position, To: all[to].Position}
	}
	for name, c := range map[string]struct {
		said []Record
		want string
	}{
		"a frame is left out": {append(joinerOf(all, 3, 10, MissNothing)[:8], all[11]), "the frame to come is"},
		"a gap in the middle": {append(joinerOf(all, 3, 10, MissAtStart)[:8], gap(10, 12)), "must miss nothing"},
		"a second gap at the start": {[]Record{
			{Kind: KindJoin, Position: all[3].Position, Sequence: uint64(MissAtStart)}, gap(3, 5), gap(5, 7),
		}, "must miss nothing"},
		"a gap at the start": {[]Record{{Kind: KindJoin, Position: all[3].Position}, gap(3, 5)}, "must miss nothing"},
		"it never left":      {append(joinerOf(all, 3, 10, MissNothing)[:8], joinerOf(all, 3, 10, MissNothing)...), "it joins, and has not left"},
	} {
		t.Run(name, func(t *testing.T) {
			l := NewLedger(Config{MaxPayload: most, Keep: 1 << 30})
			_, err := told(l, map[*Stream][]Record{l.Anchor("anchor"): history(100), l.Follow("joiner", false): c.said})
			wants(t, err, "joiner", c.want)
		})
	}
	l := NewLedger(Config{MaxPayload: most, Keep: 1 << 30})
	said := append([]Record{{Kind: KindJoin, Position: all[3].Position, Sequence: uint64(MissAtStart)}, gap(3, 5)}, all[5:9]...)
	if _, err := told(l, map[*Stream][]Record{l.Anchor("anchor"): history(100), l.Follow("joiner", false): said}); err != nil {
		t.Errorf("a gap at the start, which may be: %v", err)
	}
}

func TestWhoWasNotWoken(t *testing.T) {
	order := history(100)
	said := append([]Record{{Kind: KindReached}}, Record{Kind: KindOverslept, Position: only(order)[0].Position})
	l := NewLedger(Config{MaxPayload: most})
	_, err := told(l, map[*Stream][]Record{l.Anchor("anchor"): order, l.Follow("sleeper", false): said})
	wants(t, err, "sleeper", "was not woken for frame 0")

	l = NewLedger(Config{MaxPayload: most})
	s, heard := l.Follow("sleeper", false), uint64(1)
	s.Overslept(func(r Record, old time.Duration) { heard = r.Position })
	if _, err := told(l, map[*Stream][]Record{l.Anchor("anchor"): order, s: said}); err != nil || heard != 0 {
		t.Errorf("heard of %d, %v", heard, err)
	}
}

func TestBehindNamesWhoHasNotTold(t *testing.T) {
	l := NewLedger(Config{MaxPayload: most})
	anchor, slow, quick, member := l.Anchor("anchor"), l.Follow("slow", false), l.Follow("quick", false), l.Member("g", "one")
	order := history(50)
	tell := func(s *Stream, records []Record) {
		t.Helper()
		for _, r := range records {
			if err := s.take(r); err != nil {
				t.Fatal(err)
			}
		}
	}
	tell(anchor, order)
	tell(quick, order)
	tell(slow, order[:20])
	tell(member, order[:30])
	late := map[string]bool{}
	for _, b := range l.Behind(0) {
		late[b.Name] = true
	}
	if len(late) != 2 || !late["slow"] || !late["g"] {
		t.Errorf("behind are %v, want slow and g", late)
	}
	if late := l.Behind(time.Hour); late != nil {
		t.Errorf("for an hour: %v", late)
	}
	tell(slow, order[20:])
	tell(member, order[30:])
	if late := l.Behind(0); late != nil {
		t.Errorf("all have told all: %v", late)
	}
}
