package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/hugebus/hugebus/bench/internal/host"
	"github.com/hugebus/hugebus/bench/internal/report"
)

// output says where results go.
type output struct {
	json bool
	csv  string
	html string
	hgrm string
}

func (o *output) register(f *pflag.FlagSet) {
	f.BoolVar(&o.json, "json", false, "write the results as a JSON array")
	f.StringVar(&o.csv, "csv", "", "write the results to this file too, as CSV")
	f.StringVar(&o.html, "html", "", "write a report with charts to this file too: one page that needs nothing else")
	f.StringVar(&o.hgrm, "hgrm", "", "write the percentile distribution of each latency into this folder too, as HdrHistogram's .hgrm")
}

// check tries the files before anything is measured.
func (o *output) check() error {
	for _, f := range []struct{ flag, path string }{{"--csv", o.csv}, {"--html", o.html}} {
		if f.path == "" {
			continue
		}
		dir := filepath.Dir(f.path)
		if info, err := os.Stat(dir); err != nil || !info.IsDir() {
			return fmt.Errorf("%s %s: there is no folder %s: make it first", f.flag, f.path, dir)
		}
		if info, err := os.Stat(f.path); err == nil && info.IsDir() {
			return fmt.Errorf("%s %s is a folder: name a file", f.flag, f.path)
		}
	}
	return nil
}

// write writes all that was asked for: files first, then the standard output.
func (o *output) write(cmd *cobra.Command, d *report.Document) error {
	if err := o.files(cmd.ErrOrStderr(), d); err != nil {
		return err
	}
	out := cmd.OutOrStdout()
	if o.json {
		return report.WriteJSON(out, d.Results())
	}
	for i, s := range d.Sections {
		if len(d.Sections) > 1 {
			fmt.Fprintf(out, "%s%s\n\n", strings.Repeat("\n", min(i, 1)), s.Name)
		}
		if err := report.WriteTable(out, s.Results); err != nil {
			return err
		}
		fmt.Fprintln(out)
		for _, note := range s.Notes {
			fmt.Fprintln(out, note)
		}
	}
	return nil
}

func (o *output) files(log io.Writer, d *report.Document) error {
	if o.csv != "" {
		if err := report.WriteFile(o.csv, func(w io.Writer) error { return report.WriteCSV(w, d.Results()) }); err != nil {
			return fmt.Errorf("--csv: %w", err)
		}
		fmt.Fprintln(log, "bench: wrote", o.csv)
	}
	if o.html != "" {
		if err := report.WriteFile(o.html, d.WriteHTML); err != nil {
			return fmt.Errorf("--html: %w", err)
		}
		fmt.Fprintln(log, "bench: wrote", o.html)
	}
	if o.hgrm != "" {
		names, err := report.WriteHGRMs(o.hgrm, d.Results())
		if err != nil {
			return fmt.Errorf("--hgrm: %w", err)
		}
		fmt.Fprintf(log, "bench: wrote %d files to %s\n", len(names), o.hgrm)
	}
	return nil
}

// publish hands what a subcommand found out to where it goes: to "all", if that runs it, or
// out.
func (c *common) publish(cmd *cobra.Command, run *run, results []report.Result, notes ...string) error {
	section := report.Section{Name: cmd.Name() + ": " + cmd.Short, Results: results, Notes: notes}
	if all := gathering(cmd.Context()); all != nil {
		all.add(section, run.warnings)
		return nil
	}
	return c.output.write(cmd, document("hugebus bench "+cmd.Name(), run.warnings, section))
}

// document puts a report together.
func document(title string, warnings []string, sections ...report.Section) *report.Document {
	return &report.Document{
		Title: title, Command: commandLine(os.Args[1:]), When: time.Now(),
		Machine: host.Describe(), Warnings: warnings, Sections: sections,
	}
}

// commandLine is how the program is called with args, for a shell.
func commandLine(args []string) string {
	words := []string{"go run ./bench"}
	for _, a := range args {
		if strings.ContainsAny(a, " \t'\"$`\\*?;&|<>()") || a == "" {
			a = "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
		}
		words = append(words, a)
	}
	return strings.Join(words, " ")
}
