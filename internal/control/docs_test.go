package control

import (
	"os"
	"reflect"
	"strings"
	"testing"
)

// TestDocumentNamesEverything keeps docs/control-protocol.md whole: a client in another
// language is written from it.
func TestDocumentNamesEverything(t *testing.T) {
	text, err := os.ReadFile("../../docs/control-protocol.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(text)
	var words []string
	for _, v := range []any{Request{}, Message{}, Error{}, Hello{}, CreateRequest{}, TopicReply{}, ListRequest{}, ListReply{}, ShowRequest{},
		RemoveRequest{}, StartPoint{}, AttachRequest{}, AttachReply{}, DetachRequest{}, ReattachRequest{}, ReattachReply{}, DeadLetterRequest{}, DeadLetterReply{},
		NoteRequest{}, UnstickRequest{}, UnstickReply{}, UnstuckClaim{}, Revoke{}, Expelled{},
		TopicRemoved{}, Shutdown{}, TopicOptions{}, TopicInfo{}, AttachmentInfo{}, GroupInfo{}} {
		for f := range reflect.TypeOf(v).Fields() {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			words = append(words, name)
		}
	}
	for _, op := range []Op{OpHello, OpPing, OpCreate, OpList, OpShow, OpRemove, OpAttach, OpDetach, OpDeadLetter, OpReattach, OpStop, OpUnstick, OpNote} {
		words = append(words, string(op))
		if !strings.Contains(page, "\"op\":\""+string(op)+"\"") {
			t.Errorf("no example of %s", op)
		}
	}
	for _, c := range []Code{CodeVersion, CodeMalformed, CodeTooLarge, CodeDescriptors, CodeUnknownOp, CodeInvalid, CodeNotFound, CodeExists,
		CodeRefused, CodeQuota, CodeNoSlot, CodeMemory, CodeBusy, CodeShutdown, CodeInternal} {
		words = append(words, string(c))
	}
	words = append(words, string(EventTopicRemoved), string(EventShutdown), string(EventRevoke), string(EventExpelled), UnstickRevoked, UnstickEnded, UnstickWaiting, string(KindPublisher), string(KindSubscriber), string(KindMember),
		PolicyReliable, PolicyLossy, PolicyEvict, FromLatest, FromEarliest, FromPosition)
	for _, w := range words {
		if !strings.Contains(page, "`"+w+"`") && !strings.Contains(page, "\""+w+"\"") && !strings.Contains(page, "### "+w+"\n") && !strings.Contains(page, "## "+w+"\n") {
			t.Errorf("docs/control-protocol.md does not name %s", w)
		}
	}
}

// TestExamplesOfTheDocumentAreMessages decodes what the page shows.
func TestExamplesOfTheDocumentAreMessages(t *testing.T) {
	text, err := os.ReadFile("../../docs/control-protocol.md")
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for i, block := range strings.Split(string(text), "```json\n") {
		if i == 0 {
			continue
		}
		block, _, _ = strings.Cut(block, "```")
		block = strings.ReplaceAll(block, "\n ", " ") // one message over two lines
		for line := range strings.Lines(block) {
			line = strings.TrimSpace(line)
			if line == "" {
				continue
			}
			seen++
			if strings.Contains(line, `"op"`) {
				checkExample(t, line)
				continue
			}
			if _, err := DecodeMessage([]byte(line)); err != nil {
				t.Errorf("%s: %v", line, err)
			}
		}
	}
	if seen < 20 {
		t.Errorf("only %d examples were found", seen)
	}
}

func checkExample(t *testing.T, line string) {
	t.Helper()
	r, err := DecodeRequest([]byte(line))
	if err != nil {
		t.Errorf("%s: %v", line, err)
		return
	}
	bodies := map[Op]any{OpHello: &Hello{}, OpPing: &Empty{}, OpCreate: &CreateRequest{}, OpList: &ListRequest{}, OpShow: &ShowRequest{},
		OpRemove: &RemoveRequest{}, OpAttach: &AttachRequest{}, OpDetach: &DetachRequest{}, OpDeadLetter: &DeadLetterRequest{}, OpReattach: &ReattachRequest{}, OpStop: &StopRequest{}, OpUnstick: &UnstickRequest{}, OpNote: &NoteRequest{}}
	if err := DecodeBody(r, bodies[r.Op]); err != nil {
		t.Errorf("%s: %v", line, err)
	}
}
