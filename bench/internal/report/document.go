package report

import (
	"io"
	"os"
	"time"
)

// A Document is what one invocation found out, with what a reader needs to judge it and
// to do it again.
type Document struct {
	Title string
	// Command is how it was called.
	Command string
	// When it was measured.
	When time.Time
	// Machine says what it was measured on.
	Machine []Fact
	// Warnings say what may have spoiled the measurement.
	Warnings []string
	Sections []Section
}

// A Section is what one subcommand found out.
type Section struct {
	Name    string
	Results []Result
	// Notes are sentences below the table: how it was measured, and what was left out.
	Notes []string
}

// A Fact is one line about the machine.
type Fact struct{ Name, Value string }

// Results are those of all sections.
func (d *Document) Results() []Result {
	var all []Result
	for _, s := range d.Sections {
		all = append(all, s.Results...)
	}
	return all
}

// WriteFile makes a file of what write writes. A file that is there already is replaced
// when all is written.
func WriteFile(path string, write func(io.Writer) error) error {
	draft := path + ".new"
	f, err := os.Create(draft)
	if err != nil {
		return err
	}
	err = write(f)
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = os.Rename(draft, path)
	}
	if err != nil {
		_ = os.Remove(draft) // err matters more
	}
	return err
}
