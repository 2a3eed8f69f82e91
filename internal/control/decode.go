package control

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// DecodeRequest takes a packet from a client apart. Whatever is wrong with it is an
// *Error with a code and a message that say so; the request then has the id, where one
// could be read, so that it can be answered.
func DecodeRequest(packet []byte) (Request, error) {
	var r Request
	if err := decodeStrict(packet, &r); err != nil {
		var loose struct {
			ID uint64 `json:"id"`
		}
		// Best effort: with no id the answer carries 0.
		_ = json.Unmarshal(packet, &loose)
		return Request{ID: loose.ID}, Errorf(CodeMalformed, "malformed request: %v", err)
	}
	if r.ID == 0 {
		return r, Errorf(CodeMalformed, "malformed request: id is missing or 0")
	}
	if r.Op == "" {
		return r, Errorf(CodeMalformed, "malformed request: op is missing")
	}
	return r, nil
}

// DecodeBody takes a request's body apart, strictly: unknown keys are errors, because
// a key that the broker does not know would be a wish that it silently ignores.
func DecodeBody(r Request, into any) error {
	body := r.Body
	if len(body) == 0 {
		body = []byte("{}")
	}
	if err := decodeStrict(body, into); err != nil {
		return Errorf(CodeMalformed, "malformed body of %s: %v", r.Op, err)
	}
	return nil
}

// DecodeMessage takes a packet from the broker apart. Keys that it does not know are
// ignored: a newer broker may say more.
func DecodeMessage(packet []byte) (Message, error) {
	var m Message
	if err := json.Unmarshal(packet, &m); err != nil {
		return Message{}, Errorf(CodeMalformed, "malformed message: %v", explain(err))
	}
	if m.ID == 0 && m.Event == "" && m.Error == nil {
		return Message{}, Errorf(CodeMalformed, "malformed message: neither id, event nor error")
	}
	return m, nil
}

// Decode takes the body of a message from the broker apart.
func (m Message) Decode(into any) error {
	if len(m.Body) == 0 {
		return Errorf(CodeMalformed, "malformed message: body is missing")
	}
	if err := json.Unmarshal(m.Body, into); err != nil {
		return Errorf(CodeMalformed, "malformed body: %v", explain(err))
	}
	return nil
}

func decodeStrict(data []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return explain(err)
	}
	if _, err := d.Token(); err != io.EOF {
		return errors.New("more than one JSON value in one packet")
	}
	return nil
}

// explain rewords what encoding/json says, which speaks of Go types to somebody who
// may have written the message in another language.
func explain(err error) error {
	var wrong *json.UnmarshalTypeError
	var syntax *json.SyntaxError
	switch {
	case errors.As(err, &wrong) && wrong.Field != "":
		return fmt.Errorf("%s cannot be a JSON %s", wrong.Field, wrong.Value)
	case errors.As(err, &wrong):
		return fmt.Errorf("a JSON object is expected, not %s", wrong.Value)
	case errors.As(err, &syntax):
		return fmt.Errorf("not JSON at byte %d: %v", syntax.Offset, err)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return errors.New("not JSON: it ends too early")
	}
	return err
}

// jsonLoose decodes what another release may have written: unknown keys are ignored.
func jsonLoose(data []byte, into any) error {
	if len(data) == 0 {
		return errors.New("it is empty")
	}
	if err := json.Unmarshal(data, into); err != nil {
		return explain(err)
	}
	return nil
}
