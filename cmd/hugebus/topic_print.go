package main

import (
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/hugebus/hugebus/client"
	"github.com/hugebus/hugebus/shm"
)

// table lays lines of cells, separated by tabs, out in columns.
func table(lines []string) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 8, 2, ' ', 0)
	for _, line := range lines {
		fmt.Fprintln(w, line) // a strings.Builder takes everything
	}
	_ = w.Flush()
	var out strings.Builder
	for line := range strings.Lines(b.String()) {
		out.WriteString(strings.TrimRight(line, " \n") + "\n")
	}
	return out.String()
}

// row joins the cells of a line.
func row(cells ...any) string {
	words := make([]string, len(cells))
	for i, c := range cells {
		words[i] = fmt.Sprint(c)
		if words[i] == "" {
			words[i] = "-"
		}
	}
	return strings.Join(words, "\t")
}

func topicTable(topics []client.TopicInfo) string {
	if len(topics) == 0 {
		return "no topics: make one with `hugebus topic create NAME`\n"
	}
	lines := []string{row("NAME", "CAPACITY", "PAGES", "MAX-PAYLOAD", "PUBLISHERS", "SUBSCRIBERS", "GROUPS", "TAIL", "OWNER")}
	for _, t := range topics {
		lines = append(lines, row(t.Name, shm.FormatSize(t.Capacity), t.Pages, t.MaxPayload,
			of(t.PublisherCount, t.PublisherSlots), of(t.SubscriberCount, t.SubscriberSlots), of(t.GroupCount, t.GroupSlots),
			t.Tail, t.OwnerUID))
	}
	return table(lines)
}

func of(n, slots int) string { return fmt.Sprintf("%d/%d", n, slots) }

// topicPage is all about one topic.
func topicPage(t client.TopicInfo) string {
	parts := []string{table(topicFacts(t))}
	if len(t.Publishers) > 0 {
		parts = append(parts, "publishers\n"+table(publisherRows(t.Publishers)))
	}
	if len(t.Subscribers) > 0 {
		parts = append(parts, "subscribers\n"+table(attachmentRows(t.Subscribers)))
	}
	for _, g := range t.Groups {
		parts = append(parts, groupPart(g))
	}
	return strings.Join(parts, "\n")
}

func topicFacts(t client.TopicInfo) []string {
	kind := "any number of publishers"
	if t.Exclusive {
		kind = "one publisher at a time"
	}
	lock := ""
	if t.Locked {
		lock = ", locked"
	}
	lines := []string{
		row("topic", t.Name+" ("+kind+")"),
		row("id", t.ID),
		row("created", t.Created.Format(time.RFC3339)+" by uid "+fmt.Sprint(t.OwnerUID)),
		row("capacity", shm.FormatSize(t.Capacity)),
		row("pages", fmt.Sprintf("%s (%s each%s)", t.Pages, shm.FormatSize(t.PageSize), lock)),
		row("memory", fmt.Sprintf("%d bytes in all", t.MemoryBytes)),
		row("max payload", fmt.Sprintf("%d bytes", t.MaxPayload)),
		row("slots", fmt.Sprintf("%s publishers, %s subscribers, %s groups", of(t.PublisherCount, t.PublisherSlots),
			of(t.SubscriberCount, t.SubscriberSlots), of(t.GroupCount, t.GroupSlots))),
		row("positions", fmt.Sprintf("%d (earliest still held) to %d (tail)", t.Earliest, t.Tail)),
		row("rate", rate(t.FramesPerSecond, t.BytesPerSecond)),
		row("repairs", fmt.Sprintf("%d (%d bytes skipped)", t.Repairs, t.RepairedBytes)),
	}
	if t.StuckClaims > 0 {
		lines = append(lines, row("stuck claims", fmt.Sprintf("%d: see CLAIM below, and `hugebus topic unstick %s`", t.StuckClaims, t.Name)))
	}
	if t.RevokedClaims > 0 {
		lines = append(lines, row("revoked claims", t.RevokedClaims))
	}
	if t.DeadLetters > 0 {
		lines = append(lines, row("dead letters", t.DeadLetters))
	}
	if t.Violations > 0 {
		lines = append(lines, row("violations", fmt.Sprintf("%d impossible values were seen, %d subscribers expelled: the log says whose", t.Violations, t.Expulsions)))
	}
	return lines
}

func rate(frames, bytes float64) string {
	return fmt.Sprintf("%.0f frames/s, %.1f MB/s", frames, bytes/1e6)
}

// publisherRows lists publishers. Few have a claim open at any moment.
func publisherRows(all []client.AttachmentInfo) []string {
	claims := false
	for _, a := range all {
		claims = claims || a.ClaimedBytes > 0
	}
	lines := []string{row(extend([]any{"  SLOT", "NAME", "UID", "PID", "COMMAND", "FRAMES", "FRAMES/S"}, claims, "CLAIM")...)}
	for _, a := range all {
		claim := ""
		if a.ClaimedBytes > 0 {
			claim = fmt.Sprintf("%d bytes at %d", a.ClaimedBytes, a.Position)
		}
		if a.StuckFor > 0 {
			claim += fmt.Sprintf(", stuck for %v (%s)", a.StuckFor.Round(time.Millisecond), a.Stage)
		}
		cells := []any{fmt.Sprintf("  %d", a.Slot), a.Name, a.UID, a.PID, a.Command, a.Frames, fmt.Sprintf("%.0f", a.FramesPerSecond)}
		lines = append(lines, row(extend(cells, claims, claim)...))
	}
	return lines
}

// attachmentRows lists subscribers or members, with the columns that at least one of them has something in.
func attachmentRows(all []client.AttachmentInfo) []string {
	policy, gaps, notes := false, false, false
	for _, a := range all {
		policy = policy || a.Policy != ""
		gaps = gaps || a.Gaps > 0 || a.Evicted || a.Expelled != ""
		notes = notes || a.Note != ""
	}
	head := []any{"  SLOT", "NAME", "UID", "PID", "COMMAND", "POSITION", "LAG", "FRAMES", "FRAMES/S", "MB/S"}
	lines := []string{row(extend(head, policy, "POLICY", gaps, "GAPS", notes, "NOTE")...)}
	for _, a := range all {
		cells := []any{fmt.Sprintf("  %d", a.Slot), a.Name, a.UID, a.PID, a.Command, a.Position, a.LagBytes, a.Frames,
			fmt.Sprintf("%.0f", a.FramesPerSecond), fmt.Sprintf("%.1f", a.BytesPerSecond/1e6)}
		if a.Joining {
			a.Policy += " (joining)"
		}
		missed := fmt.Sprintf("%d (%d bytes)", a.Gaps, a.GapBytes)
		if a.Evicted {
			missed += ", evicted"
		}
		if a.Expelled != "" {
			missed += ", expelled: " + a.Expelled
		}
		lines = append(lines, row(extend(cells, policy, a.Policy, gaps, missed, notes, a.Note)...))
	}
	return lines
}

// extend appends the cells whose condition holds: pairs of a condition and a cell.
func extend(cells []any, pairs ...any) []any {
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i].(bool) {
			cells = append(cells, pairs[i+1])
		}
	}
	return cells
}

func groupPart(g client.GroupInfo) string {
	head := fmt.Sprintf("group %s: position %d, %d bytes behind, %d ranges left unfinished, %d redelivered",
		g.Name, g.Position, g.LagBytes, g.UnfinishedRanges, g.Redelivered)
	if len(g.Members) == 0 {
		return head + ", no members, closes " + g.Closes.Format(time.RFC3339) + "\n"
	}
	return head + "\n" + table(attachmentRows(g.Members))
}
