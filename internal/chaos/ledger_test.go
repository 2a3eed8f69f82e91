package chaos

import (
	"bytes"
	"slices"
	"strings"
	"sync"
	"testing"
)

const most = 200 // bytes of a payload

// history is what an anchor tells of a topic with three publishers: n frames, now and then padding between them.
func history(n int) []Record {
	records := []Record{{Kind: KindReached}}
	var next [3]uint64
	position := uint64(0)
	for i := range n {
		who := uint32(mix(uint64(i), 99) % 3)
		records = append(records, frameOf(who, next[who], position))
		next[who]++
		position = entry{position: position, length: records[len(records)-1].Length}.end()
		if i%7 == 0 {
			position += 64 // padding
		}
	}
	return append(records, Record{Kind: KindReached, Position: position})
}

// frameOf is the record of a frame; publisher n publishes from slot 10+n.
func frameOf(publisher uint32, seq, position uint64) Record {
	p := make([]byte, Length(publisher, seq, most))
	Fill(p, publisher, seq)
	who, said, sum, _ := Inspect(p)
	return Record{
		Kind: KindFrame, Source: uint16(10 + publisher), Length: uint32(len(p)), Publisher: who, Sequence: said, Sum: sum, Position: position,
	}
}

func encode(records []Record) *bytes.Buffer {
	var b []byte
	for _, r := range records {
		b = r.append(b)
	}
	return bytes.NewBuffer(b)
}

// told runs all streams through a ledger, at the same time, and returns the first violation.
func told(l *Ledger, streams map[*Stream][]Record) (Report, error) {
	var all sync.WaitGroup
	for s, records := range streams {
		all.Go(func() { _ = s.Consume(encode(records)) }) // Finish returns the same
	}
	all.Wait()
	return l.Finish()
}

// wants checks that err is a violation which says all of want.
func wants(t *testing.T, err error, want ...string) {
	t.Helper()
	if err == nil {
		t.Error("no violation was found")
		return
	}
	for _, text := range want {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("the violation does not say %q: %v", text, err)
		}
	}
}

// frames are the numbers of the frames among records.
func frames(records []Record) (at []int) {
	for i, r := range records {
		if r.Kind == KindFrame {
			at = append(at, i)
		}
	}
	return at
}

func TestWhatIsRightPasses(t *testing.T) {
	const n = 20000 // so that the ledger forgets several times
	all := history(n)
	lossy := slices.Clone(all)
	// Three frames missing, and later all that lie in a gap which ends behind padding.
	lossy = slices.Replace(lossy, 500, 503, Record{Kind: KindGap, Position: all[500].Position, To: all[503].Position})
	evicted := append(slices.Clone(all[:900]), Record{Kind: KindEvicted},
		Record{Kind: KindGap, Position: all[900].Position, To: all[15000].Position})
	evicted = append(evicted, all[15000:]...)
	var members [3][]Record
	for i := range members {
		members[i] = []Record{{Kind: KindReached}}
	}
	for i, r := range all {
		if r.Kind != KindFrame {
			continue
		}
		m := &members[i%3]
		if i%50 == 0 { // its member died before it could say so
			r.Redelivered = 1
		}
		*m = append(*m, r)
		if i%60 == 1 { // its member died when it had said so, and another one got it again
			r.Redelivered = 2
			members[(i+1)%3] = append(members[(i+1)%3], r)
		}
	}
	late := append([]Record{{Kind: KindReached, Position: all[10000].Position}}, all[10000:]...)
	l := NewLedger(Config{MaxPayload: most, Redelivery: true})
	report, err := told(l, map[*Stream][]Record{
		l.Anchor("anchor"):           all,
		l.Follow("reliable", false):  all,
		l.Follow("late", false):      late,
		l.Follow("killed", false):    all[:n/3],
		l.Follow("lossy", true):      lossy,
		l.Follow("evicted", false):   evicted,
		l.Member("workers", "one"):   members[0],
		l.Member("workers", "two"):   members[1],
		l.Member("workers", "three"): members[2],
	})
	if err != nil {
		t.Fatal(err)
	}
	if report.Frames != n || report.Publishers != 3 || report.Gaps != 2 || report.Missed != 3+14100 || report.Evictions != 1 ||
		report.Redelivered == 0 || len(l.order) > n/2 {
		t.Errorf("report %+v, %d frames remembered", report, len(l.order))
	}
	for id, next := range l.next {
		if err := l.Published(id, next+1, next-1); err != nil {
			t.Error(err)
		}
	}
	wants(t, l.Published(1, l.next[1]+2, l.next[1]+1), "publisher 1: publishing returned for", "only")
}

func TestMoreThanWasTriedIsFound(t *testing.T) {
	l := NewLedger(Config{MaxPayload: most})
	if _, err := told(l, map[*Stream][]Record{l.Anchor("anchor"): history(100)}); err != nil {
		t.Fatal(err)
	}
	wants(t, l.Published(2, l.next[2]-1, 0), "frames arrived, and it tried only")
}

func TestAnchorsViolationsAreFound(t *testing.T) {
	for name, c := range map[string]struct {
		change func(all []Record) []Record
		want   string
	}{
		"loss": {func(all []Record) []Record {
			i := slices.IndexFunc(all, func(r Record) bool { return r.Sequence == 5 && r.Publisher == 1 })
			return slices.Delete(all, i, i+1)
		}, "was to come"},
		"duplicate": {func(all []Record) []Record {
			again := all[50]
			again.Position = all[len(all)-1].Position
			return slices.Insert(all, len(all)-1, again)
		}, "was"},
		"order": {func(all []Record) []Record {
			i := slices.IndexFunc(all, func(r Record) bool { return r.Sequence == 5 && r.Publisher == 1 })
			j := slices.IndexFunc(all, func(r Record) bool { return r.Sequence > 5 && r.Publisher == 1 })
			all[i].Sequence, all[j].Sequence = all[j].Sequence, all[i].Sequence
			return all
		}, "out of order"},
		"position": {func(all []Record) []Record {
			all[60].Position = all[59].Position
			return all
		}, "is not behind what came before"},
		"length": {func(all []Record) []Record {
			all[60].Length++
			return all
		}, "it is another one, or cut"},
		"short": {func(all []Record) []Record {
			i := slices.IndexFunc(all, func(r Record) bool { return r.Publisher == Unknown && r.Length > 0 })
			all[i].Sum++
			return all
		}, "has other bytes than were published"},
		"corrupt": {func(all []Record) []Record {
			all[60].Kind = KindCorrupt
			return all
		}, "contradicts its own length or checksum"},
		"stranger": {func(all []Record) []Record {
			i := slices.IndexFunc(all, func(r Record) bool { return r.Publisher == Unknown })
			all[i].Source = 99
			return all
		}, "from which nobody has published"},
		"gap": {func(all []Record) []Record {
			all[60] = Record{Kind: KindGap, Position: all[60].Position, To: all[61].Position}
			return all
		}, "must miss nothing"},
		"no beginning": {func(all []Record) []Record { return all[1:] }, "does not say where it begins"},
	} {
		t.Run(name, func(t *testing.T) {
			l := NewLedger(Config{MaxPayload: most})
			all := history(200)
			_, err := told(l, map[*Stream][]Record{l.Anchor("anchor"): c.change(slices.Clone(all)), l.Follow("other", false): all})
			wants(t, err, "anchor: ", c.want, "its last records:")
		})
	}
}

func TestFollowersViolationsAreFound(t *testing.T) {
	for name, c := range map[string]struct {
		lossy  bool
		change func(all []Record) []Record
		want   string
	}{
		"loss":      {false, func(all []Record) []Record { return slices.Delete(all, 60, 61) }, "the frame to come is"},
		"duplicate": {false, func(all []Record) []Record { return slices.Insert(all, 60, all[59]) }, "the frame to come is"},
		"loss at the end": {false, func(all []Record) []Record {
			last := frames(all)
			return slices.Delete(all, last[len(last)-1], last[len(last)-1]+1)
		}, "was not handed"},
		"other bytes": {false, func(all []Record) []Record { all[60].Sum++; return all }, "and another frame for this reader"},
		"other source": {false, func(all []Record) []Record {
			all[60].Source++
			return all
		}, "and another frame for this reader"},
		"gap of a reliable one": {false, func(all []Record) []Record {
			return slices.Replace(all, 60, 62, Record{Kind: KindGap, Position: all[60].Position, To: all[62].Position})
		}, "a reliable reader must miss nothing"},
		"loss beside a gap": {true, func(all []Record) []Record {
			return slices.Replace(all, 60, 63, Record{Kind: KindGap, Position: all[61].Position, To: all[63].Position})
		}, "the gap begins too late"},
		"loss behind a gap": {true, func(all []Record) []Record {
			return slices.Replace(all, 60, 63, Record{Kind: KindGap, Position: all[60].Position, To: all[62].Position})
		}, "the frame to come is"},
		"gap too early": {true, func(all []Record) []Record {
			return slices.Replace(all, 60, 61, Record{Kind: KindGap, Position: all[59].Position, To: all[61].Position})
		}, "the gap begins inside"},
		"gap into a frame": {true, func(all []Record) []Record {
			i := slices.IndexFunc(all[60:], func(r Record) bool { return r.Length > 128 }) + 60
			return slices.Replace(all, i, i+1, Record{Kind: KindGap, Position: all[i].Position, To: all[i].Position + 64})
		}, "the gap ends inside"},
		"empty gap": {true, func(all []Record) []Record {
			return slices.Insert(all, 60, Record{Kind: KindGap, Position: all[60].Position, To: all[60].Position})
		}, "a gap of 0 bytes"},
		"silent loss of a lossy one": {true, func(all []Record) []Record { return slices.Delete(all, 60, 62) }, "the frame to come is"},
		"more than the anchor has": {false, func(all []Record) []Record {
			return append(all, frameOf(1, 1000, all[len(all)-1].Position))
		}, "is behind the end of what the anchor was handed"},
	} {
		t.Run(name, func(t *testing.T) {
			l := NewLedger(Config{MaxPayload: most})
			all := history(200)
			_, err := told(l, map[*Stream][]Record{l.Anchor("anchor"): all, l.Follow("other", c.lossy): c.change(slices.Clone(all))})
			wants(t, err, "other: ", c.want)
		})
	}
}

func TestGroupsViolationsAreFound(t *testing.T) {
	const n = 20000
	for name, c := range map[string]struct {
		redelivery bool
		change     func(all []Record) []Record
		want       []string
	}{
		"loss":           {true, func(all []Record) []Record { return slices.Delete(all, 60, 61) }, []string{"group workers", "was handed to no member"}},
		"late loss":      {true, func(all []Record) []Record { return slices.Delete(all, n-10, n-9) }, []string{"group workers", "was handed to no member"}},
		"unmarked twice": {true, func(all []Record) []Record { return slices.Insert(all, 60, all[60]) }, []string{"workers/one", "twice without a mark"}},
		"unmarked later": {true, func(all []Record) []Record { return slices.Insert(all, n-9, all[60]) }, []string{"workers/one", "twice without a mark"}},
		"marked for nothing": {false, func(all []Record) []Record {
			all[60].Redelivered = 1
			return all
		}, []string{"workers/one", "no member has died"}},
		"other bytes": {true, func(all []Record) []Record { all[60].Sum++; return all }, []string{"and another frame for this reader"}},
		"nowhere": {true, func(all []Record) []Record {
			i := slices.IndexFunc(all[60:], func(r Record) bool { return r.Length > 128 }) + 60
			all[i].Position += 64
			return all
		}, []string{"the anchor was handed no frame at"}},
		"gap": {true, func(all []Record) []Record {
			all[60] = Record{Kind: KindGap, Position: all[60].Position, To: all[61].Position}
			return all
		}, []string{"must not miss anything"}},
	} {
		t.Run(name, func(t *testing.T) {
			l := NewLedger(Config{MaxPayload: most, Redelivery: c.redelivery})
			all := history(n)
			_, err := told(l, map[*Stream][]Record{l.Anchor("anchor"): all, l.Member("workers", "one"): c.change(slices.Clone(all))})
			wants(t, err, c.want...)
		})
	}
}

func TestAFrameCutShortByDeathDoesNotCount(t *testing.T) {
	l := NewLedger(Config{MaxPayload: most})
	all := history(50)
	a, s := l.Anchor("anchor"), l.Follow("killed", false)
	if err := a.Consume(encode(all)); err != nil {
		t.Fatal(err)
	}
	b := encode(all[:20])
	b.Truncate(b.Len() - 7)
	if err := s.Consume(b); err != nil {
		t.Error(err)
	}
}
