package ring

import (
	"encoding/hex"
	"fmt"
	"reflect"
	"strings"
	"testing"
)

// TestLayout pins the size and the offset of every field of every shared struct, as
// docs/layout.md has them. A change here is a new LayoutVersion.
func TestLayout(t *testing.T) {
	for _, c := range []struct {
		value any
		want  string
	}{
		{ctlHeader{}, "256: magic 0 version 8 size 16 topicID 24 epoch 40 capacity 48 maxPayload 56 cell 64 key 72 " +
			"pageSize 80 created 88 publishers 96 subscribers 104 groups 112 flags 120 start 128"},
		{cursorsHeader{}, "40: magic 0 topicID 8 subscribers 24 groups 32"},
		{publisherSlot{}, "128: intent 0 bytes 8 counter 16 limit 24 frames 32 state 40"},
		{subscriberSlot{}, "128: cursor 0 state 8 policy 16 evictLag 24 evictAfter 32 frames 40 gaps 48 gapBytes 56 " +
			"claim 64 end 72 missed 80"},
		{groupRecord{}, "2816: head 0 members 128 orphans 136 redelivered 144 table 256 entries 768"},
		{orphanEntry{}, "32: word 0 start 8 end 16"},
		{bitmap{}, "128: words 0"},
	} {
		if got := describe(reflect.TypeOf(c.value)); got != c.want {
			t.Errorf("%T\n got %s\nwant %s", c.value, got, c.want)
		}
	}
}

// describe lists a struct's size and the offsets of its named fields.
func describe(typ reflect.Type) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d:", typ.Size())
	for i := range typ.NumField() {
		if f := typ.Field(i); f.Name != "_" {
			fmt.Fprintf(&b, " %s %d", f.Name, f.Offset)
		}
	}
	return b.String()
}

// TestSharedStructsHoldWordsOnly: whatever a peer writes there is then a valid value,
// and no field is torn.
func TestSharedStructsHoldWordsOnly(t *testing.T) {
	for _, v := range []any{ctlHeader{}, cursorsHeader{}, publisherSlot{}, subscriberSlot{}, groupRecord{}, orphanEntry{}, bitmap{}} {
		typ := reflect.TypeOf(v)
		if typ.Field(0).Type.String() != "structs.HostLayout" {
			t.Errorf("%v does not begin with structs.HostLayout", typ)
		}
		for i := 1; i < typ.NumField(); i++ {
			f := typ.Field(i)
			elem := f.Type
			for elem.Kind() == reflect.Array {
				elem = elem.Elem()
			}
			switch name := elem.String(); {
			case name == "atomic.Uint64", name == "seqlock.Counter", name == "ring.orphanEntry":
			case f.Name == "_" && name == "uint8":
			default:
				t.Errorf("%v.%s is a %s", typ, f.Name, name)
			}
		}
	}
}

// TestLayoutConstants pins what is not a struct's field.
func TestLayoutConstants(t *testing.T) {
	for name, c := range map[string]struct{ got, want uint64 }{
		"offState": {offState, 512}, "stateLatchSize": {stateLatchSize, 120}, "offTail": {offTail, 1024},
		"offActive": {offActive, 1152}, "offPublishers": {offPublishers, 2048}, "slotSize": {slotSize, 128},
		"offSleepers": {offSleepers, 128}, "offRoomSleepers": {offRoomSleepers, 256}, "offRoomPatient": {offRoomPatient, 264}, "offGating": {offGating, 384},
		"offGroups": {offGroups, 512}, "offSubscribers": {offSubscribers, 1024}, "groupSize": {groupSize, 2816},
		"orphanSize": {orphanSize, 32}, "headerSize": {headerSize, 256}, "LayoutVersion": {LayoutVersion, 1},
		"CellSize": {CellSize, 64}, "HeaderSize": {HeaderSize, 16}, "offMeta": {offMeta, 8}, "offPayload": {offPayload, 16},
		"MinCapacity": {MinCapacity, 4096}, "MaxCapacity": {MaxCapacity, 1 << 40}, "maxClaim": {maxClaim, 1 << 30},
		"MaxSlots": {MaxSlots, 1024}, "MaxGroups": {MaxGroups, 64}, "MaxMembers": {MaxMembers, 64},
		"kindData": {kindData, 1}, "kindPadding": {kindPadding, 2}, "flagInner": {flagInner, 1}, "flagRepair": {flagRepair, 2},
		"flagExclusive": {flagExclusive, 1}, "flagFenced": {flagFenced, 2}, "intentFlag": {intentFlag, 1},
		"pubFree": {pubFree, 0}, "pubActive": {pubActive, 1}, "pubDead": {pubDead, 2},
		"subFree": {subFree, 0}, "subReserved": {subReserved, 1}, "subJoined": {subJoined, 2}, "subEvicted": {subEvicted, 3},
		"claimIdle": {claimIdle, 0}, "claimIntent": {claimIntent, 1}, "claimHeld": {claimHeld, 2}, "claimState": {claimState, 63},
		"orphanFree": {orphanFree, 0}, "orphanOffered": {orphanOffered, 1}, "orphanTaken": {orphanTaken, 2},
		"orphanFilling": {orphanFilling, 3}, "Reliable": {uint64(Reliable), 1}, "Lossy": {uint64(Lossy), 2},
		"Evict": {uint64(Evict), 3}, "GroupMember": {uint64(GroupMember), 4},
	} {
		if c.got != c.want {
			t.Errorf("%s is %d, want %d", name, c.got, c.want)
		}
	}
}

// TestStampAndMeta pins the two header words of a frame with values worked out apart
// from this code (Python: ((p ^ k) * 0x9E3779B97F4A7C15) mod 2^64, xor itself >> 32).
func TestStampAndMeta(t *testing.T) {
	for _, c := range []struct{ p, key, want uint64 }{
		{0, 1, 0x9e3779b9e17d05ac},
		{64, 1, 0x2c15e8197dfc694c},
		{1 << 40, 0x123456789abcdef1, 0xb1ee0a339fcb0ff6},
		{1<<64 - 64, 0xfedcba9876543211, 0x821363fa32207ddf},
	} {
		if got := stampOf(c.p, c.key); got != c.want {
			t.Errorf("stampOf(%#x, %#x) = %#x, want %#x", c.p, c.key, got, c.want)
		}
	}
	if got, want := meta(0x11223344, 0x55, 0x66, 0x7788), uint64(0x7788_66_55_11223344); got != want {
		t.Errorf("meta %#x, want %#x", got, want)
	}
	h := header(meta(0x11223344, 0x55, 0x66, 0x7788))
	if h.length() != 0x11223344 || h.kind() != 0x55 || h.flags() != 0x66 || h.source() != 0x7788 {
		t.Errorf("taken apart: %#x %#x %#x %#x", h.length(), h.kind(), h.flags(), h.source())
	}
}

// TestStampsOfLapsDiffer: a cell's stamps of different laps, and fresh memory's 0, are
// all different, whatever the key.
func TestStampsOfLapsDiffer(t *testing.T) {
	for _, key := range []uint64{1, 3, 0xffffffffffffffff, 0x8000000000000001} {
		seen := map[uint64]uint64{0: 0}
		for lap := range uint64(4096) {
			p := lap*4096 - 2048*4096
			s := stampOf(p, key)
			if other, twice := seen[s]; twice {
				t.Fatalf("key %#x: positions %#x and %#x have stamp %#x", key, p, other, s)
			}
			seen[s] = p
		}
	}
}

// TestGoldenHeaders pins the bytes of a ring as Format leaves it.
func TestGoldenHeaders(t *testing.T) {
	c := Config{
		TopicID: [16]byte{0xa0, 0xa1, 0xa2, 0xa3, 0xa4, 0xa5, 0xa6, 0xa7, 0xa8, 0xa9, 0xaa, 0xab, 0xac, 0xad, 0xae, 0xaf},
		Epoch:   0x0102030405060708, Capacity: 1 << 16, MaxPayload: 1000, Publishers: 1, Subscribers: 5, Groups: 2,
		Key: 0x1112131415161718, PageSize: 2 << 20, Created: 0x2122232425262728, Exclusive: true, Fenced: true,
		Start: 0x3132333435363740,
	}
	m := heapMemory(t, c)
	if _, err := Format(m, c); err != nil {
		t.Fatal(err)
	}
	compareGolden(t, "ctl", m.Ctl, 0, `
48554745425553310100000000000000  HUGEBUS1, version
0001000000000000a0a1a2a3a4a5a6a7  header size, topic id
a8a9aaabacadaeaf0807060504030201  topic id, epoch
0000010000000000e803000000000000  capacity, maximum payload
40000000000000001917161514131211  cell, key (made odd)
00002000000000002827262524232221  page size, created
01000000000000000500000000000000  publishers, subscribers
02000000000000000300000000000000  groups, flags
40373635343332310000000000000000  start`)
	compareGolden(t, "tail", m.Ctl, 1024, `4037363534333231`)
	compareGolden(t, "cursors", m.Cursors, 0, `
4855474543555231a0a1a2a3a4a5a6a7  HUGECUR1, topic id
a8a9aaabacadaeaf0500000000000000  topic id, subscribers
02000000000000000000000000000000  groups`)
	for name, part := range map[string][]byte{
		"ctl behind the header": m.Ctl[136:1024], "ctl behind tail": m.Ctl[1032:], "cursors behind the header": m.Cursors[40:], "data": m.Data,
	} {
		if strings.Trim(string(part), "\x00") != "" {
			t.Errorf("%s is not zero", name)
		}
	}
}

func compareGolden(t *testing.T, name string, mem []byte, off int, lines string) {
	t.Helper()
	for line := range strings.SplitSeq(strings.TrimSpace(lines), "\n") {
		want, what, _ := strings.Cut(line, "  ")
		n := len(want) / 2
		if got := hex.EncodeToString(mem[off : off+n]); got != want {
			t.Errorf("%s at %d (%s): %s, want %s", name, off, what, got, want)
		}
		off += n
	}
}

// TestGoldenFrame pins the bytes of a frame.
func TestGoldenFrame(t *testing.T) {
	c := Config{Capacity: MinCapacity, Publishers: 300, Key: 0x123456789abcdef1, Start: 1 << 40}
	m := heapMemory(t, c)
	r, err := Format(m, c)
	must(t, err)
	p := publisher(t, r, 0x102)
	must(t, p.TryPublish([]byte("hello")))
	compareGolden(t, "frame", m.Data, 0, `
f60fcb9f330aeeb1  stamp
05000000          length
01                kind
00                flags
0201              source
68656c6c6f        payload`)
	if r.Tail() != 1<<40+64 {
		t.Errorf("tail is %d", r.Tail())
	}
}
