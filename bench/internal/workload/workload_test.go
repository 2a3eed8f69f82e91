package workload

import (
	"strings"
	"testing"

	"github.com/hugebus/hugebus/client"
	"github.com/hugebus/hugebus/internal/testutil"
)

func TestMain(m *testing.M) { testutil.Main(m) }

// frames makes payloads with the numbers 0 to n-1, as a sender does.
func frames(size, n int) [][]byte {
	w := newWriter(size, 1)
	var all [][]byte
	for seq := range uint64(n) {
		prepare(w.one, seq)
		all = append(all, append([]byte(nil), w.one...))
		restore(w.one, seq)
	}
	return all
}

func TestPayloadsOfEverySizePassTheirChecks(t *testing.T) {
	for _, size := range []int{8, 9, 15, 16, 17, 48, 63, 64, 1000} {
		for _, all := range []bool{false, true} {
			r := newReader(size, all, false)
			for i, b := range frames(size, 3*sampleEvery+5) {
				seq, err := r.check(b)
				if err != nil || seq != uint64(i) {
					t.Fatalf("size %d, frame %d: got %d, %v", size, i, seq, err)
				}
			}
		}
	}
}

func TestFramesThatAreMissingOrTwiceAreFound(t *testing.T) {
	all := frames(48, 5)
	r := newReader(48, false, false)
	for _, i := range []int{0, 1} {
		if _, err := r.check(all[i]); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := r.check(all[3]); err == nil || err.Error() != "got frame 3 instead of 2" {
		t.Errorf("missing: %v", err)
	}
	if _, err := r.check(all[1]); err == nil || err.Error() != "got frame 1 instead of 2" {
		t.Errorf("twice: %v", err)
	}
	if _, err := r.check(all[2][:40]); err == nil || err.Error() != "frame 2 has a payload of 40 bytes instead of 48" {
		t.Errorf("short: %v", err)
	}
}

func TestEveryByteOfASampleIsChecked(t *testing.T) {
	const size = 8 + 16 + 3
	for _, all := range []bool{false, true} {
		for at := 8; at < size; at++ {
			r := newReader(size, all, false)
			b := frames(size, 1)[0]
			b[at] ^= 0x10
			if _, err := r.check(b); err == nil || !strings.Contains(err.Error(), "frame 0 arrived changed") {
				t.Errorf("all %v, byte %d of a sample changed: %v", all, at, err)
			}
		}
	}
}

func TestEveryByteOfEveryFrameIsCheckedIfAllAreRead(t *testing.T) {
	const size = 8 + 40 + 3
	for at := 8; at < size; at++ {
		for _, all := range []bool{true, false} {
			r := newReader(size, all, false)
			b := frames(size, 2)
			if _, err := r.check(b[0]); err != nil {
				t.Fatal(err)
			}
			b[1][at] ^= 0x10
			if _, err := r.check(b[1]); (err != nil) != all {
				t.Errorf("all %v, byte %d changed: %v", all, at, err)
			}
		}
	}
}

func TestTheBodyOfAnotherSampleIsFound(t *testing.T) {
	b := frames(48, 2*sampleEvery+1)
	copy(b[2*sampleEvery][8:], b[sampleEvery][8:]) // the sample of a lap before
	r := newReader(48, false, false)
	r.want = 2 * sampleEvery
	if _, err := r.check(b[2*sampleEvery]); err == nil {
		t.Error("a stale body passed")
	}
}

func TestBodiesThatNobodyWroteAreOnlyRead(t *testing.T) {
	r := newReader(48, true, true)
	b := frames(48, 2)
	if _, err := r.check(b[0]); err != nil {
		t.Fatal(err)
	}
	b[1][20] ^= 1
	if _, err := r.check(b[1]); err != nil {
		t.Errorf("a body that was not written was compared: %v", err)
	}
}

func TestTheEndMarkIsNoPartOfTheNumber(t *testing.T) {
	r := newReader(48, false, false)
	b := frames(48, 1)[0]
	setSeq(b, endBit)
	if seq, err := r.check(b); err != nil || seq != endBit {
		t.Errorf("got %#x, %v", seq, err)
	}
}

func TestWaysToWaitAreNamed(t *testing.T) {
	for _, name := range []string{"poll", "spin", "adaptive", "yield", "sleep"} {
		if err := ParseWait(name); err != nil {
			t.Error(err)
		}
	}
	if err := ParseWait("nap"); err == nil || err.Error() != `unknown way to wait "nap": use poll, spin, adaptive, yield or sleep` {
		t.Errorf("got %v", err)
	}
}

func TestSizesThatDoNotFitNameTheCapacityThatDoes(t *testing.T) {
	if err := CheckSize(48, 4096); err != nil {
		t.Error(err)
	}
	want := "--size 1048576: a topic of 1MiB takes payloads of at most 262128 bytes: use --capacity 8MiB"
	if err := CheckSize(1<<20, 1<<20); err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	if err := CheckSize(1<<40, 1<<20); err == nil || !strings.Contains(err.Error(), "no capacity is large enough") {
		t.Errorf("got %v", err)
	}
}

func TestVariantsSayHowTheBusIsUsed(t *testing.T) {
	for _, c := range []struct {
		plan Plan
		want string
	}{
		{Plan{}, "shared"},
		{Plan{Topic: client.TopicOptions{Exclusive: true}}, "exclusive"},
		{Plan{Shape: Params{Claim: true, SeqOnly: true, ReadAll: true}}, "shared, claim, 8 bytes written, all read"},
	} {
		if got := c.plan.variant(); got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}

func TestABusServesTopicsUntilItIsClosed(t *testing.T) {
	b, err := OpenBus(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
		if _, err := client.Dial(t.Context(), client.Options{Socket: b.Socket()}); err == nil {
			t.Error("the broker answers after Close")
		}
	}()
	plan := Plan{Sizes: []int64{8, 48}, Batches: []int{1, 4}, Topic: client.TopicOptions{Capacity: 1 << 16, Pages: "4KiB"}}
	for name, prepare := range map[string]func() ([]Measured, error){
		"latency":    func() ([]Measured, error) { return Latency(t.Context(), b, plan) },
		"throughput": func() ([]Measured, error) { return Throughput(t.Context(), b, plan) },
	} {
		cases, err := prepare()
		if err != nil || len(cases) != 4 {
			t.Errorf("%s: %d cases, %v; want 4", name, len(cases), err)
		}
		if _, err := prepare(); err == nil {
			t.Errorf("%s: topics were made twice", name)
		}
	}
	if b.Pages != "4KiB" {
		t.Errorf("pages %q, want 4KiB", b.Pages)
	}
}
