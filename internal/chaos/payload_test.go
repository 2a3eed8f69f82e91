package chaos

import (
	"bytes"
	"testing"
)

func TestPayloadsProveWhatTheyAre(t *testing.T) {
	const most = 300
	lengths := map[int]bool{}
	for seq := range uint64(5000) {
		n := Length(7, seq, most)
		if n < 0 || n > most || seq == 0 && n < HeaderSize {
			t.Fatalf("frame %d has %d bytes", seq, n)
		}
		lengths[n] = true
		p := make([]byte, n)
		Fill(p, 7, seq)
		who, got, sum, ok := Inspect(p)
		if !ok {
			t.Fatalf("frame %d of %d bytes does not pass", seq, n)
		}
		if n < HeaderSize {
			if who != Unknown {
				t.Fatalf("frame %d of %d bytes names publisher %d", seq, n, who)
			}
		} else if who != 7 || got != seq {
			t.Fatalf("frame %d says publisher %d, sequence %d", seq, who, got)
		}
		for i := range p {
			p[i] ^= 1
			if _, _, changed, ok := Inspect(p); ok && changed == sum {
				t.Fatalf("frame %d of %d bytes passes with byte %d changed", seq, n, i)
			}
			p[i] ^= 1
		}
		if n > HeaderSize {
			if _, _, _, ok := Inspect(p[:n-1]); ok {
				t.Fatalf("frame %d of %d bytes passes cut short", seq, n)
			}
		}
	}
	if !lengths[0] || !lengths[most] {
		t.Errorf("neither 0 nor %d bytes among 5000 payloads", most)
	}
}

func TestRecordsSurviveTheirWay(t *testing.T) {
	records := []Record{
		{Kind: KindFrame, Source: 3, Redelivered: 2, Length: 99, Publisher: 8, Sum: 0xfedcba98, Position: 1 << 60, Sequence: 1 << 50},
		{Kind: KindGap, Position: 64, To: 1 << 55},
		{Kind: KindEvicted},
		{Kind: KindReached, Position: 128},
	}
	var b bytes.Buffer
	j := NewJournal(&b, false)
	for _, r := range records {
		if err := j.Add(r); err != nil {
			t.Fatal(err)
		}
	}
	if b.Len() != 0 {
		t.Errorf("%d bytes were written before Flush", b.Len())
	}
	if err := j.Flush(); err != nil {
		t.Fatal(err)
	}
	for i, want := range records {
		if got := parseRecord(b.Next(recordSize)); got != want {
			t.Errorf("record %d is %+v, was %+v", i, got, want)
		}
	}
	if err := NewJournal(&b, true).Add(records[0]); err != nil || b.Len() != recordSize {
		t.Errorf("a durable journal had written %d bytes when Add returned (%v)", b.Len(), err)
	}
}

func TestProgressIsSharedByItsDescriptor(t *testing.T) {
	p, err := NewProgress(3)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	w := tally(p.at(2))
	w.try(5)
	w.done(4)
	if tried, done := p.Read(2); tried != 5 || done != 4 {
		t.Errorf("place 2 says %d tried, %d done", tried, done)
	}
	if tried, done := p.Read(1); tried != 0 || done != 0 {
		t.Errorf("place 1 says %d tried, %d done", tried, done)
	}
	p.Reset(2)
	if tried, done := p.Read(2); tried != 0 || done != 0 {
		t.Errorf("place 2 says %d tried, %d done after Reset", tried, done)
	}
}
