package ring

import (
	"encoding/binary"
	"errors"
	"strings"
	"testing"
)

// TestConfigCheck: each refusal names the value, the limit and the remedy.
func TestConfigCheck(t *testing.T) {
	ok := Config{Capacity: 1 << 16}
	for want, change := range map[string]func(*Config){
		"": func(*Config) {},
		"capacity 0 is not from 4096 to 1099511627776 bytes":                                                          func(c *Config) { c.Capacity = 0 },
		"capacity 2048 is not from 4096 to 1099511627776 bytes":                                                       func(c *Config) { c.Capacity = 2048 },
		"capacity 2199023255552 is not from 4096 to 1099511627776 bytes":                                              func(c *Config) { c.Capacity = 1 << 41 },
		"capacity 5000 is not a power of two: use 4096 or 8192":                                                       func(c *Config) { c.Capacity = 5000 },
		"capacity 1099511627775 is not a power of two: use 549755813888 or 1099511627776":                             func(c *Config) { c.Capacity = 1<<40 - 1 },
		"maximum payload 16369 is above the 16368 that a capacity of 65536 allows: use a capacity of 131072":          func(c *Config) { c.MaxPayload = 16369 },
		"maximum payload 1073741809 is above the 1073741808 that any capacity allows: send less in one frame":         func(c *Config) { c.MaxPayload = 1<<30 - 15 },
		"maximum payload 1073741808 is above the 16368 that a capacity of 65536 allows: use a capacity of 4294967296": func(c *Config) { c.MaxPayload = 1<<30 - 16 },
		"1025 publisher slots are not from 1 to 1024":                                                                 func(c *Config) { c.Publishers = 1025 },
		"-1 publisher slots are not from 1 to 1024":                                                                   func(c *Config) { c.Publishers = -1 },
		"an exclusive ring has 1 publisher slot, not 2":                                                               func(c *Config) { c.Exclusive, c.Publishers = true, 2 },
		"1025 subscriber slots are not from 1 to 1024":                                                                func(c *Config) { c.Subscribers = 1025 },
		"-5 subscriber slots are not from 1 to 1024":                                                                  func(c *Config) { c.Subscribers = -5 },
		"65 groups are not from 1 to 64":                                                                              func(c *Config) { c.Groups = 65 },
		"-2 groups are not from 1 to 64":                                                                              func(c *Config) { c.Groups = -2 },
		"start 65 is not a multiple of 64":                                                                            func(c *Config) { c.Start = 65 },
	} {
		c := ok
		change(&c)
		err := c.Check()
		if want == "" {
			must(t, err)
			continue
		}
		if !errors.Is(err, ErrConfig) || err.Error() != "ring: bad configuration: "+want {
			t.Errorf("%v\nwant %s", err, want)
		}
		if _, ferr := c.Footprint(); ferr == nil || ferr.Error() != err.Error() {
			t.Errorf("Footprint: %v, Check: %v", ferr, err)
		}
		if _, ferr := Format(Memory{}, c); ferr == nil || ferr.Error() != err.Error() {
			t.Errorf("Format: %v, Check: %v", ferr, err)
		}
	}
}

// TestFootprint includes capacities that no test has memory for.
func TestFootprint(t *testing.T) {
	for _, c := range []struct {
		c    Config
		want Sizes
	}{
		{Config{Capacity: 4096}, Sizes{Ctl: 2048 + 64*128, Cursors: 1024 + 64*128 + 16*2816, Data: 4096}},
		{Config{Capacity: 4096, Exclusive: true}, Sizes{Ctl: 2048 + 128, Cursors: 1024 + 64*128 + 16*2816, Data: 4096}},
		{Config{Capacity: 1 << 33, Publishers: 1, Subscribers: 1, Groups: 1}, Sizes{Ctl: 2176, Cursors: 1024 + 128 + 2816, Data: 1 << 33}},
		{Config{Capacity: MaxCapacity, Publishers: 1024, Subscribers: 1024, Groups: 64},
			Sizes{Ctl: 2048 + 1024*128, Cursors: 1024 + 1024*128 + 64*2816, Data: 1 << 40}},
	} {
		got, err := c.c.Footprint()
		must(t, err)
		if got != c.want {
			t.Errorf("%+v: %+v, want %+v", c.c, got, c.want)
		}
	}
}

func TestMaxPayload(t *testing.T) {
	for capacity, want := range map[uint64]uint32{
		0: 0, 64: 0, 4095: 0, 4096: 1008, 1 << 16: 16368, 1 << 31: 1<<29 - 16, 1 << 32: 1<<30 - 16, 1 << 33: 1<<30 - 16, 1 << 40: 1<<30 - 16,
	} {
		if got := MaxPayload(capacity); got != want {
			t.Errorf("MaxPayload(%d) = %d, want %d", capacity, got, want)
		}
	}
}

func TestCapacityFor(t *testing.T) {
	for n, want := range map[int]uint64{
		-1: 0, 0: 4096, 1: 4096, 1008: 4096, 1009: 8192, 2032: 8192, 2033: 16384,
		1<<29 - 16: 1 << 31, 1<<29 - 15: 1 << 32, 1<<30 - 16: 1 << 32, 1<<30 - 15: 0, 1 << 62: 0,
	} {
		if got := CapacityFor(n); got != want {
			t.Errorf("CapacityFor(%d) = %d, want %d", n, got, want)
		}
	}
	for capacity := uint64(MinCapacity); capacity <= 1<<32; capacity <<= 1 {
		if most := MaxPayload(capacity); CapacityFor(int(most)) != capacity {
			t.Errorf("CapacityFor(MaxPayload(%d)) = %d", capacity, CapacityFor(int(most)))
		}
	}
}

func TestFrameSize(t *testing.T) {
	for n, want := range map[int]int{0: 64, 48: 64, 49: 128, 112: 128, 113: 192, 1<<30 - 16: 1 << 30} {
		if got := FrameSize(n); got != want {
			t.Errorf("FrameSize(%d) = %d, want %d", n, got, want)
		}
	}
}

// TestAttachSeesWhatFormatWrote: the Config survives the way through memory.
func TestAttachSeesWhatFormatWrote(t *testing.T) {
	for _, c := range []Config{
		{Capacity: 4096},
		{
			TopicID: [16]byte{1, 2, 3, 15: 16}, Epoch: 1<<64 - 1, Capacity: 8192, MaxPayload: 77, Publishers: 1, Subscribers: 1024,
			Groups: 64, Key: 1 << 63, PageSize: 1 << 30, Created: -5, Exclusive: true, Fenced: true, Start: 1<<64 - 64,
		},
	} {
		m := heapMemory(t, c)
		formatted, err := Format(m, c)
		must(t, err)
		attached, err := Attach(m)
		must(t, err)
		want := c.withDefaults()
		if formatted.Config() != want || attached.Config() != want {
			t.Errorf("formatted %+v\nattached %+v\nwant %+v", formatted.Config(), attached.Config(), want)
		}
		if attached.Tail() != c.Start || attached.Earliest() != c.Start {
			t.Errorf("tail %d, earliest %d, start %d", attached.Tail(), attached.Earliest(), c.Start)
		}
		p := publisher(t, formatted, 0)
		s := reliable(t, attached, 0)
		must(t, p.TryPublish([]byte("x")))
		if got := drain(t, s); len(got) != 1 || got[0].payload != "x" {
			t.Errorf("read through the other attachment: %v", got)
		}
	}
}

// TestFormatNeedsMemory: what does not fit is refused before a byte is written.
func TestFormatNeedsMemory(t *testing.T) {
	c := small(0)
	for want, change := range map[string]struct {
		m   func(*Memory)
		err error
	}{
		"ctl has 2559 bytes, need at least 2560":        {func(m *Memory) { m.Ctl = m.Ctl[:2559] }, ErrGeometry},
		"ctl has 0 bytes, need at least 2560":           {func(m *Memory) { m.Ctl = nil }, ErrGeometry},
		"cursors has 7679 bytes, need at least 7680":    {func(m *Memory) { m.Cursors = m.Cursors[:7679] }, ErrGeometry},
		"data has 4095 bytes, the capacity is 4096":     {func(m *Memory) { m.Data = m.Data[:4095] }, ErrGeometry},
		"data has 0 bytes, the capacity is 4096":        {func(m *Memory) { m.Data = nil }, ErrGeometry},
		"ctl starts 8 bytes past a multiple of 64":      {func(m *Memory) { m.Ctl = skewed(len(m.Ctl), 8) }, ErrAlignment},
		"cursors starts 32 bytes past a multiple of 64": {func(m *Memory) { m.Cursors = skewed(len(m.Cursors), 32) }, ErrAlignment},
		"data starts 1 bytes past a multiple of 64":     {func(m *Memory) { m.Data = skewed(len(m.Data), 1) }, ErrAlignment},
	} {
		m := heapMemory(t, c)
		change.m(&m)
		_, err := Format(m, c)
		if !errors.Is(err, change.err) || !strings.HasPrefix(err.Error(), "ring: format: ") || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
		if strings.Trim(string(m.Ctl)+string(m.Cursors)+string(m.Data), "\x00") != "" {
			t.Errorf("%s: something was written", want)
		}

		m = heapMemory(t, c)
		if _, err := Format(m, c); err != nil {
			t.Fatal(err)
		}
		whole := m
		change.m(&m)
		copy(m.Ctl, whole.Ctl)
		copy(m.Cursors, whole.Cursors)
		_, err = Attach(m)
		if want == "ctl has 0 bytes, need at least 2560" {
			want = "ctl has 0 bytes, need at least 2048" // so much to read the header
		}
		if !errors.Is(err, change.err) || !strings.HasPrefix(err.Error(), "ring: attach: ") || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("Attach: %v, want %s", err, want)
		}
	}
}

// skewed is n bytes that start off bytes past an aligned address.
func skewed(n, off int) []byte {
	return heapBytes(n + off)[off : off+n : off+n]
}

// TestAttachMismatches: each thing that does not fit has its own error.
func TestAttachMismatches(t *testing.T) {
	c := small(0)
	c.TopicID = [16]byte{0: 0xab, 15: 0xcd}
	put := func(part func(*Memory) []byte, off int, v uint64) func(*Memory) {
		return func(m *Memory) { binary.NativeEndian.PutUint64(part(m)[off:], v) }
	}
	ctl := func(m *Memory) []byte { return m.Ctl }
	cursors := func(m *Memory) []byte { return m.Cursors }
	for _, x := range []struct {
		change func(*Memory)
		err    error
		text   string
	}{
		{put(ctl, 0, 0), ErrMagic, "ring: not a hugebus ring (bad magic): ctl starts with 0x0, not 0x3153554245475548"},
		{put(ctl, 0, 77), ErrMagic, "ctl starts with 0x4d, not 0x3153554245475548"},
		{put(ctl, 8, 2), ErrVersion, "use the same hugebus release for broker and clients: ring has 2, this program 1"},
		{put(ctl, 16, 512), ErrGeometry, "header of 512 bytes, not 256"},
		{put(ctl, 24, 0), ErrTopicID, "ctl and cursors belong to different topics: ctl has 000000000000000000000000000000cd"},
		{put(ctl, 32, 0), ErrTopicID, "ctl has ab000000000000000000000000000000"},
		{put(ctl, 48, 8192), ErrGeometry, "data has 4096 bytes, the capacity is 8192"},
		{put(ctl, 48, 5000), ErrConfig, "capacity 5000 is not a power of two: use 4096 or 8192"},
		{put(ctl, 48, 5000), ErrGeometry, "ring: header does not fit the memory: ring: bad configuration: "},
		{put(ctl, 48, 0), ErrGeometry, "capacity 0 is not from 4096"},
		{put(ctl, 56, 0), ErrGeometry, "maximum payload 0: out of range"},
		{put(ctl, 56, 1009), ErrGeometry, "maximum payload 1009 is above the 1008"},
		{put(ctl, 56, 1<<32+5), ErrGeometry, "maximum payload 4294967301: out of range"},
		{put(ctl, 64, 128), ErrGeometry, "cell size 128, not 64"},
		{put(ctl, 72, 4), ErrGeometry, "stamp key 0x4 is even"},
		{put(ctl, 96, 0), ErrGeometry, "0 publishers, 8 subscribers, 2 groups, maximum payload 1008: out of range"},
		{put(ctl, 96, 1025), ErrGeometry, "1025 publishers, 8 subscribers"},
		{put(ctl, 96, 1<<63), ErrGeometry, "9223372036854775808 publishers, 8 subscribers"},
		{put(ctl, 96, 5), ErrGeometry, "ctl has 2560 bytes, need at least 2688"},
		{put(ctl, 104, 0), ErrGeometry, "4 publishers, 0 subscribers"},
		{put(ctl, 104, 1025), ErrGeometry, "1025 subscribers"},
		{put(ctl, 104, 7), ErrGeometry, "cursors for 8 subscribers and 2 groups, ctl says 7 and 2"},
		{put(ctl, 104, 9), ErrGeometry, "cursors has 7680 bytes, need at least 7808"},
		{put(ctl, 112, 0), ErrGeometry, "0 groups"},
		{put(ctl, 112, 65), ErrGeometry, "65 groups"},
		{put(ctl, 112, 1), ErrGeometry, "cursors for 8 subscribers and 2 groups, ctl says 8 and 1"},
		{put(ctl, 120, 1), ErrGeometry, "an exclusive ring has 1 publisher slot, not 4"},
		{put(ctl, 128, 7), ErrGeometry, "start 7 is not a multiple of 64"},
		{put(cursors, 0, 5), ErrMagic, "cursors start with 0x5, not 0x3152554345475548"},
		{put(cursors, 8, 5), ErrTopicID, "ctl and cursors belong to different topics"},
		{put(cursors, 16, 5), ErrTopicID, "ctl and cursors belong to different topics"},
		{put(cursors, 24, 9), ErrGeometry, "cursors for 9 subscribers and 2 groups, ctl says 8 and 2"},
		{put(cursors, 32, 3), ErrGeometry, "cursors for 8 subscribers and 3 groups, ctl says 8 and 2"},
	} {
		m := heapMemory(t, c)
		_, err := Format(m, c)
		must(t, err)
		x.change(&m)
		_, err = Attach(m)
		if !errors.Is(err, x.err) || !strings.Contains(err.Error(), x.text) {
			t.Errorf("%v\nwant %v with %q", err, x.err, x.text)
		}
	}
}

// TestAttachLargerPieces: mappings are rounded up to whole pages.
func TestAttachLargerPieces(t *testing.T) {
	c := small(0)
	m := heapMemory(t, c)
	m.Ctl, m.Cursors = heapBytes(4096), heapBytes(8192)
	_, err := Format(m, c)
	must(t, err)
	_, err = Attach(m)
	must(t, err)
}

func TestPosition(t *testing.T) {
	const edge = Position(1<<64 - 64)
	for _, c := range []struct {
		p, q   Position
		before bool
		sub    int64
	}{
		{0, 0, false, 0}, {0, 64, true, -64}, {64, 0, false, 64},
		{edge, 0, true, -64}, {0, edge, false, 64}, {edge, edge, false, 0},
		{edge - 1<<40, 1<<40 - 64, true, -1 << 41}, {1<<63 - 64, 1 << 63, true, -64}, {1 << 63, 1<<63 - 64, false, 64},
	} {
		if c.p.Before(c.q) != c.before || c.p.Sub(c.q) != c.sub || c.q.Add(uint64(c.sub)) != c.p {
			t.Errorf("%#x and %#x: before %v, sub %d, add %#x", uint64(c.p), uint64(c.q), c.p.Before(c.q), c.p.Sub(c.q), uint64(c.q.Add(uint64(c.sub))))
		}
	}
	for p, want := range map[Position]bool{0: true, 64: true, edge: true, 1: false, 63: false, edge + 1: false} {
		if p.Aligned() != want {
			t.Errorf("%d aligned: %v", p, p.Aligned())
		}
	}
}

// TestEarliest follows tail at a capacity's distance, from the ring's start on.
func TestEarliest(t *testing.T) {
	eachStart(t, func(t *testing.T, start Position) {
		r := heap(t, small(start))
		p := publisher(t, r, 0)
		for i := range uint64(200) {
			want := start
			if i > 64 {
				want = start + Position(i-64)*64
			}
			if r.Tail() != start+Position(i)*64 || r.Earliest() != want {
				t.Fatalf("after %d frames: tail %d, earliest %d, start %d", i, r.Tail(), r.Earliest(), start)
			}
			must(t, p.TryPublish(nil))
		}
	})
}
