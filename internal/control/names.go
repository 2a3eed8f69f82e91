package control

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	// MaxName is the most bytes of a topic's, group's, client's or attachment's name.
	MaxName = 128

	// DeadSuffix makes the name of a topic's dead-letter topic. It comes on top of MaxName.
	DeadSuffix = ".dead"
)

// DeadLetterTopic is the name of the dead-letter topic of a topic.
func DeadLetterTopic(topic string) string { return topic + DeadSuffix }

// IsDeadLetterTopic reports whether name is that of a dead-letter topic.
func IsDeadLetterTopic(name string) bool {
	return strings.HasSuffix(name, DeadSuffix) && len(name) > len(DeadSuffix)
}

// CheckTopicName tells what is wrong with a topic's name: which character, where, and
// what the rule is.
func CheckTopicName(name string) error {
	return checkName("topic", strings.TrimSuffix(name, DeadSuffix), name)
}

// CheckGroupName is CheckTopicName for groups.
func CheckGroupName(name string) error { return checkName("group", name, name) }

// checkName applies the rule to the counted part of a name, and quotes the whole.
func checkName(what, counted, name string) error {
	const rule = "a name is 1 to 128 bytes of A-Z a-z 0-9 . _ - and does not start with a dot"
	switch {
	case name == "":
		return fmt.Errorf("%s name is empty: %s", what, rule)
	case len(counted) > MaxName:
		return fmt.Errorf("%s name %q… has %d bytes, above the limit of %d: %s", what, name[:24], len(counted), MaxName, rule)
	case name[0] == '.':
		return fmt.Errorf("%s name %q starts with a dot: %s", what, name, rule)
	}
	for i, r := range name {
		if !nameRune(r) {
			return fmt.Errorf("%s name %q has %q at byte %d: %s", what, name, r, i, rule)
		}
	}
	return nil
}

func nameRune(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("._-", r)
}

// CheckLabel tells what is wrong with the name that a client gives to itself or to an
// attachment. It goes to logs, figures and terminals, so it must be printable.
func CheckLabel(label string) error { return checkText("client name", label, MaxName) }

// MaxNote is how many bytes the note of an attachment may have.
const MaxNote = 512

// CheckNote is CheckLabel for notes, which may be longer.
func CheckNote(text string) error { return checkText("note", text, MaxNote) }

// checkText tells what is wrong with a text that goes to terminals.
func checkText(what, text string, limit int) error {
	if len(text) > limit {
		return fmt.Errorf("%s of %d bytes is above the limit of %d", what, len(text), limit)
	}
	if !utf8.ValidString(text) {
		return fmt.Errorf("%s %q is not UTF-8", what, text)
	}
	for i, r := range text {
		if !unicode.IsPrint(r) {
			return fmt.Errorf("%s %q has %q at byte %d: use printable characters", what, text, r, i)
		}
	}
	return nil
}
