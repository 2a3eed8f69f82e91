package broker

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestOperationsPageIsTrue parses the page's example, and looks for every figure.
func TestOperationsPageIsTrue(t *testing.T) {
	text, err := os.ReadFile("../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	_, example, ok := strings.Cut(string(text), "```yaml\n")
	if !ok {
		t.Fatal("no example")
	}
	example, _, _ = strings.Cut(example, "```")
	// The group need not exist here.
	c, err := ParseConfig("operations.md", []byte(strings.ReplaceAll(example, "traders", "0")))
	if err != nil {
		t.Fatal(err)
	}
	if c.Defaults.Capacity != DefaultCapacity || c.Quotas.Clients != DefaultClients || c.Quotas.Topics != DefaultTopics ||
		c.Quotas.PerUser.Clients != DefaultClientsPerUser || c.Quotas.Attachments != DefaultAttachments || c.GroupLinger != DefaultGroupLinger || c.AdoptGrace != DefaultAdoptGrace || c.StuckClaim != DefaultStuckClaim ||
		c.Defaults.MaxRedeliveries != DefaultMaxRedeliveries || c.SocketMode != DefaultSocketMode {
		t.Errorf("the example's defaults are not those of the code: %+v", c)
	}
	name := regexp.MustCompile(`hugebus_[a-z_]+`)
	for _, d := range allDescs {
		if n := name.FindString(d.String()); !strings.Contains(string(text), "`"+n+"`") {
			t.Errorf("the page does not name %s", n)
		}
	}
}
