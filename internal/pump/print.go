package pump

import (
	"bufio"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"unicode/utf8"

	"github.com/hugebus/hugebus/ring"
)

// A Format says how frames are written.
type Format string

// The formats.
const (
	// FormatLine is the payload and a newline.
	FormatLine Format = "line"
	// FormatHex is the payload in hexadecimal digits and a newline.
	FormatHex Format = "hex"
	// FormatJSON is an object in a line: position, source, redelivered (if above 0) and payload, or payload_base64 if
	// it is not UTF-8. What was missed is an object too: {"gap":{"from":…,"to":…,"bytes":…}}.
	FormatJSON Format = "json"
	// FormatRaw is the payload and nothing else.
	FormatRaw Format = "raw"
)

// Formats are all formats, the default first.
var Formats = []Format{FormatLine, FormatHex, FormatJSON, FormatRaw}

// ParseFormat is the format of this name.
func ParseFormat(name string) (Format, error) {
	for _, f := range Formats {
		if string(f) == name {
			return f, nil
		}
	}
	return "", fmt.Errorf("unknown format %q: use line, hex, json or raw", name)
}

// outBuffer is how many bytes are written at once, if more frames are ready: thousands of small frames for a system call.
const outBuffer = 1 << 20

// A printer writes frames in a format.
type printer struct {
	w      *bufio.Writer
	format Format
	digits []byte
	json   *json.Encoder
}

func newPrinter(w io.Writer, format Format) *printer {
	p := &printer{w: bufio.NewWriterSize(w, outBuffer), format: format}
	p.json = json.NewEncoder(p.w)
	p.json.SetEscapeHTML(false)
	return p
}

// jsonFrame is a frame as an object.
type jsonFrame struct {
	Position    uint64  `json:"position"`
	Source      uint16  `json:"source"`
	Redelivered uint16  `json:"redelivered,omitempty"`
	Payload     *string `json:"payload,omitempty"`
	Base64      []byte  `json:"payload_base64,omitempty"`
}

type jsonGap struct {
	Gap struct {
		From  uint64 `json:"from"`
		To    uint64 `json:"to"`
		Bytes int64  `json:"bytes"`
	} `json:"gap"`
}

type jsonEvicted struct {
	Evicted bool `json:"evicted"`
}

func (p *printer) frame(f ring.Frame) error {
	var err error
	switch p.format {
	case FormatJSON:
		o := jsonFrame{Position: uint64(f.Position), Source: f.Source, Redelivered: f.Redelivered}
		if utf8.Valid(f.Payload) {
			text := string(f.Payload)
			o.Payload = &text
		} else {
			o.Base64 = f.Payload
		}
		return p.json.Encode(o)
	case FormatHex:
		p.digits = append(hex.AppendEncode(p.digits[:0], f.Payload), '\n')
		_, err = p.w.Write(p.digits)
	case FormatRaw:
		_, err = p.w.Write(f.Payload)
	default:
		if _, err = p.w.Write(f.Payload); err == nil {
			err = p.w.WriteByte('\n')
		}
	}
	return err
}

// gap writes what was missed where the format has a place for it.
func (p *printer) gap(g *ring.GapError) error {
	if p.format != FormatJSON {
		return nil
	}
	var o jsonGap
	o.Gap.From, o.Gap.To, o.Gap.Bytes = uint64(g.From), uint64(g.To), g.To.Sub(g.From)
	return p.json.Encode(o)
}

func (p *printer) evicted() error {
	if p.format != FormatJSON {
		return nil
	}
	return p.json.Encode(jsonEvicted{Evicted: true})
}
