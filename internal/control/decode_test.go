package control

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
)

func TestDecodeRequestSaysWhatIsWrong(t *testing.T) {
	cases := []struct{ packet, want string }{
		{``, "ends too early"},
		{`hello`, "not JSON at byte 1"},
		{`{"id":1,"op":"ping"`, "ends too early"},
		{`[1,2]`, "a JSON object is expected, not array"},
		{`{"id":"one","op":"ping"}`, "id cannot be a JSON string"},
		{`{"id":-1,"op":"ping"}`, "id cannot be a JSON number -1"},
		{`{"id":1,"op":7}`, "op cannot be a JSON number"},
		{`{"id":1,"op":"ping","extra":true}`, `unknown field "extra"`},
		{`{"id":1,"op":"ping"} {}`, "more than one JSON value"},
		{`{"op":"ping"}`, "id is missing or 0"},
		{`{"id":1}`, "op is missing"},
		{"\x00\xff\xfe", "not JSON"},
	}
	for _, c := range cases {
		_, err := DecodeRequest([]byte(c.packet))
		wantCode(t, err, CodeMalformed)
		if !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %q does not say %q", c.packet, err, c.want)
		}
	}
}

func TestDecodeRequestKeepsTheIDOfABadRequest(t *testing.T) {
	r, err := DecodeRequest([]byte(`{"id":42,"op":"ping","extra":true}`))
	wantCode(t, err, CodeMalformed)
	if r.ID != 42 {
		t.Errorf("id is %d, want 42", r.ID)
	}
}

func TestDecodeBodyIsStrict(t *testing.T) {
	cases := []struct{ body, want string }{
		{`{"topic":"a","kind":"publisher","lane_onyl":true}`, `unknown field "lane_onyl"`},
		{`{"topic":1}`, "topic cannot be a JSON number"},
		{`{"evict_lag":"1MiB"}`, "evict_lag cannot be a JSON string"},
		{`{"evict_lag":1e400}`, "evict_lag cannot be a JSON number"},
		{`7`, "a JSON object is expected, not number"},
	}
	for _, c := range cases {
		var a AttachRequest
		err := DecodeBody(Request{ID: 1, Op: OpAttach, Body: []byte(c.body)}, &a)
		wantCode(t, err, CodeMalformed)
		if !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "attach") {
			t.Errorf("%s: %q does not say %q", c.body, err, c.want)
		}
	}
	var e Empty
	if err := DecodeBody(Request{ID: 1, Op: OpPing}, &e); err != nil {
		t.Errorf("a body that is left out: %v", err)
	}
}

func TestDecodeMessageIgnoresWhatItDoesNotKnow(t *testing.T) {
	m, err := DecodeMessage([]byte(`{"id":3,"body":{"topics":[],"more":true,"new":1},"newer":2}`))
	if err != nil {
		t.Fatal(err)
	}
	var l ListReply
	if err := m.Decode(&l); err != nil || !l.More || m.ID != 3 {
		t.Fatalf("%+v, %+v, %v", m, l, err)
	}
	for _, bad := range []string{``, `{}`, `[]`, `{"id":"x"}`, `{"id":1`} {
		if _, err := DecodeMessage([]byte(bad)); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
	if err := (Message{ID: 1}).Decode(&l); err == nil {
		t.Error("a missing body was accepted")
	}
}

func TestErrorIsBoundedAndComparable(t *testing.T) {
	e := Errorf(CodeQuota, "%s", strings.Repeat("é", 10_000))
	if _, err := marshal(Message{ID: 1, Error: e}); err != nil {
		t.Errorf("a long error does not fit a message: %v", err)
	}
	if !errors.Is(e, &Error{Code: CodeQuota}) || errors.Is(e, &Error{Code: CodeRefused}) {
		t.Error("errors.Is does not compare codes")
	}
}

func TestTopicNames(t *testing.T) {
	good := []string{"a", "orders", "A.b_c-9", "-", strings.Repeat("x", 128), strings.Repeat("x", 128) + DeadSuffix, "a..b"}
	for _, n := range good {
		if err := CheckTopicName(n); err != nil {
			t.Errorf("%q: %v", n, err)
		}
	}
	bad := []struct{ name, want string }{
		{"", "is empty"},
		{".hidden", "starts with a dot"},
		{"a/b", `'/' at byte 1`},
		{"a b", `' ' at byte 1`},
		{"../etc", "starts with a dot"},
		{"naïve", `'ï' at byte 2`},
		{"a\x00", `'\x00' at byte 1`},
		{strings.Repeat("x", 300), "has 300 bytes, above the limit of 128"},
		{strings.Repeat("x", 129), "has 129 bytes"},
		{DeadSuffix, "starts with a dot"},
	}
	for _, c := range bad {
		err := CheckTopicName(c.name)
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "1 to 128 bytes of A-Z a-z 0-9 . _ -") && c.name != "" {
			t.Errorf("%q: %v, want %q and the rule", c.name, err, c.want)
		}
	}
}

func TestLabels(t *testing.T) {
	for _, good := range []string{"", "worker 7", "zähler"} {
		if err := CheckLabel(good); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
	for _, bad := range []string{"a\nb", "\x1b[31m", strings.Repeat("x", 129), "\xff"} {
		if CheckLabel(bad) == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}

func TestMergePutsPagesTogether(t *testing.T) {
	all := TopicInfo{Groups: []GroupInfo{{Name: "g", Members: []AttachmentInfo{{Slot: 1}}}}, Publishers: []AttachmentInfo{{Slot: 0}}}
	all.Merge(TopicInfo{Groups: []GroupInfo{{Name: "g", Members: []AttachmentInfo{{Slot: 2}}}, {Name: "h", Members: []AttachmentInfo{{Slot: 3}}}}})
	if len(all.Groups) != 2 || len(all.Groups[0].Members) != 2 || len(all.Groups[1].Members) != 1 || len(all.Publishers) != 1 {
		t.Errorf("merged: %+v", all)
	}
}

func TestListsSayNothingOfAttachments(t *testing.T) {
	list, err := json.Marshal(TopicInfo{Name: "a"})
	if err != nil {
		t.Fatal(err)
	}
	show, err := json.Marshal(TopicInfo{Name: "a", Publishers: []AttachmentInfo{}})
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(list), `"publishers"`) || !strings.Contains(string(show), `"publishers":[]`) {
		t.Errorf("list: %s\nshow: %s", list, show)
	}
}

func FuzzDecodeRequest(f *testing.F) {
	for _, seed := range []string{
		`{"id":1,"op":"hello","body":{"protocol":1,"layout":1,"software":"x"}}`,
		`{"id":2,"op":"create","body":{"name":"a","options":{"capacity":4096}}}`,
		`{"id":3,"op":"attach","body":{"topic":"a","kind":"member","group":"g","start":{"from":"latest"}}}`,
		`{"id":1e9,"op":null}`, `[[[[[[[[`, "\x00", `{"id":18446744073709551616}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, packet []byte) {
		r, err := DecodeRequest(packet)
		if err != nil {
			wantCode(t, err, CodeMalformed)
			return
		}
		if r.ID == 0 || r.Op == "" {
			t.Fatalf("accepted %+v", r)
		}
		for _, into := range []any{new(CreateRequest), new(ListRequest), new(ShowRequest), new(RemoveRequest),
			new(AttachRequest), new(DetachRequest), new(DeadLetterRequest), new(Empty)} {
			if err := DecodeBody(r, into); err != nil {
				wantCode(t, err, CodeMalformed)
			}
		}
		if _, _, err := decodeHello(packet, NewHello(1)); err != nil {
			var e *Error
			if !errors.As(err, &e) {
				t.Fatalf("hello: %v is no *Error", err)
			}
		}
	})
}

func FuzzDecodeMessage(f *testing.F) {
	f.Add([]byte(`{"id":1,"body":{"topics":[{"name":"a"}]}}`))
	f.Add([]byte(`{"event":"topic_removed","body":{"topic":"a"}}`))
	f.Add([]byte(`{"id":1,"error":{"code":"quota","message":"m"}}`))
	f.Fuzz(func(t *testing.T, packet []byte) {
		m, err := DecodeMessage(packet)
		if err != nil {
			wantCode(t, err, CodeMalformed)
			return
		}
		for _, into := range []any{new(TopicReply), new(ListReply), new(AttachReply), new(DeadLetterReply), new(TopicRemoved), new(Hello)} {
			if err := m.Decode(into); err != nil {
				wantCode(t, err, CodeMalformed)
			}
		}
	})
}
